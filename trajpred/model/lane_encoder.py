"""One token per lane segment or crossing from its points."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trajpred.graph.lanes import LANE_KINDS, POINT_CHANNELS
from trajpred.lane_map import MARK_TYPES
from trajpred.nn import mlp


class LaneEncoder(nn.Module):
    """A small PointNet (Qi et al. 2017): every point alone, then the maximum over the polyline, twice.

    Shapes: points ``[L, P, POINT_CHANNELS]``, kind and is_intersection ``[L]``, marks ``[L, 2]``;
    out ``[L, dim]``.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.point = mlp(POINT_CHANNELS, dim // 2, dim // 2)
        self.polyline = mlp(dim // 2, dim)
        self.context = nn.Linear(dim // 2, dim)
        self.kind = nn.Embedding(len(LANE_KINDS), dim)
        self.intersection = nn.Embedding(2, dim)
        self.left_mark = nn.Embedding(len(MARK_TYPES), dim)
        self.right_mark = nn.Embedding(len(MARK_TYPES), dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, points: Tensor, kind: Tensor, is_intersection: Tensor, marks: Tensor) -> Tensor:
        if points.is_cuda or torch.compiler.is_exporting():
            x = self._shape(points)
        else:  # a CPU is faster on so few lanes that what it computes stays in its cache
            x = torch.cat([self._shape(few) for few in points.split(128)])
        attributes = self.kind(kind) + self.intersection(is_intersection)
        return self.norm(x + attributes + self.left_mark(marks[:, 0]) + self.right_mark(marks[:, 1]))

    def _shape(self, points: Tensor) -> Tensor:
        x = self.point(points)
        return nn.functional.gelu(self.polyline(x) + self.context(x.amax(1, keepdim=True))).amax(1)
