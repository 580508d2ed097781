"""Calibration of mode probabilities and spreads, temperature scaling, and conformal regions.

``A`` agents, ``K`` modes, ``F`` future steps. The caller decides which mode is an agent's best (usually the
one with the least final error).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.data.checks import as_array, as_number
from trajpred.data.forecast import require_probabilities
from trajpred.data.geometry import norm
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.errors import DataError, require, require_rows, within

#: Smaller probabilities count as this, which bounds the cost of an excluded mode that comes true.
MIN_PROBABILITY = 1e-12
#: Bounds of a fitted temperature.
MIN_TEMPERATURE = 1e-3
MAX_TEMPERATURE = 1e3
#: A class with fewer agents than this at a horizon shares the radius of all classes.
MIN_COUNT = 100


def reliability(
    probability: NDArray[np.float64], best: NDArray[np.int64], bins: int = 10, top_only: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Sort modes into ``bins`` of equal width by probability, and record which are the best.

    The expected calibration error ``Σ_b n_b / n |frequency_b - probability_b|`` is the sum over the bins of
    the absolute sum of the excess, divided by the number of modes (Guo et al. 2017, "On Calibration of Modern
    Neural Networks", equation 3).

    Args:
        probability: ``[A, K]`` in [0, 1].
        best: ``[A]`` each agent's best mode.
        top_only: count only each agent's most probable mode (confidence and accuracy, as in Guo et al.; ties
            go to the first) instead of all modes.

    Returns: the bin of each mode ``[A, K]``, or ``[A, 1]``; and its excess, 1 for best modes, else 0, minus
        the probability.

    Raises: DataError if a probability is negative or not finite.
    """
    require_probabilities(probability)
    is_best = np.arange(probability.shape[1]) == best[:, None]
    if top_only:
        top = probability.argmax(1)[:, None]
        probability = np.take_along_axis(probability, top, 1)
        is_best = np.take_along_axis(is_best, top, 1)
    index = np.clip((probability * bins).astype(np.int64), 0, bins - 1)
    return index, is_best - probability


def fit_temperature(logits: NDArray[np.float64], best: NDArray[np.int64]) -> float:
    """Fit the temperature T > 0 with the least negative log-likelihood of the best modes.

    Guo et al. 2017, section 4.2.

    The likelihood of softmax(logits / T) is convex in 1/T, and its slope ``Σ E[logit] - logit of the best``
    grows with 1/T: bisection of log(1/T) finds the root to machine precision. Without a root (every best mode
    is the top one, or worse than chance) T is at a bound.

    Args:
        logits: ``[A, K]`` logits or log-probabilities; -inf counts as :data:`MIN_PROBABILITY`.
        best: ``[A]`` each agent's best mode.

    Raises: DataError if there is no agent, or an agent's largest logit is not finite.
    """
    require(len(best) > 0, "best", "has no agent to fit a temperature to")
    logits = np.asarray(logits, np.float64)
    require_rows(np.isfinite(logits.max(1)), "logits", "contains NaN or infinity, or excludes all modes")
    shifted = np.maximum(logits - logits.max(1, keepdims=True), np.log(MIN_PROBABILITY))
    of_best = np.take_along_axis(shifted, best[:, None], 1)[:, 0]
    low = -np.log(MAX_TEMPERATURE)
    high = -np.log(MIN_TEMPERATURE)
    middle = (low + high) / 2
    while low < middle < high:
        weight = np.exp(shifted * np.exp(middle))
        expected = (weight * shifted).sum(1) / weight.sum(1)
        slope = (expected - of_best).sum()
        if slope > 0:
            high = middle
        else:
            low = middle
        middle = (low + high) / 2
    return float(np.exp(-middle))


