"""The edges of a batch as padded matrices: the fast form of a relation wherever scenes fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from trajpred.nn.relation import EdgeRelation, Poses, repeat_receiver_poses
from trajpred.nn.segment import LOWEST


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
        count, place = pointer[1:] - pointer[:-1], torch.arange(batch.shape[0], device=batch.device)
        if count.shape[0] == 1:  # all sizes are known without reading data, as an exported graph requires
            return cls(batch, place, count, [batch.shape[0]])
        return cls(batch, place - pointer[batch], count, count.tolist() if counts is None else counts)

    @classmethod
    def of_counts(cls, counts: list[int]) -> Padding:
        """Build from the number of nodes of each scene, on the CPU."""
        count = torch.tensor(counts, dtype=torch.long)
        return cls.of(torch.repeat_interleave(count), nn.functional.pad(count.cumsum(0), (1, 0)), counts)

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
        return self.within if self.scenes == 1 else self.scene * self.size + self.within

    def beside(self, other: Padding) -> Padding:
        """Join two kinds of nodes: in each scene these nodes first, then those of ``other``."""
        theirs = other.within + (self.counts[0] if self.scenes == 1 else self.count[other.scene])
        counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        scene, within = torch.cat((self.scene, other.scene)), torch.cat((self.within, theirs))
        return Padding(scene, within, self.count + other.count, counts, ordered=self.scenes == 1)

    def repeat(self, times: int) -> Padding:
        """Repeat every node ``times`` times in a row."""
        if times == 1:
            return self
        copies = self.within[:, None] * times + torch.arange(times, device=self.within.device)
        counts, scene = [count * times for count in self.counts], self.scene.repeat_interleave(times)
        return Padding(scene, copies.reshape(-1), self.count * times, counts, self.ordered)

    def pad(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """``[N, ...]`` -> ``[scenes, size, ...]``."""
        if self.scenes == 1:
            return x[None]
        padded = x.new_full((self.scenes * self.size, *x.shape[1:]), fill).index_copy_(0, self.slot, x)
        return padded.reshape(self.scenes, self.size, *x.shape[1:])

    def unpad(self, x: Tensor) -> Tensor:
        """``[scenes, size, ...]`` -> ``[N, ...]``."""
        return x[0] if self.scenes == 1 else x.flatten(0, 1).index_select(0, self.slot)

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
        """Put all scenes ``together`` into one block, or each scene into its own."""
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
            x = x.new_zeros(sum(lengths), *x.shape[1:]).index_copy_(0, self.slot, x)
        blocks = x.split(lengths) if len(lengths) > 1 else [x]  # a size may be unknown while exporting
        return [_exchange(block, scenes) for block, (scenes, _) in zip(blocks, self.shapes, strict=True)]

    def join(self, blocks: list[Tensor]) -> Tensor:
        """Invert :meth:`split`."""
        laid = [_exchange(block, scenes) for block, (scenes, _) in zip(blocks, self.shapes, strict=True)]
        x = laid[0] if len(laid) == 1 else torch.cat(laid)
        return x if self.slot is None else x.index_select(0, self.slot)

    def repeat(self, times: int) -> Blocks:
        """Repeat every node ``times`` times in a row."""
        slot = self.slot
        if slot is not None:
            slot = (slot[:, None] * times + torch.arange(times, device=slot.device)).flatten()
        return Blocks(slot, [(scenes, size * times) for scenes, size in self.shapes])


def _exchange(x: Tensor, scenes: int) -> Tensor:
    """Exchange nodes and heads: ``[scenes · n, H, C]`` <-> ``[scenes · H, n, C]``."""
    if scenes == 1:
        return x.transpose(0, 1)
    return x.unflatten(0, (scenes, -1)).transpose(1, 2).flatten(0, 1)


@dataclass
class DenseRelation:
    """Edges as bias matrices, shared by all layers.

    Attributes:
        bias: per block ``[scenes · H, R, S]``, :data:`~trajpred.nn.segment.LOWEST` without an edge.
        senders, receivers: layout of both.
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
        """Lay out ``edges``, each within one scene; ``together`` as in :class:`Blocks`, None: on a GPU."""
        together = edges.index.is_cuda if together is None else together
        columns, rows = Blocks.of(senders, together), Blocks.of(receivers, together)
        sender, receiver = edges.index
        # Heads outermost, so that the matrices of a block are slices. Float16 cannot hold LOWEST.
        wide = edges.bias.T.to(torch.promote_types(edges.bias.dtype, torch.float32))
        if len(rows.shapes) == 1:
            column = sender if senders.scenes == 1 else senders.within[sender]
            row = receiver if rows.slot is None else rows.slot[receiver]
            biases, place = [wide], [row * senders.size + column]
        else:
            scene = receivers.scene[receiver]
            where = receivers.within[receiver] * senders.count[scene] + senders.within[sender]
            if bool((scene[1:] < scene[:-1]).any()):
                order = scene.argsort(stable=True)
                where, wide = where[order], wide.gather(1, order.expand_as(wide))
            counts = scene.bincount(minlength=receivers.scenes).tolist()
            biases, place = list(wide.split(counts, 1)), list(where.split(counts))
        bias = []
        for values, at, (b, r), (_, s) in zip(biases, place, rows.shapes, columns.shapes, strict=True):
            laid = wide.new_full((len(wide), b * r * s), LOWEST).index_copy_(1, at, values)
            bias.append(laid.view(len(wide), b, r, s).transpose(0, 1).flatten(0, 1))
        return cls(bias, columns, rows, edges.reached, edges.poses, edges.copies, edges)

    @classmethod
    def of_pairs(
        cls, bias: Tensor, edge: Tensor, poses: Poses | None, complete: bool = False
    ) -> DenseRelation:
        """Build from all pairs of one scene: without gather or scatter, hence the form that is exported.

        Args:
            bias: ``[H, R, S]``; edge: ``[R, S]``, whether there is an edge.
            complete: whether every receiver is known to have an edge.
        """
        rows, columns = (Blocks(None, [(1, size)]) for size in edge.shape)
        reached = None if complete else edge.any(1, keepdim=True)
        return cls([torch.where(edge, bias, LOWEST)], columns, rows, reached, poses)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys, values = self.senders.split(key), self.senders.split(value)
        parts = zip(self.receivers.split(query), keys, values, self.bias, strict=True)
        pooled = []
        for q, k, v, bias in parts:
            # scaled_dot_product_attention has no fast CPU kernel when the bias needs a gradient.
            scale, k = q.shape[-1] ** -0.5, k.to(bias.dtype).transpose(1, 2)
            weight = torch.baddbmm(bias, q.to(bias.dtype), k, alpha=scale).softmax(-1)
            pooled.append(torch.bmm(weight.to(v.dtype), v))
        return self.receivers.join(pooled)

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the attention of every edge, as :meth:`EdgeRelation.weights`."""
        assert self.edges is not None, "all pairs have no list of edges"
        return self.edges.weights(query, key)

    def repeat_receivers(self, times: int) -> DenseRelation:
        return replace(
            self,
            bias=[bias.repeat_interleave(times, 1) for bias in self.bias],
            receivers=self.receivers.repeat(times),
            reached=None if self.reached is None else self.reached.repeat_interleave(times, dim=0),
            poses=repeat_receiver_poses(self.poses, times),
            edges=None,
        )
