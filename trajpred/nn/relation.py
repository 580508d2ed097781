"""Relations: who hears whom, how strongly by position, and the two ways to evaluate attention over it.

A relation holds edges from senders j to receivers i, a per-head bias on their scores (computed once, shared
by all layers) and, optionally, the poses of both ends. :class:`EdgeRelation` evaluates flattened edges, any
graph at all; :class:`DenseRelation` is the same maths on scenes padded to equal size, much faster where
scenes fit; :class:`GroupRelation` is the complete graph within groups of equal size.
"""

from __future__ import annotations

from dataclasses import dataclass
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

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        sender, receiver = self.index
        score = (query.index_select(0, receiver) * key.index_select(0, sender)).sum(-1)
        weight = segment_softmax(score / query.shape[-1] ** 0.5 + self.bias, receiver, self.num_receivers)
        message = weight[..., None] * value.index_select(0, sender)
        return segment_sum(message, receiver, self.num_receivers)

    def repeat_receivers(self, times: int) -> EdgeRelation:
        """Every receiver ``times`` times in a row, all with the same edges."""
        sender, receiver = self.index
        copies = (receiver[:, None] * times + torch.arange(times, device=receiver.device)).T
        index = torch.stack((sender.repeat(times), copies.reshape(-1)))
        return EdgeRelation(
            index,
            self.bias.repeat(times, 1),
            self.num_senders,
            self.num_receivers * times,
            self.poses and (self.poses[0], _repeat(self.poses[1], times)),
        )

    def copies(self, times: int) -> EdgeRelation:
        """``times`` separate copies of the graph, interleaved: copy c of node n is node n · times + c."""
        copy = torch.arange(times, device=self.index.device)
        index = (self.index[..., None] * times + copy).flatten(1)
        poses = self.poses and (_repeat(self.poses[0], times), _repeat(self.poses[1], times))
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

    def beside(self, other: Padding) -> Padding:
        """Both kinds of nodes of every scene in one row: these first, then ``other``; flattened likewise."""
        size = self.size + other.size
        own = self.slot + torch.div(self.slot, self.size, rounding_mode="floor") * other.size
        theirs = other.slot + (torch.div(other.slot, other.size, rounding_mode="floor") + 1) * self.size
        return Padding(torch.cat((own, theirs)), self.scenes, size)

    def repeat(self, times: int) -> Padding:
        """Every node ``times`` times in a row."""
        copies = self.slot[:, None] * times + torch.arange(times, device=self.slot.device)
        return Padding(copies.reshape(-1), self.scenes, self.size * times)

    def copies(self, times: int) -> Padding:
        """Every scene ``times`` times, nodes interleaved as in :meth:`EdgeRelation.copies`."""
        scene = torch.div(self.slot, self.size, rounding_mode="floor")[:, None] * times
        scene = scene + torch.arange(times, device=self.slot.device)
        within = (self.slot % self.size)[:, None]
        return Padding((scene * self.size + within).reshape(-1), self.scenes * times, self.size)

    def pad(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """``[N, ...]`` -> ``[scenes, size, ...]``."""
        padded = x.new_full((self.scenes * self.size, *x.shape[1:]), fill).index_copy(0, self.slot, x)
        return padded.reshape(self.scenes, self.size, *x.shape[1:])

    def unpad(self, x: Tensor) -> Tensor:
        """``[scenes, size, ...]`` -> ``[N, ...]``."""
        return x.flatten(0, 1).index_select(0, self.slot)


@dataclass
class DenseRelation:
    """The same edges as a padded bias matrix per scene; made once, then used by every layer.

    Attributes:
        bias: ``[B, H, R, S]``; very low where there is no edge.
        senders, receivers: where the nodes lie in it.
    """

    bias: Tensor
    senders: Padding
    receivers: Padding
    reached: Tensor
    poses: tuple[Pose[Tensor], Pose[Tensor]] | None = None

    @classmethod
    def of(cls, edges: EdgeRelation, senders: Padding, receivers: Padding) -> DenseRelation:
        """Pad ``edges``; edges must stay within a scene."""
        H, (sender, receiver) = edges.bias.shape[1], edges.index
        # A row's scene is that of its receiver; the column is the sender's place in the same scene.
        flat = receivers.slot[receiver] * senders.size + senders.slot[sender] % senders.size
        size = receivers.scenes * receivers.size * senders.size
        wide = edges.bias.to(torch.promote_types(edges.bias.dtype, torch.float32))  # float16 has no LOWEST
        bias = wide.new_full((size, H), LOWEST).index_copy(0, flat, wide)
        bias = bias.reshape(receivers.scenes, receivers.size, senders.size, H).permute(0, 3, 1, 2)
        return cls(bias.contiguous(), senders, receivers, edges.reached, edges.poses)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q = self.receivers.pad(query).transpose(1, 2)
        k, v = (self.senders.pad(x).transpose(1, 2) for x in (key, value))
        out = scaled_dot_product_attention(q, k, v, attn_mask=self.bias.to(q.dtype))
        return self.receivers.unpad(out.transpose(1, 2))

    def repeat_receivers(self, times: int) -> DenseRelation:
        """Every receiver ``times`` times in a row, all with the same edges."""
        return DenseRelation(
            self.bias.repeat_interleave(times, dim=2),
            self.senders,
            self.receivers.repeat(times),
            self.reached.repeat_interleave(times, dim=0),
            self.poses and (self.poses[0], _repeat(self.poses[1], times)),
        )

    def copies(self, times: int) -> DenseRelation:
        """See :meth:`EdgeRelation.copies`."""
        return DenseRelation(
            self.bias.repeat_interleave(times, dim=0),
            self.senders.copies(times),
            self.receivers.copies(times),
            self.reached.repeat_interleave(times, dim=0),
            self.poses and (_repeat(self.poses[0], times), _repeat(self.poses[1], times)),
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


def _repeat(pose: Pose[Tensor], times: int) -> Pose[Tensor]:
    return Pose(pose.position.repeat_interleave(times, dim=0), pose.heading.repeat_interleave(times, dim=0))
