"""Displacement errors of modes, and what the metrics of single agents are made of.

Definitions follow ``av2.datasets.motion_forecasting.eval.metrics``; see docs/concepts/metrics.md.
Sizes: ``A`` agents, ``K`` modes, ``F`` future steps. Metres, in any frame that is fixed for each agent.
Everything is computed in the dtype given. Agents without a valid step give NaN.
"""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING, NamedTuple

from trajpred.data.geometry import last_step, norm, wrap_angle

if TYPE_CHECKING:  # the registry, and with it tables of results, needs no torch
    from torch import Tensor

#: An agent is missed if even its best endpoint is farther than this (metres) from the true one.
MISS_THRESHOLD_M = 2.0


class Errors(NamedTuple):
    """Errors ``[A, K]`` of each agent's modes, sorted by descending probability.

    Attributes:
        average, final: displacement error in metres, mean over the valid steps and at the last one.
        probability: as given.
        average_heading, final_heading: absolute heading error in radians; None where headings are not given.
    """

    average: Tensor
    final: Tensor
    probability: Tensor
    average_heading: Tensor | None = None
    final_heading: Tensor | None = None

    def top(self, k: int | None) -> Errors:
        """Select the ``k`` most probable modes, or all if there are fewer or ``k`` is None."""
        top: dict[str, Tensor] = {}
        for name, values in self._asdict().items():
            if values is not None:
                top[name] = values[:, :k]
        return Errors(**top)


def mode_errors(
    trajectory: Tensor,
    probability: Tensor,
    target: Tensor,
    valid: Tensor,
    heading: Tensor | None = None,
    target_heading: Tensor | None = None,
) -> Errors:
    """Compute the errors of every mode; arguments as in :func:`trajpred.metrics.agent_metrics`.

    NaN for agents with a probability that is not finite, whose most probable modes are unknown.
    """
    errors = {
        "average": average_error(trajectory, target, valid),
        "final": final_error(trajectory, target, valid),
        "probability": probability,
    }
    if heading is not None and target_heading is not None:
        error = heading_error(heading, target_heading, valid)
        errors["average_heading"] = error.nanmean(2)
        errors["final_heading"] = error.take_along_dim(last_step(valid)[:, None, None], 2)[..., 0]
    certain = probability.isfinite().all(1, keepdim=True)
    order = by_probability(probability)
    ranked: dict[str, Tensor] = {}
    for name, values in errors.items():
        ranked[name] = values.where(certain, nan).take_along_dim(order, 1)
    return Errors(**ranked)


def heading_error(heading: Tensor, target_heading: Tensor, valid: Tensor) -> Tensor:
    """Compute the absolute heading error ``[A, K, F]`` of each mode in radians, NaN at unknown steps.

    Args:
        heading: ``[A, K, F]``; target_heading: ``[A, F]``, NaN where unknown; valid: ``[A, F]``.
    """
    error = wrap_angle(heading - target_heading[:, None]).abs()
    return error.where(valid[:, None], nan)


def by_probability(probability: Tensor) -> Tensor:
    """Return the indices ``[A, K]`` of the modes by descending probability; equal ones keep their order."""
    return probability.argsort(dim=1, descending=True, stable=True)


def missed(fde: Tensor) -> Tensor:
    """Return 1 where a final error is greater than :data:`MISS_THRESHOLD_M`, else 0, NaN where it is NaN."""
    return (fde > MISS_THRESHOLD_M).to(fde.dtype).where(~fde.isnan(), fde)


def with_brier(error: Tensor, probability: Tensor) -> Tensor:
    """Compute the least ``error`` ``[A, K]`` plus ``(1 - p)²``, p the probability of that mode: ``[A]``.

    Probabilities are used as given (av2's ``normalize=False``). Among modes of equal error the most probable
    one counts.
    """
    return error.amin(dim=1) + of_best(error, (1 - probability) ** 2)


def of_best(error: Tensor, value: Tensor) -> Tensor:
    """Return the ``value`` ``[A, K]`` of the mode with the least ``error`` ``[A, K]``: ``[A]``.

    Among modes of equal error the least value counts. NaN where the errors are.
    """
    best = error.amin(dim=1, keepdim=True)
    least = value.where(error == best, inf).amin(dim=1)
    return least.where(~best[:, 0].isnan(), nan)


def displacement(trajectory: Tensor, target: Tensor) -> Tensor:
    """Compute the distance ``[A, K, F]`` of ``[A, K, F, 2]`` from ``[A, F, 2]``."""
    # With x and y apart hypot reads consecutive memory: five times as fast.
    x = trajectory[..., 0] - target[:, None, :, 0]
    y = trajectory[..., 1] - target[:, None, :, 1]
    return x.hypot(y)


def average_error(trajectory: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Compute the mean displacement error ``[A, K]`` over each agent's valid steps."""
    # `where` before the sum: NaN at an invalid step must not propagate through 0 * NaN.
    error = displacement(trajectory, target).where(valid[:, None], 0.0)
    return error.sum(dim=2) / valid.sum(dim=1, keepdim=True)  # 0 / 0 is NaN


def final_error(trajectory: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Compute the displacement error ``[A, K]`` at each agent's last valid step."""
    index = last_step(valid)[:, None, None]
    end = trajectory.take_along_dim(index[..., None], 2).squeeze(2)
    error = norm(end - target.take_along_dim(index, 1))
    return error.where(valid.any(1, keepdim=True), nan)
