"""Stacked graph attention (GAT, GATv2) that reads out target nodes; the convolutions are PyG's own."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv

#: Edges (after self loops were replaced) and their attention ``[E', H]``.
Attention = tuple[Tensor, Tensor]

CONVOLUTIONS = {"gat": GATConv, "gatv2": GATv2Conv}


class GATLayer(nn.Module):
    r"""Post-LN residual layer around a graph attention convolution.

    .. math::
        x ← \mathrm{LN}_1(x + \mathrm{drop}(\mathrm{conv}(x))), \qquad
        x ← \mathrm{LN}_2(x + \mathrm{drop}(W_2\, \mathrm{drop}(\mathrm{LeakyReLU}(W_1 x + b_1)) + b_2))

    with, per head, of GAT (Veličković et al. 2018) and of GATv2 (Brody et al. 2022)

    .. math::
        s_{ij} &= \mathrm{LeakyReLU}(a_s \cdot W x_j + a_t \cdot W x_i + a_e \cdot W_e e_{ij}), &\quad
        v_j &= W x_j \\
        s_{ij} &= a \cdot \mathrm{LeakyReLU}(W_l x_j + W_r x_i + W_e e_{ij}), &\quad v_j &= W_l x_j

    α = softmax_j s (slope 0.2, dropout on α), and conv(x) the heads' Σ_j α v_j side by side, plus a bias.

    Args:
        channels: of a head C; the layer is H · C wide.
        heads: number of heads H.
        conv: ``gat`` or ``gatv2``.
        edge_channels: channels of an edge, 0 for none.
        leaky_slope: of the feed-forward network, which is as wide inside as outside.
        dropout: everywhere it stands above.

    Shapes: x ``[N, H · C]`` -> ``[N, H · C]``. Every node attends to itself: given loops are replaced by one
    for each node, whose edge features are the mean over its incoming edges.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        *,
        conv: Literal["gat", "gatv2"] = "gatv2",
        edge_channels: int = 0,
        leaky_slope: float = 0.3,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if conv not in CONVOLUTIONS:
            raise ValueError(f"conv must be one of {sorted(CONVOLUTIONS)}, not {conv!r}")
        dim = heads * channels
        edge: dict[str, Any] = {"edge_dim": edge_channels} if edge_channels else {}
        self.conv = CONVOLUTIONS[conv](dim, channels, heads=heads, dropout=dropout, **edge)
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, dim), nn.LeakyReLU(leaky_slope), nn.Dropout(dropout), nn.Linear(dim, dim)
        )
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None
    ) -> tuple[Tensor, Attention]:
        """New node features, and the attention that made them."""
        message, attention = self.conv(x, edge_index, edge_attr, return_attention_weights=True)
        x = self.norm1(x + self.dropout(message))
        return self.norm2(x + self.dropout(self.feed_forward(x))), attention


class GATEncoder(nn.Module):
    r"""The trajectory-prediction article's encoder: node features repeated for every head, stacked
    :class:`GATLayer`\ s, and the target nodes read out by LeakyReLU(W x + b).

    Graphs come flattened (:func:`~trajpred.nn.star.flatten_edges`), however many and of whatever sizes.

    Args:
        channels: of the nodes and of the output (the article's encoder size).
        heads: number of heads H; inside, nodes have H · channels.
        layers: number of layers.
        conv: ``gat`` or ``gatv2``.
        edge_channels: channels of an edge, 0 for none.
        leaky_slope: of all LeakyReLU outside the convolutions.
        dropout: on attention, convolution and feed-forward network.
        repeat_input: False: nodes come with H · channels and are not repeated.

    Raises:
        ValueError: an unknown ``conv``; nodes or edges of another width.

    Shapes: x ``[N, channels]``, edge_index ``[2, E]``, target_index ``[T]`` -> ``[T, channels]``.

    >>> import torch
    >>> from trajpred.nn.star import flatten_stars
    >>> encoder = GATEncoder(16, heads=3, layers=2)
    >>> graphs = flatten_stars(torch.tensor([8, 8, 5]))  # three targets, the last with five neighbours
    >>> encoder(torch.rand(24, 16), graphs.edge_index, graphs.target_index).shape
    torch.Size([3, 16])
    """

    def __init__(
        self,
        channels: int,
        heads: int = 3,
        layers: int = 1,
        *,
        conv: Literal["gat", "gatv2"] = "gatv2",
        edge_channels: int = 0,
        leaky_slope: float = 0.3,
        dropout: float = 0.0,
        repeat_input: bool = True,
    ) -> None:
        super().__init__()
        self.repeats = heads if repeat_input else 1
        self.width, self.edge_channels = heads * channels, edge_channels
        self.layers = nn.ModuleList(
            GATLayer(
                channels,
                heads,
                conv=conv,
                edge_channels=edge_channels,
                leaky_slope=leaky_slope,
                dropout=dropout,
            )
            for _ in range(layers)
        )
        self.out = nn.Sequential(nn.Linear(heads * channels, channels), nn.LeakyReLU(leaky_slope))

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        target_index: Tensor,
        edge_attr: Tensor | None = None,
        *,
        return_attention: bool = False,
    ) -> Tensor | tuple[Tensor, list[Attention]]:
        """Targets ``[T, channels]``; with ``return_attention`` also the edges and attention of each layer."""
        nodes, attention = self.encode(x, edge_index, edge_attr)
        out = self.out(nodes.index_select(0, target_index))
        return (out, attention) if return_attention else out

    def encode(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None
    ) -> tuple[Tensor, list[Attention]]:
        """All nodes ``[N, H · channels]`` after the last layer, and the attention of each layer."""
        x = x.repeat(1, self.repeats)
        self._check(x, edge_index, edge_attr)
        attention = []
        for layer in self.layers:
            x, weights = layer(x, edge_index, edge_attr)
            attention.append(weights)
        return x, attention

    def _check(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> None:
        if x.shape[1] != self.width:
            raise ValueError(
                f"nodes must have {self.width // self.repeats} channels, not {x.shape[1] // self.repeats}"
            )
        expected = (edge_index.shape[1], self.edge_channels) if self.edge_channels else None
        found = None if edge_attr is None else tuple(edge_attr.shape)
        if found != expected:
            raise ValueError(f"edge_attr must have the shape {expected}, not {found}")
