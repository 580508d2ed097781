"""Who attends to whom: edges, or padded scenes with masks and biases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from trajpred.data.geometry import Pose
from trajpred.nn.segment import LOWEST, segment_softmax, segment_sum


@dataclass
class Padding:
    """Place of each node of a flattened batch once its scenes are padded to one size.

    Sizes are kept on the host, where they are known when a batch is made: reading them from a GPU would wait
    for it.

    Attributes:
        scene: ``[N]`` int64, scene of each node.
        within: ``[N]`` int64, place of each node within its scene.
        count: ``[scenes]`` int64, nodes of each scene.
        counts: the same numbers on the host.
        ordered: whether nodes come scene by scene, each in the order of ``within``.

    Example:
        >>> padding = Padding.of_counts([2, 1])
        >>> padding.pad(torch.tensor([1.0, 2.0, 3.0]))
        tensor([[1., 2.],
                [3., 0.]])
    """

    scene: Tensor
    within: Tensor
    count: Tensor
    counts: list[int]
    ordered: bool = True

    @classmethod
    def of(cls, batch: Tensor, pointer: Tensor, counts: list[int] | None = None) -> Padding:
        """Build from PyG's ``batch`` ``[N]`` and ``ptr`` ``[scenes + 1]``, read without ``counts``."""
        count = pointer[1:] - pointer[:-1]
        node = torch.arange(batch.shape[0], device=batch.device)
        if count.shape[0] == 1:  # all sizes are known without reading data, as an exported graph requires
            return cls(batch, node, count, [batch.shape[0]])
        within = node - pointer[batch]
        if counts is None:
            counts = count.tolist()
        return cls(batch, within, count, counts)

    @classmethod
    def of_counts(cls, counts: list[int]) -> Padding:
        """Build from the number of nodes of each scene, on the CPU."""
        count = torch.tensor(counts, dtype=torch.long)
        scene = torch.repeat_interleave(count)
        pointer = nn.functional.pad(count.cumsum(0), (1, 0))
        return cls.of(scene, pointer, counts)

    @property
    def scenes(self) -> int:
        return len(self.counts)

    @property
    def size(self) -> int:
        """Nodes of a padded scene."""
        return max([0, *self.counts])  # torch.compile knows no max(…, default=0)

    @cached_property
    def slot(self) -> Tensor:
        """``[N]`` int64 in ``scenes · size``, scene-major."""
        if self.scenes == 1:
            return self.within
        return self.scene * self.size + self.within

    def beside(self, other: Padding) -> Padding:
        """Join two kinds of nodes: in each scene these nodes first, then those of ``other``."""
        nodes_before = self.counts[0] if self.scenes == 1 else self.count[other.scene]
        return Padding(
            scene=torch.cat((self.scene, other.scene)),
            within=torch.cat((self.within, other.within + nodes_before)),
            count=self.count + other.count,
            counts=[a + b for a, b in zip(self.counts, other.counts, strict=True)],
            ordered=self.scenes == 1,
        )

    def repeat(self, times: int) -> Padding:
        """Repeat every node ``times`` times in a row."""
        if times == 1:
            return self
        copy = torch.arange(times, device=self.within.device)
        within = self.within[:, None] * times + copy
        return Padding(
            scene=self.scene.repeat_interleave(times),
            within=within.reshape(-1),
            count=self.count * times,
            counts=[count * times for count in self.counts],
            ordered=self.ordered,
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
        nodes = torch.arange(self.slot.shape[0], device=self.slot.device)
        return self.pad(nodes)[scene, within]


@dataclass
class Blocks:
    """Layout of the nodes for matrix products: blocks of scenes, each padded to its own largest scene.

    On a CPU every scene is a block: no padding, and intermediate results stay in the cache. On a GPU all
    scenes form one block, because few large products are fastest.

    Attributes:
        slot: ``[N]`` int64, place of each node in all blocks end to end; None if all are in their places.
        shapes: number of scenes and padded size of every block.
    """

    slot: Tensor | None
    shapes: list[tuple[int, int]]

    @classmethod
    def of(cls, padding: Padding, together: bool) -> Blocks:
        """Lay out all scenes ``together`` in one block, or each scene in its own."""
        if together and padding.scenes > 1:
            return cls(padding.slot, [(padding.scenes, padding.size)])
        shapes = [(1, size) for size in padding.counts]
        if padding.ordered:
            return cls(None, shapes)
        start = padding.count.cumsum(0) - padding.count
        return cls(start[padding.scene] + padding.within, shapes)

    def split(self, x: Tensor) -> list[Tensor]:
        """``[N, H, C]`` -> ``[scenes · H, size, C]`` for every block."""
        lengths = [scenes * size for scenes, size in self.shapes]
        if self.slot is not None:
            padded = x.new_zeros(sum(lengths), *x.shape[1:])
            x = padded.index_copy_(0, self.slot, x)
        if len(lengths) == 1:  # its size may be unknown while exporting
            return self._exchange_all([x])
        return self._exchange_all(x.split(lengths))

    def join(self, blocks: list[Tensor]) -> Tensor:
        """Invert :meth:`split`."""
        parts = self._exchange_all(blocks)
        x = parts[0]
        if len(parts) > 1:
            x = torch.cat(parts)
        if self.slot is None:
            return x
        return x.index_select(0, self.slot)

    def repeat(self, times: int) -> Blocks:
        """Repeat every node ``times`` times in a row."""
        shapes = [(scenes, size * times) for scenes, size in self.shapes]
        if self.slot is None:
            return Blocks(None, shapes)
        copy = torch.arange(times, device=self.slot.device)
        slot = self.slot[:, None] * times + copy
        return Blocks(slot.flatten(), shapes)

    def _exchange_all(self, blocks: Sequence[Tensor]) -> list[Tensor]:
        """Exchange nodes and heads of every block, see :func:`_exchange`."""
        pairs = zip(blocks, self.shapes, strict=True)
        return [_exchange(block, scenes) for block, (scenes, _) in pairs]


def _exchange(x: Tensor, scenes: int) -> Tensor:
    """Exchange nodes and heads: ``[scenes · n, H, C]`` <-> ``[scenes · H, n, C]``."""
    if scenes == 1:
        return x.transpose(0, 1)
    return x.unflatten(0, (scenes, -1)).transpose(1, 2).flatten(0, 1)


#: Poses of the senders and of the receivers.
Poses = tuple[Pose[Tensor], Pose[Tensor]]


class Relation(Protocol):
    """Edges from senders j to receivers i, with a bias per head that all layers share, and maybe poses."""

    @property
    def poses(self) -> Poses | None: ...

    @property
    def copies(self) -> int:
        """Number of copies of each node, one after another; copy i attends only to copies i.

        The bias has one set of heads for each copy.
        """
        ...

    @property
    def reached(self) -> Tensor | None:
        """``[R · copies, 1]`` bool, receivers with at least one incoming edge; None if all have one."""
        ...

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Compute Σ_j softmax_j(q_i·k_j / √C + bias_ij) v_j.

        Args:
            query: ``[R, H, C]``.
            key: ``[S, H, C]``.
            value: ``[S, H, V]``.

        Returns:
            ``[R, H, V]``; finite but undefined where not ``reached``.
        """
        ...


@dataclass
class EdgeRelation:
    """Flattened edges of any graph, evaluated by gather and scatter.

    Attributes:
        index: ``[2, E]`` int64, row 0 sender j, row 1 receiver i, without duplicates.
        bias: ``[E, H]``, finite, added to the scores; pairs that may not attend are no edges.
        num_senders: S.
        num_receivers: R.
        features: ``[E, C]`` of the edges, for attention that reads them instead of the bias.
        complete: whether every receiver is known to have an edge.
        copies: see :class:`Relation`.

    Example:
        >>> edges = EdgeRelation(torch.tensor([[0, 1], [0, 0]]), torch.zeros(2, 1), 2, 2)
        >>> ones, values = torch.ones(2, 1, 1), torch.tensor([[[2.0]], [[4.0]]])
        >>> edges.attend(ones, ones, values).flatten()
        tensor([3., 0.])
    """

    index: Tensor
    bias: Tensor
    num_senders: int
    num_receivers: int
    poses: Poses | None = None
    features: Tensor | None = None
    complete: bool = False
    copies: int = 1

    def __post_init__(self) -> None:
        if self.bias.dtype == torch.bool:
            raise ValueError("bias is added to the scores: leave out edges instead of masking them")

    @property
    def reached(self) -> Tensor | None:
        if self.complete:
            return None
        shape = (self.num_receivers, self.copies)
        unreached = torch.zeros(shape, dtype=torch.bool, device=self.index.device)
        return unreached.index_fill(0, self.index[1], True).view(-1, 1)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        sender, receiver = self.index
        weight = self.weights(query, key)
        message = weight[..., None] * value.index_select(0, sender)
        return segment_sum(message, receiver, self.num_receivers)

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the attention of every edge, ``[E, H]``; it sums to 1 over the edges of a receiver."""
        sender, receiver = self.index
        product = query.index_select(0, receiver) * key.index_select(0, sender)
        score = product.sum(-1) / query.shape[-1] ** 0.5 + self.bias
        return segment_softmax(score, receiver, self.num_receivers)

    def repeat_receivers(self, times: int) -> EdgeRelation:
        """Repeat every receiver ``times`` times in a row: all edges to the first copies, then to the next."""
        sender, receiver = self.index
        copy = torch.arange(times, device=receiver.device)
        copies = (receiver[:, None] * times + copy).T
        features = self.features
        if features is not None:
            features = features.repeat(times, 1)
        return replace(
            self,
            index=torch.stack((sender.repeat(times), copies.reshape(-1))),
            bias=self.bias.repeat(times, 1),
            num_receivers=self.num_receivers * times,
            poses=repeat_receiver_poses(self.poses, times),
            features=features,
        )

    def with_copies(self, times: int) -> EdgeRelation:
        """Apply all edges to ``times`` copies of the nodes."""
        return replace(self, bias=self.bias.repeat(1, times), copies=times)

    def separate(self) -> EdgeRelation:
        """Number the copies as nodes of their own, for attention that reads features instead of the bias."""
        if self.copies == 1:
            return self
        copy = torch.arange(self.copies, device=self.index.device)
        index = (self.index[..., None] * self.copies + copy).flatten(1)
        features = self.features
        if features is not None:
            features = features.repeat_interleave(self.copies, dim=0)
        return EdgeRelation(
            index=index,
            bias=self.bias.new_zeros(index.shape[1], 1),
            num_senders=self.num_senders * self.copies,
            num_receivers=self.num_receivers * self.copies,
            features=features,
        )


@dataclass
class GroupRelation:
    """Complete graphs, self loops included, over consecutive groups of ``size`` nodes."""

    size: int
    poses: Poses | None = None
    reached: Tensor | None = None
    copies: int = 1

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q = self._by_group(query)
        k = self._by_group(key)
        v = self._by_group(value)
        pooled = scaled_dot_product_attention(q, k, v)
        return pooled.transpose(1, 2).flatten(0, 1)

    def _by_group(self, x: Tensor) -> Tensor:
        """``[N, H, C]`` -> ``[groups, H, size, C]``."""
        return x.unflatten(0, (-1, self.size)).transpose(1, 2)

    def edges(self, nodes: Tensor) -> EdgeRelation:
        """Return the flattened edges over ``nodes`` ``[N, ...]``, sorted by receiver, without a bias."""
        num_nodes = nodes.shape[0]
        place = torch.arange(self.size, device=nodes.device)
        receiver = torch.arange(num_nodes, device=nodes.device)[:, None].expand(-1, self.size)
        first_of_group = receiver // self.size * self.size
        index = torch.stack((first_of_group + place, receiver)).flatten(1)
        bias = nodes.new_zeros(index.shape[1], 1)
        return EdgeRelation(index, bias, num_senders=num_nodes, num_receivers=num_nodes)


def repeat_receiver_poses(poses: Poses | None, times: int) -> Poses | None:
    """Repeat the pose of every receiver ``times`` times in a row."""
    if poses is None:
        return None
    sender, receiver = poses
    position = receiver.position.repeat_interleave(times, dim=0)
    heading = receiver.heading.repeat_interleave(times, dim=0)
    return sender, Pose(position, heading)


@dataclass
class DenseRelation:
    """Edges as bias matrices, shared by all layers.

    Attributes:
        bias: per block ``[scenes · H, R, S]``, :data:`~trajpred.nn.segment.LOWEST` without an edge.
        senders: layout of the columns.
        receivers: layout of the rows.
        reached: see :class:`~trajpred.nn.relation.Relation`.
        poses: of the senders and of the receivers.
        copies: see :class:`~trajpred.nn.relation.Relation`.
        edges: where the matrices come from, unless they are those of all pairs.
    """

    bias: list[Tensor]
    senders: Blocks
    receivers: Blocks
    reached: Tensor | None
    poses: Poses | None = None
    copies: int = 1
    edges: EdgeRelation | None = None

    @classmethod
    def of(
        cls, edges: EdgeRelation, senders: Padding, receivers: Padding, together: bool | None = None
    ) -> DenseRelation:
        """Lay out ``edges``, which connect nodes of the same scene.

        Args:
            edges: between any number of scenes.
            senders: places of their senders.
            receivers: places of their receivers.
            together: whether all scenes form one block, see :class:`Blocks`; by default on a GPU.
        """
        if together is None:
            together = edges.index.is_cuda
        columns = Blocks.of(senders, together)
        rows = Blocks.of(receivers, together)
        # Float16 cannot hold LOWEST.
        dtype = torch.promote_types(edges.bias.dtype, torch.float32)
        # Heads outermost, so that the matrices of a block are slices.
        by_head = edges.bias.T.to(dtype)
        if len(rows.shapes) == 1:
            values = [by_head]
            cells = [_cells_of_one_block(edges, senders, rows)]
        else:
            values, cells = _values_and_cells_by_scene(edges, senders, receivers, by_head)
        num_heads = len(by_head)
        bias = []
        for block, shape in enumerate(rows.shapes):
            num_scenes, num_rows = shape
            num_columns = columns.shapes[block][1]
            matrices = by_head.new_full((num_heads, num_scenes * num_rows * num_columns), LOWEST)
            matrices.index_copy_(1, cells[block], values[block])
            matrices = matrices.view(num_heads, num_scenes, num_rows, num_columns)
            bias.append(matrices.transpose(0, 1).flatten(0, 1))
        return cls(
            bias=bias,
            senders=columns,
            receivers=rows,
            reached=edges.reached,
            poses=edges.poses,
            copies=edges.copies,
            edges=edges,
        )

    @classmethod
    def of_pairs(
        cls, bias: Tensor, edge: Tensor, poses: Poses | None, complete: bool = False
    ) -> DenseRelation:
        """Build from all pairs of one scene: without gather or scatter, hence the form that is exported.

        Args:
            bias: ``[H, R, S]``.
            edge: ``[R, S]``, whether there is an edge.
            poses: of the senders and of the receivers.
            complete: whether every receiver is known to have an edge.
        """
        num_receivers, num_senders = edge.shape
        reached = None if complete else edge.any(1, keepdim=True)
        return cls(
            bias=[torch.where(edge, bias, LOWEST)],
            senders=Blocks(None, [(1, num_senders)]),
            receivers=Blocks(None, [(1, num_receivers)]),
            reached=reached,
            poses=poses,
        )

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        queries = self.receivers.split(query)
        keys = self.senders.split(key)
        values = self.senders.split(value)
        scale = query.shape[-1] ** -0.5
        pooled = []
        for q, k, v, bias in zip(queries, keys, values, self.bias, strict=True):
            # scaled_dot_product_attention has no fast CPU kernel when the bias needs a gradient.
            transposed = k.to(bias.dtype).transpose(1, 2)
            score = torch.baddbmm(bias, q.to(bias.dtype), transposed, alpha=scale)
            weight = score.softmax(-1)
            pooled.append(torch.bmm(weight.to(v.dtype), v))
        return self.receivers.join(pooled)

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the attention of every edge, as :meth:`EdgeRelation.weights`."""
        assert self.edges is not None, "all pairs have no list of edges"
        return self.edges.weights(query, key)

    def repeat_receivers(self, times: int) -> DenseRelation:
        """Repeat every receiver ``times`` times in a row."""
        reached = self.reached
        if reached is not None:
            reached = reached.repeat_interleave(times, dim=0)
        return replace(
            self,
            bias=[bias.repeat_interleave(times, 1) for bias in self.bias],
            receivers=self.receivers.repeat(times),
            reached=reached,
            poses=repeat_receiver_poses(self.poses, times),
            edges=None,
        )


def _cells_of_one_block(edges: EdgeRelation, senders: Padding, rows: Blocks) -> Tensor:
    """Return the cell of each edge, ``[E]``, in the flattened matrices of the only block."""
    sender, receiver = edges.index
    column = sender if senders.scenes == 1 else senders.within[sender]
    row = receiver if rows.slot is None else rows.slot[receiver]
    return row * senders.size + column


def _values_and_cells_by_scene(
    edges: EdgeRelation, senders: Padding, receivers: Padding, by_head: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Sort the bias ``by_head`` ``[H, E]`` of the edges by scene.

    Returns:
        For each scene, the values ``[H, edges]`` and the cells ``[edges]`` of its flattened matrix
        ``[receivers, senders]`` that they belong to.
    """
    sender, receiver = edges.index
    scene = receivers.scene[receiver]
    cell = receivers.within[receiver] * senders.count[scene] + senders.within[sender]
    unordered = bool((scene[1:] < scene[:-1]).any())
    if unordered:
        order = scene.argsort(stable=True)
        cell = cell[order]
        by_head = by_head.gather(1, order.expand_as(by_head))
    counts = scene.bincount(minlength=receivers.scenes).tolist()
    return list(by_head.split(counts, 1)), list(cell.split(counts))
