"""The graphs of a bundle: the model itself, traced on the batch of one scene.

Each graph is a chain of modules. The first builds the batch, the second is the model, and the third puts its
tokens back into the rows of the inputs. They are traced one by one, so that inside the model every size is an
input. The batch has one of two forms:

- Rows of padding are removed and the edges are listed (:class:`Scene`). Sizes depend on the data.
- Padding stays, beyond every radius, and all pairs of nodes are listed (:class:`PaddedScene`). No size
  depends on the data, as compilers such as TensorRT require; the default encoder and decoder compute it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trajpred.features.config import GraphConfig
from trajpred.features.scene_graph import RELATIONS, SceneBatch, edges_of, relation_kinds
from trajpred.model import ModeDecoder, SceneDecoder, SceneEncoder, SceneTokens, TokenEncoder
from trajpred.model.mode_decoder import all_pairs
from trajpred.model.scene_encoder import TokenGraph
from trajpred.onboard.bundle import SIGNATURES, Port, Signature
from trajpred.onboard.encoder import AGENT_STATE


def port_names(ports: Iterable[Any]) -> list[str]:
    """Return the name of each port of a signature, or of each value of an ONNX graph."""
    return [port.name for port in ports]


def ports_among(ports: Iterable[Any], names: Collection[str]) -> list[Any]:
    """Return the ports or values whose names are among ``names``."""
    return [port for port in ports if port.name in names]


#: Coordinates (m) of padding that stays in the batch.
BEYOND_M = 1e6
#: Scene sizes of padded inputs -> sizes without padding.
REAL = {"A": "a", "L": "l"}
#: Ports for node fields in a batch, whose own names lack the kind of node.
FIELDS = {
    "agent": ("history", "object_type", *(f"agent_{name}" for name in AGENT_STATE)),
    "lane": ("lane_token", "lane_position", "lane_heading", "lane_eigenvectors"),
}
_ROWS = (Port("agent_row", "int64", ("a",), ""), Port("lane_row", "int64", ("l",), ""))


def _edge_ports() -> tuple[Port, ...]:
    """Return the ports of the edges of all relations."""
    ports: list[Port] = []
    for i, (sender, _, receiver) in enumerate(RELATIONS):
        size = f"e{i}"
        ports.append(Port(f"{sender}_{receiver}_index", "int64", (2, size), ""))
        ports.append(Port(f"{sender}_{receiver}_kind", "int64", (size,), ""))
    return tuple(ports)


_EDGES = _edge_ports()


def _real(port: Port) -> Port:
    """Return the port for the rows of ``port`` without padding."""
    shape: list[int | str] = list(port.shape)
    for axis, size in enumerate(port.shape):
        if isinstance(size, str):
            shape[axis] = REAL.get(size, size)
    return port._replace(name=f"real_{port.name}", shape=tuple(shape))


class Stage(nn.Module):
    """A module with the names and shapes of its inputs and outputs."""

    def __init__(self, signature: Signature) -> None:
        super().__init__()
        self.signature = signature


class Chain(nn.Module):
    """Modules that run one after another; a tensor of one is the input of that name in later ones.

    Attributes:
        signature: inputs and outputs of the whole.
        all_pairs: whether its edges are all pairs of nodes, with fixed sizes.
    """

    def __init__(self, signature: Signature, *stages: Stage) -> None:
        super().__init__()
        self.signature = signature
        self.stages = stages
        self.all_pairs = isinstance(stages[0], PaddedScene)


def encoder_chain(encoder: TokenEncoder, config: GraphConfig, fixed: bool) -> Chain:
    """Build the chain for ``SIGNATURES["encoder"]``; with ``fixed`` sizes on all pairs, if supported."""
    signature = SIGNATURES["encoder"]
    all_pairs = fixed and type(encoder) is SceneEncoder
    scene = (PaddedScene if all_pairs else Scene)(signature.inputs, config)
    return Chain(signature, scene, EncoderModel(encoder, scene, all_pairs), InputRows())


def decoder_chain(decoder: SceneDecoder, config: GraphConfig, temperature: float, fixed: bool) -> Chain:
    """Build the chain for ``SIGNATURES["decoder"]``; ``temperature`` divides the logits."""
    signature = SIGNATURES["decoder"]
    all_pairs = fixed and type(decoder) is ModeDecoder and not decoder.published
    scene = (PaddedScene if all_pairs else Scene)(signature.inputs, config)
    return Chain(signature, scene, DecoderModel(decoder, scene, all_pairs, temperature))


class Scene(Stage):
    """Remove the padding of all inputs, and build the edges as ``scene_graph`` does for a batch."""

    def __init__(self, inputs: Sequence[Port], config: GraphConfig) -> None:
        super().__init__(Signature(tuple(inputs), (*map(_real, inputs), *_ROWS, *_EDGES)))
        self.config = config

    def kinds(self, values: Mapping[str, Tensor]) -> dict[tuple[str, str, str], Tensor]:
        """Return the adjacency matrix of each relation."""
        return relation_kinds(
            agent=values["agent_position"],
            agent_valid=values["agent_valid"],
            lane=values["lane_position"],
            lane_valid=values["lane_valid"],
            topology=values["lane_topology"],
            config=self.config,
        )

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Remove the padding, and list the edges of each relation."""
        values = _named(self.signature.inputs, inputs)
        agents = values["agent_valid"]
        lanes = values["lane_valid"]
        rows = {"A": agents.nonzero()[:, 0], "L": lanes.nonzero()[:, 0]}
        # Number of each row among rows without padding.
        place = {"agent": agents.long().cumsum(0) - 1, "lane": lanes.long().cumsum(0) - 1}
        outputs: list[Tensor] = []
        for port, value in zip(self.signature.inputs, inputs, strict=True):
            real = value
            if port.name == "target":
                real = place["agent"].index_select(0, value)
            for axis, size in enumerate(port.shape):
                if size in rows:
                    real = real.index_select(axis, rows[size])
            outputs.append(real.clone())
        kinds = self.kinds(values)
        edges: list[Tensor] = []
        for relation in RELATIONS:
            sender_type, _, receiver_type = relation
            receiver, sender, kind = edges_of(kinds[relation])
            sender = place[sender_type].index_select(0, sender)
            receiver = place[receiver_type].index_select(0, receiver)
            edges += [torch.stack((sender, receiver)), kind]
        return (*outputs, *rows.values(), *edges)


