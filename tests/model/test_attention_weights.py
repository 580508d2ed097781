"""What the encoder's attention is said to listen to is what it listens to."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.model.small import batch_of, evaluate_as
from trajpred.errors import DataError
from trajpred.forecast import Attention
from trajpred.model import StarSceneEncoder
from trajpred.model.token_graph import TokenGraph
from trajpred.scenario import Scenario
from trajpred.training.lit_forecaster import LitForecaster


def told(model: LitForecaster, scenarios: list[Scenario]) -> list[Attention]:
    return model.forecaster.encoder.attention_weights(batch_of(scenarios))


@torch.inference_mode()
def first_layer(model: LitForecaster, scenario: Scenario, agent: int) -> np.ndarray:
    """``[H, N]``: the first layer's softmax for one receiver, written down from its equation."""
    encoder, batch = model.forecaster.encoder, batch_of([scenario])
    graph, nodes, lane = TokenGraph.of(batch), batch["agent"], batch["lane"]
    x = torch.cat(
        (
            encoder.agent(nodes.history, nodes.object_type),
            encoder.lane(lane.points, lane.kind, lane.is_intersection, lane.marks),
        )
    )
    attention, bias = encoder.layers[0].attention, encoder.bias(graph.features)
    q, k = (layer(x).numpy().reshape(len(x), 4, 8) for layer in (attention.query, attention.key))
    found = np.zeros((4, len(x)))
    into = np.flatnonzero(graph.index[1].numpy() == agent)
    senders = graph.index[0].numpy()[into]
    for head in range(4):
        score = k[senders, head] @ q[agent, head] / np.sqrt(8) + bias.numpy()[into, head]
        found[head, senders] = np.exp(score) / np.exp(score).sum()
    return found


def test_the_first_layer_is_its_equation(model: LitForecaster, real: list[Scenario]) -> None:
    for scenario in real:
        [one] = told(model, [scenario])
        for agent in (0, len(one.track_id) - 1):
            np.testing.assert_allclose(
                one.weight[0, :, agent], first_layer(model, scenario, agent), atol=2e-6
            )


def test_shares_sum_to_one_and_batches_do_not_mix(model: LitForecaster, real: list[Scenario]) -> None:
    together = told(model, real)
    for scenario, one in zip(real, together, strict=True):
        A, L = len(one.track_id), len(one.lane)
        assert one.scenario_id == scenario.scenario_id and one.weight.shape == (2, 4, A, A + L)
        np.testing.assert_allclose(one.weight.sum(-1), 1, atol=1e-5)
        assert (np.einsum("nhaa->nha", one.weight[..., :A]) == 0).all(), "nobody hears itself"
        [alone] = told(model, [scenario])
        np.testing.assert_allclose(one.weight, alone.weight, atol=1e-5)
        shares = one.shares(scenario.focal_id)
        row = one.track_id.tolist().index(scenario.focal_id)
        np.testing.assert_allclose(shares, one.weight[:, :, row].mean((0, 1)))
    with pytest.raises(DataError, match="no agent of the model"):
        one.shares("nobody")


def test_both_evaluations_listen_alike(model: LitForecaster, real: list[Scenario]) -> None:
    dense, edges = (told(evaluate_as(model, how), real[:2]) for how in ("dense", "edges"))
    for one, other in zip(dense, edges, strict=True):
        np.testing.assert_allclose(one.weight, other.weight, atol=1e-5)


def test_lanes_are_rows_of_the_scenario_s_map(model: LitForecaster, real: list[Scenario]) -> None:
    """The polyline found by its row is the one whose middle the model was given."""
    batch = batch_of(real)
    middles = (batch.origin[batch["lane"].batch] + batch["lane"].position).numpy()
    at = 0
    for scenario, one in zip(real, told(model, real), strict=True):
        lanes, seen = scenario.map, set()
        for row in one.lane.tolist():
            if row < len(lanes):
                line = lanes.centerline[row][:, :2]
            else:
                edges = (lanes.crossing_edge1[row - len(lanes)], lanes.crossing_edge2[row - len(lanes)])
                line = np.stack([(a + b) / 2 for a, b in zip(*(e[[0, -1], :2] for e in edges), strict=True)])
            fine = np.concatenate([np.linspace(a, b, 50) for a, b in pairwise(line)])
            assert np.hypot(*(fine - middles[at]).T).min() < 0.5
            seen.add(row)
            at += 1
        assert len(seen) == len(one.lane)
    assert at == len(middles)


def test_listening_changes_nothing(model: LitForecaster, real: list[Scenario]) -> None:
    batch = batch_of(real)
    with torch.inference_mode():
        before = model.forecaster(batch).trajectory
        model.forecaster.encoder.attention_weights(batch)
        assert torch.equal(model.forecaster(batch).trajectory, before)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_other_encoders_are_refused(real: list[Scenario]) -> None:
    encoder = StarSceneEncoder(dim=32, heads=4).eval()
    with pytest.raises(DataError, match="StarSceneEncoder does not report attention"):
        encoder.attention_weights(batch_of(real[:1]))
