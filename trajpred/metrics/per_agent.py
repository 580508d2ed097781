"""Displacement metrics of single agents."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trajpred.metrics.displacement import Errors, by_probability, displacement, mode_errors
from trajpred.metrics.registry import METRICS, metrics_of


def agent_metrics(
    trajectory: Tensor,
    probability: Tensor,
    target: Tensor,
    valid: Tensor,
    ks: Sequence[int] = (1, 6),
    names: Sequence[str] | None = None,
    heading: Tensor | None = None,
    target_heading: Tensor | None = None,
) -> dict[str, Tensor]:
    """Compute displacement metrics of each agent for its K most probable modes: ``[A]`` by name and K.

    Args:
        trajectory: ``[A, K, F, 2]`` metres; probability: ``[A, K]``.
        target: ``[A, F, 2]`` metres, in the frame of ``trajectory``; valid: ``[A, F]`` bool.
        ks: the K; a metric's own ``ks`` take precedence.
        names: the metrics; by default all, heading errors only where headings are given.
        heading: ``[A, K, F]`` radians; target_heading: ``[A, F]``.

    Example:
        >>> ahead = torch.tensor([[[[1.0, 0.0], [2.0, 0.0]]]])
        >>> valid = torch.ones(1, 2, dtype=torch.bool)
        >>> agent_metrics(ahead, torch.ones(1, 1), torch.zeros(1, 2, 2), valid, [1])["minADE1"]
        tensor([1.5000])
    """
    errors = mode_errors(trajectory, probability, target, valid, heading, target_heading)
    chosen = metrics_of("displacement") if names is None else [METRICS[name] for name in names]
    if names is None and heading is None:
        chosen = [one for one in chosen if one.unit != "rad"]
    found: dict[str, Tensor] = {}
    for k in sorted({*ks, *(k for one in chosen for k in one.ks)}):
        top = errors.top(k)
        found |= {f"{one.name}{k}": one.compute(top) for one in chosen if k in (one.ks or ks)}
    return found


def horizon_metrics(
    trajectory: Tensor,
    probability: Tensor,
    target: Tensor,
    valid: Tensor,
    steps: Sequence[int],
    names: Sequence[str],
    k: int = 6,
) -> dict[int, dict[str, Tensor]]:
    """Compute metrics as if the future ended after each number of ``steps``: ``[A]`` by steps, name and K.

    NaN for agents that are not visible at that step. Other arguments as in :func:`agent_metrics`.
    """
    chosen = by_probability(probability)[:, :k]
    error = torch.where(valid[:, None], displacement(trajectory, target), 0.0)
    error, p = error.take_along_dim(chosen[..., None], 1), probability.take_along_dim(chosen, 1)
    average = error.cumsum(2) / valid.cumsum(1)[:, None]
    found = {}
    for step in steps:
        visible = valid[:, step - 1, None]
        ade, fde = (torch.where(visible, x[..., step - 1], torch.nan) for x in (average, error))
        found[step] = {f"{name}{k}": METRICS[name].compute(Errors(ade, fde, p)) for name in names}
    return found
