"""Stacked graph attention (GAT, GATv2) with a read-out of target nodes, on the convolutions of PyG."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv

#: Edges after self loops were replaced, ``[2, E']``, and their attention ``[E', H]``.
Attention = tuple[Tensor, Tensor]

CONVOLUTIONS = {"gat": GATConv, "gatv2": GATv2Conv}


class GATLayer(nn.Module):
    r"""Post-LN residual layer around a graph attention convolution.

    .. math::
        x ← \mathrm{LN}_1(x + \mathrm{drop}(\mathrm{conv}(x))), \qquad
        x ← \mathrm{LN}_2(x + \mathrm{drop}(W_2\, \mathrm{drop}(\mathrm{LeakyReLU}(W_1 x + b_1)) + b_2))

    Per head, the scores and values of GAT (Veličković et al. 2018) and of GATv2 (Brody et al. 2022) are

    .. math::
        s_{ij} &= \mathrm{LeakyReLU}(a_s \cdot W x_j + a_t \cdot W x_i + a_e \cdot W_e e_{ij}), &\quad
        v_j &= W x_j \\
        s_{ij} &= a \cdot \mathrm{LeakyReLU}(W_l x_j + W_r x_i + W_e e_{ij}), &\quad v_j &= W_l x_j

    with slope 0.2; α = softmax_j s, followed by dropout; conv(x) concatenates Σ_j α v_j of the heads and adds
    a bias. A plain layer is conv(x) alone.

    Args:
        channels: channels C of a head; the layer has H · C.
        heads: number of heads H.
        conv: ``gat`` or ``gatv2``.
        plain: no residual, norm or feed-forward network.
        in_channels: channels of x for a plain layer, one number or (senders, receivers); H · C by default.
        edge_channels: channels of an edge, 0 for none.
        leaky_slope: slope of the LeakyReLU in the feed-forward network.
        dropout: rate of drop(·) above.
        attention_dropout: rate on α.
        negative_slope: option of PyG's convolution, with its name there.
        add_self_loops: option of PyG's convolution.
        fill_value: option of PyG's convolution.
        bias: option of PyG's convolution.
        residual: option of PyG's convolution.
        share_weights: option of PyG's convolution: W_l = W_r; GATv2 only.

    Shapes: x ``[N, H · C]``, or of a plain layer also (senders ``[S, …]``, receivers ``[R, …]``), edge_index
    ``[2, E]`` -> ``[N, H · C]`` or ``[R, H · C]``. With ``add_self_loops`` every node
    attends to itself: existing loops are replaced by one per node, whose edge features are the mean
    (``fill_value``) over the incoming edges.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        *,
        conv: Literal["gat", "gatv2"] = "gatv2",
        plain: bool = False,
        in_channels: int | tuple[int, int] | None = None,
        edge_channels: int = 0,
        leaky_slope: float = 0.3,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        negative_slope: float = 0.2,
        add_self_loops: bool = True,
        fill_value: float | Literal["add", "mean", "min", "max", "mul"] = "mean",
        bias: bool = True,
        residual: bool = False,
        share_weights: bool = False,
    ) -> None:
        super().__init__()
        if conv not in CONVOLUTIONS:
            raise ValueError(f"conv must be one of {sorted(CONVOLUTIONS)}, not {conv!r}")
        if share_weights and conv != "gatv2":
            raise ValueError("share_weights needs conv gatv2: GAT has one matrix for both ends of an edge")
        dim = heads * channels
        if in_channels is None:
            in_channels = dim
        extra: dict[str, Any] = {}
        if edge_channels:
            extra["edge_dim"] = edge_channels
        if share_weights:
            extra["share_weights"] = True
        self.conv = CONVOLUTIONS[conv](
            in_channels,
            channels,
            heads=heads,
            dropout=attention_dropout,
            negative_slope=negative_slope,
            add_self_loops=add_self_loops,
            fill_value=fill_value,
            bias=bias,
            residual=residual,
            **extra,
        )
        self.plain = plain
        if plain:
            return
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, dim), nn.LeakyReLU(leaky_slope), nn.Dropout(dropout), nn.Linear(dim, dim)
        )
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor | tuple[Tensor, Tensor], edge_index: Tensor, edge_attr: Tensor | None = None
    ) -> tuple[Tensor, Attention]:
        """Return the new node features and the attention."""
        message, attention = self.conv(x, edge_index, edge_attr, return_attention_weights=True)
        if self.plain or not isinstance(x, Tensor):
            return message, attention
        x = self.norm1(x + self.dropout(message))
        return self.norm2(x + self.dropout(self.feed_forward(x))), attention


