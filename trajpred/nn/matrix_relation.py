"""A relation of one scene as plain matrices: what is exported, since it needs neither gather nor scatter."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trajpred.geometry import Pose
from trajpred.nn.relation import repeat_pose
from trajpred.nn.segment import LOWEST


@dataclass
class MatrixRelation:
    """Every sender beside every receiver; the same maths as :class:`~trajpred.nn.relation.EdgeRelation`.

    Attributes:
        bias: ``[H, R / times, S]``, :data:`~trajpred.nn.segment.LOWEST` where there is no edge.
        reached: ``[R, 1]`` bool, receivers with at least one edge.
        times: so many receivers in a row share a row of ``bias``.
    """

    bias: Tensor
    reached: Tensor
    poses: tuple[Pose[Tensor], Pose[Tensor]] | None = None
    times: int = 1

    @classmethod
    def of(
        cls, bias: Tensor, edge: Tensor, poses: tuple[Pose[Tensor], Pose[Tensor]] | None
    ) -> MatrixRelation:
        """From ``bias`` ``[H, R, S]`` of all pairs, and which of them are edges, ``[R, S]``."""
        return cls(torch.where(edge, bias, LOWEST), edge.any(1, keepdim=True), poses)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return (self._softmax(query, key) @ value.transpose(0, 1)).transpose(0, 1)

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """The softmax of all pairs, receiver by receiver: ``[R · S, H]``."""
        return self._softmax(query, key).permute(1, 2, 0).flatten(0, 1)

    def _softmax(self, query: Tensor, key: Tensor) -> Tensor:
        """``[H, R, S]``."""
        q, k = (query / query.shape[-1] ** 0.5).transpose(0, 1), key.transpose(0, 1)
        score = (q @ k.transpose(-1, -2)).unflatten(1, (-1, self.times)) + self.bias[:, :, None]
        return score.flatten(1, 2).softmax(-1)

    def repeat_receivers(self, times: int) -> MatrixRelation:
        """Every receiver ``times`` times in a row, all with the same edges."""
        return replace(
            self,
            reached=self.reached.repeat_interleave(times, dim=0),
            poses=self.poses and (self.poses[0], repeat_pose(self.poses[1], times)),
            times=self.times * times,
        )
