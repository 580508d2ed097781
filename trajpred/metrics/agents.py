"""Every metric of every agent by name, for the K most probable modes; training and evaluation ask here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trajpred.geometry import norm, wrap_angle
from trajpred.metrics.functional import (
    ade_of_best_endpoint,
    brier_min_ade,
    brier_min_fde,
    final_error,
    is_missed,
    min_ade,
    min_fde,
    top_modes,
)

#: ``metric(modes, probability, target, valid) -> [A]``; K is appended to the names: ``minADE1``, ``MR6``.
AGENT_METRICS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "minADE": lambda modes, _, target, valid: min_ade(modes, target, valid),
    "minFDE": lambda modes, _, target, valid: min_fde(modes, target, valid),
    "MR": lambda modes, _, target, valid: is_missed(modes, target, valid),
    "brier-minFDE": brier_min_fde,
    "brier-minADE": brier_min_ade,
    "ADE-of-best-FDE": lambda modes, _, target, valid: ade_of_best_endpoint(modes, target, valid),
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
    values = {}
    for k in ks:
        modes, p = top_modes(trajectory, probability, k)
        values |= {f"{name}{k}": AGENT_METRICS[name](modes, p, target, valid) for name in names}
    return values


def horizon_metrics(
    trajectory: Tensor, probability: Tensor, target: Tensor, valid: Tensor, steps: Sequence[int], k: int = 6
) -> dict[int, dict[str, Tensor]]:
    """minADE and minFDE, as if the future ended after so many ``steps``: ``[A]`` by steps and name.

    NaN for agents that are not there at that step. Arguments as in :func:`agent_metrics`.
    """
    modes, _ = top_modes(trajectory, probability, k)
    error = torch.where(valid[:, None], norm(modes - target[:, None]), 0.0)
    average = error.cumsum(2) / valid.cumsum(1)[:, None]
    found = {}
    for step in steps:
        there = valid[:, step - 1]
        both = {f"minADE{k}": average[..., step - 1].amin(1), f"minFDE{k}": error[..., step - 1].amin(1)}
        found[step] = {name: torch.where(there, value, torch.nan) for name, value in both.items()}
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
    order = probability.argsort(dim=1, descending=True, stable=True)[:, :k]
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
