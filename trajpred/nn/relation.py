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
