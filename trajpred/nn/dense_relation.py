"""The edges of a batch as padded matrices: the fast form of a relation wherever scenes fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trajpred.nn.relation import EdgeRelation, Poses, repeat_receiver_poses, repeat_receivers
from trajpred.nn.segment import LOWEST


@dataclass
class Padding:
    """Place of each node of a flattened batch once its scenes are padded to one size.

    Attributes:
        slot: ``[N]`` int64 in ``scenes · size``, scene-major.
        scenes: number of scenes.
        size: nodes of a padded scene.

    Example:
        >>> padding = Padding.of(torch.tensor([0, 0, 1]), torch.tensor([0, 2, 3]))
        >>> padding.pad(torch.tensor([1.0, 2.0, 3.0]))
        tensor([[1., 2.],
                [3., 0.]])
    """

    slot: Tensor
    scenes: int
    size: int

    @classmethod
    def of(cls, batch: Tensor, pointer: Tensor) -> Padding:
        """Build from PyG's ``batch`` ``[N]`` and ``ptr`` ``[scenes + 1]``."""
        scenes = pointer.shape[0] - 1
        if scenes == 1:  # all sizes are known without reading data, as an exported graph requires
            return cls(torch.arange(batch.shape[0], device=batch.device), 1, batch.shape[0])
        size = int((pointer[1:] - pointer[:-1]).max())
        within = torch.arange(batch.shape[0], device=batch.device) - pointer[batch]
        return cls(batch * size + within, scenes, size)

    @property
    def scene(self) -> Tensor:
        """``[N]``, scene of each node."""
        if self.scenes == 1:
            return torch.zeros_like(self.slot)
        return torch.div(self.slot, self.size, rounding_mode="floor") if self.size else self.slot

    @property
    def within(self) -> Tensor:
        """``[N]``, place of each node within its scene."""
        if self.scenes == 1:
            return self.slot
        return self.slot % self.size if self.size else self.slot

    @property
    def count(self) -> Tensor:
        """``[scenes]``, nodes of each scene."""
        return torch.bincount(self.scene, minlength=self.scenes)

    def beside(self, other: Padding) -> Padding:
        """Join two kinds of nodes: in each scene these nodes first, then those of ``other``."""
        if self.scenes == 1:
            return Padding(torch.cat((self.slot, other.slot + self.size)), 1, self.size + other.size)
        size = int((self.count + other.count).max())
        theirs = self.count[other.scene] + other.within
        slot = torch.cat((self.scene * size + self.within, other.scene * size + theirs))
        return Padding(slot, self.scenes, size)

    def repeat(self, times: int) -> Padding:
        """Repeat every node ``times`` times in a row."""
        copies = self.slot[:, None] * times + torch.arange(times, device=self.slot.device)
        return Padding(copies.reshape(-1), self.scenes, self.size * times)

    def copies(self, times: int) -> Padding:
        """Copy every scene ``times`` times, nodes interleaved as in :meth:`EdgeRelation.copies`."""
        scene = self.scene[:, None] * times + torch.arange(times, device=self.slot.device)
        slot = scene * self.size + self.within[:, None]
        return Padding(slot.reshape(-1), self.scenes * times, self.size)

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
        count, within = padding.count, padding.within
        start = count.cumsum(0) - count
        return cls(start[padding.scene] + within, within, [(1, size) for size in count.tolist()])

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
