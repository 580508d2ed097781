"""How much the modes of successive forecasts change, once they are matched with each other. NumPy only.

Sizes: ``A`` agents, ``K`` modes, ``F`` future steps. See docs/concepts/metrics.md.
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.data.forecast import require_probabilities
from trajpred.data.geometry import norm
from trajpred.errors import require

#: Only the most probable modes are matched: this many.
MATCHED_MODES = 6


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
        """Return the distance ``[A]`` of matched modes, mean over the modes."""
        mean: NDArray[np.float64] = self._to_partner().mean(axis=1)
        return mean

    def weighted_displacement(self) -> NDArray[np.float64]:
        """Return the distance ``[A]`` of matched modes, weighted by the mean of their two probabilities."""
        weight = self.before + self.after
        mean: NDArray[np.float64] = (weight * self._to_partner()).sum(axis=1) / weight.sum(axis=1)
        return mean

    def switched(self) -> NDArray[np.float64]:
        """Return 1 where the partner of the most probable mode is not the most probable one, else 0: ``[A]``.

        Of equally probable modes any counts as the most probable one.
        """
        best = self.before == self.before.max(axis=1, keepdims=True)
        kept = best & (self.after == self.after.max(axis=1, keepdims=True))
        return (~kept.any(axis=1)).astype(np.float64)

    def probability_change(self) -> NDArray[np.float64]:
        """Return the total variation distance ``[A]`` of the matched probabilities, 0 to 1."""
        change: NDArray[np.float64] = np.abs(self.after - self.before).sum(axis=1) / 2
        return change

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
    cheapest: NDArray[np.int64] = candidates[np.argmin(total, axis=1)]
    return cheapest


def _most_probable(
    path: NDArray[np.float64], probability: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Select the :data:`MATCHED_MODES` most probable modes, and their probabilities."""
    mode = np.argsort(-probability, axis=1, kind="stable")[:, :MATCHED_MODES]
    path = np.take_along_axis(path, mode[..., None, None], 1)
    return path, np.take_along_axis(probability, mode, 1)