class GATEncoder(nn.Module):
    r"""The two encoders of the trajectory-prediction article: stacked :class:`GATLayer`\ s, and a read-out
    LeakyReLU(W x + b) of the target nodes.

    The first encoder has ``plain`` layers; the second repeats node features once per head.

    Graphs are flattened (:func:`~trajpred.nn.segment.flatten_edges`), in any number and of any size.

    Args:
        channels: channels of the nodes and of the output (the encoder size of the article).
        heads: number of heads H; the layers have H · channels.
        layers: number of layers.
        plain: see :class:`GATLayer`.
        edge_channels: see :class:`GATLayer`.
        options: further arguments of :class:`GATLayer`.
        leaky_slope: slope of all LeakyReLU outside the convolutions.
        repeat_input: False if nodes already have H · channels; plain layers never repeat.

    Shapes: x ``[N, channels]``, edge_index ``[2, E]``, target_index ``[T]`` -> ``[T, channels]``.

    Example:
        >>> import torch
        >>> from trajpred.nn import flatten_stars
        >>> encoder = GATEncoder(16, heads=3, layers=2)
        >>> graphs = flatten_stars(torch.tensor([8, 8, 5]))  # three targets with 8, 8 and 5 neighbours
        >>> encoder(torch.rand(24, 16), graphs.edge_index, graphs.target_index).shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        channels: int,
        heads: int = 3,
        layers: int = 1,
        *,
        plain: bool = False,
        edge_channels: int = 0,
        leaky_slope: float = 0.3,
        repeat_input: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        width = heads * channels
        self.edge_channels = edge_channels
        self.repeats = 1
        if repeat_input and not plain:
            self.repeats = heads
        self.in_channels = channels if repeat_input else width
        self.layers = nn.ModuleList()
        for number in range(layers):
            layer = GATLayer(
                channels,
                heads,
                plain=plain,
                in_channels=self.in_channels if plain and number == 0 else None,
                edge_channels=edge_channels,
                leaky_slope=leaky_slope,
                **options,
            )
            self.layers.append(layer)
        self.out = nn.Sequential(nn.Linear(width, channels), nn.LeakyReLU(leaky_slope))

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        target_index: Tensor,
        edge_attr: Tensor | None = None,
        *,
        return_attention: bool = False,
    ) -> Tensor | tuple[Tensor, list[Attention]]:
        """Return the targets; with ``return_attention`` also the attention of each layer."""
        nodes, attention = self.encode(x, edge_index, edge_attr)
        out = self.out(nodes.index_select(0, target_index))
        if return_attention:
            return out, attention
        return out

    def encode(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None
    ) -> tuple[Tensor, list[Attention]]:
        """Return all nodes ``[N, H · channels]`` after the last layer, and the attention of each layer."""
        if x.shape[1] != self.in_channels:
            raise ValueError(f"nodes must have {self.in_channels} channels, not {x.shape[1]}")
        expected = None
        if self.edge_channels:
            expected = (edge_index.shape[1], self.edge_channels)
        shape = None if edge_attr is None else tuple(edge_attr.shape)
        if shape != expected:
            raise ValueError(f"edge_attr must have the shape {expected}, not {shape}")
        x = x.repeat(1, self.repeats)
        attention = []
        for layer in self.layers:
            x, weights = layer(x, edge_index, edge_attr)
            attention.append(weights)
        return x, attention
