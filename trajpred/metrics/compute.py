"""Displacement metrics of single agents and of worlds.

Mode k of all agents of a scene is a world, one possible future of the scene. Definitions follow
``av2.datasets.motion_forecasting.eval.metrics``; see docs/concepts/metrics.md.
Sizes: ``A`` agents of ``S`` scenes, ``K`` modes or worlds, ``F`` future steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trajpred.metrics.displacement import (
    Errors,
    average_error,
    by_probability,
    displacement,
    final_error,
    heading_error,
    missed,
    mode_errors,
)
from trajpred.metrics.registry import METRICS, metrics_of

#: Two agents collide when their centres come nearer than this (metres) at any step, as in av2.
COLLISION_THRESHOLD_M = 1.0
#: A scene is scored by this many worlds, the most probable ones, as agents are by their modes at K = 6.
NUM_WORLDS = 6


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

    NaN for agents with a probability that is not finite.

    Args:
        trajectory: ``[A, K, F, 2]`` metres; probability: ``[A, K]``.
        target: ``[A, F, 2]`` metres, in the frame of ``trajectory``; valid: ``[A, F]`` bool.
        ks: the K; a metric's own ``ks`` take precedence.
        names: the metrics; by default all, heading errors only where headings are given.
        heading: ``[A, K, F]`` radians; target_heading: ``[A, F]``, NaN at steps where it is unknown.

    Example:
        >>> ahead = torch.tensor([[[[1.0, 0.0], [2.0, 0.0]]]])
        >>> valid = torch.ones(1, 2, dtype=torch.bool)
        >>> agent_metrics(ahead, torch.ones(1, 1), torch.zeros(1, 2, 2), valid, [1])["minADE1"]
        tensor([1.5000])
    """
    errors = mode_errors(trajectory, probability, target, valid, heading, target_heading)
    if names is not None:
        metrics = [METRICS[name] for name in names]
    else:
        metrics = metrics_of("displacement")
        if heading is None:
            metrics = [metric for metric in metrics if metric.unit != "rad"]
    all_ks = set(ks)
    for metric in metrics:
        all_ks.update(metric.ks)
    values: dict[str, Tensor] = {}
    for k in sorted(all_ks):
        top = errors.top(k)
        for metric in metrics:
            if k in (metric.ks or ks):
                values[f"{metric.name}{k}"] = torch.as_tensor(metric.values(top, len(trajectory)))
    return values


def horizon_metrics(
    trajectory: Tensor,
    probability: Tensor,
    target: Tensor,
    valid: Tensor,
    steps: Sequence[int],
    names: Sequence[str],
    heading: Tensor | None = None,
    target_heading: Tensor | None = None,
) -> dict[int, dict[str, Tensor]]:
    """Compute metrics as if the future ended after each of ``steps``: ``[A]`` by steps, name and K (6).

    NaN for agents that are not visible at that step, or have a probability that is not finite. Other
    arguments as in :func:`agent_metrics`; metrics of headings need headings.
    """
    top = by_probability(probability)[:, :6]
    certain = probability.isfinite().all(1)[:, None, None]
    error = torch.where(valid[:, None], displacement(trajectory, target), 0.0).where(certain, torch.nan)
    error = error.take_along_dim(top[..., None], 1)
    top_probability = probability.take_along_dim(top, 1)
    valid_steps = valid.cumsum(1)[:, None]
    series = {"average": error.cumsum(2) / valid_steps, "final": error}
    if heading is not None and target_heading is not None:
        turned = heading_error(heading, target_heading, valid).take_along_dim(top[..., None], 1)
        known_steps = turned.isfinite().cumsum(2)
        series["average_heading"] = turned.nan_to_num(nan=0.0).cumsum(2) / known_steps
        series["final_heading"] = turned
    results: dict[int, dict[str, Tensor]] = {}
    for step in steps:
        visible = valid[:, step - 1, None]
        at_step: dict[str, Tensor] = {}
        for name, values in series.items():
            at_step[name] = torch.where(visible, values[..., step - 1], torch.nan)
        errors = Errors(probability=top_probability, **at_step)
        results[step] = {}
        for name in names:
            results[step][f"{name}6"] = torch.as_tensor(METRICS[name].values(errors, len(trajectory)))
    return results


