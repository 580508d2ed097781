"""Errors of modes and joint modes, and changes between forecasts.

The functions behind the metrics of ``registry.py``. Displacement errors and joint futures follow
``av2.datasets.motion_forecasting.eval.metrics``; see docs/concepts/metrics.md.
Sizes: ``A`` agents of ``S`` scenes, ``K`` modes, ``F`` future steps. Metres, in any frame fixed per agent.
Errors are computed in the dtype given; agents without a valid step give NaN.
"""

from __future__ import annotations

from itertools import permutations
from math import inf, nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.data.forecast import require_probabilities
from trajpred.data.geometry import last_step, norm, wrap_angle
from trajpred.errors import require

if TYPE_CHECKING:  # the registry, and with it tables of results, needs no torch
    from torch import Tensor

#: An agent is missed if even its best endpoint is farther than this (metres) from the true one.
MISS_THRESHOLD_M = 2.0
#: Two agents collide when their centres come nearer than this (metres) at any step, as in av2.
COLLISION_THRESHOLD_M = 1.0
#: Number of most probable joint modes of a scene that count.
JOINT_MODES = 6
#: Number of most probable modes of successive forecasts that are matched.
MATCHED_MODES = 6


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
        top = {name: values[:, :k] for name, values in self._asdict().items() if values is not None}
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

    NaN for agents with a non-finite probability, whose most probable modes are unknown.
    """
    errors = {
        "average": average_error(trajectory, target, valid),
        "final": final_error(trajectory, target, valid),
        "probability": probability,
    }
    if heading is not None and target_heading is not None:
        error = wrap_angle(heading - target_heading[:, None]).abs().where(valid[:, None], nan)
        errors["average_heading"] = error.nanmean(2)
        errors["final_heading"] = error.take_along_dim(last_step(valid)[:, None, None], 2)[..., 0]
    certain = probability.isfinite().all(1, keepdim=True)
    order = by_probability(probability)
    ranked = {name: values.where(certain, nan).take_along_dim(order, 1) for name, values in errors.items()}
    return Errors(**ranked)


def by_probability(probability: Tensor) -> Tensor:
    """Return the indices ``[A, K]`` of the modes by descending probability; ties keep their order."""
    return probability.argsort(dim=1, descending=True, stable=True)


def missed(fde: Tensor) -> Tensor:
    """Return 1 where a final error is greater than :data:`MISS_THRESHOLD_M`, else 0, NaN where it is NaN."""
    return (fde > MISS_THRESHOLD_M).to(fde.dtype).where(~fde.isnan(), fde)


def with_brier(error: Tensor, probability: Tensor) -> Tensor:
    """Compute the least ``error`` ``[A, K]`` plus ``(1 - p)²``, with p that mode's probability: ``[A]``.

    Probabilities are used as given (av2's ``normalize=False``). Among modes with equal error, the most
    probable counts.
    """
    return error.amin(dim=1) + of_best(error, (1 - probability) ** 2)


def of_best(error: Tensor, value: Tensor) -> Tensor:
    """Return the ``value`` ``[A, K]`` of the mode with the least ``error`` ``[A, K]``: ``[A]``.

    Among modes with equal error, the least value counts. NaN where the errors are NaN.
    """
    best = error.amin(dim=1, keepdim=True)
    least = value.where(error == best, inf).amin(dim=1)
    return least.where(~best[:, 0].isnan(), nan)


def average_error(trajectory: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Compute the mean displacement error ``[A, K]`` over each agent's valid steps."""
    # With x and y apart, hypot reads contiguous memory: five times as fast.
    x = trajectory[..., 0] - target[:, None, :, 0]
    y = trajectory[..., 1] - target[:, None, :, 1]
    # `where` before the sum: NaN at an invalid step must not propagate through 0 * NaN.
    error = x.hypot(y).where(valid[:, None], 0.0)
    return error.sum(dim=2) / valid.sum(dim=1, keepdim=True)  # 0 / 0 is NaN


def final_error(trajectory: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Compute the displacement error ``[A, K]`` at each agent's last valid step."""
    index = last_step(valid)[:, None, None]
    end = trajectory.take_along_dim(index[..., None], 2).squeeze(2)
    error = norm(end - target.take_along_dim(index, 1))
    return error.where(valid.any(1, keepdim=True), nan)


class JointModes(NamedTuple):
    """Errors of the joint modes of ``S`` scenes.

    Attributes:
        average, final: ``[S, K]`` metres, means over the agents of the scene.
        probability: ``[S, K]``.
        missed, collided: ``[S]`` fractions of the agents in the best joint mode: that with the least final
            error; ties go to the most probable.
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
    """Return whether each agent ever comes nearer than av2's threshold to another one in its scene.

    Args:
        trajectory: ``[A, F, 2]`` one future per agent; scene: ``[A]`` int64 ascending.
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


class Matched(NamedTuple):
    """The modes of an earlier forecast, each with its partner in a later one.

    Attributes:
        distance: ``[A, K, K]`` metres from each earlier mode to each later one: the mean over the steps that
            both forecasts cover.
        partner: ``[A, K]``, the later mode matched with each earlier one.
        before, after: ``[A, K]`` probabilities of the earlier modes, and of their partners.
    """

    distance: NDArray[np.float64]
    partner: NDArray[np.int64]
    before: NDArray[np.float64]
    after: NDArray[np.float64]

    def displacement(self) -> NDArray[np.float64]:
        """Return the mean distance ``[A]`` of matched modes."""
        return self._to_partner().mean(axis=1)

    def weighted_displacement(self) -> NDArray[np.float64]:
        """Return the distance ``[A]`` of matched modes, weighted by the mean of their two probabilities."""
        weight = self.before + self.after
        return (weight * self._to_partner()).sum(axis=1) / weight.sum(axis=1)

    def switched(self) -> NDArray[np.float64]:
        """Return 1 where the partner of the most probable mode is not the most probable one, else 0: ``[A]``.

        Any of several equally probable modes counts as the most probable.
        """
        best = self.before == self.before.max(axis=1, keepdims=True)
        still_best = best & (self.after == self.after.max(axis=1, keepdims=True))
        return (~still_best.any(axis=1)).astype(np.float64)

    def probability_change(self) -> NDArray[np.float64]:
        """Return the total variation distance ``[A]`` of the matched probabilities, 0 to 1."""
        return np.abs(self.after - self.before).sum(axis=1) / 2

    def _to_partner(self) -> NDArray[np.float64]:
        return np.take_along_axis(self.distance, self.partner[..., None], 2)[..., 0]


def match_modes(
    before: NDArray[np.float64],
    probability_before: NDArray[np.float64],
    after: NDArray[np.float64],
    probability_after: NDArray[np.float64],
    steps: int,
) -> Matched:
    """Match the modes of two forecasts of the same agents one to one, with the least total distance.

    Args:
        before, after: ``[A, K, F, 2]`` metres in one frame, and their probabilities ``[A, K]``. Only the
            :data:`MATCHED_MODES` most probable modes of each are used.
        steps: number of steps from the earlier forecast to the later one.

    Raises: DataError if the numbers of modes differ, the forecasts have no step in common, or a probability
        is negative or not finite.
    """
    require_probabilities(probability_before)
    require_probabilities(probability_after)
    K, F = before.shape[1:3]
    problem = f"successive forecasts of {K} and {after.shape[1]} modes cannot be matched"
    require(after.shape[1] == K, "trajectory", problem)
    common = min(F - steps, after.shape[2])
    require(common > 0, "steps", f"forecasts of {F} steps made {steps} steps apart have none in common")
    before, probability_before = _most_probable(before[:, :, steps : steps + common], probability_before)
    after, probability_after = _most_probable(after[:, :, :common], probability_after)
    distance = norm(before[:, :, None] - after[:, None]).mean(axis=-1)
    partner = assignment(distance)
    partners = np.take_along_axis(probability_after, partner, 1)
    return Matched(distance, partner, probability_before, partners)


def assignment(cost: NDArray[np.float64]) -> NDArray[np.int64]:
    """Assign a column to each row of ``cost`` ``[A, K, K]`` one to one with the least sum: ``[A, K]``.

    Compares all K! assignments: K must be small.
    """
    K = cost.shape[1]
    candidates = np.array(list(permutations(range(K))))
    total = np.zeros((len(cost), len(candidates)), cost.dtype)
    for row in range(K):
        total += cost[:, row, candidates[:, row]]
    return candidates[np.argmin(total, axis=1)]


def _most_probable(
    path: NDArray[np.float64], probability: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Select the :data:`MATCHED_MODES` most probable modes, and their probabilities."""
    mode = np.argsort(-probability, axis=1, kind="stable")[:, :MATCHED_MODES]
    path = np.take_along_axis(path, mode[..., None, None], 1)
    return path, np.take_along_axis(probability, mode, 1)
