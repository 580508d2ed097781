"""Who attends to whom in a batch: where its nodes lie once its scenes are padded, and edges between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from trajpred.data.geometry import Pose
from trajpred.nn.segment import LOWEST, segment_softmax, segment_sum


@dataclass
class Layout:
    """Where the nodes of a flattened batch lie once its scenes are padded.

    Matrix products are computed over blocks of scenes. On a CPU every scene is a block: no padding, and
    intermediate results stay in the cache. Elsewhere all scenes are padded to one size and form one block,
    because few large products are fastest there.

    Sizes are kept on the host, where they are known when a batch is made: reading them from a GPU would wait
    for it.

    Attributes:
        scene: ``[N]`` int64, scene of each node.
        within: ``[N]`` int64, place of each node within its scene.
        count: ``[scenes]`` int64, nodes of each scene.
        counts: the same numbers on the host.
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
        """Build from PyG's ``batch`` ``[N]`` and ``ptr`` ``[scenes + 1]``, read without ``counts``."""
        if together is None:
            together = batch.device.type != "cpu"
        count = pointer[1:] - pointer[:-1]
        node = torch.arange(batch.shape[0], device=batch.device)
        if count.shape[0] == 1:  # all sizes are known without reading data, as an exported graph requires
            return cls(batch, node, count, [batch.shape[0]], together)
        within = node - pointer[batch]
        if counts is None:
            counts = count.tolist()
        return cls(batch, within, count, counts, together)

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

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """Number of scenes and padded size of every block."""
        if self.together:
            return [(self.scenes, self.size)]
        return [(1, count) for count in self.counts]

    @cached_property
    def slot(self) -> Tensor:
        """``[N]`` int64 in ``scenes · size``: place of each node in all scenes padded to one size."""
        if self.scenes == 1:
            return self.within
        return self.scene * self.size + self.within

    @cached_property
    def place(self) -> Tensor:
        """``[N]`` int64: place of each node in all scenes end to end."""
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
    """Edges from senders j to receivers i of the same scene, and what enters their attention.

    Attributes:
        index: ``[2, E]`` int64, row 0 sender j, row 1 receiver i, without duplicates.
        bias: ``[H, E]``, finite, added to the scores, shared by all layers;
            :data:`~trajpred.nn.segment.LOWEST` for a pair that is not an edge. None for attention that reads
            the features instead, and within groups.
        senders: layout of the senders.
        receivers: layout of the receivers.
        poses: of the senders and of the receivers.
        features: ``[E, C]``, for attention that reads them instead of the bias.
        reached: ``[R, 1]`` bool, receivers with at least one edge (:func:`reached_by`); None if all have one.
        dense: compute attention as matrix products over blocks of padded scenes (:class:`Layout`); otherwise
            edge by edge, with less memory where scenes are large and edges are few. Both are equal.
        group: size of the groups if the edges are :meth:`within_groups`.

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
        shapes = []
        for rows, columns in zip(self.receivers.blocks, self.senders.blocks, strict=True):
            shapes.append((rows[0], rows[1], columns[1]))
        assert self.bias is not None, "this attention needs edges with a bias"
        # Float16 cannot hold LOWEST.
        bias = self.bias.to(torch.promote_types(self.bias.dtype, torch.float32))
        sizes = [scenes * rows * columns for scenes, rows, columns in shapes]
        # Heads outermost, so that the matrices of a block are slices.
        cells = bias.new_full((bias.shape[0], sum(sizes)), LOWEST).index_copy_(1, self._cell(), bias)
        if self.receivers.scenes == 1:  # an exported graph would copy slices of the whole
            return [cells.unflatten(1, shapes[0][1:])]
        matrices = []
        for cells_of_block, shape in zip(cells.split(sizes, 1), shapes, strict=True):
            by_scene = cells_of_block.unflatten(1, shape).transpose(0, 1)
            matrices.append(by_scene.flatten(0, 1))
        return matrices

    def _cell(self) -> Tensor:
        """``[E]``: the cell of each edge in the matrices of all scenes end to end."""
        sender, receiver = self.index
        rows = self.receivers
        columns = self.senders
        if rows.scenes == 1:
            return receiver * columns.size + sender
        if rows.together:
            return rows.slot[receiver] * columns.size + columns.within[sender]
        scene = rows.scene[receiver]
        area = rows.count * columns.count
        start = area.cumsum(0) - area
        return start[scene] + rows.within[receiver] * columns.count[scene] + columns.within[sender]

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
        if self.dense and self.bias is not None:  # rather than to scatter the edges of every copy
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