class PaddedScene(Scene):
    """Keep padding, moved beyond every radius, and list all pairs; pairs without an edge have kind 0."""

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Move padding beyond every radius, and list all pairs of nodes of each relation."""
        values = _named(self.signature.inputs, inputs)
        kinds = self.kinds(values)
        rows: list[Tensor] = []
        for node in ("agent", "lane"):
            valid = values[f"{node}_valid"]
            position = values[f"{node}_position"]
            values[f"{node}_position"] = torch.where(valid[:, None], position, BEYOND_M)
            rows.append(torch.arange(valid.shape[0]))
        outputs = [value.clone() for value in values.values()]
        edges: list[Tensor] = []
        for relation in RELATIONS:
            kind = kinds[relation]
            receivers, senders = kind.shape
            receiver, sender = all_pairs(receivers, senders, kind.device)
            edges += [torch.stack((sender, receiver)), kind.flatten()]
        return (*outputs, *rows, *edges)


class EncoderModel(Stage):
    """An encoder on one scene."""

    def __init__(self, encoder: TokenEncoder, scene: Scene, all_pairs: bool) -> None:
        tokens = SIGNATURES["encoder"].outputs
        super().__init__(Signature(scene.signature.outputs, tuple(map(_real, tokens))))
        self.encoder = encoder
        self.all_pairs = all_pairs

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        tokens = self.encoder.encode(scene_batch(_named(self.signature.inputs, inputs), self.all_pairs))
        return tokens.agent, tokens.lane


class DecoderModel(Stage):
    """A decoder on the tokens of one scene."""

    def __init__(self, decoder: SceneDecoder, scene: Scene, all_pairs: bool, temperature: float) -> None:
        super().__init__(Signature(scene.signature.outputs, SIGNATURES["decoder"].outputs))
        self.decoder = decoder
        self.all_pairs = all_pairs
        self.temperature = temperature

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values = _named(self.signature.inputs, inputs)
        batch = scene_batch(values, self.all_pairs)
        tokens = SceneTokens(values["real_agent_token"], values["real_lane_context"], TokenGraph.of(batch))
        prediction = self.decoder(tokens, batch, agents=values["real_target"]).merged()
        probability = (prediction.logits / self.temperature).softmax(-1)
        return prediction.trajectory, prediction.scale, probability


class InputRows(Stage):
    """Put the tokens back into the rows of the inputs; padding gets zeros."""

    def __init__(self) -> None:
        encoder = SIGNATURES["encoder"]
        tokens = [_real(port) for port in encoder.outputs]
        valid = [port for port in encoder.inputs if port.name in ("agent_valid", "lane_valid")]
        super().__init__(Signature((*tokens, *_ROWS, *valid), encoder.outputs))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        agent, lane, agent_row, lane_row, agent_valid, lane_valid = inputs
        return _padded(agent, agent_row, agent_valid), _padded(lane, lane_row, lane_valid)


def _padded(tokens: Tensor, row: Tensor, valid: Tensor) -> Tensor:
    padded = tokens.new_zeros(valid.shape[0], tokens.shape[1])
    return padded.index_copy(0, row, tokens)


def scene_batch(values: Mapping[str, Tensor], all_pairs: bool) -> SceneBatch:
    """Build the batch of one scene from the outputs of :class:`Scene` or :class:`PaddedScene`."""
    batch = SceneBatch()
    if all_pairs:
        batch.all_pairs = True
    batch.scenario_id = [""]
    batch.heading = values["real_scene_heading"][None]
    batch.step_s = values["real_step_s"][None]
    for node, names in FIELDS.items():
        store = batch[node]
        for name in names:
            if f"real_{name}" in values:
                store[name.removeprefix(f"{node}_")] = values[f"real_{name}"]
        size = store.heading.shape[0]
        store.num_nodes = size
        store.batch = torch.zeros_like(store.heading, dtype=torch.int64)
        store.ptr = torch.tensor([0, 1]) * size
    for relation in RELATIONS:
        sender, _, receiver = relation
        batch[relation].edge_index = values[f"{sender}_{receiver}_index"]
        batch[relation].edge_kind = values[f"{sender}_{receiver}_kind"]
    return batch


def _named(ports: Sequence[Port], values: Sequence[Tensor]) -> dict[str, Tensor]:
    return dict(zip(port_names(ports), values, strict=True))
