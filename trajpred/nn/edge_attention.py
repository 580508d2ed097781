"""Published operators as the attention of a transformer layer, from any senders to any receivers."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from trajpred.nn.attention import Edges
from trajpred.nn.published.gat import GATLayer
from trajpred.nn.published.graph_transformer import ClampedAttention
from trajpred.nn.published.multi_head_attention import MultiHeadAttentionConv
from trajpred.nn.published.padded_attention import PaddedAttention
from trajpred.nn.published.transformer_conv import TransformerConv

#: Operators that are defined between two sets of nodes.
Operator = Literal[
    "transformer_conv", "multi_head_attention", "gat", "gatv2", "graph_transformer", "global_attention"
]


class EdgeAttention(nn.Module):
    r"""A published operator as the attention of a :class:`~trajpred.nn.GraphTransformerLayer`.

    .. math:: o_i = W_o\, m_i + b_o

    with m the output of the operator over the edges and their features, its heads concatenated; residuals,
    norms and the feed-forward network are the layer's. The poses and the bias of the edges are not used.
    A receiver without edges gets 0.

    - ``transformer_conv``: :class:`~trajpred.nn.TransformerConv`, gated.
    - ``multi_head_attention``: :class:`~trajpred.nn.MultiHeadAttentionConv` with its defaults.
    - ``gat``, ``gatv2``: the convolution of a plain :class:`~trajpred.nn.GATLayer`, without self loops.
    - ``graph_transformer``: the attention of the Graph Transformer's layers, with the product of scores and
      edge features; without the edge stream.
    - ``global_attention``: DenseTNT's cross-attention, :class:`~trajpred.nn.PaddedAttention`; the linear map
      of an edge's features is added to its sender.

    Args:
        operator: see above.
        dim: channels of receivers, senders and output.
        heads: number of heads H.
        edge_channels: channels of the edges' features, 0 for none.

    Shapes: receivers ``[R, dim]``, senders ``[S, dim]`` -> ``[R, dim]``.

    Example:
        >>> import torch
        >>> from trajpred.nn import Edges
        >>> attention = EdgeAttention("gatv2", 8, heads=2)
        >>> x = torch.randn(6, 8)
        >>> attention(x, x, Edges.within_groups(x, 3)).shape  # two groups of three nodes
        torch.Size([6, 8])
    """

    def __init__(self, operator: Operator, dim: int, heads: int, edge_channels: int = 0) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim {dim} must be a multiple of heads {heads}")
        self.featured = edge_channels > 0
        self.operator = _build(operator, dim, heads, edge_channels)
        self.out = nn.Linear(dim, dim)

    def forward(self, receiver: Tensor, sender: Tensor, edges: Edges) -> Tensor:
        message, _ = self._operate(receiver, sender, edges)
        out = self.out(message)
        if edges.reached is None:
            return out
        return out * edges.reached

    def weights(self, receiver: Tensor, sender: Tensor, edges: Edges) -> Tensor:
        """Return the attention α of every edge and head, ``[E, H]``."""
        return self._operate(receiver, sender, edges)[1]

    def _operate(self, receiver: Tensor, sender: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
        """Return the output of the operator and the weights of its edges."""
        features = edges.features if self.featured else None
        options: dict[str, bool] = {}
        if not isinstance(self.operator, (ClampedAttention, GATLayer)):  # which always return the attention
            options["return_attention"] = True
        result = self.operator((sender, receiver), edges.index, features, **options)
        message = result[0]
        weight = result[-1]
        if isinstance(weight, tuple):  # GAT's edges and their weights
            weight = weight[1]
        return message, weight


class _CrossAttention(PaddedAttention):
    """Cross-attention over edges: an edge's keys and values come from its sender plus its features."""

    def __init__(self, dim: int, heads: int, edge_channels: int) -> None:
        super().__init__(dim, num_attention_heads=heads)
        self.edge: nn.Linear | None = None
        if edge_channels:
            self.edge = nn.Linear(edge_channels, dim)

    def forward(  # type: ignore[override]  # the signature of the other operators
        self, x: tuple[Tensor, Tensor], edge_index: Tensor, edge_attr: Tensor | None, return_attention: bool
    ) -> tuple[Tensor, Tensor]:
        sender, receiver = x
        j, i = edge_index
        z = sender.index_select(0, j)
        if self.edge is not None:
            z = z + self.edge(edge_attr)
        return self._attend_over_edges(receiver, z, i)


def _build(operator: Operator, dim: int, heads: int, edge_channels: int) -> nn.Module:
    """Build a published operator from its name."""
    width = dim // heads
    edge_dim = edge_channels or None
    if operator == "transformer_conv":
        return TransformerConv(dim, width, edge_channels, heads=heads, gating=True)
    if operator == "multi_head_attention":
        return MultiHeadAttentionConv(
            num_heads=heads,
            per_head_channels=width,
            receiver_tag="target",
            sender_edge_feature="relative_pose" if edge_channels else None,
            receiver_channels=dim,
            sender_node_channels=dim,
            sender_edge_channels=edge_dim,
        )
    if operator == "graph_transformer":
        return ClampedAttention(dim, dim, heads, edge_dim=edge_dim, epsilon=1e-6)
    if operator == "global_attention":
        return _CrossAttention(dim, heads, edge_channels)
    return GATLayer(
        width,
        heads,
        conv=operator,
        plain=True,
        in_channels=(dim, dim),  # senders and receivers have maps of their own
        edge_channels=edge_channels,
        add_self_loops=False,
    )
