"""Places of the nodes of a flattened batch once its scenes are padded, and the layout of matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn


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
