"""Argoverse 2's metrics of whole worlds: mode k of all agents of a scene is one possible future of it.

Definitions follow ``av2.datasets.motion_forecasting.eval.metrics``; see ``README.md`` beside this file.
Sizes: ``A`` agents of ``S`` scenes, ``K`` worlds, ``F`` future steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trajpred.metrics.functional import MISS_THRESHOLD_M, average_error, final_error

#: Two agents of a world collide when they come nearer than this (metres) at any step, as av2 has it.
COLLISION_THRESHOLD_M = 1.0
WORLD_METRICS = ("avgMinADE", "avgMinFDE", "avgBrierMinFDE", "actorMR", "actorCR")


def world_metrics(
    trajectory: Tensor, probability: Tensor, target: Tensor, valid: Tensor, scene: Tensor
) -> dict[str, Tensor]:
    """The metrics of each scene's best world.

    Errors of a world are means over its agents. ``avgMinADE`` is that of the world in which it is least;
    all others are those of the world with the least mean final error (of equals the most probable one):
    ``avgMinFDE``; ``avgBrierMinFDE``, which adds ``(1 - p)²``; ``actorMR``, the share of its agents that end
    more than 2 m off; ``actorCR``, the share that comes nearer than 1 m to another predicted agent.

    Args:
        trajectory: ``[A, K, F, 2]`` metres, all agents of a scene in one frame.
        probability: ``[S, K]`` of the worlds.
        target: ``[A, F, 2]``; valid: ``[A, F]``, at least one step of each agent.
        scene: ``[A]`` int64 ascending, each of 0 to S - 1 there.

    Returns:
        By name (:data:`WORLD_METRICS`) ``[S]`` each.
    """
    final = final_error(trajectory, target, valid)
    ade, fde = (_mean(x, scene) for x in (average_error(trajectory, target, valid), final))
    least = fde.amin(1)
    penalty = torch.where(fde == least[:, None], (1 - probability) ** 2, torch.inf)
    best = penalty.argmin(1)
    missed = final > MISS_THRESHOLD_M
    row, world = torch.arange(len(scene), device=scene.device), best[scene]
    collided = collides(trajectory[row, world], scene)
    shares = {"actorMR": missed[row, world], "actorCR": collided}
    return {
        "avgMinADE": ade.amin(1),
        "avgMinFDE": least,
        "avgBrierMinFDE": least + penalty.amin(1),
        **{name: _mean(one[:, None].to(fde.dtype), scene)[:, 0] for name, one in shares.items()},
    }


def collides(trajectory: Tensor, scene: Tensor, threshold: float = COLLISION_THRESHOLD_M) -> Tensor:
    """Whether each agent comes nearer than ``threshold`` metres to another of its scene at any step.

    Args:
        trajectory: ``[A, F, 2]`` one future of each agent; scene: ``[A]`` int64 ascending.

    Returns:
        ``[A]`` bool.
    """
    count = torch.bincount(scene)
    within = torch.arange(len(scene), device=scene.device) - (count.cumsum(0) - count)[scene]
    padded = trajectory.new_full((len(count), int(count.max()), *trajectory.shape[1:]), torch.nan)
    padded[scene, within] = trajectory
    # Steps outermost: the distances of all steps at once would be the largest array by far.
    near = torch.zeros(len(count), padded.shape[1], dtype=torch.bool, device=scene.device)
    for x, y in zip(padded[..., 0].unbind(2), padded[..., 1].unbind(2), strict=True):
        distance = torch.hypot(x[:, :, None] - x[:, None], y[:, :, None] - y[:, None])
        distance.diagonal(dim1=1, dim2=2).fill_(torch.inf)
        near |= (distance < threshold).any(2)
    return near[scene, within]


def _mean(values: Tensor, scene: Tensor) -> Tensor:
    """Mean over the agents of each scene: ``[A, K]`` -> ``[S, K]``."""
    count = torch.bincount(scene)[:, None]
    return values.new_zeros(len(count), values.shape[1]).index_add(0, scene, values) / count
