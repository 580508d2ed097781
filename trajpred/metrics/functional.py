"""What Argoverse 2's marginal forecasting metrics are made of, for whole batches.

``agents.py`` puts these together, each over an agent's K most probable modes:

- minADE: the least :func:`average_error` (the true minimum over modes, whichever ends best)
- minFDE: the least :func:`final_error`
- MR: whether minFDE is :func:`missed`; its mean is the miss rate
- brier-minFDE, brier-minADE: minFDE and minADE :func:`with_brier`
- ADE-of-best-FDE: the average error :func:`of_best` final error, QCNet's and HiVT's "minADE"; never less
  than minADE

Definitions follow ``av2.datasets.motion_forecasting.eval.metrics``; see ``README.md`` beside this file.
Sizes: ``A`` agents, ``K`` modes, ``F`` future steps. Metres, in any frame that is fixed for each agent.
Everything is computed in the dtype given. An agent without any valid step gives NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trajpred.geometry import norm

#: A forecast misses when even its best endpoint is farther than this (metres) from the true one.
MISS_THRESHOLD_M = 2.0


def missed(fde: Tensor, threshold: float = MISS_THRESHOLD_M) -> Tensor:
    """1 where a final error is greater than ``threshold`` metres, else 0, NaN where it is NaN; any shape.

    In the dtype of the errors, so that an agent without a valid step can be NaN here too.
    """
    return torch.where(fde.isnan(), fde, (fde > threshold).to(fde.dtype))


def with_brier(error: Tensor, probability: Tensor) -> Tensor:
    """The least ``error`` ``[A, K]`` plus ``(1 - p)²``, p the probability of the mode that has it: ``[A]``.

    Probabilities ``[A, K]`` count as given (av2's ``normalize=False``). Of equally good modes the most
    probable one counts, whatever their order.
    """
    return error.amin(dim=1) + of_best(error, (1 - probability) ** 2)


def of_best(error: Tensor, value: Tensor) -> Tensor:
    """``value`` ``[A, K]`` of the mode with the least ``error`` ``[A, K]``: ``[A]``; NaN without error.

    Of equally good modes the one with the least value counts.
    """
    best = error.amin(dim=1, keepdim=True)
    least = torch.where(error == best, value, torch.inf).amin(dim=1)
    return torch.where(best[:, 0].isnan(), torch.nan, least)


def displacement(trajectory: Tensor, target: Tensor) -> Tensor:
    """Distance ``[A, K, F]`` of ``[A, K, F, 2]`` from ``[A, F, 2]``."""
    # x and y apart, so that hypot sees consecutive memory: five times as fast.
    x, y = (trajectory[..., axis] - target[:, None, :, axis] for axis in (0, 1))
    return torch.hypot(x, y)


def average_error(trajectory: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Mean displacement error ``[A, K]`` over each agent's valid steps; NaN for an agent without one.

    Args:
        trajectory: ``[A, K, F, 2]`` metres.
        target: ``[A, F, 2]`` metres; values where ``valid`` is False are ignored.
        valid: ``[A, F]`` bool.
    """
    # `where` before the sum: a NaN that pads an invalid step must not leak through 0 * NaN.
    error = torch.where(valid[:, None], displacement(trajectory, target), 0.0)
    return error.sum(dim=2) / valid.sum(dim=1, keepdim=True)  # 0 / 0 is the NaN


def final_error(trajectory: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Displacement error ``[A, K]`` at each agent's last valid step; NaN for an agent without one.

    Args and shapes: see :func:`average_error`.
    """
    step = torch.arange(valid.shape[1], device=valid.device)
    last = torch.where(valid, step, -1).amax(dim=1)
    index = last.clamp(min=0)[:, None, None]
    end = trajectory.take_along_dim(index[..., None], 2).squeeze(2)
    error = norm(end - target.take_along_dim(index, 1))
    return torch.where(last[:, None] >= 0, error, torch.nan)
