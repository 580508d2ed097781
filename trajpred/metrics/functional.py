"""Argoverse 2's marginal forecasting metrics for whole batches, one number per agent.

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


def top_modes(trajectory: Tensor, probability: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` most probable modes, most probable first; ties go to the lower index.

    Args:
        trajectory: ``[A, K, F, 2]``.
        probability: ``[A, K]``.
        k: how many to keep; all of them where there are fewer.

    Returns:
        ``[A, min(k, K), F, 2]`` and ``[A, min(k, K)]``; probabilities are not renormalised.
    """
    order = probability.argsort(dim=1, descending=True, stable=True)[:, :k]
    return trajectory.take_along_dim(order[..., None, None], 1), probability.take_along_dim(order, 1)


def min_ade(trajectory: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Average displacement error of the mode in which it is least (the true minimum over modes).

    Args:
        trajectory: ``[A, K, F, 2]`` metres.
        target: ``[A, F, 2]`` metres; values where ``valid`` is False are ignored.
        valid: ``[A, F]`` bool.

    Returns:
        ``[A]`` metres, the mean over the valid steps; NaN without any.
    """
    return average_error(trajectory, target, valid).amin(dim=1)


def min_fde(trajectory: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Displacement error at the last valid step, of the mode in which it is least.

    Args and shapes: see :func:`min_ade`.

    Returns:
        ``[A]`` metres; NaN without a valid step.
    """
    return final_error(trajectory, target, valid).amin(dim=1)


def ade_of_best_endpoint(trajectory: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Average displacement error of the mode with the least final error: QCNet's and HiVT's "minADE".

    Never less than :func:`min_ade`. Args and shapes: see there. Of modes that end equally well the one with
    the least average error counts.
    """
    return of_best(final_error(trajectory, target, valid), average_error(trajectory, target, valid))


def is_missed(
    trajectory: Tensor, target: Tensor, valid: Tensor, threshold: float = MISS_THRESHOLD_M
) -> Tensor:
    """1 where the least final error is greater than ``threshold`` metres, else 0; its mean is the miss rate.

    Args and shapes: see :func:`min_ade`.

    Returns:
        ``[A]`` in the dtype of the errors, so that an agent without a valid step can be NaN here too.
    """
    return missed(min_fde(trajectory, target, valid), threshold)


def brier_min_fde(trajectory: Tensor, probability: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Least final error plus ``(1 - p)²``, p the probability of the mode that has the least final error.

    Probabilities count as given (av2's ``normalize=False``). Of modes that end equally well the most
    probable one counts, whatever their order.

    Args:
        probability: ``[A, K]``; the others as in :func:`min_ade`.

    Returns:
        ``[A]``; NaN without a valid step.
    """
    return with_brier(final_error(trajectory, target, valid), probability)


def brier_min_ade(trajectory: Tensor, probability: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Least average error plus ``(1 - p)²`` of the mode that has it; otherwise as :func:`brier_min_fde`."""
    return with_brier(average_error(trajectory, target, valid), probability)


def missed(fde: Tensor, threshold: float = MISS_THRESHOLD_M) -> Tensor:
    """1 where a final error is greater than ``threshold``, else 0, NaN where it is NaN; any shape."""
    return torch.where(fde.isnan(), fde, (fde > threshold).to(fde.dtype))


def with_brier(error: Tensor, probability: Tensor) -> Tensor:
    """The least ``error`` ``[A, K]`` plus ``(1 - p)²`` of the (most probable) mode that has it: ``[A]``."""
    return error.amin(dim=1) + of_best(error, (1 - probability) ** 2)


def of_best(error: Tensor, value: Tensor) -> Tensor:
    """``value`` ``[A, K]`` of the mode with the least ``error``; of equals the least; NaN without error."""
    best = error.amin(dim=1, keepdim=True)
    least = torch.where(error == best, value, torch.inf).amin(dim=1)
    return torch.where(best[:, 0].isnan(), torch.nan, least)


def displacement(trajectory: Tensor, target: Tensor) -> Tensor:
    """Distance ``[A, K, F]`` of ``[A, K, F, 2]`` from ``[A, F, 2]``."""
    # x and y apart, so that hypot sees consecutive memory: five times as fast.
    x, y = (trajectory[..., axis] - target[:, None, :, axis] for axis in (0, 1))
    return torch.hypot(x, y)


def average_error(trajectory: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Mean displacement error ``[A, K]`` over each agent's valid steps; NaN for an agent without one."""
    # `where` before the sum: a NaN that pads an invalid step must not leak through 0 * NaN.
    error = torch.where(valid[:, None], displacement(trajectory, target), 0.0)
    return error.sum(dim=2) / valid.sum(dim=1, keepdim=True)  # 0 / 0 is the NaN


def final_error(trajectory: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Displacement error ``[A, K]`` at each agent's last valid step; NaN for an agent without one."""
    step = torch.arange(valid.shape[1], device=valid.device)
    last = torch.where(valid, step, -1).amax(dim=1)
    index = last.clamp(min=0)[:, None, None]
    end = trajectory.take_along_dim(index[..., None], 2).squeeze(2)
    error = norm(end - target.take_along_dim(index, 1))
    return torch.where(last[:, None] >= 0, error, torch.nan)
