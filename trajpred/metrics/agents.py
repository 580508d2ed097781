"""Every metric of every agent by name, for the K most probable modes; training and evaluation ask here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trajpred.geometry import wrap_angle
from trajpred.metrics.functional import (
    average_error,
    displacement,
    final_error,
    missed,
    of_best,
    with_brier,
)

#: ``metric(ade, fde, probability) -> [A]`` of the K modes' errors ``[A, K]``; K is appended to the names:
#: ``minADE1``, ``MR6``. ``functional.py`` says what each of them is.
AGENT_METRICS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "minADE": lambda ade, fde, p: ade.amin(1),
    "minFDE": lambda ade, fde, p: fde.amin(1),
    "MR": lambda ade, fde, p: missed(fde.amin(1)),
    "brier-minFDE": lambda ade, fde, p: with_brier(fde, p),
    "brier-minADE": lambda ade, fde, p: with_brier(ade, p),
    "ADE-of-best-FDE": lambda ade, fde, p: of_best(fde, ade),
}


def agent_metrics(
    trajectory: Tensor,
    probability: Tensor,
    target: Tensor,
    valid: Tensor,
    ks: Sequence[int] = (1, 6),
    names: Sequence[str] = tuple(AGENT_METRICS),
) -> dict[str, Tensor]:
    """Each agent's ``names`` for each of ``ks``, ``[A]`` by name and K.

    Args:
        trajectory: ``[A, K, F, 2]`` metres; probability: ``[A, K]``.
        target: ``[A, F, 2]`` metres, in the frame of ``trajectory``; valid: ``[A, F]`` bool.
    """
    order = by_probability(probability)
    errors = (average_error(trajectory, target, valid), final_error(trajectory, target, valid), probability)
    ade, fde, p = (x.take_along_dim(order, 1) for x in errors)
    return {f"{name}{k}": AGENT_METRICS[name](ade[:, :k], fde[:, :k], p[:, :k]) for k in ks for name in names}


def by_probability(probability: Tensor) -> Tensor:
    """Modes ``[A, K]``, the most probable first; ties go to the lower index."""
    return probability.argsort(dim=1, descending=True, stable=True)


def horizon_metrics(
    trajectory: Tensor,
    probability: Tensor,
    target: Tensor,
    valid: Tensor,
    steps: Sequence[int],
    names: Sequence[str] = tuple(AGENT_METRICS),
    k: int = 6,
) -> dict[int, dict[str, Tensor]]:
    """Each agent's ``names`` as if the future ended after so many ``steps``: ``[A]`` by steps, name and K.

    NaN for agents that are not there at that step. Arguments as in :func:`agent_metrics`.
    """
    chosen = by_probability(probability)[:, :k]
    error = torch.where(valid[:, None], displacement(trajectory, target), 0.0)
    error, p = error.take_along_dim(chosen[..., None], 1), probability.take_along_dim(chosen, 1)
    average = error.cumsum(2) / valid.cumsum(1)[:, None]
    found = {}
    for step in steps:
        there = valid[:, step - 1, None]
        ade, fde = (torch.where(there, x[..., step - 1], torch.nan) for x in (average, error))
        found[step] = {f"{name}{k}": AGENT_METRICS[name](ade, fde, p) for name in names}
    return found


def heading_metrics(
    trajectory: Tensor,
    probability: Tensor,
    heading: Tensor,
    target: Tensor,
    target_heading: Tensor,
    valid: Tensor,
    k: int = 6,
) -> dict[str, Tensor]:
    """Average and final error of the heading (radians) of the mode with the least final error: ``[A]`` each.

    Args:
        heading: ``[A, K, F]`` radians along each mode; target_heading: ``[A, F]``; others as in
            :func:`agent_metrics`.
    """
    order = by_probability(probability)[:, :k]
    fde = final_error(trajectory, target, valid).take_along_dim(order, 1)
    best = order.take_along_dim(fde.nan_to_num(nan=torch.inf).argmin(1, keepdim=True), 1)
    error = wrap_angle(heading.take_along_dim(best[..., None], 1)[:, 0] - target_heading).abs()
    step = torch.arange(valid.shape[1], device=valid.device)
    last = torch.where(valid, step, -1).amax(1)
    final = error.take_along_dim(last.clamp(min=0)[:, None], 1)[:, 0]
    return {
        f"average heading error{k}": torch.where(valid, error, 0.0).sum(1) / valid.sum(1),
        f"final heading error{k}": torch.where(last >= 0, final, torch.nan),
    }
