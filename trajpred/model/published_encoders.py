"""The published systems as scene encoders: ``layers`` layers of ``heads`` heads over the token graph.

Edge features are relative poses. Systems without them receive every node's pose in the focal agent's frame.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.geometry import POSE_SCALE
from trajpred.graph.relations import EDGE_KINDS
from trajpred.model.token_encoder import TokenEncoder
from trajpred.model.token_graph import EDGE_CHANNELS, TokenGraph
from trajpred.nn import GraphStructure, LaplacianPositionalEncoding, mlp
from trajpred.nn.published.graph_transformer import DwivediGraphTransformerEdgeLayer
from trajpred.nn.published.multi_head_attention import MultiHeadAttentionConv
from trajpred.nn.published.padded_attention import PaddedAttention
from trajpred.nn.published.transformer_conv import TransformerConv
from trajpred.nn.published.transformer_m import BiasedAttention, TransformerMEncoder


class TransformerConvSceneEncoder(TokenEncoder):
    """Stacked :class:`~trajpred.nn.TransformerConv` (Shi et al. 2021) with edge features, gating, residuals.

    Args:
        gating: blend root and message with a learned gate.
        dropout: on attention.
    """

    attending: ClassVar = (TransformerConv,)

    def __init__(
        self, dim: int = 128, heads: int = 8, layers: int = 3, gating: bool = True, dropout: float = 0.1
    ) -> None:
        super().__init__(dim)
        self.layers = nn.ModuleList(
            TransformerConv(
                dim,
                dim // heads,
                EDGE_CHANNELS,
                heads=heads,
                gating=gating,
                skip_connection=True,
                batch_norm=True,
                ff_channels=2 * dim,
                dropout=dropout,
            )
            for _ in range(layers)
        )

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        for layer in self.layers:
            x = layer(x, graph.index, graph.features)
        return x


class MultiHeadAttentionSceneEncoder(TokenEncoder):
    """TF-GNN's example, stacked: a dense layer over the node state and attention over its incoming edges.

    Args:
        edge_dropout: on attention, per edge and head.
        regularization: λ of an L2 penalty λ Σ w² on the convolutions' kernels, added to the training loss.
    """

    attending: ClassVar = (MultiHeadAttentionConv,)

    def __init__(
        self,
        dim: int = 128,
        heads: int = 8,
        layers: int = 3,
        edge_dropout: float = 0.1,
        regularization: float = 1e-5,
    ) -> None:
        super().__init__(dim)
        self.convs = nn.ModuleList(
            MultiHeadAttentionConv(
                num_heads=heads,
                per_head_channels=dim // heads,
                receiver_tag="target",
                sender_edge_feature="relative_pose",
                edge_dropout=edge_dropout,
                kernel_regularizer={"l2": regularization},
                receiver_channels=dim,
                sender_node_channels=dim,
                sender_edge_channels=EDGE_CHANNELS,
            )
            for _ in range(layers)
        )
        self.states = nn.ModuleList(nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU()) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        for conv, state in zip(self.convs, self.states, strict=True):
            x = state(torch.cat((x, conv(x, graph.index, graph.features)), -1))
        return self.norm(x)

    def auxiliary_losses(self, batch: HeteroData) -> dict[str, Tensor]:
        convs = [conv for conv in self.convs if isinstance(conv, MultiHeadAttentionConv)]
        return {"regularization": torch.stack([conv.penalty() for conv in convs]).sum()}


class GraphTransformerSceneEncoder(TokenEncoder):
    """The Graph Transformer (Dwivedi & Bresson 2020) with its edge stream over relative poses.

    Args:
        positional: number of Laplacian eigenvectors of the lane topology; 0 disables them. Lanes only.
        layer_norm, batch_norm: as published, LayerNorm off and BatchNorm on.
        dropout: inside the layers.
    """

    attending: ClassVar = (DwivediGraphTransformerEdgeLayer,)

    def __init__(
        self,
        dim: int = 128,
        heads: int = 8,
        layers: int = 3,
        positional: int = 8,
        layer_norm: bool = False,
        batch_norm: bool = True,
        dropout: float = 0.1,
    ) -> None:
        super().__init__(dim)
        self.edge = nn.Linear(EDGE_CHANNELS, dim)
        self.positional = LaplacianPositionalEncoding(positional) if positional else None
        self.place = nn.Linear(positional, dim) if positional else None
        self.layers = nn.ModuleList(
            DwivediGraphTransformerEdgeLayer(
                dim, dim, heads, dropout, layer_norm, batch_norm, update_edges=layer < layers - 1
            )
            for layer in range(layers)
        )

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        if self.positional is not None and self.place is not None:
            lanes, edges, _ = lane_topology(graph)
            eigenvectors = self.positional(edges - graph.num_agents, graph.scene[lanes])
            x = torch.cat((x[: graph.num_agents], x[lanes] + self.place(eigenvectors.to(x.dtype))))
        e = self.edge(graph.features)
        for layer in self.layers:
            x, e = layer(x, graph.index, e)
        return x


class GlobalAttentionSceneEncoder(TokenEncoder):
    """DenseTNT's global attention: every agent and lane of a scene attends to every other.

    Dropout is on residual branches.
    """

    attending: ClassVar = (PaddedAttention,)

    def __init__(self, dim: int = 128, heads: int = 8, layers: int = 3, dropout: float = 0.1) -> None:
        super().__init__(dim)
        self.pose = nn.Linear(4, dim)
        self.attention = nn.ModuleList(PaddedAttention(dim, heads) for _ in range(layers))
        self.feed_forward = nn.ModuleList(mlp(dim, 2 * dim, dim) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2 * layers))
        self.dropout = nn.Dropout(dropout)

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        padding = graph.padding
        x = padding.pad(x + self.pose(graph.focal_poses))
        mask = padding.pad(torch.ones_like(graph.poses.heading)) > 0
        layers = zip(self.attention, self.feed_forward, self.norms[0::2], self.norms[1::2], strict=True)
        for attention, feed_forward, norm1, norm2 in layers:
            x = norm1(x + self.dropout(attention(x, mask=mask)))
            x = norm2(x + self.dropout(feed_forward(x)))
        return padding.unpad(x)


class TransformerMSceneEncoder(TokenEncoder):
    """Transformer-M (Luo et al. 2022): lane topology is the 2-D structure, metric positions the 3-D one.

    Args:
        mode: ``2d``, ``3d`` or ``2d+3d``.
        norm: ``pre`` (the paper), ``post`` or ``sandwich``.
        kernels: distance Gaussians.
        max_hops: lanes with more hops between them count as unreachable.
        share_bias_across_layers: share one structural bias between all layers.
        dropout: on residual branches and attention.
    """

    attending: ClassVar = (BiasedAttention,)  # what the graph token gets is missing from the sum

    def __init__(
        self,
        dim: int = 128,
        heads: int = 8,
        layers: int = 3,
        mode: Literal["2d", "3d", "2d+3d"] = "2d+3d",
        norm: Literal["pre", "post", "sandwich"] = "pre",
        kernels: int = 32,
        max_hops: int = 8,
        share_bias_across_layers: bool = True,
        dropout: float = 0.1,
    ) -> None:
        super().__init__(dim)
        self.max_hops, self.mode = max_hops, mode
        self.pose = nn.Linear(4, dim)
        self.encoder = TransformerMEncoder(
            num_atoms=2,
            num_in_degree=16,
            num_out_degree=16,
            num_edges=len(EDGE_KINDS),
            num_encoder_layers=layers,
            embedding_dim=dim,
            ffn_embedding_dim=2 * dim,
            num_attention_heads=heads,
            dropout=dropout,
            attention_dropout=dropout,
            activation_dropout=0.0,
            activation_fn="gelu",
            num_3d_bias_kernel=kernels,
            mode_prob=(1.0, 0.0, 0.0),
            mode=mode,
            norm=norm,
            share_bias_across_layers=share_bias_across_layers,
        )

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        padding = graph.padding
        lane = torch.arange(len(graph), device=x.device) >= graph.num_agents
        _, edges, kinds = lane_topology(graph)
        structure = None
        if "2d" in self.mode:
            structure = GraphStructure.of(edges, kinds, padding, max_hops=self.max_hops)
        # Scaled to the range of the kernels' centres.
        positions = padding.pad(graph.poses.position / POSE_SCALE) if "3d" in self.mode else None
        out = self.encoder(
            padding.pad(1 + lane.long()),
            structure=structure,
            positions=positions,
            features=padding.pad(x + self.pose(graph.focal_poses)),
        )
        return padding.unpad(out[:, 1:])  # the graph token comes first


def lane_topology(graph: TokenGraph) -> tuple[slice, Tensor, Tensor]:
    """Return the rows of the lanes, the topological edges between them, and the kinds of these edges."""
    topology = graph.kind > EDGE_KINDS.index("lane_lane")
    return slice(graph.num_agents, None), graph.index[:, topology], graph.kind[topology]
