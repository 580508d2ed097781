"""The Graph Transformer layer, without and with an edge stream.

V. P. Dwivedi, X. Bresson: A Generalization of Transformer Networks to Graphs (2020),
https://arxiv.org/abs/2012.09699, as implemented in github.com/graphdeeplearning/graphtransformer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch_geometric.nn import BatchNorm

from trajpred.nn.published.pairs import both
from trajpred.nn.segment import segment_sum


def clamped_softmax(score: Tensor, receiver: Tensor, num_receivers: int, epsilon: float = 0.0) -> Tensor:
    r"""Normalise clamped scores over the edges of each receiver.

    .. math:: α_e = \frac{w_e}{ε + \sum_{e' \to i(e)} w_{e'}}, \qquad w_e = \exp(\mathrm{clamp}(s_e, -5, 5))

    Shapes: score ``[E, ...]``, receiver i(e) ``[E]`` int64 -> ``[E, ...]``.
    """
    weight = torch.exp(score.clamp(-5, 5))  # so that no maximum needs to be subtracted
    total = segment_sum(weight, receiver, num_receivers) + epsilon
    return weight / total.index_select(0, receiver)


class ClampedAttention(nn.Module):
    r"""Attention of both layers.

    .. math::
        \hat s_{ij} = \frac{q_i ⊙ k_j}{\sqrt C} \,(⊙\, W_E e_{ij}), \qquad
        α_{ij} = \mathrm{clamped\,softmax}_j \sum_c \hat s_{ij,c}, \qquad
        m_i = \sum_j α_{ij} v_j

    per head of C channels, q = W_Q x_i, k = W_K x_j, v = W_V x_j. The clamp acts on the sum over channels.
    Parallel edges count separately; m is exactly 0 for a receiver without edges.

    Args as those of the layers. Without ``edge_dim`` there is no W_E.

    Shapes: x ``[N, in]`` or (``[S, in_s]``, ``[R, in_r]``), edge_index ``[2, E]`` (sender, receiver),
    edge_attr ``[E, edge_dim]`` if and only if there is a W_E -> m ``[R, out]`` and ŝ ``[E, out]``, heads
    concatenated, and α ``[E, H]``.
    """

    def __init__(
        self,
        in_dim: int | tuple[int, int],
        out_dim: int,
        num_heads: int,
        use_bias: bool = False,
        edge_dim: int | None = None,
        epsilon: float = 0.0,
    ) -> None:
        super().__init__()
        if num_heads < 1 or out_dim % num_heads:
            raise ValueError(f"out_dim {out_dim} must be a multiple of num_heads {num_heads}")
        sender_dim, receiver_dim = both(in_dim)
        self.num_heads = num_heads
        self.epsilon = epsilon
        self.query = nn.Linear(receiver_dim, out_dim, bias=use_bias)
        self.key = nn.Linear(sender_dim, out_dim, bias=use_bias)
        self.value = nn.Linear(sender_dim, out_dim, bias=use_bias)
        self.edge: nn.Linear | None = None
        if edge_dim is not None:
            self.edge = nn.Linear(edge_dim, out_dim, bias=use_bias)

    def forward(
        self, x: Tensor | tuple[Tensor, Tensor], edge_index: Tensor, edge_attr: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        x_sender, x_receiver = both(x)
        sender, receiver = edge_index
        q = self._by_head(self.query(x_receiver))
        k = self._by_head(self.key(x_sender))
        v = self._by_head(self.value(x_sender))
        edge = None
        if self.edge is not None:
            edge = self._by_head(self.edge(edge_attr))
        # Exponentials and sums over many edges stay out of half precision.
        with torch.autocast(q.device.type, enabled=False):
            dtype = torch.promote_types(q.dtype, torch.float32)
            query = q.to(dtype) / q.shape[-1] ** 0.5
            score = query.index_select(0, receiver) * k.to(dtype).index_select(0, sender)
            if edge is not None:
                score = score * edge
            weight = clamped_softmax(score.sum(-1), receiver, q.shape[0], self.epsilon)
            message = weight[..., None] * v.to(dtype).index_select(0, sender)
            pooled = segment_sum(message, receiver, q.shape[0])
        return pooled.flatten(1).to(q.dtype), score.flatten(1).to(q.dtype), weight

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1))


class StreamUpdate(nn.Module):
    r"""Update of one stream (nodes or edges) from the messages m of the attention.

    .. math::
        x ← N_1(x + O\,\mathrm{drop}(m)), \qquad x ← N_2(x + W_2\,\mathrm{drop}(\mathrm{ReLU}(W_1 x)))

    O, W₁ (to twice the width) and W₂ have biases. N is layer normalisation if ``layer_norm``, then batch
    normalisation if ``batch_norm``; without ``residual`` both ``x +`` are omitted.

    Shapes: x ``[N, in_dim]``, m ``[N, out_dim]`` -> ``[N, out_dim]``.
    """

    def __init__(
        self, in_dim: int, out_dim: int, dropout: float, layer_norm: bool, batch_norm: bool, residual: bool
    ) -> None:
        super().__init__()
        if residual and in_dim != out_dim:
            raise ValueError(f"a residual connection needs equal widths, not {in_dim} and {out_dim}")
        self.residual = residual
        self.out = nn.Linear(out_dim, out_dim)
        self.norm1 = _norms(out_dim, layer_norm, batch_norm)
        self.ffn1 = nn.Linear(out_dim, 2 * out_dim)
        self.ffn2 = nn.Linear(2 * out_dim, out_dim)
        self.norm2 = _norms(out_dim, layer_norm, batch_norm)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, message: Tensor) -> Tensor:
        out = self.out(self.dropout(message))
        if self.residual:
            out = x + out
        x = self.norm1(out)
        # In place, because streams of edges are long: dropout commutes with ReLU.
        hidden = dropout(self.ffn1(x), self.dropout.p, self.training, inplace=True).relu_()
        out = self.ffn2(hidden)
        if self.residual:
            out = x + out
        return self.norm2(out)


class DwivediGraphTransformerLayer(nn.Module):
    """Graph Transformer layer without edge features: attention (ε = 0), then the update of the nodes.

    Args:
        in_dim: channels of the nodes, or of (senders, receivers).
        out_dim: H · C.
        num_heads: number of heads H.
        dropout: rate before O and within the feed-forward network.
        layer_norm: normalise each row; precedes batch normalisation if both are on.
        batch_norm: normalise each channel.
        residual: needs receivers with ``out_dim`` channels.
        use_bias: biases of W_Q, W_K, W_V and W_E.

    Example:
        >>> layer = DwivediGraphTransformerLayer(in_dim=8, out_dim=8, num_heads=2)
        >>> layer(torch.randn(4, 8), torch.tensor([[0, 1, 2], [1, 2, 1]])).shape
        torch.Size([4, 8])
    """

    def __init__(
        self,
        in_dim: int | tuple[int, int],
        out_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        layer_norm: bool = False,
        batch_norm: bool = True,
        residual: bool = True,
        use_bias: bool = False,
    ) -> None:
        super().__init__()
        self.attention = ClampedAttention(in_dim, out_dim, num_heads, use_bias)
        _, receiver_dim = both(in_dim)
        self.nodes = StreamUpdate(receiver_dim, out_dim, dropout, layer_norm, batch_norm, residual)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor,
        edge_attr: None = None,
        *,
        return_attention: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return nodes ``[R, out_dim]``, with ``return_attention`` also α ``[E, H]``."""
        if edge_attr is not None:
            raise ValueError("this layer has no edge stream: use DwivediGraphTransformerEdgeLayer")
        message, _, weight = self.attention(x, edge_index)
        _, receiver = both(x)
        out = self.nodes(receiver, message)
        if return_attention:
            return out, weight
        return out