def apply_temperature(probability: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Return ``p^(1/T)``, normalised: ``[A, K]``. T > 1 flattens, T < 1 sharpens; zeros stay zero.

    Raises: DataError if T is not positive and finite, or a probability is negative or not finite.
    """
    require(0 < temperature < np.inf, "temperature", f"must be positive and finite, is {temperature}")
    require_probabilities(probability)
    relative = probability / probability.max(1, keepdims=True)  # before the power, which could underflow
    powered: NDArray[np.float64] = relative ** (1 / temperature)
    return powered / powered.sum(1, keepdims=True)


def laplace_levels(error: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the level in [0, 1) of the central Laplace interval that just contains each true coordinate.

    The interval that contains a fraction q is ``|error| <= -scale ln(1 - q)``. The levels of a calibrated
    forecast are uniform: a fraction q of them is at most q.

    Args:
        error: ``[..., 2]`` metres, truth minus the best mode, along the axes of the agent's own frame at its
            last observed pose.
        scale: ``[..., 2]`` metres, the best mode's.
    """
    return -np.expm1(-np.abs(error) / scale)


def fraction_within(levels: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """Compute the fraction ``[A]`` of true coordinates inside the central intervals of ``level``.

    Args:
        levels: ``[A, F, 2]``, see :func:`laplace_levels`; NaN where unknown. The result is NaN if all are.
    """
    count = np.isfinite(levels).sum(axis=(1, 2))
    within = (levels <= level).sum(axis=(1, 2))
    return np.divide(within, count, out=np.full(len(levels), np.nan), where=count > 0)


def conformal_radius(score: NDArray[np.float64], coverage: float) -> float:
    """Return the ``⌈(N + 1) coverage⌉``-th smallest of ``score`` ``[N]``; infinite if N is too small.

    Raises: DataError if a score is not finite, or ``coverage`` is not between 0 and 1.
    """
    require(0 < coverage < 1, "coverage", f"must lie between 0 and 1, is {coverage}")
    require(bool(np.isfinite(score).all()), "score", "is not finite")
    rank = int(np.ceil((len(score) + 1) * coverage - 1e-9))  # 0.55 * 100 is 55.00000000000001
    if rank > len(score):
        return float("inf")
    return float(np.partition(score, rank - 1)[rank - 1])


def endpoint_scores(
    trajectory: NDArray[np.float64],
    target: NDArray[np.float64],
    valid: NDArray[np.bool_],
    horizons_s: ArrayLike,
    step_s: float = 0.1,
) -> NDArray[np.float64]:
    """Compute the distance ``[A, H]`` (metres) from the truth to the nearest of the K modes at each horizon.

    Args:
        trajectory: ``[A, K, F, 2]`` metres.
        target: ``[A, F, 2]`` metres; where ``valid`` ``[A, F]`` is False the result is NaN.
        horizons_s: ``[H]`` seconds after the last observed step.

    Raises: DataError if a horizon is outside the future.
    """
    F = trajectory.shape[2]
    step = np.round(np.asarray(horizons_s, np.float64) / step_s).astype(np.int64) - 1
    require(within(step, F), "horizons_s", f"must lie within the {F} future steps")
    nearest = norm(trajectory[:, :, step] - target[:, None, step]).min(1)
    return np.where(valid[:, step], nearest, np.nan)


@dataclass(frozen=True)
class ConformalRegions:
    """Split conformal regions: discs around all modes that contain the truth with a given probability.

    The guarantee does not depend on the model: fitted on N agents exchangeable with future ones, the region
    contains a new agent's true position with a probability between ``coverage`` and ``coverage + 1 / (N +
    1)``, on average over calibration sets (Angelopoulos & Bates 2021, "A Gentle Introduction to Conformal
    Prediction and Distribution-Free Uncertainty Quantification"). Agents of one scene depend on each other:
    if the guarantee matters, fit on one agent per scenario.

    Attributes:
        coverage: the guaranteed probability.
        horizons_s: ``[H]`` seconds.
        radius: ``[10, H]`` metres by :data:`OBJECT_TYPES`; infinite if there is no guarantee.
        count: ``[10, H]`` int64, agents of each type in the fit; types with few agents share one radius.
    """

    coverage: float
    horizons_s: NDArray[np.float64]
    radius: NDArray[np.float64]
    count: NDArray[np.int64]

    @classmethod
    def fit(
        cls,
        score: NDArray[np.float64],
        object_type: NDArray[np.integer],
        horizons_s: ArrayLike,
        coverage: float = 0.9,
        min_count: int = MIN_COUNT,
    ) -> ConformalRegions:
        """Fit to the scores of agents that the model was not trained on.

        Args:
            score: ``[A, H]`` metres, see :func:`endpoint_scores`; NaN entries are omitted.
            object_type: ``[A]`` index into OBJECT_TYPES.
            min_count: types with fewer agents at a horizon get the radius of all types together.
        """
        horizons = as_array(horizons_s, np.float64, "horizons_s")
        expected = (len(object_type), len(horizons))
        require(score.shape == expected, "score", f"must be {expected}, is {score.shape}")
        has_score = np.isfinite(score)
        is_type = object_type == np.arange(len(OBJECT_TYPES))[:, None]  # [10, A]
        count = is_type.astype(np.int64) @ has_score.astype(np.int64)
        radius = np.empty(count.shape)
        for (row, column), agents in np.ndenumerate(count):
            used = has_score[:, column]
            if agents >= min_count:
                used = used & is_type[row]
            radius[row, column] = conformal_radius(score[used, column], coverage)
        return cls(float(coverage), horizons, radius, count)

    def covered(self, score: NDArray[np.float64], object_type: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return whether the truth is in the region: ``[A, H]`` for ``score`` ``[A, H]``, False where NaN."""
        return score <= self.radius[object_type]

    def to_json(self) -> str:
        """Serialise as a JSON object; an infinite radius is null."""
        radius = self.radius.astype(object)
        radius[~np.isfinite(self.radius)] = None
        types: dict[str, dict[str, list[float | None]]] = {}
        for row, name in enumerate(OBJECT_TYPES):
            types[name] = {"radius_m": radius[row].tolist(), "count": self.count[row].tolist()}
        regions = {
            "coverage": self.coverage,
            "horizons_s": self.horizons_s.tolist(),
            "object_types": types,
        }
        return json.dumps(regions)

    @classmethod
    def from_json(cls, text: str) -> ConformalRegions:
        """Invert :meth:`to_json`, exactly. Raises: DataError."""
        try:
            record = json.loads(text)
            horizons = np.array(record["horizons_s"], np.float64)
            radius_m: list[list[float | None]] = []
            counts: list[int] = []
            for name in OBJECT_TYPES:
                row = record["object_types"][name]
                radius_m.append(row["radius_m"])
                counts.append(row["count"])
            radius = np.array(radius_m, np.float64)  # null becomes NaN
            radius[np.isnan(radius)] = np.inf
            count = np.array(counts, np.int64)
            return cls(as_number(record["coverage"], "coverage"), horizons, radius, count)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise DataError(f"are not conformal regions ({error!r})", field="regions") from None
