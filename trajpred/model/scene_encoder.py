"""The default scene encoder: graph attention with relative poses. A thing of its own; it knows no decoder."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from trajpred.graph.edge_features import POSE_CHANNELS
from trajpred.model.joint_graph import EDGE_CHANNELS, JointGraph
from trajpred.model.token_encoder import TokenEncoder
from trajpred.nn import (
    DenseRelation,
    EdgeBias,
    EdgeRelation,
    GraphAttention,
    GraphTransformerLayer,
    Relation,
)

#: ``dense`` takes all pairs of a scene and is fast; ``edges`` evaluates the flattened edges. The same maths.
Evaluation = Literal["dense", "edges"]
#: Where relative poses enter: in the scores (``bias``), in what is gathered (``values``), or in ``both``.
RelativePose = Literal["both", "bias", "values", "none"]


def pose_bias(channels: int, heads: int, pose: RelativePose) -> EdgeBias:
    """The bias of edges with these features; without relative poses it knows the kind of edge alone."""
    return EdgeBias(channels, heads, skip=0 if pose in ("both", "bias") else POSE_CHANNELS)


class SceneEncoder(TokenEncoder):
    """Layers of graph attention over all four relations at once.

    Agents and lanes are the nodes of one graph, so that each receiver weighs its lanes against its
    neighbours in a single softmax; what kind of edge it is enters through the edge's features.

    Args:
        dim: channels of a token.
        heads: attention heads.
        layers: graph-transformer layers.
        dropout, drop_path: on residual branches, see :class:`~trajpred.nn.GraphTransformerLayer`.
        norm: ``post`` or ``pre`` layer normalisation.
        evaluation: see :data:`Evaluation`; pose: see :data:`RelativePose`.
    """

    def __init__(
        self,
        dim: int = 128,
        heads: int = 8,
        layers: int = 4,
        dropout: float = 0.1,
        drop_path: float = 0.0,
        norm: Literal["post", "pre"] = "post",
        evaluation: Evaluation = "dense",
        pose: RelativePose = "both",
    ) -> None:
        super().__init__(dim)
        self.heads, self.evaluation = heads, evaluation
        self.bias = pose_bias(EDGE_CHANNELS, heads, pose)

        def layer() -> GraphTransformerLayer:
            attention = GraphAttention(dim, heads, poses=pose in ("both", "values"))
            return GraphTransformerLayer(attention, dim, dropout=dropout, drop_path=drop_path, norm=norm)

        self.layers = nn.ModuleList(layer() for _ in range(layers))

    def interact(self, x: Tensor, graph: JointGraph) -> Tensor:
        return self.hear(x, self.relation(graph))

    def hear(self, x: Tensor, relation: Relation) -> Tensor:
        """All layers over one ``relation``."""
        for layer in self.layers:
            x = layer(x, relation)
        return x

    def relation(self, graph: JointGraph) -> EdgeRelation | DenseRelation:
        """All edges with their bias, computed once and shared by the layers."""
        size, poses = len(graph), (graph.poses, graph.poses)
        edges = EdgeRelation(graph.index, self.bias(graph.features), size, size, poses)
        if self.evaluation == "edges":
            return edges
        return DenseRelation.of(edges, graph.padding, graph.padding)
