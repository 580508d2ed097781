"""Multi-head graph attention with relative poses, the default operator; the layer around an operator."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from trajpred.nn.edges import Edges


def at_least_float32(x: Tensor) -> Tensor:
    """Cast half precision to float32, since metres need it under autocast; float64 stays."""
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.float()
    return x


def mlp(*widths: int) -> nn.Sequential:
    """Stack linear layers of the given widths with GELU between them."""
    layers: list[nn.Module] = []
    for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
        layers.append(nn.Linear(fan_in, fan_out))
        if i < len(widths) - 2:
            layers.append(nn.GELU())
    return nn.Sequential(*layers)


class EdgeBias(nn.Module):
    """Map edge features ε to one additive score per head: b = W₂ GELU(W₁ ε + c).

    Args:
        channels: channels of the edge features.
        heads: heads of the attention that uses the bias.
        hidden: width of W₁.
        skip: number of leading channels to ignore.

    Shapes: ``[channels, ...]`` -> ``[heads, ...]``. Channels come first, so that each has its values side by
    side, and the matrices of the heads too.

    Example:
        >>> EdgeBias(channels=5, heads=2)(torch.randn(5, 7)).shape
        torch.Size([2, 7])
    """

    def __init__(self, channels: int, heads: int, hidden: int = 32, skip: int = 0) -> None:
        super().__init__()
        self.skip = skip
        first = nn.Linear(channels - skip, hidden)
        second = nn.Linear(hidden, heads, bias=False)
        self.net = nn.Sequential(first, nn.GELU(), second)

    def forward(self, features: Tensor) -> Tensor:
        first, activation, second = self.net
        assert isinstance(first, nn.Linear)
        assert isinstance(second, nn.Linear)
        used = features[self.skip :].flatten(1)
        x = torch.addmm(first.bias[:, None], first.weight, used)
        scores = second.weight @ activation(x)
        return scores.unflatten(1, features.shape[1:])


class GraphAttention(nn.Module):
    r"""Multi-head attention over edges, with relative poses in scores and values.

    .. math::
        s_{ij} = q_i \cdot k_j / \sqrt{C} + b_{ij}, \quad
        α_{ij} = \mathrm{softmax}_j\, s_{ij}, \quad
        o_i = W_o \sum_j α_{ij} v_j + W_p\, T_i^{-1} \sum_j α_{ij}\, T_j

    with q = W_q x_receiver, k = W_k x_sender, v = W_v x_sender per head, b the bias of the edges, and T a
    pose as (position, direction). The last term gives the receiver the poses it attends to in its own frame;
    poses enter linearly, so they are summed first and nothing is stored per pair. The output depends on
    relative poses only. Keys have no bias, because softmax is invariant to it. A receiver without edges
    gets 0.

    Args:
        dim: channels of receivers, senders and output.
        heads: number of heads H; C = dim / H.
        poses: whether edges carry poses (the W_p term).

    Shapes: receivers ``[R, dim]``, senders ``[S, dim]`` -> ``[R, dim]``.

    Example:
        >>> from trajpred.data.geometry import Pose
        >>> from trajpred.nn import Edges, Layout
        >>> poses, three = Pose(torch.randn(3, 2), torch.zeros(3)), Layout.of_counts([3])
        >>> index, bias = torch.tensor([[0, 1, 2], [1, 0, 0]]), torch.zeros(2, 3)
        >>> edges = Edges(index, bias, three, three, (poses, poses))
        >>> x = torch.randn(3, 8)
        >>> GraphAttention(8, heads=2)(x, x, edges).shape
        torch.Size([3, 8])
    """

    def __init__(self, dim: int, heads: int, poses: bool = True) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim {dim} must be a multiple of heads {heads}")
        self.heads = heads
        self.poses = poses
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim)
        pooled_channels = dim
        if poses:
            pooled_channels += 4 * heads
        self.out = nn.Linear(pooled_channels, dim, bias=False)

    def forward(self, receiver: Tensor, sender: Tensor, edges: Edges) -> Tensor:
        q = self._heads(self.query, receiver)
        k = self._heads(self.key, sender)
        v = self._heads(self.value, sender)
        # Half precision, which would lose metres of the poses, serves the linear maps only.
        with torch.autocast(receiver.device.type, enabled=False):
            pooled = self._pool(q, k, v, edges).flatten(1)
        if edges.reached is not None:
            pooled = pooled * edges.reached
        out: Tensor = self.out(pooled)
        return out

    def weights(self, receiver: Tensor, sender: Tensor, edges: Edges) -> Tensor:
        """Return the attention α of every edge and head, ``[E, H]``."""
        q = self._heads(self.query, receiver)
        k = self._heads(self.key, sender)
        with torch.autocast(receiver.device.type, enabled=False):
            return edges.weights(q, k)

    def _heads(self, layer: nn.Linear, x: Tensor) -> Tensor:
        """``[N, dim]`` -> ``[N, H, C]`` in float32 or wider."""
        return at_least_float32(layer(x)).unflatten(1, (self.heads, -1))

    def _pool(self, q: Tensor, k: Tensor, v: Tensor, edges: Edges) -> Tensor:
        """Aggregate: ``[R, H, C]``, with poses ``[R, H, C + 4]``."""
        if not self.poses:
            return edges.attend(q, k, v)
        assert edges.poses is not None, "this attention needs edges with poses"
        sender_pose, receiver_pose = edges.poses
        channels = v.shape[2]
        sent_poses = sender_pose.scaled[:, None].expand(-1, self.heads, -1)
        sums = edges.attend(q, k, torch.cat((v, sent_poses), -1))
        pooled, pooled_poses = sums.split((channels, 4), -1)
        # From the common frame into that of each receiver: subtract its position, then rotate position and
        # direction, two rows [x, y] of each head.
        shifted = pooled_poses - receiver_pose.place[:, None]
        rows = shifted.reshape(-1, 2 * self.heads, 2)
        rotated = torch.bmm(rows, receiver_pose.turn).view(shifted.shape)
        return torch.cat((pooled, rotated), -1)


class DropPath(nn.Dropout1d):
    """Stochastic depth (Huang et al. 2016): in training zero whole rows of ``[N, ...]`` with probability p,
    and divide the others by 1 - p."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        rows = x.flatten(1)
        return super().forward(rows).reshape(x.shape)


