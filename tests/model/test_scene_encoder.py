"""The scene encoder alone: its graph, its reach, its attention read-out, and loading without a decoder."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.model.small import batch_of, evaluate_as
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.features.config import HISTORY, VALID
from trajpred.model import SceneEncoder
from trajpred.model.scene_encoder import AgentEncoder, TokenEncoder, TokenGraph
from trajpred.training.lit_forecaster import LitForecaster


@pytest.mark.parametrize("steps", [1, 2, 19, 50])
def test_steps_that_were_never_observed_change_nothing_where_they_are_masked(steps: int) -> None:
    """Truth: the same history without the steps; with all steps both ways read the same."""
    masked = AgentEncoder(32, "masked").double()
    zeros = AgentEncoder(32, "zeros").double()
    zeros.load_state_dict(masked.state_dict())
    history = torch.randn(6, steps, len(HISTORY), dtype=torch.float64)
    types = torch.arange(6)
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
    encoder = SceneEncoder(dim=32, heads=4, layers=layers).eval()
    batch = batch_of(real[-1:])
    source = 0
    index = TokenGraph.of(batch).index
    with torch.inference_mode():
        before = encoder.encode(batch).nodes
        batch["agent"].history[source] += 1.0
        changed = (encoder.encode(batch).nodes - before).abs().amax(1) > 1e-6
    reached = torch.zeros(len(before), dtype=torch.bool)
    reached[source] = True
    for _ in range(layers):
        reached[index[1, reached[index[0]]]] = True
    assert 1 < reached.sum() < len(reached)
    assert torch.equal(changed, reached)


def test_reported_attention_sums_to_one_and_is_that_of_either_evaluation(
    model: LitForecaster, real: list[Scenario]
) -> None:
    encoder = model.forecaster.encoder
    batch = batch_of(real)
    before = encoder.encode(batch).nodes
    dense = evaluate_as(model, "dense").forecaster.encoder.attention_weights(batch)
    edges = evaluate_as(model, "edges").forecaster.encoder.attention_weights(batch)
    assert torch.equal(evaluate_as(model, "dense").forecaster.encoder.encode(batch).nodes, before)
    assert not any(module._forward_pre_hooks for module in model.modules())
    for scenario, attention, of_edges in zip(real, dense, edges, strict=True):
        weight = attention.weight
        A = len(attention.track_id)
        L = len(attention.lane)
        assert attention.scenario_id == scenario.scenario_id
        assert weight.shape == (2, 4, A, A + L)
        np.testing.assert_allclose(weight, of_edges.weight, atol=1e-5)
        np.testing.assert_allclose(weight.sum(-1), 1, atol=1e-5)
        assert (np.einsum("nhaa->nha", weight[..., :A]) == 0).all(), "no self edges"


def test_reported_lanes_are_rows_of_the_scenario_s_map(model: LitForecaster, real: list[Scenario]) -> None:
    batch = batch_of(real)
    middles = batch.origin[batch["lane"].batch] + batch["lane"].position
    scene_of = batch["lane"].batch
    weights = model.forecaster.encoder.attention_weights(batch)
    for scene, (scenario, attention) in enumerate(zip(real, weights, strict=True)):
        rows = attention.lane.tolist()
        assert len(set(rows)) == len(rows)
        for row, middle in zip(rows, middles[scene_of == scene].numpy(), strict=True):
            line = middle_line(scenario.map, row)
            fine = np.concatenate([np.linspace(a, b, 50) for a, b in pairwise(line)])
            assert np.linalg.norm(fine - middle, axis=1).min() < 0.5


def middle_line(lanes: LaneMap, row: int) -> np.ndarray:
    """Return the centreline of a lane, or the line halfway between the edges of a crossing."""
    if row < len(lanes):
        return lanes.centerline[row][:, :2]
    first = lanes.crossing_edge1[row - len(lanes)]
    second = lanes.crossing_edge2[row - len(lanes)]
    return (first[[0, -1], :2] + second[[0, -1], :2]) / 2


def test_encoders_without_attention_read_out_say_so(real: list[Scenario]) -> None:
    class MyEncoder(TokenEncoder):
        pass

    assert not MyEncoder().has_attention
    with pytest.raises(DataError, match="MyEncoder does not report attention"):
        MyEncoder().attention_weights(batch_of(real[:1]))
