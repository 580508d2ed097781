"""Metrics of joint futures: mode k of all agents of a scene is a joint mode, one future of the scene.

Definitions follow ``av2.datasets.motion_forecasting.eval.metrics``; see docs/concepts/metrics.md.
Sizes: ``A`` agents of ``S`` scenes, ``K`` joint modes, ``F`` future steps.
"""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING, NamedTuple

from trajpred.data.geometry import norm
from trajpred.metrics.displacement import average_error, by_probability, final_error, missed

if TYPE_CHECKING:  # the registry, and with it tables of results, needs no torch
    from torch import Tensor

#: Two agents collide when their centres come nearer than this (metres) at any step, as in av2.
COLLISION_THRESHOLD_M = 1.0
#: Only the most probable joint modes of a scene count: this many.
JOINT_MODES = 6


class JointModes(NamedTuple):
    """Errors of the joint modes of ``S`` scenes.

    Attributes:
        average, final: ``[S, K]`` metres, means over the agents of the scene.
        probability: ``[S, K]``.
        missed, collided: ``[S]`` fractions of the agents in the best joint mode: the one with the least final
            error, of equal ones the most probable.
    """

    average: Tensor
    final: Tensor
    probability: Tensor
    missed: Tensor
    collided: Tensor


def joint_modes(
    trajectory: Tensor, probability: Tensor, target: Tensor, valid: Tensor, scene: Tensor
) -> JointModes:
    """Compute the errors of the :data:`JOINT_MODES` most probable joint modes of each scene.

    NaN for scenes whose probabilities are not finite.

    Args:
        trajectory: ``[A, K, F, 2]`` metres, all agents of a scene in one frame.
        probability: ``[S, K]``.
        target: ``[A, F, 2]``; valid: ``[A, F]``, at least one step of each agent.
        scene: ``[A]`` int64 ascending, containing each of 0 to S - 1.
    """
    certain = probability.isfinite().all(1)
    top = by_probability(probability)[:, :JOINT_MODES]
    probability = probability.take_along_dim(top, 1)
    trajectory = trajectory.take_along_dim(top[scene][:, :, None, None], 1)
    final = final_error(trajectory, target, valid)
    ade = _mean(average_error(trajectory, target, valid), scene).where(certain[:, None], nan)
    fde = _mean(final, scene).where(certain[:, None], nan)
    penalty = ((1 - probability) ** 2).where(fde == fde.amin(1, keepdim=True), inf)
    best = penalty.argmin(1)[scene][:, None]
    misses = missed(final.take_along_dim(best, 1))
    collisions = collides(trajectory.take_along_dim(best[..., None, None], 1)[:, 0], scene)
    return JointModes(
        average=ade,
        final=fde,
        probability=probability,
        missed=_mean(misses, scene)[:, 0].where(certain, nan),
        collided=_mean(collisions[:, None].to(fde.dtype), scene)[:, 0].where(certain, nan),
    )


def collides(trajectory: Tensor, scene: Tensor) -> Tensor:
    """Return whether each agent comes nearer than av2's threshold to another of its scene at any step.

    Args:
        trajectory: ``[A, F, 2]`` one future of each agent; scene: ``[A]`` int64 ascending.
    """
    count = scene.bincount()
    first_row = count.cumsum(0) - count
    rank = scene.new_ones(len(scene)).cumsum(0) - 1 - first_row[scene]
    F = trajectory.shape[1]
    padded = trajectory.new_full((len(count), int(count.max()), F, 2), nan)  # near to nothing
    padded[scene, rank] = trajectory
    near = padded.new_zeros(padded.shape[:2]).bool()
    # One step at a time: the distances of all steps at once would be the largest array by far.
    for step in range(F):
        position = padded[:, :, step]
        distance = norm(position[:, :, None] - position[:, None])
        distance.diagonal(dim1=1, dim2=2).fill_(inf)
        near |= (distance < COLLISION_THRESHOLD_M).any(2)
    return near[scene, rank]


def _mean(values: Tensor, scene: Tensor) -> Tensor:
    """Average over the agents of each scene: ``[A, K]`` -> ``[S, K]``."""
    count = scene.bincount()[:, None]
    return values.new_zeros(len(count), values.shape[1]).index_add(0, scene, values) / count
