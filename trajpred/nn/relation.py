"""Relations: which sender each receiver attends to, and how attention over them is evaluated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from trajpred.geometry import Pose
from trajpred.nn.segment import segment_softmax, segment_sum

#: Poses of the senders and of the receivers.
Poses = tuple[Pose[Tensor], Pose[Tensor]]


class Relation(Protocol):
    """Edges from senders j to receivers i, with a bias per head that all layers share, and maybe poses."""

    @property
    def poses(self) -> Poses | None: ...

    @property
    def copies(self) -> int:
        """Number of copies of each node, one after another, which attend to those of the same place alone;
        the bias has as many times the heads."""
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
        none = torch.zeros(self.num_receivers, self.copies, dtype=torch.bool, device=self.index.device)
        return none.index_fill(0, self.index[1], True).view(-1, 1)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        sender, receiver = self.index
        message = self.weights(query, key)[..., None] * value.index_select(0, sender)
        return segment_sum(message, receiver, self.num_receivers)

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the attention of every edge, ``[E, H]``; it sums to 1 over the edges of a receiver."""
        sender, receiver = self.index
        score = (query.index_select(0, receiver) * key.index_select(0, sender)).sum(-1)
        return segment_softmax(score / query.shape[-1] ** 0.5 + self.bias, receiver, self.num_receivers)

    def repeat_receivers(self, times: int) -> EdgeRelation:
        """Repeat every receiver ``times`` times in a row: all edges to the first copies, then to the next."""
        sender, receiver = self.index
        copies = (receiver[:, None] * times + torch.arange(times, device=receiver.device)).T
        return replace(
            self,
            index=torch.stack((sender.repeat(times), copies.reshape(-1))),
            bias=self.bias.repeat(times, 1),
            num_receivers=self.num_receivers * times,
            poses=repeat_receiver_poses(self.poses, times),
            features=None if self.features is None else self.features.repeat(times, 1),
        )

    def with_copies(self, times: int) -> EdgeRelation:
        """Let all edges serve ``times`` copies of the nodes."""
        return replace(self, bias=self.bias.repeat(1, times), copies=times)

    def separate(self) -> EdgeRelation:
        """Number the copies as nodes of their own, for attention that reads features instead of the bias."""
        if self.copies == 1:
            return self
        copy = torch.arange(self.copies, device=self.index.device)
        index = (self.index[..., None] * self.copies + copy).flatten(1)
        features = None if self.features is None else self.features.repeat_interleave(self.copies, dim=0)
        size = (self.num_senders * self.copies, self.num_receivers * self.copies)
        return EdgeRelation(index, self.bias.new_zeros(index.shape[1], 1), *size, features=features)


@dataclass
class GroupRelation:
    """Complete graphs, self loops included, over consecutive groups of ``size`` nodes."""

    size: int
    poses: Poses | None = None
    reached: Tensor | None = None
    copies: int = 1

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (x.unflatten(0, (-1, self.size)).transpose(1, 2) for x in (query, key, value))
        return scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(0, 1)

    def edges(self, nodes: Tensor) -> EdgeRelation:
        """Return the flattened edges over ``nodes`` ``[N, ...]``, sorted by receiver, without a bias."""
        place = torch.arange(self.size, device=nodes.device)
        receiver = torch.arange(nodes.shape[0], device=nodes.device)[:, None].expand(-1, self.size)
        index = torch.stack((receiver // self.size * self.size + place, receiver)).flatten(1)
        return EdgeRelation(index, nodes.new_zeros(index.shape[1], 1), nodes.shape[0], nodes.shape[0])


def repeat_receiver_poses(poses: Poses | None, times: int) -> Poses | None:
    if poses is None:
        return None
    sender, receiver = poses
    return sender, Pose(*(x.repeat_interleave(times, dim=0) for x in (receiver.position, receiver.heading)))
