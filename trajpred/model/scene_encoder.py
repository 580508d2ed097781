"""The scene encoder: agents and lanes hear each other. A thing of its own; it knows no decoder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.geometry import Pose
from trajpred.graph.edge_features import edge_channels, edge_features
from trajpred.graph.scene_graph import EDGE_KINDS, RELATIONS
from trajpred.model.agent_encoder import AgentEncoder
from trajpred.model.checkpoint import CONFIG, build, load_weights, read_checkpoint
from trajpred.model.lane_encoder import LaneEncoder
from trajpred.nn import (
    DenseRelation,
    EdgeBias,
    EdgeRelation,
    GraphAttention,
    GraphTransformerLayer,
    Padding,
    Relation,
)

#: ``dense`` pads scenes and is fast; ``edges`` evaluates the flattened edges. The same maths.
Evaluation = Literal["dense", "edges"]


@dataclass
class SceneTokens:
    """What the encoder says of a batch.

    Attributes:
        agent: ``[A, dim]``; lane: ``[L, dim]``.
    """

    agent: Tensor
    lane: Tensor

    @property
    def joint(self) -> Tensor:
        """``[A + L, dim]``: all agents of the batch, then all lanes."""
        return torch.cat((self.agent, self.lane))


class SceneEncoder(nn.Module):
    """Histories and polylines -> tokens, then layers of graph attention over all four relations at once.

    Agents and lanes are the nodes of one graph, so that each receiver weighs its lanes against its
    neighbours in a single softmax; what kind of edge it is enters through the edge's features.

    Args:
        dim: channels of a token.
        heads: attention heads.
        layers: graph-transformer layers.
        dropout: on residual branches.
        norm: ``post`` or ``pre`` layer normalisation.
        evaluation: see :data:`Evaluation`.
    """

    def __init__(
        self,
        dim: int = 128,
        heads: int = 8,
        layers: int = 4,
        dropout: float = 0.1,
        norm: Literal["post", "pre"] = "post",
        evaluation: Evaluation = "dense",
    ) -> None:
        super().__init__()
        self.dim, self.heads, self.evaluation = dim, heads, evaluation
        self.agent, self.lane = AgentEncoder(dim), LaneEncoder(dim)
        self.bias = EdgeBias(edge_channels(len(EDGE_KINDS)), heads)
        self.layers = nn.ModuleList(
            GraphTransformerLayer(GraphAttention(dim, heads), dim, dropout=dropout, norm=norm)
            for _ in range(layers)
        )

    @classmethod
    def from_checkpoint(cls, checkpoint: str | Path) -> SceneEncoder:
        """The trained encoder of a forecaster's checkpoint, in evaluation mode. Raises: DataError."""
        content, prefix = read_checkpoint(checkpoint), "forecaster.encoder."
        weights = {
            name.removeprefix(prefix): value
            for name, value in content["state_dict"].items()
            if name.startswith(prefix)
        }
        return load_weights(build(cls, content[CONFIG]["encoder"]), weights, checkpoint)

    def encode(self, batch: HeteroData) -> SceneTokens:
        """Tokens of all agents and lanes of a batch (:func:`trajpred.graph.scene_graph.scene_graph`)."""
        agent, lane = batch["agent"], batch["lane"]
        tokens = SceneTokens(
            self.agent(agent.history, agent.object_type),
            self.lane(lane.points, lane.kind, lane.is_intersection, lane.marks),
        )
        x, relation = tokens.joint, self._relation(batch)
        for layer in self.layers:
            x = layer(x, relation)
        return SceneTokens(*x.split((len(tokens.agent), len(tokens.lane))))

    forward = encode

    def _relation(self, batch: HeteroData) -> Relation:
        poses = joint_pose(batch)
        index, kind = joint_edges(batch)
        sender, receiver = index
        features = edge_features(at(poses, sender), at(poses, receiver), kind, len(EDGE_KINDS))
        edges = EdgeRelation(
            index, self.bias(features), len(poses.heading), len(poses.heading), (poses, poses)
        )
        if self.evaluation == "edges":
            return edges
        padding = joint_padding(batch)
        return DenseRelation.of(edges, padding, padding)


def joint_pose(batch: HeteroData) -> Pose[Tensor]:
    """Poses of all agents, then all lanes: ``[A + L, 2]``, ``[A + L]``, metres from each scene's origin."""
    agent, lane = batch["agent"], batch["lane"]
    return Pose(torch.cat((agent.position, lane.position)), torch.cat((agent.heading, lane.heading)))


def joint_edges(batch: HeteroData) -> tuple[Tensor, Tensor]:
    """All relations as one: ``index [2, E]`` into agents and lanes joined, ``kind [E]``."""
    start = {"agent": 0, "lane": batch["agent"].num_nodes}
    indices, kinds = [], []
    for relation in RELATIONS:
        index = batch[relation].edge_index
        indices.append(torch.stack((index[0] + start[relation[0]], index[1] + start[relation[2]])))
        kinds.append(batch[relation].edge_kind)
    return torch.cat(indices, 1), torch.cat(kinds)


def joint_padding(batch: HeteroData) -> Padding:
    """Where agents and lanes lie in scenes padded to one size: agents first."""
    agent, lane = (Padding.of(batch[node].batch, batch[node].ptr) for node in ("agent", "lane"))
    return agent.beside(lane)


def at(poses: Pose[Tensor], index: Tensor) -> Pose[Tensor]:
    """The poses with these indices."""
    return Pose(poses.position.index_select(0, index), poses.heading.index_select(0, index))
