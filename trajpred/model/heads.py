"""Mode tokens -> futures: three ways to unroll a token over time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trajpred.graph.config import LENGTH_SCALE
from trajpred.model.bezier import bernstein
from trajpred.nn import mlp
from trajpred.nn.published.padded_attention import PaddedAttention


def wide(x: Tensor) -> Tensor:
    """``x`` in float32, in which autocast leaves metres whole; in float64 for float64 weights."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def bounded_scale(raw: Tensor) -> Tensor:
    """Laplace scales from e^-4 to e^4 metres: a bounded log-scale cannot run away on the first batches."""
    return torch.exp(4 * torch.tanh(raw / 4))


class CurveHead(nn.Module):
    """Control points of Bézier curves for the offset (which starts at 0) and for the log-scale.

    Shapes: ``[M, dim]`` -> offset and scale, ``[M, horizon, 2]`` metres each.
    """

    curve: Tensor

    def __init__(self, dim: int, horizon: int, degree: int = 8) -> None:
        super().__init__()
        self.degree = degree
        self.register_buffer("curve", bernstein(degree, horizon), persistent=False)
        self.points = mlp(dim, 2 * dim, 2 * (2 * degree + 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        points = wide(self.points(x)).unflatten(-1, (2 * self.degree + 1, 2))
        # Autocast would round the products: a quarter of a metre at 60 m.
        with torch.autocast(points.device.type, enabled=False):
            offset = self.curve[:, 1:] @ points[..., : self.degree, :]
            log_scale = self.curve @ points[..., self.degree :, :]
        return offset * LENGTH_SCALE, bounded_scale(log_scale)


class LSTMHead(nn.Module):
    """An LSTM fed with the token at every step; its outputs are steps that add up to the offset.

    Shapes: ``[M, dim]`` -> offset and scale, ``[M, horizon, 2]`` metres each.
    """

    def __init__(self, dim: int, horizon: int) -> None:
        super().__init__()
        self.horizon = horizon
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steps = wide(self.out(self.lstm(x[:, None].expand(-1, self.horizon, -1))[0]))
        return steps[..., :2].cumsum(1), bounded_scale(steps[..., 2:])


class AttentionHead(nn.Module):
    """One query per future step, which hears the steps before it: temporal self-attention as decoder.

    Shapes: ``[M, dim]`` -> offset and scale, ``[M, horizon, 2]`` metres each.
    """

    causal: Tensor

    def __init__(self, dim: int, horizon: int, heads: int = 4) -> None:
        super().__init__()
        self.step = nn.Parameter(0.02 * torch.randn(horizon, dim))
        self.attention = PaddedAttention(dim, heads)
        self.norm = nn.LayerNorm(dim)
        self.out = mlp(dim, dim, 4)
        self.register_buffer("causal", torch.ones(horizon, horizon).tril().bool(), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steps = x[:, None] + self.step
        heard = self.attention(steps, attention_mask=self.causal.expand(len(x), -1, -1))
        raw = wide(self.out(self.norm(steps + heard)))
        return raw[..., :2].cumsum(1), bounded_scale(raw[..., 2:])