class GraphTransformerLayer(nn.Module):
    """Residual attention followed by a residual feed-forward network, each with layer normalisation.

    post-LN (the default):  x ← LN(x + A(x, z));  x ← LN(x + F(x))
    pre-LN:                 x ← x + A(LN x, z);   x ← x + F(LN x)

    Serves attention to the nodes themselves (z = x) and to others. A receiver without edges keeps its
    features.

    Args:
        attention: A, called as ``attention(receiver, sender, edges) -> [R, dim]``.
        dim: channels.
        expansion: hidden width of F in units of ``dim``.
        dropout: rate on both residual branches.
        drop_path: probability with which a receiver skips a branch in training, see :class:`DropPath`.
        norm: ``post`` or ``pre``.
        feed_forward: F, by default two linear layers with GELU between them.

    Shapes: x ``[R, dim]``, sender ``[S, dim]`` -> ``[R, dim]``.

    Example:
        >>> from trajpred.nn import Edges
        >>> layer = GraphTransformerLayer(GraphAttention(8, heads=2, poses=False), 8)
        >>> x = torch.randn(6, 8)
        >>> layer(x, Edges.within_groups(x, 3)).shape  # two groups of three nodes
        torch.Size([6, 8])
    """

    def __init__(
        self,
        attention: nn.Module,
        dim: int,
        *,
        expansion: int = 2,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        norm: Literal["post", "pre"] = "post",
        feed_forward: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.pre = norm == "pre"
        if feed_forward is None:
            feed_forward = mlp(dim, expansion * dim, dim)
        self.feed_forward = feed_forward
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.rate = dropout
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, edges: Edges, sender: Tensor | None = None) -> Tensor:
        """Update ``x`` by attention to ``sender`` (by default to itself) over ``edges``."""
        if self.pre:
            normed = self.norm1(x)
            if sender is None:
                sender = normed
            x = x + self._drop(self.attention(normed, sender, edges))
            return x + self._drop(self.feed_forward(self.norm2(x)))
        if sender is None:
            sender = x
        attended = self.attention(x, sender, edges)
        x = self.norm1(x + self._drop(attended))
        return self.norm2(x + self._drop(self.feed_forward(x)))

    def _drop(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return self.drop_path(nn.functional.dropout(x, self.rate))