class Worlds(NamedTuple):
    """Errors of ``S`` scenes' worlds.

    Attributes:
        average, final: ``[S, K]`` metres, means over the agents of the scene.
        probability: ``[S, K]``.
        missed, collided: ``[S]`` shares of the agents in the best world: the one with the least final error,
            of equal ones the most probable.
    """

    average: Tensor
    final: Tensor
    probability: Tensor
    missed: Tensor
    collided: Tensor


def world_metrics(
    trajectory: Tensor, probability: Tensor, target: Tensor, valid: Tensor, scene: Tensor
) -> dict[str, Tensor]:
    """Compute the metrics of each scene's :data:`NUM_WORLDS` most probable worlds.

    Args:
        trajectory: ``[A, K, F, 2]`` metres, all agents of a scene in one frame.
        probability: ``[S, K]`` of the worlds.
        target: ``[A, F, 2]``; valid: ``[A, F]``, at least one step of each agent.
        scene: ``[A]`` int64 ascending, containing each of 0 to S - 1.

    Returns:
        ``[S]`` by the registry's names of world metrics; NaN for scenes whose probabilities are not finite.
    """
    certain = probability.isfinite().all(1)
    top = by_probability(probability)[:, :NUM_WORLDS]
    probability = probability.take_along_dim(top, 1)
    trajectory = trajectory.take_along_dim(top[scene][..., None, None], 1)
    final = final_error(trajectory, target, valid)
    ade = _mean(average_error(trajectory, target, valid), scene)
    fde = _mean(final, scene)
    ade = ade.where(certain[:, None], torch.nan)
    fde = fde.where(certain[:, None], torch.nan)
    penalty = torch.where(fde == fde.amin(1, keepdim=True), (1 - probability) ** 2, torch.inf)
    row = torch.arange(len(scene), device=scene.device)
    best = penalty.argmin(1)[scene]
    misses = missed(final[row, best])
    collisions = collides(trajectory[row, best], scene).to(fde.dtype)
    worlds = Worlds(
        average=ade,
        final=fde,
        probability=probability,
        missed=_mean(misses[:, None], scene)[:, 0].where(certain, torch.nan),
        collided=_mean(collisions[:, None], scene)[:, 0].where(certain, torch.nan),
    )
    values: dict[str, Tensor] = {}
    for metric in metrics_of("world"):
        values[metric.name] = torch.as_tensor(metric.values(worlds, len(probability)))
    return values


def collides(trajectory: Tensor, scene: Tensor) -> Tensor:
    """Return whether each agent comes nearer than av2's threshold to another of its scene at any step.

    Args:
        trajectory: ``[A, F, 2]`` one future of each agent; scene: ``[A]`` int64 ascending.
    """
    count = torch.bincount(scene)
    first_row = count.cumsum(0) - count
    rank = torch.arange(len(scene), device=scene.device) - first_row[scene]
    F = trajectory.shape[1]
    padded = trajectory.new_full((len(count), int(count.max()), F, 2), torch.nan)  # near to nothing
    padded[scene, rank] = trajectory
    near = torch.zeros(len(count), padded.shape[1], dtype=torch.bool, device=scene.device)
    # One step at a time: the distances of all steps at once would be the largest array by far.
    for step in range(F):
        x = padded[:, :, step, 0]
        y = padded[:, :, step, 1]
        distance = torch.hypot(x[:, :, None] - x[:, None], y[:, :, None] - y[:, None])
        distance.diagonal(dim1=1, dim2=2).fill_(torch.inf)
        near |= (distance < COLLISION_THRESHOLD_M).any(2)
    return near[scene, rank]


def _mean(values: Tensor, scene: Tensor) -> Tensor:
    """Average over the agents of each scene: ``[A, K]`` -> ``[S, K]``."""
    count = torch.bincount(scene)[:, None]
    return values.new_zeros(len(count), values.shape[1]).index_add(0, scene, values) / count
