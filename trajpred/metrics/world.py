"""Metrics of worlds: mode k of all agents of a scene is one possible future of the scene.

Definitions follow ``av2.datasets.motion_forecasting.eval.metrics``; see docs/concepts/metrics.md.
Sizes: ``A`` agents of ``S`` scenes, ``K`` worlds, ``F`` future steps.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trajpred.metrics.displacement import average_error, final_error, missed
from trajpred.metrics.registry import metrics_of

#: Two agents collide when their centres come nearer than this (metres) at any step, as in av2.
COLLISION_THRESHOLD_M = 1.0


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
    """Compute the world metrics of each scene.

    Args:
        trajectory: ``[A, K, F, 2]`` metres, all agents of a scene in one frame.
        probability: ``[S, K]`` of the worlds.
        target: ``[A, F, 2]``; valid: ``[A, F]``, at least one step of each agent.
        scene: ``[A]`` int64 ascending, containing each of 0 to S - 1.

    Returns:
        ``[S]`` by the registry's names of world metrics.
    """
    final = final_error(trajectory, target, valid)
    ade, fde = (_mean(x, scene) for x in (average_error(trajectory, target, valid), final))
    penalty = torch.where(fde == fde.amin(1, keepdim=True), (1 - probability) ** 2, torch.inf)
    row, best = torch.arange(len(scene), device=scene.device), penalty.argmin(1)[scene]
    shares = (missed(final[row, best]), collides(trajectory[row, best], scene).to(fde.dtype))
    worlds = Worlds(ade, fde, probability, *(_mean(one[:, None], scene)[:, 0] for one in shares))
    return {metric.name: metric.compute(worlds) for metric in metrics_of("world")}


def collides(trajectory: Tensor, scene: Tensor, threshold: float = COLLISION_THRESHOLD_M) -> Tensor:
    """Return whether each agent comes nearer than ``threshold`` metres to another of its scene at any step.

    Args:
        trajectory: ``[A, F, 2]`` one future of each agent; scene: ``[A]`` int64 ascending.
    """
    count = torch.bincount(scene)
    within = torch.arange(len(scene), device=scene.device) - (count.cumsum(0) - count)[scene]
    padded = trajectory.new_full((len(count), int(count.max()), *trajectory.shape[1:]), torch.nan)
    padded[scene, within] = trajectory
    # One step at a time: the distances of all steps at once would be the largest array by far.
    near = torch.zeros(len(count), padded.shape[1], dtype=torch.bool, device=scene.device)
    for x, y in zip(padded[..., 0].unbind(2), padded[..., 1].unbind(2), strict=True):
        distance = torch.hypot(x[:, :, None] - x[:, None], y[:, :, None] - y[:, None])
        distance.diagonal(dim1=1, dim2=2).fill_(torch.inf)
        near |= (distance < threshold).any(2)
    return near[scene, within]


def _mean(values: Tensor, scene: Tensor) -> Tensor:
    """Average over the agents of each scene: ``[A, K]`` -> ``[S, K]``."""
    count = torch.bincount(scene)[:, None]
    return values.new_zeros(len(count), values.shape[1]).index_add(0, scene, values) / count
