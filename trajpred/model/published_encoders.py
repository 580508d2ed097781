"""The published systems as scene encoders: ``layers`` layers of ``heads`` heads over the token graph.

Edge features are relative poses. Systems without them receive every node's pose in the focal agent's frame.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.errors import require
from trajpred.geometry import POSE_SCALE
from trajpred.graph.relations import EDGE_KINDS
from trajpred.model.attention import Pairs
from trajpred.model.token_encoder import TokenEncoder, require_sizes
from trajpred.model.token_graph import EDGE_CHANNELS, TokenGraph
from trajpred.nn import GraphStructure, LaplacianPositionalEncoding, mlp
from trajpred.nn.published.graph_structure import EdgeEncoding
from trajpred.nn.published.graph_transformer import (
    DwivediGraphTransformerEdgeLayer,
    DwivediGraphTransformerLayer,
)
from trajpred.nn.published.graph_transformer_net import RandomWalkPositionalEncoding
from trajpred.nn.published.multi_head_attention import MultiHeadAttentionConv
from trajpred.nn.published.padded_attention import BiasedAttention, PaddedAttention
from trajpred.nn.published.transformer_conv import TransformerConv
from trajpred.nn.published.transformer_m import TransformerMEncoder


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


class GlobalAttentionSceneEncoder(TokenEncoder):
    """DenseTNT's global attention: every agent and lane of a scene attends to every other.

    Args:
        attention_head_size: channels of a head, by default ``dim / heads``; with others a linear map brings
            the output to ``dim``.
        key_bias: of the operator.
        dropout: on residual branches.
    """

    attending: ClassVar = (PaddedAttention,)

    def __init__(
        self,
        dim: int = 128,
        heads: int = 8,
        layers: int = 3,
        attention_head_size: int | None = None,
        key_bias: bool = False,
        dropout: float = 0.1,
    ) -> None:
        require_sizes(dim, heads, layers=layers)
        size = dim // heads if attention_head_size is None else attention_head_size
        require(size > 0, "attention_head_size", f"must be positive, is {size}")
        super().__init__(dim)
        self.pose = nn.Linear(4, dim)
        self.attention = nn.ModuleList(
            PaddedAttention(dim, size, heads, key_bias=key_bias) for _ in range(layers)
        )
        width = heads * size
        self.out = nn.ModuleList(
            nn.Identity() if width == dim else nn.Linear(width, dim) for _ in range(layers)
        )
        self.feed_forward = nn.ModuleList(mlp(dim, 2 * dim, dim) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2 * layers))
        self.dropout = nn.Dropout(dropout)

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        padding = graph.padding
        x = padding.pad(x + self.pose(graph.focal_poses))
        mask = padding.pad(torch.ones_like(graph.poses.heading)) > 0
        norms = self.norms[0::2], self.norms[1::2]
        layers = zip(self.attention, self.out, self.feed_forward, *norms, strict=True)
        for attention, out, feed_forward, norm1, norm2 in layers:
            x = norm1(x + self.dropout(out(attention(x, mask=mask))))
            x = norm2(x + self.dropout(feed_forward(x)))
        return padding.unpad(x)


class TransformerMSceneEncoder(TokenEncoder):
    """Transformer-M (Luo et al. 2022): lane topology is the 2-D structure, metric positions the 3-D one.

    In training, each scene draws whether it uses both structures or one of them (``mode_prob``, by default
    0.2, 0.2, 0.6 for both, 2-D and 3-D).

    Args:
        mode: ``2d``, ``3d`` or ``2d+3d``.
        max_hops: lanes with more hops between them count as unreachable.
        num_atoms, num_in_degree, num_out_degree, num_edges, ffn_embedding_dim: of the encoder; there are two
            types of nodes (agents and lanes), and ``ffn_embedding_dim`` is ``2 · dim`` by default.
        num_3d_bias_kernel, edge_type, multi_hop_max_dist, activation_fn, dropout, options: of the encoder, by
            their published names.
        attention_dropout: by default ``dropout``.
    """

    options_of: ClassVar = TransformerMEncoder
    # Weights on the graph token are omitted, so that rows sum to less than 1.
    attending: ClassVar = (BiasedAttention,)

    def __init__(
        self,
        dim: int = 128,
        heads: int = 8,
        layers: int = 3,
        mode: Literal["2d", "3d", "2d+3d"] = "2d+3d",
        max_hops: int = 8,
        num_atoms: int = 2,
        num_in_degree: int = 16,
        num_out_degree: int = 16,
        num_edges: int = len(EDGE_KINDS),
        ffn_embedding_dim: int | None = None,
        num_3d_bias_kernel: int = 32,
        edge_type: EdgeEncoding = "multi_hop",
        multi_hop_max_dist: int = 5,
        activation_fn: str = "gelu",
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        activation_dropout: float = 0.0,
        **options: Any,
    ) -> None:
        require_sizes(dim, heads, layers=layers)
        pairs = 2 * (num_atoms + 1)
        rows = ("num_atoms", num_atoms, 2), ("num_edges", num_edges, len(EDGE_KINDS))
        for name, given, least in (*rows, ("num_pair_types", options.get("num_pair_types") or pairs, pairs)):
            require(given >= least, name, f"must be {least} or more, is {given}")
        super().__init__(dim)
        self.max_hops, self.mode = max_hops, mode
        self.edge_type, self.multi_hop_max_dist = edge_type, multi_hop_max_dist
        self.pose = nn.Linear(4, dim)
        self.encoder = TransformerMEncoder(
            num_atoms=num_atoms,
            num_in_degree=num_in_degree,
            num_out_degree=num_out_degree,
            num_edges=num_edges,
            num_encoder_layers=layers,
            embedding_dim=dim,
            ffn_embedding_dim=2 * dim if ffn_embedding_dim is None else ffn_embedding_dim,
            num_attention_heads=heads,
            dropout=dropout,
            attention_dropout=dropout if attention_dropout is None else attention_dropout,
            activation_dropout=activation_dropout,
            activation_fn=activation_fn,
            num_3d_bias_kernel=num_3d_bias_kernel,
            edge_type=edge_type,
            multi_hop_max_dist=multi_hop_max_dist,
            mode=mode,
            **options,
        )

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        padding = graph.padding
        lane = torch.arange(graph.num_nodes, device=x.device) >= graph.num_agents
        structure = None
        if "2d" in self.mode:
            edges, kinds = lane_topology(graph)
            structure = GraphStructure.of(
                edges,
                kinds,
                padding,
                edge_type=self.edge_type,
                multi_hop_max_dist=self.multi_hop_max_dist,
                max_hops=self.max_hops,
            )
        # Scaled to the range of the kernels' centres.
        positions = padding.pad(graph.poses.position / POSE_SCALE) if "3d" in self.mode else None
        out = self.encoder(
            padding.pad(1 + lane.long()),
            structure=structure,
            positions=positions,
            features=padding.pad(x + self.pose(graph.focal_poses)),
        )
        return padding.unpad(out[:, 1:])  # the graph token comes first


def lane_topology(graph: TokenGraph) -> tuple[Tensor, Tensor]:
    """Return the topological edges between lanes, and their kinds."""
    topology = graph.kind > EDGE_KINDS.index("lane_lane")
    return graph.index[:, topology], graph.kind[topology]