class DwivediGraphTransformerEdgeLayer(nn.Module):
    """Graph Transformer layer with an edge stream.

    Attention uses edge features (ε = 1e-6). The nodes are updated from its messages m, the edges, with
    weights of their own, from its vector scores ŝ before the clamp.

    Args:
        in_dim: see :class:`DwivediGraphTransformerLayer`, as for the following.
        out_dim: likewise.
        num_heads: likewise.
        dropout: likewise.
        layer_norm: likewise, of both streams.
        batch_norm: likewise, of both streams.
        residual: likewise, of both streams.
        use_bias: likewise.
        edge_dim: channels of the edges, by default those of the receivers; ``out_dim`` with ``residual``.
        update_edges: False returns the edges unchanged and creates no weights for them (for a last layer).

    Example:
        >>> layer = DwivediGraphTransformerEdgeLayer(in_dim=8, out_dim=8, num_heads=2)
        >>> x, edge_index = torch.randn(4, 8), torch.tensor([[0, 1, 2], [1, 2, 1]])
        >>> x, edge_attr = layer(x, edge_index, torch.randn(3, 8))
        >>> x.shape, edge_attr.shape
        (torch.Size([4, 8]), torch.Size([3, 8]))
    """

    def __init__(
        self,
        in_dim: int | tuple[int, int],
        out_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        layer_norm: bool = False,
        batch_norm: bool = True,
        residual: bool = True,
        use_bias: bool = False,
        *,
        edge_dim: int | None = None,
        update_edges: bool = True,
    ) -> None:
        super().__init__()
        _, receiver_dim = both(in_dim)
        if edge_dim is None:
            edge_dim = receiver_dim
        self.attention = ClampedAttention(in_dim, out_dim, num_heads, use_bias, edge_dim, epsilon=1e-6)
        self.nodes = StreamUpdate(receiver_dim, out_dim, dropout, layer_norm, batch_norm, residual)
        self.edges: StreamUpdate | None = None
        if update_edges:
            self.edges = StreamUpdate(edge_dim, out_dim, dropout, layer_norm, batch_norm, residual)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        *,
        return_attention: bool = False,
    ) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]:
        """Return nodes ``[R, out_dim]`` and edges ``[E, out_dim]``; with ``return_attention`` also α."""
        if edge_attr is None:
            raise ValueError("edge_attr is required: without edge features use DwivediGraphTransformerLayer")
        message, score, weight = self.attention(x, edge_index, edge_attr)
        _, receiver = both(x)
        out = self.nodes(receiver, message)
        edges = edge_attr
        if self.edges is not None:
            edges = self.edges(edge_attr, score)
        if return_attention:
            return out, edges, weight
        return out, edges


def _norms(width: int, layer_norm: bool, batch_norm: bool) -> nn.Sequential:
    norms = nn.Sequential()
    if layer_norm:
        norms.add_module("layer", nn.LayerNorm(width))
    if batch_norm:  # a single row has no variance: it is normalised by the running statistics
        norms.add_module("batch", BatchNorm(width, allow_single_element=True))
    return norms
