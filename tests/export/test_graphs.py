"""The exported modules build the graph that training builds, and divide the logits."""

from __future__ import annotations

import pytest
import torch

from tests.model.small import batch_of
from trajpred.export.graphs import Decoder, Nodes, scene_kinds
from trajpred.export.trace import traced_inputs
from trajpred.geometry import Pose
from trajpred.graph.channels import TOPOLOGY
from trajpred.graph.config import GraphConfig
from trajpred.graph.relations import EDGE_KINDS
from trajpred.onboard.bundle import SIGNATURES
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.scenario import Scenario


@pytest.mark.parametrize("row", [0, -1])
def test_graph_is_that_of_training(scenes: list[Scenario], row: int) -> None:
    """Every edge with its kind, of a sparse and of a crowded scene."""
    batch = batch_of([scenes[row]])
    agent, lane = batch["agent"], batch["lane"]
    A, L = agent.num_nodes, lane.num_nodes
    expected = torch.zeros(A + L, A + L, dtype=torch.int64)
    topology = torch.zeros(L, L, dtype=torch.int64)
    first = EDGE_KINDS.index(TOPOLOGY[0])
    for sender, name, receiver in batch.edge_types:
        index, kind = batch[sender, name, receiver].edge_index, batch[sender, name, receiver].edge_kind
        expected[index[1] + A * (receiver == "lane"), index[0] + A * (sender == "lane")] = kind
        if sender == receiver == "lane":
            related = (kind >= first) & (kind < first + len(TOPOLOGY))
            topology[index[1, related], index[0, related]] = kind[related] - first + 1
    assert topology.any() and expected[:A].any() and expected[A:, :A].any()
    valid = torch.ones(A, dtype=torch.bool), torch.ones(L, dtype=torch.bool)
    poses = Pose(agent.position, agent.heading), Pose(lane.position, lane.heading)
    nodes = Nodes.of(poses[0], valid[0], poses[1], valid[1])
    assert torch.equal(scene_kinds(nodes, topology, GraphConfig()), expected)


@torch.no_grad()
def test_temperature_divides_the_logits(predictor: CheckpointPredictor) -> None:
    ports = SIGNATURES["decoder"].inputs
    torch.manual_seed(0)
    sizes = {"T": 50, "D": 16, "K": 6, "F": 60, "W": 1, "A": 3, "L": 5, "B": 2}
    inputs = traced_inputs(ports, sizes)
    one, two = (Decoder(predictor.model.decoder, temperature)(*inputs)[-1] for temperature in (1.0, 2.0))
    torch.testing.assert_close(two, one.sqrt() / one.sqrt().sum(-1, keepdim=True))
