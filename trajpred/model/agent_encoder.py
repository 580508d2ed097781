"""One token per agent from its observed history."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trajpred.graph.agents import HISTORY_CHANNELS
from trajpred.scenario import OBJECT_TYPES


class _Halve(nn.Module):
    """Convolution of width 3 and stride 2 over time; the last window ends at the last step."""

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(fan_in, fan_out, 3, stride=2)
        self.norm = nn.GroupNorm(1, fan_out)

    def forward(self, x: Tensor) -> Tensor:
        padding = 2 - (x.shape[-1] - 1) % 2
        return nn.functional.gelu(self.norm(self.conv(nn.functional.pad(x, (padding, 0)))))


class AgentEncoder(nn.Module):
    """Three strided convolutions over the history in the own frame, then latest and largest values.

    Works for any history length; 50 steps become 7.

    Shapes: history ``[A, T, HISTORY_CHANNELS]``, object type ``[A]`` -> ``[A, dim]``.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.halve = nn.Sequential(
            _Halve(HISTORY_CHANNELS, dim // 2), _Halve(dim // 2, dim), _Halve(dim, dim)
        )
        self.object_type = nn.Embedding(len(OBJECT_TYPES), dim)
        self.out = nn.Linear(2 * dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, history: Tensor, object_type: Tensor) -> Tensor:
        x = self.halve(history.transpose(1, 2))
        summary = torch.cat((x[..., -1], x.amax(-1)), -1)
        return self.norm(self.out(summary) + self.object_type(object_type))
