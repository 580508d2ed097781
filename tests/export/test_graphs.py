"""The exported modules build the graph that training builds, and ignore padding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.model.small import batch_of
from trajpred.export.graphs import Decoder, Encoder, Nodes, scene_kinds
from trajpred.export.trace import traced_inputs
from trajpred.geometry import Pose
from trajpred.graph.channels import TOPOLOGY
from trajpred.graph.config import GraphConfig
from trajpred.graph.relations import EDGE_KINDS
from trajpred.onboard.bundle import FUSED, GRAPHS, SIGNATURES
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.scenario import Scenario

#: Inputs for other encoders and decoders.
OTHERS = ("lane_eigenvectors", "scene_heading")
LETTERS = {"T": 50, "P": 10, "D": 16, "K": 6, "F": 60, "W": 1}


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
def test_padding_changes_nothing(predictor: CheckpointPredictor) -> None:
    """In lane encoder, encoder and decoder: padded rows are near the real ones, with arbitrary values."""
    torch.manual_seed(0)
    model = predictor.model
    encoder, decoder = Encoder(model.encoder, model.scene.graph), Decoder(model.decoder)
    modules = dict(zip(GRAPHS, (model.encoder.lane, encoder, decoder), strict=True))
    ports = [port for port in SIGNATURES[FUSED].inputs if port.name not in OTHERS]

    def whole(*inputs: Tensor) -> dict[str, Tensor]:
        values = {port.name: value for port, value in zip(ports, inputs, strict=True)}
        for name, module in modules.items():
            outputs = module(*(values[port.name] for port in SIGNATURES[name].inputs if port.name in values))
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            values |= {port.name: x for port, x in zip(SIGNATURES[name].outputs, outputs, strict=True)}
        return values

    given = traced_inputs(tuple(ports), {**LETTERS, "A": 3, "L": 5, "B": 3})
    inputs = {port.name: value for port, value in zip(ports, given, strict=True)}
    inputs["target"] = torch.arange(3)
    padded = {}
    for port in ports:
        extra = [2 if size in ("A", "L") else 0 for size in port.shape]
        widths = [width for size in reversed(extra) for width in (0, size)]
        padded[port.name] = torch.nn.functional.pad(inputs[port.name], widths, value=0)
        if port.name.endswith(("position", "history", "points")):
            padded[port.name][-2:] = torch.rand_like(padded[port.name][-2:])
    expected, found = whole(*inputs.values()), whole(*padded.values())
    for name in (port.name for port in SIGNATURES[FUSED].outputs):
        one, other = expected[name], found[name]
        torch.testing.assert_close(other[: len(one)], one, rtol=1e-4, atol=1e-4, msg=name)


@torch.no_grad()
def test_temperature_divides_the_logits(predictor: CheckpointPredictor) -> None:
    ports = SIGNATURES["decoder"].inputs
    torch.manual_seed(0)
    inputs = traced_inputs(ports, {**LETTERS, "A": 3, "L": 5, "B": 2})
    one, two = (Decoder(predictor.model.decoder, temperature)(*inputs)[-1] for temperature in (1.0, 2.0))
    torch.testing.assert_close(two, one.sqrt() / one.sqrt().sum(-1, keepdim=True))
