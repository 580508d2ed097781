"""The exported modules build the graph that training builds, and hear nothing of padding."""

from __future__ import annotations

import pytest
import torch

from tests.model.small import batch_of
from trajpred.export.graphs import Nodes, scene_kinds
from trajpred.geometry import Pose
from trajpred.graph.channels import TOPOLOGY
from trajpred.graph.config import GraphConfig
from trajpred.graph.relations import EDGE_KINDS
from trajpred.scenario import Scenario


@pytest.mark.parametrize("row", [0, -1])
def test_the_graph_is_that_of_training(scenes: list[Scenario], row: int) -> None:
    """Every edge with its kind, of a sparse and of a crowded scene; padding changes none."""
    batch = batch_of([scenes[row]])
    agent, lane = batch["agent"], batch["lane"]
    A, L = agent.num_nodes, lane.num_nodes
    expected = torch.zeros(A + L, A + L, dtype=torch.int64)
    topology = torch.zeros(L, L, dtype=torch.int64)
    first = EDGE_KINDS.index(TOPOLOGY[0])
    for (sender, _, receiver), index, kind in (
        (name, batch[name].edge_index, batch[name].edge_kind) for name in batch.edge_types
    ):
        expected[index[1] + A * (receiver == "lane"), index[0] + A * (sender == "lane")] = kind
        if sender == receiver == "lane":
            related = (kind >= first) & (kind < first + len(TOPOLOGY))
            topology[index[1, related], index[0, related]] = kind[related] - first + 1
    assert topology.any() and expected[:A].any() and expected[A:, :A].any()

    nodes = Nodes.of(
        Pose(agent.position, agent.heading), torch.ones(A, dtype=torch.bool),
        Pose(lane.position, lane.heading), torch.ones(L, dtype=torch.bool),
    )  # fmt: skip
    assert torch.equal(scene_kinds(nodes, topology, GraphConfig()), expected)

    more = Pose(torch.zeros(3, 2), torch.zeros(3))
    padded = Nodes.of(
        Pose(torch.cat((agent.position, more.position)), torch.cat((agent.heading, more.heading))),
        torch.arange(A + 3) < A, Pose(lane.position, lane.heading), torch.ones(L, dtype=torch.bool),
    )  # fmt: skip
    real = torch.cat((torch.arange(A), torch.arange(L) + A + 3))
    kinds = scene_kinds(padded, topology, GraphConfig())
    assert torch.equal(kinds[real][:, real], expected)
    assert not kinds[:, A : A + 3].any(), "nobody hears padding"
