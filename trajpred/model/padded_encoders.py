"""The published systems that work on padded scenes, as scene encoders: all pairs of tokens attend.

They receive every node's pose in the focal agent's frame.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from trajpred.data.geometry import POSE_SCALE
from trajpred.errors import require
from trajpred.features.scene_graph import EDGE_KINDS
from trajpred.model.published_encoders import lane_topology
from trajpred.model.token_encoder import TokenEncoder, require_sizes
from trajpred.model.token_graph import TokenGraph
from trajpred.nn import GraphStructure, mlp
from trajpred.nn.published.graph_structure import EdgeEncoding
from trajpred.nn.published.padded_attention import BiasedAttention, PaddedAttention
from trajpred.nn.published.transformer_m import TransformerMEncoder


class GlobalAttentionSceneEncoder(TokenEncoder):
    """DenseTNT's global attention: every agent and lane of a scene attends to every other.

    Args:
        dim: channels of a token.
        heads: attention heads.
        layers: of attention.
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

    In training, each scene draws whether it uses both structures or one of them (``mode_prob``, by default
    0.2, 0.2, 0.6 for both, 2-D and 3-D).

    Args:
        mode: ``2d``, ``3d`` or ``2d+3d``.
        max_hops: lanes with more hops between them count as unreachable.
        num_atoms: types of nodes, at least 2 (agents and lanes).
        num_in_degree: of the encoder, as are all other arguments, by their published names.
        num_out_degree: likewise.
        num_edges: types of edges, at least those of trajpred.
        ffn_embedding_dim: by default ``2 · dim``.
        num_3d_bias_kernel: of the encoder.
        edge_type: of the encoder.
        multi_hop_max_dist: of the encoder.
        activation_fn: of the encoder.
        dropout: of the encoder.
        attention_dropout: by default ``dropout``.
        activation_dropout: of the encoder.
        options: further arguments of the encoder.
    """

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
        positions = None
        if "3d" in self.mode:
            positions = padding.pad(graph.poses.position / POSE_SCALE)
        out = self.encoder(
            padding.pad(1 + lane.long()),
            structure=structure,
            positions=positions,
            features=padding.pad(x + self.pose(graph.focal_poses)),
        )
        return padding.unpad(out[:, 1:])  # the graph token comes first


def _require_least(name: str, value: int, least: int) -> None:
    """Raise :class:`DataError` unless ``value`` is at least ``least``."""
    require(value >= least, name, f"must be {least} or more, is {value}")
