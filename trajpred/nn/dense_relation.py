"""The edges of a batch as padded matrices: the fast form of a relation wherever scenes fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from trajpred.nn.relation import EdgeRelation, Poses, repeat_receiver_poses, repeat_receivers
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
        return Padding(scene, within, self.count + other.count, counts)

    def repeat(self, times: int) -> Padding:
        """Repeat every node ``times`` times in a row."""
        copies = self.within[:, None] * times + torch.arange(times, device=self.within.device)
        counts = [count * times for count in self.counts]
        return Padding(self.scene.repeat_interleave(times), copies.reshape(-1), self.count * times, counts)

    def copies(self, times: int) -> Padding:
        """Copy every scene ``times`` times, nodes interleaved as in :meth:`EdgeRelation.copies`."""
        scene = self.scene[:, None] * times + torch.arange(times, device=self.scene.device)
        counts = [count for count in self.counts for _ in range(times)]
        within, count = (x.repeat_interleave(times) for x in (self.within, self.count))
        return Padding(scene.reshape(-1), within, count, counts)

    def pad(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """``[N, ...]`` -> ``[scenes, size, ...]``."""
        padded = x.new_full((self.scenes * self.size, *x.shape[1:]), fill).index_copy(0, self.slot, x)
        return padded.reshape(self.scenes, self.size, *x.shape[1:])

    def unpad(self, x: Tensor) -> Tensor:
        """``[scenes, size, ...]`` -> ``[N, ...]``."""
        return x.flatten(0, 1).index_select(0, self.slot)


@dataclass
class Blocks:
    """Layout of the nodes for matrix products: blocks of scenes, each padded to its own largest scene.

    On a CPU every scene is a block: no padding, and intermediate results stay in the cache. On a GPU all
    scenes form one block, because few large products are fastest.

    Attributes:
        slot: ``[N]`` int64, place of each node in all blocks end to end.
        within: ``[N]`` int64, place of each node within its scene.
        shapes: number of scenes and padded size of every block.
    """

    slot: Tensor
    within: Tensor
    shapes: list[tuple[int, int]]

    @classmethod
    def of(cls, padding: Padding, together: bool) -> Blocks:
        """Put all scenes ``together`` into one block, or each scene into its own."""
        if together:
            return cls(padding.slot, padding.within, [(padding.scenes, padding.size)])
        start = padding.count.cumsum(0) - padding.count
        slot = start[padding.scene] + padding.within
        return cls(slot, padding.within, [(1, size) for size in padding.counts])

    def split(self, x: Tensor) -> list[Tensor]:
        """``[N, H, C]`` -> ``[H, scenes, size, C]`` for every block."""
        lengths = [scenes * size for scenes, size in self.shapes]
        laid = x.new_zeros(sum(lengths), *x.shape[1:]).index_copy(0, self.slot, x)
        blocks = zip(laid.split(lengths), self.shapes, strict=True)
        return [block.unflatten(0, shape).permute(2, 0, 1, 3) for block, shape in blocks]

    def join(self, blocks: list[Tensor]) -> Tensor:
        """Invert :meth:`split`."""
        laid = torch.cat([block.permute(1, 2, 0, 3).flatten(0, 1) for block in blocks])
        return laid.index_select(0, self.slot)

    def repeat(self, times: int) -> Blocks:
        """Repeat every node ``times`` times in a row."""
        copy = torch.arange(times, device=self.slot.device)
        slot, within = ((x[:, None] * times + copy).flatten() for x in (self.slot, self.within))
        return Blocks(slot, within, [(scenes, size * times) for scenes, size in self.shapes])

    def pairs(self, senders: Blocks, index: Tensor) -> Tensor:
        """Locate edges ``[2, E]`` in the score matrices of all blocks end to end: ``[E]``."""
        starts, end = [], 0
        for (scenes, size), (_, width) in zip(self.shapes, senders.shapes, strict=True):
            starts.append(end + width * torch.arange(scenes * size, device=index.device))
            end += scenes * size * width
        start = torch.cat(starts)
        return start[self.slot[index[1]]] + senders.within[index[0]]


@dataclass
class DenseRelation:
    """The edges of an :class:`~trajpred.nn.relation.EdgeRelation` as bias matrices, shared by all layers.

    Attributes:
        bias: per block ``[H, scenes, R / times, S]``, :data:`~trajpred.nn.segment.LOWEST` without an edge.
        index: ``[2, E]`` int64 edges before receivers were repeated.
        senders, receivers: layout of both.
        times: number of consecutive receivers that share a row of ``bias``.
    """

    bias: list[Tensor]
    index: Tensor
    senders: Blocks
    receivers: Blocks
    reached: Tensor
    poses: Poses | None = None
    times: int = 1

    @classmethod
    def of(
        cls, edges: EdgeRelation, senders: Padding, receivers: Padding, together: bool | None = None
    ) -> DenseRelation:
        """Lay out ``edges``, each within one scene; ``together`` as in :class:`Blocks`, None: on a GPU."""
        together = edges.index.is_cuda if together is None else together
        columns, rows = Blocks.of(senders, together), Blocks.of(receivers, together)
        shapes = [(b, r, s) for (b, r), (_, s) in zip(rows.shapes, columns.shapes, strict=True)]
        lengths = [b * r * s for b, r, s in shapes]
        # Heads outermost, so that the matrices of a block are slices. Float16 cannot hold LOWEST.
        wide = edges.bias.T.to(torch.promote_types(edges.bias.dtype, torch.float32))
        laid = wide.new_full((wide.shape[0], sum(lengths)), LOWEST)
        laid = laid.index_copy(1, rows.pairs(columns, edges.index), wide)
        bias = [x.unflatten(1, shape) for x, shape in zip(laid.split(lengths, 1), shapes, strict=True)]
        return cls(bias, edges.index, columns, rows, edges.reached, edges.poses)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        blocks = zip(self._softmax(query, key), self.senders.split(value), strict=True)
        return self.receivers.join([weight.to(v.dtype) @ v for weight, v in blocks])

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        laid = torch.cat([weight.flatten(1) for weight in self._softmax(query, key)], 1)
        index = repeat_receivers(self.index, self.times)
        return laid.index_select(1, self.receivers.pairs(self.senders, index)).T

    def _softmax(self, query: Tensor, key: Tensor) -> Iterator[Tensor]:
        """``[H, scenes, R, S]`` of every block."""
        q, k = self.receivers.split(query / query.shape[-1] ** 0.5), self.senders.split(key)
        for receivers, senders, bias in zip(q, k, self.bias, strict=True):
            # scaled_dot_product_attention has no fast CPU kernel when the bias needs a gradient.
            score = (receivers @ senders.transpose(-1, -2)).to(bias.dtype)
            score.unflatten(2, (-1, self.times)).add_(bias.unsqueeze(3))
            yield score.softmax(-1)

    def repeat_receivers(self, times: int) -> DenseRelation:
        return replace(
            self,
            receivers=self.receivers.repeat(times),
            reached=self.reached.repeat_interleave(times, dim=0),
            poses=repeat_receiver_poses(self.poses, times),
            times=self.times * times,
        )
