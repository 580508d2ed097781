"""Relations: who hears whom, how strongly by position, and the two ways to evaluate attention over it.

A relation holds edges from senders j to receivers i, a per-head bias on their scores (computed once, shared
by all layers) and, optionally, the poses of both ends. :class:`EdgeRelation` evaluates flattened edges, any
graph at all; :class:`DenseRelation` is the same maths on scenes padded to equal size, much faster where
scenes fit; :class:`GroupRelation` is the complete graph within groups of equal size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from trajpred.geometry import Pose
from trajpred.nn.segment import LOWEST, segment_softmax, segment_sum


class Relation(Protocol):
    """What :class:`~trajpred.nn.attention.GraphAttention` asks of a relation."""

    @property
    def poses(self) -> tuple[Pose[Tensor], Pose[Tensor]] | None:
        """Of the senders and of the receivers, or None."""
        ...

    @property
    def reached(self) -> Tensor | None:
        """``[R, 1]`` bool, receivers with at least one incoming edge; None if all have."""
        ...

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Σ_j softmax_j(q_i·k_j / √C + bias_ij) v_j.

        Args:
            query: ``[R, H, C]``; key: ``[S, H, C]``; value: ``[S, H, V]``.

        Returns:
            ``[R, H, V]``; undefined but finite where not ``reached``.
        """
        ...

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """The softmax of :meth:`attend` on every edge, ``[E, H]``; sums to 1 over those into a receiver."""
        ...


@dataclass
class EdgeRelation:
    """Flattened edges.

    Attributes:
        index: ``[2, E]`` int64, row 0 sender j, row 1 receiver i, no pair twice.
        bias: ``[E, H]`` added to the scores.
    """

    index: Tensor
    bias: Tensor
    num_senders: int
    num_receivers: int
    poses: tuple[Pose[Tensor], Pose[Tensor]] | None = None

    @property
    def reached(self) -> Tensor:
        none = torch.zeros(self.num_receivers, 1, dtype=torch.bool, device=self.index.device)
        return none.index_fill(0, self.index[1], True)

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        sender, receiver = self.index
        score = (query.index_select(0, receiver) * key.index_select(0, sender)).sum(-1)
        return segment_softmax(score / query.shape[-1] ** 0.5 + self.bias, receiver, self.num_receivers)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        sender, receiver = self.index
        message = self.weights(query, key)[..., None] * value.index_select(0, sender)
        return segment_sum(message, receiver, self.num_receivers)

    def repeat_receivers(self, times: int) -> EdgeRelation:
        """Every receiver ``times`` times in a row, all with the same edges."""
        return EdgeRelation(
            _repeat_receivers(self.index, times),
            self.bias.repeat(times, 1),
            self.num_senders,
            self.num_receivers * times,
            self.poses and (self.poses[0], repeat_pose(self.poses[1], times)),
        )

    def copies(self, times: int) -> EdgeRelation:
        """``times`` separate copies of the graph, interleaved: copy c of node n is node n · times + c."""
        copy = torch.arange(times, device=self.index.device)
        index = (self.index[..., None] * times + copy).flatten(1)
        poses = self.poses and (repeat_pose(self.poses[0], times), repeat_pose(self.poses[1], times))
        bias = self.bias.repeat_interleave(times, dim=0)
        return EdgeRelation(index, bias, self.num_senders * times, self.num_receivers * times, poses)


@dataclass
class Padding:
    """Where each node of a flattened batch lies once its scenes are padded to one size.

    Attributes:
        slot: ``[N]`` int64 in ``scenes · size``, scene-major.
    """

    slot: Tensor
    scenes: int
    size: int

    @classmethod
    def of(cls, batch: Tensor, pointer: Tensor) -> Padding:
        """From PyG's ``batch`` ``[N]`` and ``ptr`` ``[scenes + 1]``."""
        size = int((pointer[1:] - pointer[:-1]).max())
        within = torch.arange(len(batch), device=batch.device) - pointer[batch]
        return cls(batch * size + within, len(pointer) - 1, size)

    @property
    def scene(self) -> Tensor:
        """``[N]``: the scene of every node."""
        return torch.div(self.slot, self.size, rounding_mode="floor") if self.size else self.slot

    @property
    def within(self) -> Tensor:
        """``[N]``: its place among the nodes of its scene."""
        return self.slot % self.size if self.size else self.slot

    @property
    def count(self) -> Tensor:
        """``[scenes]``: nodes in each."""
        return torch.bincount(self.scene, minlength=self.scenes)

    def beside(self, other: Padding) -> Padding:
        """Both kinds of nodes of every scene in a row: these first, right behind them ``other``."""
        size = int((self.count + other.count).max())
        theirs = self.count[other.scene] + other.within
        slot = torch.cat((self.scene * size + self.within, other.scene * size + theirs))
        return Padding(slot, self.scenes, size)

    def repeat(self, times: int) -> Padding:
        """Every node ``times`` times in a row."""
        copies = self.slot[:, None] * times + torch.arange(times, device=self.slot.device)
        return Padding(copies.reshape(-1), self.scenes, self.size * times)

    def copies(self, times: int) -> Padding:
        """Every scene ``times`` times, nodes interleaved as in :meth:`EdgeRelation.copies`."""
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
    """Nodes laid out for matrix products: blocks of scenes, each padded to its own largest scene.

    On a CPU every scene is a block: nothing is padded, and what was just computed is still in the cache;
    fresh memory costs more than the arithmetic. A GPU wants few and large products: all are one block.

    Attributes:
        slot: ``[N]`` int64, where nodes lie in all blocks end to end; within: ``[N]``, and in their scenes.
        shapes: scenes and padded size of every block.
    """

    slot: Tensor
    within: Tensor
    shapes: list[tuple[int, int]]

    @classmethod
    def of(cls, padding: Padding, together: bool) -> Blocks:
        """All scenes ``together`` in one block, or every scene in its own."""
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
        """The inverse of :meth:`split`."""
        laid = torch.cat([block.permute(1, 2, 0, 3).flatten(0, 1) for block in blocks])
        return laid.index_select(0, self.slot)

    def repeat(self, times: int) -> Blocks:
        """Every node ``times`` times in a row."""
        copy = torch.arange(times, device=self.slot.device)
        slot, within = ((x[:, None] * times + copy).flatten() for x in (self.slot, self.within))
        return Blocks(slot, within, [(scenes, size * times) for scenes, size in self.shapes])

    def pairs(self, senders: Blocks, index: Tensor) -> Tensor:
        """Where edges ``[2, E]`` into these nodes lie in all blocks' score matrices, end to end: ``[E]``."""
        starts, end = [], 0
        for (scenes, size), (_, width) in zip(self.shapes, senders.shapes, strict=True):
            starts.append(end + width * torch.arange(scenes * size, device=index.device))
            end += scenes * size * width
        start = torch.cat(starts)
        return start[self.slot[index[1]]] + senders.within[index[0]]


