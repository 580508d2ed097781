"""The default scene encoder: graph attention with relative poses."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor, nn

from trajpred.features.config import EDGE_POSE
from trajpred.model.token_encoder import AgentEncoder, Missing, TokenEncoder, require_sizes
from trajpred.model.token_graph import EDGE_CHANNELS, TokenGraph
from trajpred.nn import EdgeBias, Edges, GraphAttention, GraphTransformerLayer
from trajpred.nn.edges import reached_by
from trajpred.nn.segment import LOWEST

#: How attention is computed, see :attr:`trajpred.nn.Edges.dense`: ``dense`` is fast, ``edges`` is for scenes
#: of many nodes with few edges. Both give the same result.
Evaluation = Literal["dense", "edges"]
#: Where relative poses enter: the scores (``bias``), the attended values (``values``), ``both`` or ``none``.
RelativePose = Literal["both", "bias", "values", "none"]


def pose_bias(channels: int, heads: int, pose: RelativePose) -> EdgeBias:
    """Build the attention bias from edge features; without relative poses only the edge's kind enters."""
    if pose in ("both", "bias"):
        return EdgeBias(channels, heads)
    return EdgeBias(channels, heads, skip=len(EDGE_POSE))


class SceneEncoder(TokenEncoder):
    """Graph-transformer layers over all four relations at once.

    Agents and lanes are nodes of one graph, so that each receiver weighs its lanes against its neighbours in
    a single softmax. The kind of an edge is part of its features.

    Args:
        dim: channels of a token.
        heads: attention heads.
        layers: graph-transformer layers.
        dropout: rate on residual branches.
        drop_path: stochastic depth, see :class:`~trajpred.nn.GraphTransformerLayer`.
        norm: ``post`` or ``pre`` layer normalisation.
        evaluation: see :data:`Evaluation`.
        pose: see :data:`RelativePose`.
        missing: see :class:`~trajpred.model.token_encoder.AgentEncoder`.

    Example:
        >>> tokens = SceneEncoder(layers=2).encode(build_batch([scenario], SceneConfig()))
        >>> tokens.agent.shape
        torch.Size([61, 128])
    """

    attending: ClassVar = (GraphAttention,)

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
        missing: Missing = "zeros",
    ) -> None:
        require_sizes(dim, heads, layers=layers)
        super().__init__(dim, AgentEncoder(dim, missing))
        self.heads = heads
        self.evaluation = evaluation
        self.bias = pose_bias(EDGE_CHANNELS, heads, pose)

        def layer() -> GraphTransformerLayer:
            attention = GraphAttention(dim, heads, poses=pose in ("both", "values"))
            return GraphTransformerLayer(attention, dim, dropout=dropout, drop_path=drop_path, norm=norm)

        self.layers = nn.ModuleList(layer() for _ in range(layers))

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        bias = self.bias(graph.features.T)
        if graph.all_pairs:
            bias = bias.masked_fill(graph.kind == 0, LOWEST)
        edges = Edges(
            index=graph.index,
            bias=bias,
            senders=graph.padding,
            receivers=graph.padding,
            poses=(graph.poses, graph.poses),
            reached=reached_by(graph.index[1], graph.num_nodes, graph.kind > 0),
            dense=self.evaluation == "dense",
        )
        for layer in self.layers:
            x = layer(x, edges)
        return x
