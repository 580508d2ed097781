"""The graphs of any encoder and decoder: the model itself, traced on the batch of one scene without padding.

Each graph is a chain of modules. The first removes padding and builds the edges, the second is the model, the
third restores the padding. They are traced one by one, so that inside the model every size is an input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from trajpred.features.config import GraphConfig
from trajpred.features.relations import RELATIONS, relation_kinds
from trajpred.features.scene_graph import SceneBatch
from trajpred.model import SceneDecoder, SceneTokens, TokenEncoder
from trajpred.model.token_graph import TokenGraph
from trajpred.onboard.bundle import SIGNATURES, Port, Signature
from trajpred.onboard.encoder import AGENT_STATE

#: Scene sizes of padded inputs -> those of rows without padding.
REAL = {"A": "a", "L": "l"}
#: Ports that hold the fields of the nodes of a batch, whose own names lack the kind of node.
FIELDS = {
    "agent": ("history", "object_type", *(f"agent_{name}" for name in AGENT_STATE)),
    "lane": tuple(f"lane_{name}" for name in ("token", "position", "heading", "eigenvectors")),
}
_ROWS = tuple(Port(f"{node}_row", "int64", (size,), "") for node, size in (("agent", "a"), ("lane", "l")))
_EDGES = tuple(
    port
    for i, (sender, _, receiver) in enumerate(RELATIONS)
    for port in (
        Port(f"{sender}_{receiver}_index", "int64", (2, f"e{i}"), ""),
        Port(f"{sender}_{receiver}_kind", "int64", (f"e{i}",), ""),
    )
)


def _real(port: Port) -> Port:
    """Return the port of the rows of ``port`` without padding."""
    shape = tuple(REAL.get(size, size) if isinstance(size, str) else size for size in port.shape)
    return port._replace(name=f"real_{port.name}", shape=shape)


class Stage(nn.Module):
    """A module with the names and shapes of its inputs and outputs."""

    def __init__(self, signature: Signature) -> None:
        super().__init__()
        self.signature = signature


class Chain(nn.Module):
    """Modules that run one after another; a tensor of one is the input of that name of those after it.

    ``signature``: inputs and outputs of the whole.
    """

    def __init__(self, signature: Signature, *stages: Stage) -> None:
        super().__init__()
        self.signature, self.stages = signature, stages


def encoder_chain(encoder: TokenEncoder, config: GraphConfig) -> Chain:
    """Return ``SIGNATURES["encoder"]`` for any encoder."""
    signature = SIGNATURES["encoder"]
    scene = RealScene(signature.inputs, config)
    return Chain(signature, scene, EncoderModel(encoder, scene.signature.outputs), Padded())


def decoder_chain(decoder: SceneDecoder, config: GraphConfig, temperature: float = 1.0) -> Chain:
    """Return ``SIGNATURES["decoder"]`` for any decoder; ``temperature`` divides the logits."""
    signature = SIGNATURES["decoder"]
    scene = RealScene(signature.inputs, config)
    return Chain(signature, scene, DecoderModel(decoder, scene.signature.outputs, temperature))


class RealScene(Stage):
    """Remove the padding of all inputs, and build the edges as ``scene_graph`` does for a batch."""

    def __init__(self, inputs: Sequence[Port], config: GraphConfig) -> None:
        super().__init__(Signature(tuple(inputs), (*map(_real, inputs), *_ROWS, *_EDGES)))
        self.config = config

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        values, outputs = _named(self.signature.inputs, inputs), []
        agents, lanes = values["agent_valid"], values["lane_valid"]
        rows = {"A": agents.nonzero()[:, 0], "L": lanes.nonzero()[:, 0]}
        # Number of each row among those without padding.
        place = {"agent": agents.long().cumsum(0) - 1, "lane": lanes.long().cumsum(0) - 1}
        for port, value in zip(self.signature.inputs, inputs, strict=True):
            real = place["agent"].index_select(0, value) if port.name == "target" else value
            for axis, size in enumerate(port.shape):
                real = real.index_select(axis, rows[size]) if size in rows else real
            outputs.append(real)
        agent, lane = values["agent_position"], values["lane_position"]
        kinds = relation_kinds(agent, agents, lane, lanes, values["lane_topology"], self.config)
        edges = []
        for (sender, _, receiver), kind in ((relation, kinds[relation]) for relation in RELATIONS):
            row, column = kind.nonzero().unbind(1)  # sorted by receiver
            index = place[sender].index_select(0, column), place[receiver].index_select(0, row)
            edges += [torch.stack(index), kind[row, column]]
        return (*(x.clone() for x in outputs), *rows.values(), *edges)


class EncoderModel(Stage):
    """An encoder on one scene."""

    def __init__(self, encoder: TokenEncoder, inputs: Sequence[Port]) -> None:
        tokens = SIGNATURES["encoder"].outputs
        super().__init__(Signature(tuple(inputs), tuple(map(_real, tokens))))
        self.encoder = encoder

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        tokens = self.encoder.encode(scene_batch(_named(self.signature.inputs, inputs)))
        return tokens.agent, tokens.lane


class DecoderModel(Stage):
    """A decoder on the tokens of one scene."""

    def __init__(self, decoder: SceneDecoder, inputs: Sequence[Port], temperature: float) -> None:
        super().__init__(Signature(tuple(inputs), SIGNATURES["decoder"].outputs))
        self.decoder, self.temperature = decoder, temperature

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values = _named(self.signature.inputs, inputs)
        batch = scene_batch(values)
        tokens = SceneTokens(values["real_agent_token"], values["real_lane_context"], TokenGraph.of(batch))
        prediction = self.decoder(tokens, batch, agents=values["real_target"]).merged()
        probability = (prediction.logits / self.temperature).softmax(-1)
        return prediction.trajectory, prediction.scale, probability


class Padded(Stage):
    """Put the tokens back into the rows of the inputs; padding gets zeros."""

    def __init__(self) -> None:
        encoder = SIGNATURES["encoder"]
        valid = tuple(port for port in encoder.inputs if port.name in ("agent_valid", "lane_valid"))
        super().__init__(Signature((*map(_real, encoder.outputs), *_ROWS, *valid), encoder.outputs))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        tokens, rows, valid = inputs[:2], inputs[2:4], inputs[4:]
        return tuple(
            x.new_zeros(mask.shape[0], x.shape[1]).index_copy(0, row, x)
            for x, row, mask in zip(tokens, rows, valid, strict=True)
        )


def scene_batch(values: Mapping[str, Tensor]) -> SceneBatch:
    """Build the batch of one scene from the outputs of :class:`RealScene`."""
    batch = SceneBatch()
    batch.scenario_id = [""]
    batch.heading, batch.step_s = values["real_scene_heading"][None], values["real_step_s"][None]
    for node, names in FIELDS.items():
        store, held = batch[node], [name for name in names if f"real_{name}" in values]
        store.update({name.removeprefix(f"{node}_"): values[f"real_{name}"] for name in held})
        size = store.heading.shape[0]
        store.num_nodes, store.batch = size, torch.zeros_like(store.heading, dtype=torch.int64)
        store.ptr = torch.tensor([0, 1]) * size
    for relation in RELATIONS:
        name = f"{relation[0]}_{relation[2]}"
        batch[relation].edge_index = values[f"{name}_index"]
        batch[relation].edge_kind = values[f"{name}_kind"]
    return batch


def _named(ports: Sequence[Port], values: Sequence[Tensor]) -> dict[str, Tensor]:
    return dict(zip((port.name for port in ports), values, strict=True))
