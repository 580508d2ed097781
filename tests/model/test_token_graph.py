"""The edges of a batch's tokens, and those from any poses to the tokens around them."""

from __future__ import annotations

import pytest
import torch

from tests.model.small import batch_of
from trajpred.features.relations import RELATIONS
from trajpred.geometry import Pose
from trajpred.model.token_graph import MODE_EDGE_KINDS, TokenGraph, fade_out, radius_edges
from trajpred.scenario import Scenario


def test_the_token_graph_holds_all_relations_with_agents_before_lanes(real: list[Scenario]) -> None:
    batch = batch_of(real)
    graph, A = TokenGraph.of(batch), batch["agent"].num_nodes
    start = {"agent": 0, "lane": A}
    expected = [
        (j + start[r[0]], i + start[r[2]], k)
        for r in RELATIONS
        for (j, i), k in zip(batch[r].edge_index.T.tolist(), batch[r].edge_kind.tolist(), strict=True)
    ]
    assert list(zip(*graph.index.tolist(), graph.kind.tolist(), strict=True)) == expected
    assert torch.equal(graph.poses.position[A:], batch["lane"].position)
    padded, ptr = graph.padding.pad(graph.poses.heading), batch["agent"].ptr
    for scene in range(3):
        agents = batch["agent"].heading[ptr[scene] : ptr[scene + 1]]
        assert torch.equal(padded[scene, : len(agents)], agents)


def test_attention_fades_out_towards_the_radius() -> None:
    distance = torch.linspace(0, 15, 15001)
    weight = fade_out(distance, 15.0).exp()
    assert (weight[:12001] == 1).all() and weight[-1] < 2e-6 and weight.diff().abs().max() < 4e-4


@pytest.mark.parametrize("per_agent", [1, 6])
def test_a_mode_is_connected_to_its_agent_and_to_its_scene_within_the_radius(
    real: list[Scenario], per_agent: int
) -> None:
    batch = batch_of(real)
    graph, agent = TokenGraph.of(batch), batch["agent"]
    owner = torch.arange(graph.num_agents).repeat_interleave(per_agent)
    shifted = agent.position[owner] + 30 * torch.randn(len(owner), 2)
    anchors = Pose(shifted, agent.heading[owner])
    index, features, fading = radius_edges(graph, anchors, 30.0, owner, graph.agents.repeat(per_agent))
    near = torch.linalg.vector_norm(shifted[:, None] - graph.poses.position, dim=-1) <= 30.0
    expected = near & (agent.batch[owner][:, None] == graph.scene)
    expected[torch.arange(len(owner)), owner] = True
    assert {(int(i), int(j)) for j, i in index.T} == {(int(i), int(j)) for i, j in expected.nonzero()}
    assert index.shape[1] == expected.sum() and (index[1].diff() >= 0).all()
    kinds = [
        "lane" if j >= graph.num_agents else "own" if j == owner[i] else "agent" for j, i in index.T.tolist()
    ]
    found = features[-len(MODE_EDGE_KINDS) :].argmax(0).tolist()
    assert [MODE_EDGE_KINDS[kind] for kind in found] == kinds and len(set(kinds)) == 3
    distance = torch.linalg.vector_norm(shifted[index[1]] - graph.poses.position[index[0]], dim=-1)
    is_own = index[0] == owner[index[1]]
    expected = fade_out(distance, 30.0).exp().where(~is_own, 1.0)
    torch.testing.assert_close(fading.exp(), expected, atol=1e-4, rtol=0)