@dataclass
class DenseRelation:
    """The same edges as bias matrices; made once, then used by every layer.

    Attributes:
        bias: for every block of scenes ``[H, scenes, R / times, S]``, very low where there is no edge.
        index: ``[2, E]`` as in :class:`EdgeRelation`, receivers counted once.
        senders, receivers: where the nodes lie.
        times: so many receivers in a row share a row of ``bias``.
    """

    bias: list[Tensor]
    index: Tensor
    senders: Blocks
    receivers: Blocks
    reached: Tensor
    poses: tuple[Pose[Tensor], Pose[Tensor]] | None = None
    times: int = 1

    @classmethod
    def of(
        cls, edges: EdgeRelation, senders: Padding, receivers: Padding, together: bool | None = None
    ) -> DenseRelation:
        """Lay out ``edges``, which must stay within a scene; ``together`` as in :class:`Blocks`."""
        together = edges.index.is_cuda if together is None else together
        columns, rows = Blocks.of(senders, together), Blocks.of(receivers, together)
        shapes = [(b, r, s) for (b, r), (_, s) in zip(rows.shapes, columns.shapes, strict=True)]
        lengths = [b * r * s for b, r, s in shapes]
        # Heads outermost, so that every block's matrices are slices. Float16 has no LOWEST.
        wide = edges.bias.T.to(torch.promote_types(edges.bias.dtype, torch.float32))
        laid = wide.new_full((len(wide), sum(lengths)), LOWEST)
        laid = laid.index_copy(1, rows.pairs(columns, edges.index), wide)
        bias = [x.unflatten(1, shape) for x, shape in zip(laid.split(lengths, 1), shapes, strict=True)]
        return cls(bias, edges.index, columns, rows, edges.reached, edges.poses)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        blocks = zip(self._softmax(query, key), self.senders.split(value), strict=True)
        return self.receivers.join([weight.to(v.dtype) @ v for weight, v in blocks])

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        laid = torch.cat([weight.flatten(1) for weight in self._softmax(query, key)], 1)
        index = _repeat_receivers(self.index, self.times)
        return laid.index_select(1, self.receivers.pairs(self.senders, index)).T

    def _softmax(self, query: Tensor, key: Tensor) -> Iterator[Tensor]:
        """``[H, scenes, R, S]`` of every block."""
        q, k = self.receivers.split(query / query.shape[-1] ** 0.5), self.senders.split(key)
        for receivers, senders, bias in zip(q, k, self.bias, strict=True):
            # scaled_dot_product_attention has no fast kernel on a CPU where the bias needs a gradient.
            score = (receivers @ senders.transpose(-1, -2)).to(bias.dtype)
            score.unflatten(2, (-1, self.times)).add_(bias.unsqueeze(3))
            yield score.softmax(-1)

    def repeat_receivers(self, times: int) -> DenseRelation:
        """Every receiver ``times`` times in a row, all with the same edges."""
        return replace(
            self,
            receivers=self.receivers.repeat(times),
            reached=self.reached.repeat_interleave(times, dim=0),
            poses=self.poses and (self.poses[0], repeat_pose(self.poses[1], times)),
            times=self.times * times,
        )


@dataclass
class GroupRelation:
    """Nodes in consecutive groups of ``size``; all of a group hear each other, themselves included."""

    size: int
    poses: tuple[Pose[Tensor], Pose[Tensor]] | None = None
    reached: Tensor | None = None

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (x.unflatten(0, (-1, self.size)).transpose(1, 2) for x in (query, key, value))
        return scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(0, 1)

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """See :meth:`Relation.weights`; every receiver's ``size`` edges in turn."""
        q, k = (x.unflatten(0, (-1, self.size)).transpose(1, 2) for x in (query, key))
        weight = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        return weight.permute(0, 2, 3, 1).flatten(0, 2)


def repeat_pose(pose: Pose[Tensor], times: int) -> Pose[Tensor]:
    """Every pose ``times`` times in a row."""
    return Pose(pose.position.repeat_interleave(times, dim=0), pose.heading.repeat_interleave(times, dim=0))


def _repeat_receivers(index: Tensor, times: int) -> Tensor:
    """Edges to ``times`` copies of every receiver in a row: all edges to the first copies, then the next."""
    sender, receiver = index
    copies = (receiver[:, None] * times + torch.arange(times, device=receiver.device)).T
    return torch.stack((sender.repeat(times), copies.reshape(-1)))
