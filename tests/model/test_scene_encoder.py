"""The scene encoder alone: its graph, its reach, its attention read-out, and loading without a decoder."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.model.small import batch_of, checkpoint_of, evaluate_as, small_config
from trajpred.errors import DataError
from trajpred.features.channels import HISTORY, VALID
from trajpred.model import SceneEncoder
from trajpred.model.token_encoder import AgentEncoder, TokenEncoder
from trajpred.model.token_graph import TokenGraph
from trajpred.scenario import Scenario
from trajpred.training.lit_forecaster import LitForecaster


def test_an_encoder_loads_from_a_checkpoint_without_its_decoder(
    model: LitForecaster, real: list[Scenario], tmp_path: Path
) -> None:
    path, batch = checkpoint_of(model, tmp_path / "a.ckpt", "forecaster.encoder."), batch_of(real[:1])
    encoder = SceneEncoder.from_checkpoint(path)
    assert not encoder.training
    assert torch.equal(encoder.encode(batch).nodes, model.forecaster.encoder.encode(batch).nodes)
    checkpoint_of(model, path, "forecaster.decoder.")
    with pytest.raises(DataError, match="do not fit"):
        SceneEncoder.from_checkpoint(path)
    config = small_config()
    config["encoder"]["init_args"] |= {"layers": 3, "norm": "pre"}
    encoder = SceneEncoder.from_checkpoint(checkpoint_of(LitForecaster.build(config), path))
    assert len(encoder.layers) == 3 and encoder.layers[0].pre


@pytest.mark.parametrize("steps", [1, 2, 19, 50])
def test_steps_that_were_never_observed_change_nothing_where_they_are_masked(steps: int) -> None:
    """Truth: the same history without the steps; with all steps both ways read the same."""
    masked, zeros = AgentEncoder(32, "masked").double(), AgentEncoder(32, "zeros").double()
    zeros.load_state_dict(masked.state_dict())
    history, types = torch.randn(6, steps, len(HISTORY), dtype=torch.float64), torch.arange(6)
    history[..., VALID] = 1.0
    torch.testing.assert_close(masked(history, types), zeros(history, types))
    history[0, : steps // 2] = history[1, steps // 3 : -1] = 0.0
    for more in (1, 7, 30):
        longer = torch.cat((torch.zeros(6, more, len(HISTORY)).double(), history), 1)
        torch.testing.assert_close(masked(longer, types), masked(history, types))
    assert not torch.allclose(zeros(longer, types), zeros(history, types))
    assert masked(torch.zeros_like(history), types).isfinite().all(), "padding of a bundle"


@pytest.mark.parametrize("layers", [1, 2])
def test_a_token_depends_on_what_lies_within_as_many_edges_as_layers(
    real: list[Scenario], layers: int
) -> None:
    encoder, batch, source = SceneEncoder(dim=32, heads=4, layers=layers).eval(), batch_of(real[-1:]), 0
    index = TokenGraph.of(batch).index
    with torch.inference_mode():
        before = encoder.encode(batch).nodes
        batch["agent"].history[source] += 1.0
        changed = (encoder(batch).nodes - before).abs().amax(1) > 1e-6
    reached = torch.zeros(len(before), dtype=torch.bool)
    reached[source] = True
    for _ in range(layers):
        reached[index[1, reached[index[0]]]] = True
    assert 1 < reached.sum() < len(reached) and torch.equal(changed, reached)


@pytest.mark.parametrize("steps", [1, 2, 5, 50])
def test_agent_encoder_accepts_any_history_and_uses_its_last_step(steps: int) -> None:
    encoder = AgentEncoder(32).eval()
    channels = encoder.halve[0].conv.in_channels
    history, kind = torch.randn(3, steps, channels, requires_grad=True), torch.tensor([0, 1, 9])
    out: Tensor = encoder(history, kind)
    (gradient,) = torch.autograd.grad((out * torch.randn(3, 32)).sum(), history)
    assert out.shape == (3, 32) and (gradient[:, -1].abs().sum(-1) > 0).all()
    other = encoder(history, torch.tensor([1, 1, 9]))
    assert ((other - out).abs().amax(1) > 0).tolist() == [True, False, False]


def test_reported_attention_sums_to_one_and_is_that_of_either_evaluation(
    model: LitForecaster, real: list[Scenario]
) -> None:
    encoder, batch = model.forecaster.encoder, batch_of(real)
    before = encoder.encode(batch).nodes
    dense, edges = (
        evaluate_as(model, x).forecaster.encoder.attention_weights(batch) for x in ("dense", "edges")
    )
    assert torch.equal(evaluate_as(model, "dense").forecaster.encoder.encode(batch).nodes, before)
    assert not any(module._forward_pre_hooks for module in model.modules())
    for scenario, one, other in zip(real, dense, edges, strict=True):
        A, L = len(one.track_id), len(one.lane)
        assert one.scenario_id == scenario.scenario_id and one.weight.shape == (2, 4, A, A + L)
        np.testing.assert_allclose(one.weight, other.weight, atol=1e-5)
        np.testing.assert_allclose(one.weight.sum(-1), 1, atol=1e-5)
        assert (np.einsum("nhaa->nha", one.weight[..., :A]) == 0).all(), "no self edges"
    row = one.track_id.tolist().index(scenario.focal_id)
    np.testing.assert_allclose(one.shares(scenario.focal_id), one.weight[:, :, row].mean((0, 1)))
    with pytest.raises(DataError, match="nobody"):
        one.shares("nobody")


def test_reported_lanes_are_rows_of_the_scenario_s_map(model: LitForecaster, real: list[Scenario]) -> None:
    batch = batch_of(real)
    middles = iter((batch.origin[batch["lane"].batch] + batch["lane"].position).numpy())
    for scenario, one in zip(real, model.forecaster.encoder.attention_weights(batch), strict=True):
        lanes = scenario.map
        for row in one.lane.tolist():
            if row < len(lanes):
                line = lanes.centerline[row][:, :2]
            else:
                edges = (lanes.crossing_edge1[row - len(lanes)], lanes.crossing_edge2[row - len(lanes)])
                line = np.stack([(a + b) / 2 for a, b in zip(*(e[[0, -1], :2] for e in edges), strict=True)])
            fine = np.concatenate([np.linspace(a, b, 50) for a, b in pairwise(line)])
            assert np.hypot(*(fine - next(middles)).T).min() < 0.5
        assert len(set(one.lane.tolist())) == len(one.lane)
    assert next(middles, None) is None


def test_encoders_without_attention_read_out_say_so(real: list[Scenario]) -> None:
    class Own(TokenEncoder):
        pass

    assert not Own().has_attention
    with pytest.raises(DataError, match="Own does not report attention"):
        Own().attention_weights(batch_of(real[:1]))
