"""The published systems that work on edges, as scene encoders: ``layers`` layers of ``heads`` heads.

Edge features are relative poses.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.errors import require
from trajpred.features.relations import EDGE_KINDS
from trajpred.model.attention import Pairs
from trajpred.model.token_encoder import TokenEncoder, require_sizes
from trajpred.model.token_graph import EDGE_CHANNELS, TokenGraph
from trajpred.nn import LaplacianPositionalEncoding
from trajpred.nn.published.graph_transformer import (
    DwivediGraphTransformerEdgeLayer,
    DwivediGraphTransformerLayer,
)
from trajpred.nn.published.graph_transformer_net import RandomWalkPositionalEncoding
from trajpred.nn.published.multi_head_attention import MultiHeadAttentionConv
from trajpred.nn.published.transformer_conv import TransformerConv


class TransformerConvSceneEncoder(TokenEncoder):
    """Stacked :class:`~trajpred.nn.TransformerConv` (Shi et al. 2021) with edge features, gating, residuals.

    Args:
        gating, skip_connection, batch_norm, dropout, options: of the operator, by their published names.
        ff_channels: likewise; twice ``dim`` by default. With ``add_self_loops``, edges have no features.
    """

    options_of: ClassVar = TransformerConv
    attending: ClassVar = (TransformerConv,)

    def __init__(
        self,
        dim: int = 128,
        heads: int = 8,
        layers: int = 3,
        gating: bool = True,
        skip_connection: bool = True,
        batch_norm: bool = True,
        ff_channels: int | None = None,
        dropout: float = 0.1,
        **options: Any,
    ) -> None:
        require_sizes(dim, heads if options.get("concat", True) else 1, layers=layers)
        super().__init__(dim)
        self.layers = nn.ModuleList(
            TransformerConv(
                dim,
                dim // heads if options.get("concat", True) else dim,
                0 if options.get("add_self_loops") else EDGE_CHANNELS,
                heads=heads,
                gating=gating,
                skip_connection=skip_connection,
                batch_norm=batch_norm,
                ff_channels=2 * dim if ff_channels is None else ff_channels,
                dropout=dropout,
                **options,
            )
            for _ in range(layers)
        )
        self.featured = not options.get("add_self_loops")

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        for layer in self.layers:
            x = layer(x, graph.index, graph.features if self.featured else None)
        return x


class MultiHeadAttentionSceneEncoder(TokenEncoder):
    """TF-GNN's example, stacked: a dense layer over the node state and attention over its incoming edges.

    Args:
        receiver_tag: ``target``; ``source`` (attention over outgoing edges, whose features stay those of
            their sources in the frames of their targets); or ``context``: the receiver is one state per
            scene, learnable at first, which attends to all nodes or all edges and is given to every node.
        sender_node_feature, sender_edge_feature: None leaves the states of the nodes, or the relative poses
            and kinds of the edges, out of the attention; with ``context`` one of them must be None.
        edge_dropout, options: of the operator, by their published names. The penalty of
            the regulariser is added to the training loss.

    Attention is reported unless the receiver is the context.
    """

    options_of: ClassVar = MultiHeadAttentionConv
    attending: ClassVar = (MultiHeadAttentionConv,)

    def __init__(
        self,
        dim: int = 128,
        heads: int = 8,
        layers: int = 3,
        receiver_tag: Literal["target", "source", "context"] = "target",
        sender_node_feature: Literal["hidden_state"] | None = "hidden_state",
        sender_edge_feature: Literal["relative_pose"] | None = "relative_pose",
        edge_dropout: float = 0.1,
        **options: Any,
    ) -> None:
        require_sizes(dim, heads, layers=layers)
        one = (sender_node_feature is None) != (sender_edge_feature is None)
        either = "must be null for one of nodes and edges if the receiver is the context"
        require(one or receiver_tag != "context", "sender_edge_feature", either)
        super().__init__(dim)
        self.receiver_tag = receiver_tag
        self.convs = nn.ModuleList(
            MultiHeadAttentionConv(
                num_heads=heads,
                per_head_channels=dim // heads,
                receiver_tag=receiver_tag,
                receiver_feature="hidden_state",
                sender_node_feature=sender_node_feature,
                sender_edge_feature=sender_edge_feature,
                edge_dropout=edge_dropout,
                receiver_channels=dim,
                sender_node_channels=dim,
                sender_edge_channels=EDGE_CHANNELS,
                name=None,
                **options,
            )
            for _ in range(layers)
        )
        self.states = nn.ModuleList(nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU()) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.context = nn.Parameter(torch.zeros(dim)) if receiver_tag == "context" else None

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        context = None if self.context is None else self.context.expand(graph.heading.shape[0], -1)
        for conv, state in zip(self.convs, self.states, strict=True):
            features = graph.features if conv.takes_sender_edge_input else None
            if context is None:
                received = conv(x, graph.index, features)
            else:
                of_edge = graph.scene[graph.index[0]]
                items = {"batch": graph.scene} if features is None else {"edge_batch": of_edge}
                context = conv((x, context), None, features, **items)
                received = context[graph.scene]
            x = state(torch.cat((x, received), -1))
        return self.norm(x)

    @property
    def has_attention(self) -> bool:
        return self.context is None

    def attended(self, name: str, weight: Any, graph: TokenGraph, batch: HeteroData) -> list[Pairs]:
        return [Pairs(graph.index.flip(0) if self.receiver_tag == "source" else graph.index, weight)]

    def auxiliary_losses(self, batch: HeteroData) -> dict[str, Tensor]:
        convs = [conv for conv in self.convs if isinstance(conv, MultiHeadAttentionConv)]
        return {"regularization": torch.stack([conv.penalty() for conv in convs]).sum()}


class GraphTransformerSceneEncoder(TokenEncoder):
    """The Graph Transformer (Dwivedi & Bresson 2020) with its edge stream over relative poses.

    Args:
        pos_enc_dim: columns of the positional encoding of the lane topology; 0 disables it. Lanes only.
        pos_enc: ``laplacian`` (eigenvectors, as published) or ``random_walk`` (probabilities of return).
        edge_feat: use the layer with the edge stream; False: the one without edge features.
        layer_norm, batch_norm, residual, use_bias: as published.
        dropout: inside the layers.
    """

    attending: ClassVar = (DwivediGraphTransformerEdgeLayer, DwivediGraphTransformerLayer)

    def __init__(
        self,
        dim: int = 128,
        heads: int = 8,
        layers: int = 3,
        pos_enc_dim: int = 8,
        pos_enc: Literal["laplacian", "random_walk"] = "laplacian",
        edge_feat: bool = True,
        layer_norm: bool = False,
        batch_norm: bool = True,
        residual: bool = True,
        use_bias: bool = False,
        dropout: float = 0.1,
    ) -> None:
        require_sizes(dim, heads, layers=layers)
        super().__init__(dim)
        self.num_eigenvectors = pos_enc_dim if pos_enc == "laplacian" else 0
        self.edge = nn.Linear(EDGE_CHANNELS, dim) if edge_feat else None
        encoding = {"laplacian": LaplacianPositionalEncoding, "random_walk": RandomWalkPositionalEncoding}
        self.positional = encoding[pos_enc](pos_enc_dim) if pos_enc_dim else None
        self.place = nn.Linear(pos_enc_dim, dim) if pos_enc_dim else None
        options = dropout, layer_norm, batch_norm, residual, use_bias
        self.layers = nn.ModuleList(
            DwivediGraphTransformerEdgeLayer(dim, dim, heads, *options, update_edges=layer < layers - 1)
            if edge_feat
            else DwivediGraphTransformerLayer(dim, dim, heads, *options)
            for layer in range(layers)
        )

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        if self.positional is not None and self.place is not None:
            lanes, place = slice(graph.num_agents, None), graph.eigenvectors
            if place is not None and isinstance(self.positional, LaplacianPositionalEncoding):
                place = self.positional.signed(place)
            else:
                edges, _ = lane_topology(graph)
                place = self.positional(edges - graph.num_agents, graph.scene[lanes])
            x = torch.cat((x[: graph.num_agents], x[lanes] + self.place(place.to(x.dtype))))
        if self.edge is None:
            for layer in self.layers:
                x = layer(x, graph.index)
            return x
        e = self.edge(graph.features)
        for layer in self.layers:
            x, e = layer(x, graph.index, e)
        return x


def lane_topology(graph: TokenGraph) -> tuple[Tensor, Tensor]:
    """Return the topological edges between lanes, and their kinds."""
    topology = graph.kind > EDGE_KINDS.index("lane_lane")
    return graph.index[:, topology], graph.kind[topology]
