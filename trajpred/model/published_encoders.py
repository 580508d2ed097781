"""The published systems as scene encoders: ``layers`` layers of ``heads`` heads.

Encoders that work on edges read relative poses as edge features. In encoders on padded scenes, where all
pairs of tokens attend, each node has its pose in the focal agent's frame instead.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.data.geometry import POSE_SCALE
from trajpred.errors import require
from trajpred.features.scene_graph import EDGE_KINDS
from trajpred.model.attention import Pairs
from trajpred.model.scene_encoder import EDGE_CHANNELS, TokenEncoder, TokenGraph, require_sizes
from trajpred.nn import GraphStructure, mlp
from trajpred.nn.published.graph_transformer import (
    DwivediGraphTransformerEdgeLayer,
    DwivediGraphTransformerLayer,
    laplacian_positional_encoding,
    random_walk_positional_encoding,
    with_random_signs,
)
from trajpred.nn.published.multi_head_attention import MultiHeadAttentionConv
from trajpred.nn.published.padded_attention import BiasedAttention, PaddedAttention
from trajpred.nn.published.structural_bias import EdgeEncoding
from trajpred.nn.published.transformer_conv import TransformerConv
from trajpred.nn.published.transformer_m import TransformerMEncoder


class TransformerConvSceneEncoder(TokenEncoder):
    """Stacked :class:`~trajpred.nn.TransformerConv` (Shi et al. 2021) with edge features, gating, residuals.

    Args:
        dim: channels of a token.
        heads: attention heads.
        layers: of the operator.
        gating: argument of the operator, like all others below, with the published name.
        concat: see the operator.
        skip_connection: see the operator.
        batch_norm: see the operator.
        ff_channels: see the operator; twice ``dim`` by default.
        dropout: of the operator.
        options: other arguments of the operator. With ``add_self_loops``, edges have no features.
    """

    attending: ClassVar = (TransformerConv,)

    def __init__(
        self,
        dim: int = 128,
        heads: int = 8,
        layers: int = 3,
        gating: bool = True,
        concat: bool = True,
        skip_connection: bool = True,
        batch_norm: bool = True,
        ff_channels: int | None = None,
        dropout: float = 0.1,
        **options: Any,
    ) -> None:
        concatenated_heads = heads if concat else 1
        require_sizes(dim, concatenated_heads, layers=layers)
        if ff_channels is None:
            ff_channels = 2 * dim
        super().__init__(dim)
        self.featured = not options.get("add_self_loops")
        self.layers = nn.ModuleList()
        for _ in range(layers):
            layer = TransformerConv(
                dim,
                dim // concatenated_heads,
                ein=EDGE_CHANNELS if self.featured else 0,
                heads=heads,
                gating=gating,
                concat=concat,
                skip_connection=skip_connection,
                batch_norm=batch_norm,
                ff_channels=ff_channels,
                dropout=dropout,
                **options,
            )
            self.layers.append(layer)

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        features = graph.features if self.featured else None
        for layer in self.layers:
            x = layer(x, graph.index, features)
        return x


class MultiHeadAttentionSceneEncoder(TokenEncoder):
    """TF-GNN's example, stacked: a dense layer over the node state and attention over its incoming edges.

    Args:
        dim: channels of a token.
        heads: attention heads.
        layers: of the operator.
        receiver_tag: ``target``; ``source`` (attention over outgoing edges, whose features stay those of
            their sources in the frames of their targets); or ``context``: a learnable state per scene
            attends to all nodes or all edges, and is added to the input of every node.
        sender_node_feature: None omits node states from the attention.
        sender_edge_feature: None omits the relative poses and kinds of the edges; with ``context`` one of
            the two must be None.
        edge_dropout: argument of the operator, with the published name.
        options: other arguments of the operator. Its penalty is added to the training loss.

    Attention is reported unless the receiver is the context.
    """

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
        if receiver_tag == "context":
            nodes_or_edges = (sender_node_feature is None) != (sender_edge_feature is None)
            problem = "must be null for one of nodes and edges if the receiver is the context"
            require(nodes_or_edges, "sender_edge_feature", problem)
        super().__init__(dim)
        self.receiver_tag = receiver_tag
        self.convs = nn.ModuleList()
        for _ in range(layers):
            conv = MultiHeadAttentionConv(
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
            self.convs.append(conv)
        self.states = nn.ModuleList()
        for _ in range(layers):
            self.states.append(nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU()))
        self.norm = nn.LayerNorm(dim)
        self.context: nn.Parameter | None = None
        if receiver_tag == "context":
            self.context = nn.Parameter(torch.zeros(dim))

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        if self.context is not None:
            return self._interact_with_context(x, graph, self.context)
        for conv, state in zip(self.convs, self.states, strict=True):
            features = graph.features if conv.sender_edge_feature is not None else None
            received = conv(x, graph.index, features)
            x = state(torch.cat((x, received), -1))
        return self.norm(x)

    def _interact_with_context(self, x: Tensor, graph: TokenGraph, initial: Tensor) -> Tensor:
        """Exchange information through one state per scene, which starts from ``initial``."""
        context = initial.expand(graph.heading.shape[0], -1)
        for conv, state in zip(self.convs, self.states, strict=True):
            if conv.sender_edge_feature is not None:
                edge_batch = graph.scene[graph.index[0]]
                context = conv((x, context), None, graph.features, edge_batch=edge_batch)
            else:
                context = conv((x, context), None, None, batch=graph.scene)
            received = context[graph.scene]
            x = state(torch.cat((x, received), -1))
        return self.norm(x)

    @property
    def has_attention(self) -> bool:
        return self.context is None

    def attended(self, name: str, weight: Any, graph: TokenGraph, batch: HeteroData) -> list[Pairs]:
        if self.receiver_tag == "source":
            return [Pairs(graph.index.flip(0), weight)]
        return [Pairs(graph.index, weight)]

    def auxiliary_losses(self, batch: HeteroData) -> dict[str, Tensor]:
        penalties = []
        for conv in self.convs:
            assert isinstance(conv, MultiHeadAttentionConv)
            penalties.append(conv.penalty())
        return {"regularization": torch.stack(penalties).sum()}


class GraphTransformerSceneEncoder(TokenEncoder):
    """The Graph Transformer (Dwivedi & Bresson 2020) with its edge stream over relative poses.

    Args:
        dim: channels of a token.
        heads: attention heads.
        layers: of the operator.
        pos_enc_dim: columns of the positional encoding of the lane topology; 0 disables it. Lanes only.
        pos_enc: ``laplacian`` (eigenvectors, as published) or ``random_walk`` (return probabilities).
        edge_feat: use the layer with the edge stream; False: the layer without edge features.
        layer_norm: as published.
        batch_norm: as published.
        residual: as published.
        use_bias: as published.
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
        self.laplacian = pos_enc == "laplacian"
        self.num_eigenvectors = pos_enc_dim if self.laplacian else 0
        self.edge: nn.Linear | None = None
        if edge_feat:
            self.edge = nn.Linear(EDGE_CHANNELS, dim)
        self.place: nn.Linear | None = None
        if pos_enc_dim:
            self.place = nn.Linear(pos_enc_dim, dim)
        options: dict[str, Any] = {
            "dropout": dropout,
            "layer_norm": layer_norm,
            "batch_norm": batch_norm,
            "residual": residual,
            "use_bias": use_bias,
        }
        self.layers = nn.ModuleList()
        for number in range(layers):
            layer: nn.Module
            if edge_feat:
                update_edges = number < layers - 1
                layer = DwivediGraphTransformerEdgeLayer(
                    dim, dim, heads, update_edges=update_edges, **options
                )
            else:
                layer = DwivediGraphTransformerLayer(dim, dim, heads, **options)
            self.layers.append(layer)

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        """Update the tokens layer by layer; lanes first get their positional encoding."""
        if self.place is not None:
            encoding = self._positional_encoding(graph, self.place.in_features)
            lanes = x[graph.num_agents :] + self.place(encoding.to(x.dtype))
            x = torch.cat((x[: graph.num_agents], lanes))
        if self.edge is None:
            for layer in self.layers:
                x = layer(x, graph.index)
            return x
        edges = self.edge(graph.features)
        for layer in self.layers:
            x, edges = layer(x, graph.index, edges)
        return x

    def _positional_encoding(self, graph: TokenGraph, columns: int) -> Tensor:
        """Encode each lane's place in the topology, ``[L, columns]``."""
        encoding = graph.eigenvectors
        if encoding is None or not self.laplacian:
            edges, _ = lane_topology(graph)
            encode = laplacian_positional_encoding if self.laplacian else random_walk_positional_encoding
            encoding = encode(edges - graph.num_agents, graph.scene[graph.num_agents :], columns)
        if self.laplacian and self.training:
            return with_random_signs(encoding)
        return encoding


