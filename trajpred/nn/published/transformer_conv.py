"""``TransformerConv``: dot-product attention over edges with edge features, gate and residuals."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import BatchNorm

from trajpred.nn.published.keras_names import Initializer, TensorFunction, initializer_of
from trajpred.nn.segment import both, segment_softmax, segment_sum

#: Nodes ``[N, in]``, or senders ``[S, in_s]`` and receivers ``[R, in_r]``.
Nodes = Tensor | tuple[Tensor, Tensor]


class EdgeProjection(nn.Linear):
    r"""Edge part W ε + b of keys and values, evaluated without a row of H · C numbers per edge.

    .. math::
        q_i \cdot (W ε_{ij}) = (W^T q_i) \cdot ε_{ij}, \qquad
        \sum_j α_{ij} (W ε_{ij} + b) = W \sum_j α_{ij} ε_{ij} + b \sum_j α_{ij}

    This is fast for short ε (``ein`` channels) such as relative poses. Calling the module gives the plain
    linear map.
    """

    def __init__(self, ein: int, heads: int, out: int, bias: bool = True) -> None:
        super().__init__(ein, heads * out, bias=bias)
        self.heads = heads

    def score(self, query: Tensor, edge_attr: Tensor, receiver: Tensor) -> Tensor:
        """Compute q·(W ε): ``[R, H, C]``, ``[E, F]``, ``[E]`` -> ``[E, H]``.

        q·b is omitted: it is equal for all edges of a receiver, so softmax cancels it.
        """
        weight = self._by_head(self.weight, query)
        projected = torch.einsum("rhc,hcf->rhf", query, weight)
        product = projected.index_select(0, receiver) * edge_attr[:, None]
        return product.sum(-1)

    def pool(self, attention: Tensor, edge_attr: Tensor, receiver: Tensor, num_receivers: int) -> Tensor:
        """Compute Σ α (W ε + b): ``[E, H]``, ``[E, F]``, ``[E]`` -> ``[R, H, C]``."""
        weighted = attention[..., None] * edge_attr[:, None]
        pooled = segment_sum(weighted, receiver, num_receivers)
        weight = self._by_head(self.weight, pooled)
        pooled = torch.einsum("rhf,hcf->rhc", pooled, weight)
        if self.bias is None:
            return pooled
        total = segment_sum(attention, receiver, num_receivers)
        return pooled + total[..., None] * self._by_head(self.bias, pooled)

    def _by_head(self, parameter: Tensor, like: Tensor) -> Tensor:
        return parameter.to(like.dtype).unflatten(0, (self.heads, -1))


class TransformerConv(nn.Module):
    r"""Graph transformer operator of Shi et al. 2021 (Masked Label Prediction, arXiv 2009.03509), with the
    options of GraphNeuralNetworks.jl.

    Per head, over the edges j → i:

    .. math::
        s_{ij} &= (W_3 x_i)^T (W_4 x_j + W_6 e_{ij}) / \sqrt{out}, \quad α = \mathrm{softmax}_j\, s \\
        m_i &= \sum_j α_{ij} (W_2 x_j + W_6 e_{ij}) \quad \text{(heads concatenated or averaged)} \\
        h_i &= m_i + r_i, \quad r_i = W_1 x_i \quad \text{or, gated,} \quad
            h_i = β_i r_i + (1 - β_i) m_i, \quad β_i = σ(W_5 [m_i, r_i, m_i - r_i])

    then, if requested, ``h ← BN₁(h + x)`` and ``h ← BN₂(h + W_b relu(W_a h))``. A node without incoming edges
    has m = 0.

    Names and defaults are those of the published ``TransformerConv((in, ein) => out; ...)``, with ``in_``
    for the keyword ``in``; ``edge_bias`` and ``dropout`` are additions. With ``edge_bias=False`` this is
    PyG's ``TransformerConv`` (whose ``beta`` is ``gating`` and whose ``bias`` is ``bias_qkv`` and
    ``bias_root``).

    Args:
        in_: channels of a node, or of (senders, receivers).
        out: channels per head C.
        ein: channels of an edge; if 0, edge features are ignored.
        heads: number of heads H.
        concat: concatenate the heads (D = H · C) instead of averaging them (D = C).
        init: a name such as ``glorot_uniform``, or a function that fills a weight matrix in place; biases
            start at zero.
        add_self_loops: add a loop to every node; existing loops stay and count as well.
        bias_qkv: biases of W₂, W₃, W₄ and, unless ``edge_bias`` is given, of W₆.
        bias_root: bias of W₁.
        root_weight: include the r term; without it ``gating`` has no effect.
        gating: mix m and r by β instead of adding them.
        skip_connection: the two residuals; needs receivers with D channels.
        batch_norm: the two batch normalisations (the second only with a feed-forward network).
        ff_channels: hidden width of the feed-forward network, 0 for none.
        edge_bias: bias of W₆; None follows ``bias_qkv`` as published, False is PyG's form.
        dropout: rate on α.

    Shapes: x ``[N, in]`` or (``[S, in_s]``, ``[R, in_r]``), edge_index ``[2, E]`` (sender, receiver),
    edge_attr ``[E, ein]`` -> ``[R, D]``; attention ``[E, H]``, with ``add_self_loops`` ``[E + N, H]``,
    loops last.

    Example (the published one):
        >>> conv = TransformerConv(3, 3, ein=2, heads=3, gating=True, bias_qkv=True)
        >>> edge_index = torch.tensor([[0, 0, 1, 3], [1, 2, 0, 0]])
        >>> conv(torch.rand(4, 3), edge_index, torch.rand(4, 2)).shape
        torch.Size([4, 9])
    """

    def __init__(
        self,
        in_: int | tuple[int, int],
        out: int,
        ein: int = 0,
        *,
        heads: int = 1,
        concat: bool = True,
        init: Initializer = "glorot_uniform",
        add_self_loops: bool = False,
        bias_qkv: bool = True,
        bias_root: bool = True,
        root_weight: bool = True,
        gating: bool = False,
        skip_connection: bool = False,
        batch_norm: bool = False,
        ff_channels: int = 0,
        edge_bias: bool | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sent, received = both(in_)
        dim = heads * out if concat else out
        if add_self_loops and ein > 0:
            raise ValueError("add_self_loops excludes edge features (ein > 0): a loop has none")
        if skip_connection and received != dim:
            problem = f"skip_connection needs nodes with {dim} channels (the output's), not {received}"
            raise ValueError(problem)
        self.ein = ein
        self.heads = heads
        self.concat = concat
        self.add_self_loops = add_self_loops
        self.skip_connection = skip_connection
        self.query = nn.Linear(received, heads * out, bias=bias_qkv)
        self.key = nn.Linear(sent, heads * out, bias=bias_qkv)
        self.value = nn.Linear(sent, heads * out, bias=bias_qkv)
        self.edge: EdgeProjection | None = None
        if ein > 0:
            self.edge = EdgeProjection(ein, heads, out, bias=bias_qkv if edge_bias is None else edge_bias)
        self.root: nn.Linear | None = None
        self.gate: nn.Linear | None = None
        if root_weight:
            self.root = nn.Linear(received, dim, bias=bias_root)
            if gating:
                self.gate = nn.Linear(3 * dim, 1, bias=False)
        self.feed_forward: nn.Sequential | None = None
        if ff_channels > 0:
            inner = nn.Linear(dim, ff_channels)
            outer = nn.Linear(ff_channels, dim)
            self.feed_forward = nn.Sequential(inner, nn.ReLU(), outer)
        self.norm1: BatchNorm | None = None
        self.norm2: BatchNorm | None = None
        if batch_norm:
            # A single node has no variance: it is normalised by the running statistics.
            self.norm1 = BatchNorm(dim, allow_single_element=True)
            if self.feed_forward is not None:
                self.norm2 = BatchNorm(dim, allow_single_element=True)
        self.dropout = nn.Dropout(dropout)
        self._initialize(initializer_of(init))

    def _initialize(self, initialize: TensorFunction) -> None:
        """Fill the weights of all linear maps, and zero their biases."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                with torch.no_grad():
                    initialize(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(
        self,
        x: Nodes,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        *,
        return_attention: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return ``[R, D]``; with ``return_attention`` also the attention."""
        _, receiver = both(x)
        message, attention = self.attend(x, edge_index, edge_attr)
        out = self.combine(message, receiver)
        if return_attention:
            return out, attention
        return out

    def attend(self, x: Nodes, edge_index: Tensor, edge_attr: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Score, normalise, aggregate: m ``[R, D]`` and α ``[E, H]`` (before dropout)."""
        sender, receiver = both(x)
        edge_attr = self._check(sender, receiver, edge_index, edge_attr)
        if self.add_self_loops:
            loops = torch.arange(receiver.shape[0], device=edge_index.device).expand(2, -1)
            edge_index = torch.cat((edge_index, loops), 1)
        by_head = (self.heads, -1)
        q = self.query(receiver).unflatten(-1, by_head)
        k = self.key(sender).unflatten(-1, by_head)
        v = self.value(sender).unflatten(-1, by_head)
        # Sums over many edges stay out of half precision.
        with torch.autocast(q.device.type, enabled=False):
            dtype = torch.promote_types(q.dtype, torch.float32)
            if edge_attr is not None:
                edge_attr = edge_attr.to(dtype)
            attention, message = self._aggregate(q.to(dtype), k.to(dtype), v.to(dtype), edge_attr, edge_index)
        message = message.to(v.dtype)
        if self.concat:
            return message.flatten(1), attention
        return message.mean(1), attention

    def _aggregate(
        self, q: Tensor, k: Tensor, v: Tensor, edge_attr: Tensor | None, edge_index: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the attention ``[E, H]`` and the aggregated values ``[R, H, C]``."""
        sender, receiver = edge_index
        R = q.shape[0]
        product = q.index_select(0, receiver) * k.index_select(0, sender)
        score = product.sum(-1)
        if self.edge is not None and edge_attr is not None:
            score = score + self.edge.score(q, edge_attr, receiver)
        attention = segment_softmax(score / q.shape[-1] ** 0.5, receiver, R)
        weight = self.dropout(attention)
        message = segment_sum(weight[..., None] * v.index_select(0, sender), receiver, R)
        if self.edge is not None and edge_attr is not None:
            message = message + self.edge.pool(weight, edge_attr, receiver, R)
        return attention, message

    def combine(self, message: Tensor, x: Tensor) -> Tensor:
        """Combine messages m ``[R, D]`` with the receivers' own features ``[R, in]``: ``[R, D]``."""
        h = message
        if self.root is not None:
            root = self.root(x)
            h = message + root
            if self.gate is not None:
                features = torch.cat((message, root, message - root), -1)
                beta = torch.sigmoid(self.gate(features))
                h = beta * root + (1 - beta) * message
        h = self._residual_norm(h, x, self.norm1)
        if self.feed_forward is None:
            return h
        return self._residual_norm(self.feed_forward(h), h, self.norm2)

    def _residual_norm(self, h: Tensor, before: Tensor, norm: nn.Module | None) -> Tensor:
        if self.skip_connection:
            h = h + before
        if norm is not None:
            h = norm(h)
        return h

    def _check(
        self, sender: Tensor, receiver: Tensor, edge_index: Tensor, edge_attr: Tensor | None
    ) -> Tensor | None:
        """Return the edge features to use, if any."""
        if self.add_self_loops and sender is not receiver:
            raise ValueError("add_self_loops needs senders and receivers to be the same nodes")
        if self.add_self_loops and edge_attr is not None:
            raise ValueError("add_self_loops excludes edge features: a loop has none")
        if self.ein == 0:
            return None
        expected = (edge_index.shape[1], self.ein)
        if edge_attr is None or edge_attr.shape != expected:
            shape = None if edge_attr is None else tuple(edge_attr.shape)
            raise ValueError(f"edge_attr must have the shape [E, ein] = {expected}, not {shape}")
        return edge_attr
