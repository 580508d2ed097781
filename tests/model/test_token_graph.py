"""The edges of a batch's tokens, and those from any poses to the tokens around them."""

from __future__ import annotations

import pytest
import torch

from tests.model.small import batch_of
from trajpred.data.geometry import Pose
from trajpred.data.scenario import Scenario
from trajpred.model.token_graph import MODE_EDGE_KINDS, TokenGraph, fade_out, radius_edges


def test_attention_fades_out_towards_the_radius() -> None:
    distance = torch.linspace(0, 15, 15001)
    weight = fade_out(distance, 15.0).exp()
    assert (weight[:12001] == 1).all()
    assert weight[-1] < 2e-6
    assert weight.diff().abs().max() < 4e-4


@pytest.mark.parametrize("per_agent", [1, 6])
def test_a_mode_is_connected_to_its_agent_and_to_its_scene_within_the_radius(
    real: list[Scenario], per_agent: int
) -> None:
    batch = batch_of(real)
    graph = TokenGraph.of(batch)
    agent = batch["agent"]
    owner = torch.arange(graph.num_agents).repeat_interleave(per_agent)
    shifted = agent.position[owner] + 30 * torch.randn(len(owner), 2)
    anchors = Pose(shifted, agent.heading[owner])
    index, features, fading = radius_edges(graph, anchors, 30.0, owner, graph.agents.repeat(per_agent))
    near = torch.linalg.vector_norm(shifted[:, None] - graph.poses.position, dim=-1) <= 30.0
    expected = near & (agent.batch[owner][:, None] == graph.scene)
    expected[torch.arange(len(owner)), owner] = True
    connected = torch.zeros_like(expected)
    connected[index[1], index[0]] = True
    assert torch.equal(connected, expected)
    assert index.shape[1] == expected.sum()
    assert (index[1].diff() >= 0).all()
    kind = features[-len(MODE_EDGE_KINDS) :].argmax(0)
    is_lane = index[0] >= graph.num_agents
    is_own = index[0] == owner[index[1]]
    assert torch.equal(kind == MODE_EDGE_KINDS.index("lane"), is_lane)
    assert torch.equal(kind == MODE_EDGE_KINDS.index("own"), is_own)
    assert torch.equal(kind == MODE_EDGE_KINDS.index("agent"), ~is_lane & ~is_own)
    assert len(kind.unique()) == 3
    distance = torch.linalg.vector_norm(shifted[index[1]] - graph.poses.position[index[0]], dim=-1)
    expected = fade_out(distance, 30.0).exp().where(~is_own, 1.0)
    torch.testing.assert_close(fading.exp(), expected, atol=1e-4, rtol=0)