def lane_topology(graph: TokenGraph) -> tuple[Tensor, Tensor]:
    """Return the topological edges between lanes, and their kinds."""
    topology = graph.kind > EDGE_KINDS.index("lane_lane")
    return graph.index[:, topology], graph.kind[topology]


class GlobalAttentionSceneEncoder(TokenEncoder):
    """DenseTNT's global attention: every agent and lane of a scene attends to every other.

    Args:
        dim: channels of a token.
        heads: attention heads.
        layers: of attention.
        attention_head_size: channels of a head, by default ``dim / heads``; for other sizes a linear map
            brings the output to ``dim``.
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
        self.attention = nn.ModuleList()
        for _ in range(layers):
            self.attention.append(PaddedAttention(dim, size, heads, key_bias=key_bias))
        self.out = nn.ModuleList(_project(heads * size, dim) for _ in range(layers))
        self.feed_forward = nn.ModuleList(mlp(dim, 2 * dim, dim) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2 * layers))
        self.dropout = nn.Dropout(dropout)

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        padding = graph.padding
        x = padding.pad(x + self.pose(graph.focal_poses))
        mask = padding.pad(torch.ones_like(graph.poses.heading)) > 0
        for layer, attention in enumerate(self.attention):
            attended = self.out[layer](attention(x, mask=mask))
            x = self.norms[2 * layer](x + self.dropout(attended))
            updated = self.feed_forward[layer](x)
            x = self.norms[2 * layer + 1](x + self.dropout(updated))
        return padding.unpad(x)


def _project(width: int, dim: int) -> nn.Module:
    """Build the linear map from heads of ``width`` channels to ``dim``, if they differ."""
    if width == dim:
        return nn.Identity()
    return nn.Linear(width, dim)


class TransformerMSceneEncoder(TokenEncoder):
    """Transformer-M (Luo et al. 2022): lane topology is the 2-D structure, metric positions the 3-D one.

    In training, each scene uses both structures or one of them at random (``mode_prob``, by default 0.2, 0.2,
    0.6 for both, 2-D and 3-D).

    Args:
        mode: ``2d``, ``3d`` or ``2d+3d``.
        max_hops: lanes more hops apart count as unreachable.
        num_atoms: types of nodes, at least 2 (agents and lanes).
        num_in_degree: argument of the encoder, like all others below, with the published name.
        num_out_degree: see the encoder.
        num_edges: types of edges, at least trajpred's number.
        ffn_embedding_dim: by default ``2 · dim``.
        num_3d_bias_kernel: see the encoder.
        edge_type: see the encoder.
        multi_hop_max_dist: see the encoder.
        activation_fn: see the encoder.
        dropout: of the encoder.
        attention_dropout: by default ``dropout``.
        activation_dropout: see the encoder.
        options: further arguments of the encoder.
    """

    # Weights on the graph token are omitted, so rows sum to less than 1.
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
        _require_least("num_atoms", num_atoms, 2)
        _require_least("num_edges", num_edges, len(EDGE_KINDS))
        _require_least("num_pair_types", options.get("num_pair_types") or pairs, pairs)
        super().__init__(dim)
        self.max_hops = max_hops
        self.mode = mode
        self.edge_type = edge_type
        self.multi_hop_max_dist = multi_hop_max_dist
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
        """Update the tokens by Transformer-M's encoder, in training on a CPU scene by scene."""
        padding = graph.padding
        is_lane = torch.arange(padding.num_nodes, device=x.device) >= graph.num_agents
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
        positions = None
        if "3d" in self.mode:
            positions = padding.pad(graph.poses.position / POSE_SCALE)  # in the range of the kernels' centres
        types = padding.pad(1 + is_lane.long())
        features = padding.pad(x + self.pose(graph.focal_poses))
        if not self.training or padding.together or x.device.type != "cpu":
            out = self.encoder(types, structure=structure, positions=positions, features=features)
            return padding.unpad(out[:, 1:])  # the graph token comes first
        # Most pairs in a padded batch are padding, and those of one scene stay in a CPU's cache.
        scenes = []
        for i, n in enumerate(padding.counts):
            encoded = self.encoder(
                types[i : i + 1, :n],
                structure=None if structure is None else structure.graph(i, n),
                positions=None if positions is None else positions[i : i + 1, :n],
                features=features[i : i + 1, :n],
            )
            scenes.append(encoded[0, 1:])
        return torch.cat(scenes).index_select(0, padding.place)


def _require_least(name: str, value: int, least: int) -> None:
    """Raise :class:`DataError` unless ``value`` is at least ``least``."""
    require(value >= least, name, f"must be {least} or more, is {value}")
