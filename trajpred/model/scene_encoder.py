"""The default scene encoder: graph attention with relative poses."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.forecast import Attention
from trajpred.graph.channels import EDGE_POSE
from trajpred.model.token_encoder import TokenEncoder
from trajpred.model.token_graph import EDGE_CHANNELS, TokenGraph
from trajpred.nn import DenseRelation, EdgeBias, EdgeRelation, GraphAttention, GraphTransformerLayer, Relation

#: How attention is computed: over all pairs of a scene (``dense``, fast) or edge by edge (``edges``). Both
#: give the same result.
Evaluation = Literal["dense", "edges"]
#: Where relative poses enter: the scores (``bias``), the attended values (``values``), ``both`` or ``none``.
RelativePose = Literal["both", "bias", "values", "none"]


def pose_bias(channels: int, heads: int, pose: RelativePose) -> EdgeBias:
    """Build the attention bias from edge features; without relative poses only the edge's kind enters."""
    return EdgeBias(channels, heads, skip=0 if pose in ("both", "bias") else len(EDGE_POSE))


class SceneEncoder(TokenEncoder):
    """Graph-transformer layers over all four relations at once.

    Agents and lanes are nodes of one graph, so that each receiver weighs its lanes against its neighbours in
    a single softmax. The kind of an edge is part of its features.

    Args:
        dim: channels of a token.
        heads: attention heads.
        layers: graph-transformer layers.
        dropout, drop_path: on residual branches, see :class:`~trajpred.nn.GraphTransformerLayer`.
        norm: ``post`` or ``pre`` layer normalisation.
        evaluation: see :data:`Evaluation`.
        pose: see :data:`RelativePose`.

    Example:
        >>> tokens = SceneEncoder(layers=2).encode(build_batch([scenario], SceneConfig()))
        >>> tokens.agent.shape
        torch.Size([61, 128])
    """

    has_attention: ClassVar[bool] = True

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

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        return self.apply_layers(x, self.relation(graph))

    def apply_layers(self, x: Tensor, relation: Relation) -> Tensor:
        """Apply all layers to the tokens ``x`` over one relation."""
        for layer in self.layers:
            x = layer(x, relation)
        return x

    def relation(self, graph: TokenGraph) -> EdgeRelation | DenseRelation:
        """Return all edges with their bias, which the layers share."""
        size, poses = len(graph), (graph.poses, graph.poses)
        edges = EdgeRelation(graph.index, self.bias(graph.features), size, size, poses)
        if self.evaluation == "edges":
            return edges
        return DenseRelation.of(edges, graph.padding, graph.padding)

    @torch.inference_mode()
    def attention_weights(self, batch: HeteroData) -> list[Attention]:
        """Return the attention weights of every layer and head, scene by scene, read during one forward."""
        weights: list[Tensor] = []

        def record(attention: nn.Module, inputs: tuple[Any, ...]) -> None:
            assert isinstance(attention, GraphAttention)
            weights.append(attention.weights(*inputs))

        layers = [module for module in self.layers.modules() if isinstance(module, GraphAttention)]
        hooks = [layer.register_forward_pre_hook(record) for layer in layers]
        try:
            graph = self.encode(batch).graph
        finally:
            for hook in hooks:
                hook.remove()
        return _split_by_scene(torch.stack(weights, 1), graph.index, batch)


def _split_by_scene(weight: Tensor, index: Tensor, batch: HeteroData) -> list[Attention]:
    """Turn edge weights ``[E, layers, H]`` of the edges ``index`` into one dense record per scene."""
    agent, lane = batch["agent"], batch["lane"]
    (sender, receiver), agents = index.cpu().numpy(), agent.num_nodes
    scene, first, first_lane = (x.cpu().numpy() for x in (agent.batch, agent.ptr, lane.ptr))
    to_agent = np.flatnonzero(receiver < agents)
    sender, receiver, alpha = sender[to_agent], receiver[to_agent], weight.float().cpu().numpy()[to_agent]
    of, count, lanes = scene[receiver], np.diff(first), np.diff(first_lane)
    # Columns of a scene: its agents, then its lanes.
    lane_column = sender - agents - first_lane[of] + count[of]
    column = np.where(sender < agents, sender - first[of], lane_column)
    result = []
    for s, name in enumerate(batch.scenario_id):
        own = of == s
        dense = np.zeros((count[s], count[s] + lanes[s], *alpha.shape[1:]), np.float32)
        dense[receiver[own] - first[s], column[own]] = alpha[own]
        rows, nodes = slice(first_lane[s], first_lane[s + 1]), slice(first[s], first[s + 1])
        lane_row = lane.row[rows].cpu().numpy()
        result.append(Attention(name, agent.track_id[nodes], lane_row, np.moveaxis(dense, (2, 3), (0, 1))))
    return result
