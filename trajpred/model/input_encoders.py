"""Encoders of the raw input: one token per agent from its history, one per lane from its polyline."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trajpred.graph.channels import HISTORY, LANE_KINDS, LANE_POINT
from trajpred.lane_map import MARK_TYPES
from trajpred.nn import mlp
from trajpred.scenario import OBJECT_TYPES


class _StridedConv(nn.Module):
    """Convolution over time of width 3 and stride 2, padded so that the last window ends at the last step."""

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(fan_in, fan_out, 3, stride=2)
        self.norm = nn.GroupNorm(1, fan_out)

    def forward(self, x: Tensor) -> Tensor:
        padding = 2 - (x.shape[-1] - 1) % 2
        return nn.functional.gelu(self.norm(self.conv(nn.functional.pad(x, (padding, 0)))))


class AgentEncoder(nn.Module):
    """Encode histories, each in its agent's frame, with three strided convolutions.

    The token combines the last and the maximum feature over time. Any history length works; 50 steps are
    reduced to 7.

    Shapes: history ``[A, T, len(HISTORY)]``, object type ``[A]`` -> ``[A, dim]``.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.halve = nn.Sequential(
            _StridedConv(len(HISTORY), dim // 2), _StridedConv(dim // 2, dim), _StridedConv(dim, dim)
        )
        self.object_type = nn.Embedding(len(OBJECT_TYPES), dim)
        self.out = nn.Linear(2 * dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, history: Tensor, object_type: Tensor) -> Tensor:
        x = self.halve(history.transpose(1, 2))
        summary = torch.cat((x[..., -1], x.amax(-1)), -1)
        return self.norm(self.out(summary) + self.object_type(object_type))


class LaneEncoder(nn.Module):
    """Encode lane segments and crossings with a small PointNet (Qi et al. 2017).

    A per-point MLP and a maximum over the polyline, twice.

    Shapes: points ``[L, P, len(LANE_POINT)]``, kind and is_intersection ``[L]``, marks ``[L, 2]`` ->
    ``[L, dim]``.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.point = mlp(len(LANE_POINT), dim // 2, dim // 2)
        self.polyline = mlp(dim // 2, dim)
        self.context = nn.Linear(dim // 2, dim)
        self.kind = nn.Embedding(len(LANE_KINDS), dim)
        self.intersection = nn.Embedding(2, dim)
        self.left_mark = nn.Embedding(len(MARK_TYPES), dim)
        self.right_mark = nn.Embedding(len(MARK_TYPES), dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, points: Tensor, kind: Tensor, is_intersection: Tensor, marks: Tensor) -> Tensor:
        if points.is_cuda or torch.compiler.is_exporting():
            x = self._encode_shape(points)
        else:  # chunks whose activations fit into the CPU's cache are faster
            x = torch.cat([self._encode_shape(chunk) for chunk in points.split(128)])
        attributes = self.kind(kind) + self.intersection(is_intersection)
        return self.norm(x + attributes + self.left_mark(marks[:, 0]) + self.right_mark(marks[:, 1]))

    def _encode_shape(self, points: Tensor) -> Tensor:
        x = self.point(points)
        return nn.functional.gelu(self.polyline(x) + self.context(x.amax(1, keepdim=True))).amax(1)
