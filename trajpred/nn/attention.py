"""The default operator, graph attention with relative poses, on edges or blocks, and its layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from trajpred.data.geometry import Pose
from trajpred.nn.segment import LOWEST, segment_softmax, segment_sum


@dataclass
class Layout:
    """The places of a flattened batch's nodes in padded scenes.

    Matrix products are computed over blocks of scenes. On a CPU every scene is a block: no padding, and
    intermediate results stay in the cache. Elsewhere all scenes are padded to one size and form one block,
    because few large products are fastest there.

    Sizes are kept on the host, where they are known when a batch is made: reading them from a GPU would
    stall.

    Attributes:
        scene: ``[N]`` int64, scene of each node.
        within: ``[N]`` int64, place of each node within its scene.
        count: ``[scenes]`` int64, nodes of each scene.
        counts: ``count`` on the host.
        together: whether all scenes form one block.
        ordered: whether nodes come scene by scene, each in the order of ``within``.

    Example:
        >>> layout = Layout.of_counts([2, 1])
        >>> layout.pad(torch.tensor([1.0, 2.0, 3.0]))
        tensor([[1., 2.],
                [3., 0.]])
    """

    scene: Tensor
    within: Tensor
    count: Tensor
    counts: list[int]
    together: bool
    ordered: bool = True

    @classmethod
    def of(
        cls, batch: Tensor, pointer: Tensor, counts: list[int] | None = None, together: bool | None = None
    ) -> Layout:
        """Build from the ``batch`` ``[N]`` and ``ptr`` ``[scenes + 1]`` of a PyG batch.

        Args:
            counts: nodes of each scene, on the host; by default read from ``pointer``.
            together: whether all scenes form one block; by default on all devices but CPUs.
        """
        if together is None:
            together = batch.device.type != "cpu"
        count = pointer[1:] - pointer[:-1]
        node = torch.arange(batch.shape[0], device=batch.device)
        if count.shape[0] == 1:  # sizes are known without reading data, as exported graphs require
            return cls(batch, node, count, [batch.shape[0]], together)
        if counts is None:
            counts = count.tolist()
        first = pointer[batch]
        return cls(batch, node - first, count, counts, together)

    @classmethod
    def of_counts(cls, counts: list[int], together: bool | None = None) -> Layout:
        """Build from the number of nodes of each scene, on the CPU."""
        count = torch.tensor(counts, dtype=torch.long)
        scene = torch.repeat_interleave(count)
        pointer = nn.functional.pad(count.cumsum(0), (1, 0))
        return cls.of(scene, pointer, counts, together)

    @property
    def num_nodes(self) -> int:
        """N. Sizes are read from shapes: ``len`` would fix them in an exported graph."""
        return self.scene.shape[0]

    @property
    def scenes(self) -> int:
        return len(self.counts)

    @property
    def size(self) -> int:
        """Nodes of a padded scene."""
        return max([0, *self.counts])  # torch.compile knows no max(…, default=0)

    @cached_property
    def slot(self) -> Tensor:
        """``[N]`` int64 below ``scenes · size``: place of each node among all scenes padded to one size."""
        if self.scenes == 1:
            return self.within
        return self.scene * self.size + self.within

    @cached_property
    def place(self) -> Tensor:
        """``[N]`` int64: place of each node among all scenes end to end."""
        start = self.count.cumsum(0) - self.count
        return start[self.scene] + self.within

    def beside(self, other: Layout) -> Layout:
        """Join two kinds of nodes: in each scene these nodes first, then those of ``other``."""
        nodes_before = self.counts[0] if self.scenes == 1 else self.count[other.scene]
        return replace(
            self,
            scene=torch.cat((self.scene, other.scene)),
            within=torch.cat((self.within, other.within + nodes_before)),
            count=self.count + other.count,
            counts=[a + b for a, b in zip(self.counts, other.counts, strict=True)],
            ordered=self.scenes == 1,
        )

    def repeat(self, times: int) -> Layout:
        """Repeat every node ``times`` times in a row."""
        within = self.within[:, None] * times + torch.arange(times, device=self.within.device)
        return replace(
            self,
            scene=self.scene.repeat_interleave(times),
            within=within.reshape(-1),
            count=self.count * times,
            counts=[count * times for count in self.counts],
        )

    def pad(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """``[N, ...]`` -> ``[scenes, size, ...]``."""
        if self.scenes == 1:
            return x[None]
        channels = x.shape[1:]
        padded = x.new_full((self.scenes * self.size, *channels), fill)
        padded.index_copy_(0, self.slot, x)
        return padded.reshape(self.scenes, self.size, *channels)

    def unpad(self, x: Tensor) -> Tensor:
        """``[scenes, size, ...]`` -> ``[N, ...]``."""
        if self.scenes == 1:
            return x[0]
        return x.flatten(0, 1).index_select(0, self.slot)

    def node(self, scene: Tensor, within: Tensor) -> Tensor:
        """Return the node at each place ``within`` each ``scene``."""
        if self.scenes == 1:
            return within
        nodes = torch.arange(self.num_nodes, device=self.scene.device)
        return self.pad(nodes)[scene, within]

    def split(self, x: Tensor) -> list[Tensor]:
        """``[N, H, C]`` -> ``[scenes · H, size, C]`` for every block."""
        if self.together or self.scenes == 1:
            return [self.pad(x).transpose(1, 2).flatten(0, 1)]
        if not self.ordered:
            x = torch.empty_like(x).index_copy_(0, self.place, x)
        return [block.transpose(0, 1) for block in x.split(self.counts)]

    def join(self, blocks: list[Tensor]) -> Tensor:
        """Invert :meth:`split`."""
        if self.together or self.scenes == 1:
            return self.unpad(blocks[0].unflatten(0, (self.scenes, -1)).transpose(1, 2))
        x = torch.cat([block.transpose(0, 1) for block in blocks])
        if self.ordered:
            return x
        return x.index_select(0, self.place)


#: Poses of the senders and of the receivers.
Poses = tuple[Pose[Tensor], Pose[Tensor]]


@dataclass
class Edges:
    """Edges from senders j to receivers i of the same scene, and the inputs of their attention.

    Attributes:
        index: ``[2, E]`` int64, row 0 sender j, row 1 receiver i, without duplicates.
        bias: ``[H, E]``, finite, added to the scores, shared by all layers;
            :data:`~trajpred.nn.segment.LOWEST` for a pair that is not an edge. None for attention that reads
            the features instead, and within groups.
        senders: layout of the senders.
        receivers: layout of the receivers.
        poses: poses of the senders and of the receivers.
        features: ``[E, C]``, for attention that reads them instead of the bias.
        reached: ``[R, 1]`` bool, receivers with at least one edge (:func:`reached_by`); None if all have one.
        dense: compute attention as matrix products over blocks of padded scenes (:class:`Layout`); otherwise
            edge by edge, with less memory for large scenes with few edges. The results are equal.
        group: size of the groups for edges made by :meth:`within_groups`.

    Example:
        >>> two = Layout.of_counts([2])
        >>> edges = Edges(torch.tensor([[0, 1], [0, 0]]), torch.zeros(1, 2), two, two)
        >>> ones, values = torch.ones(2, 1, 1), torch.tensor([[[2.0]], [[4.0]]])
        >>> edges.attend(ones, ones, values)[0].item()
        3.0
    """

    index: Tensor
    bias: Tensor | None
    senders: Layout
    receivers: Layout
    poses: Poses | None = None
    features: Tensor | None = None
    reached: Tensor | None = None
    dense: bool = True
    group: int = 0

    @classmethod
    def within_groups(cls, nodes: Tensor, size: int) -> Edges:
        """Connect each of ``nodes`` ``[N, ...]`` to its consecutive group of ``size``, itself included."""
        node = torch.arange(nodes.shape[0], device=nodes.device)
        receiver = node[:, None].expand(-1, size)
        sender = receiver // size * size + torch.arange(size, device=nodes.device)
        count = torch.full_like(node[:1], nodes.shape[0])
        one_scene = Layout(torch.zeros_like(node), node, count, [nodes.shape[0]], together=False)
        index = torch.stack((sender, receiver)).flatten(1)
        return cls(index, None, one_scene, one_scene, group=size)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Compute Σ_j softmax_j(q_i·k_j / √C + b_ij) v_j.

        Args:
            query: ``[R, H, C]``.
            key: ``[S, H, C]``.
            value: ``[S, H, V]``.

        Returns:
            ``[R, H, V]``; finite but undefined where not ``reached``.
        """
        if self.group:
            by_group = [x.unflatten(0, (-1, self.group)).transpose(1, 2) for x in (query, key, value)]
            return scaled_dot_product_attention(*by_group).transpose(1, 2).flatten(0, 1)
        if not self.dense:
            sender, receiver = self.index
            message = self.weights(query, key)[..., None] * value.index_select(0, sender)
            return segment_sum(message, receiver, self.receivers.num_nodes)
        queries = self.receivers.split(query)
        keys = self.senders.split(key)
        values = self.senders.split(value)
        scale = query.shape[-1] ** -0.5
        pooled = []
        for q, k, v, bias in zip(queries, keys, values, self.matrices, strict=True):
            # scaled_dot_product_attention has no fast CPU kernel when the bias needs a gradient.
            transposed = k.to(bias.dtype).transpose(1, 2)
            score = torch.baddbmm(bias, q.to(bias.dtype), transposed, alpha=scale)
            weight = score.softmax(-1)
            pooled.append(torch.bmm(weight.to(v.dtype), v))
        return self.receivers.join(pooled)

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the attention of every edge, ``[E, H]``; it sums to 1 over the edges of a receiver."""
        sender, receiver = self.index
        product = query.index_select(0, receiver) * key.index_select(0, sender)
        score = product.sum(-1) / query.shape[-1] ** 0.5
        if self.bias is not None:
            score = score + self.bias.T
        return segment_softmax(score, receiver, self.receivers.num_nodes)

    @cached_property
    def matrices(self) -> list[Tensor]:
        """The bias of every block, ``[scenes · H, R, S]``, :data:`LOWEST` without an edge."""
        assert self.bias is not None, "this attention needs edges with a bias"
        sender, receiver = self.index
        rows = self.receivers
        columns = self.senders
        # Cell of each edge in the matrices of all blocks end to end.
        if rows.scenes == 1:
            shapes = [(1, rows.counts[0], columns.counts[0])]
            cell = receiver * columns.size + sender
        elif rows.together:
            shapes = [(rows.scenes, rows.size, columns.size)]
            cell = rows.slot[receiver] * columns.size + columns.within[sender]
        else:
            shapes = [(1, R, S) for R, S in zip(rows.counts, columns.counts, strict=True)]
            scene = rows.scene[receiver]
            area = rows.count * columns.count
            start = area.cumsum(0) - area
            cell = start[scene] + rows.within[receiver] * columns.count[scene] + columns.within[sender]
        sizes = [scenes * R * S for scenes, R, S in shapes]
        # Float16 cannot hold LOWEST.
        bias = self.bias.to(torch.promote_types(self.bias.dtype, torch.float32))
        # Heads outermost, so that the matrices of a block are slices.
        cells = bias.new_full((bias.shape[0], sum(sizes)), LOWEST).index_copy_(1, cell, bias)
        if rows.scenes == 1:  # an exported graph would copy slices of the whole
            return [cells.unflatten(1, shapes[0][1:])]
        matrices = []
        for cells_of_block, shape in zip(cells.split(sizes, 1), shapes, strict=True):
            by_scene = cells_of_block.unflatten(1, shape).transpose(0, 1)
            matrices.append(by_scene.flatten(0, 1))
        return matrices

    def repeat_receivers(self, times: int) -> Edges:
        """Repeat every receiver ``times`` times in a row, with all of its edges."""
        sender, receiver = self.index
        copies = receiver[:, None] * times + torch.arange(times, device=receiver.device)
        features = self.features
        if features is not None:
            features = features.repeat_interleave(times, 0)
        poses = self.poses
        if poses is not None:
            position = poses[1].position.repeat_interleave(times, 0)
            poses = (poses[0], Pose(position, poses[1].heading.repeat_interleave(times)))
        repeated = replace(
            self,
            index=torch.stack((sender.repeat_interleave(times), copies.flatten())),
            bias=None if self.bias is None else self.bias.repeat_interleave(times, 1),
            receivers=self.receivers.repeat(times),
            poses=poses,
            features=features,
            reached=None if self.reached is None else self.reached.repeat_interleave(times, 0),
        )
        if self.dense and self.bias is not None:  # instead of scattering the edges of every copy
            repeated.matrices = [bias.repeat_interleave(times, 1) for bias in self.matrices]
        return repeated


def reached_by(receiver: Tensor, num_receivers: int, edges: Tensor | None = None) -> Tensor:
    """Return which receivers have an edge, ``[num_receivers, 1]`` bool.

    Args:
        receiver: ``[E]`` int64, of each pair.
        edges: ``[E]`` bool, which of the pairs are edges; by default all.
    """
    is_edge = torch.ones_like(receiver) if edges is None else edges.to(receiver.dtype)
    return receiver.new_zeros(num_receivers).index_add(0, receiver, is_edge)[:, None] > 0


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

    Shapes: ``[channels, ...]`` -> ``[heads, ...]``. Channels come first, so that each channel's values, and
    each head's matrices, are contiguous.

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
    poses enter linearly, so they are summed first and nothing is stored per pair. The output depends only on
    relative poses. Keys have no bias, because softmax is invariant to it. A receiver without edges gets 0.

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
        # Half precision would lose metres of the poses: use it only for the linear maps.
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
    """Stochastic depth (Huang et al. 2016): in training, zero whole rows of ``[N, ...]`` with probability p
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

    Supports attention to the nodes themselves (z = x) and to others. A receiver without edges keeps its
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
        self.drop = nn.Sequential(nn.Dropout(dropout), DropPath(drop_path))

    def forward(self, x: Tensor, edges: Edges, sender: Tensor | None = None) -> Tensor:
        """Update ``x`` by attention to ``sender`` (by default to itself) over ``edges``."""
        if self.pre:
            normed = self.norm1(x)
            if sender is None:
                sender = normed
            x = x + self.drop(self.attention(normed, sender, edges))
            return x + self.drop(self.feed_forward(self.norm2(x)))
        if sender is None:
            sender = x
        attended = self.attention(x, sender, edges)
        x = self.norm1(x + self.drop(attended))
        return self.norm2(x + self.drop(self.feed_forward(x)))
