"""Do the probabilities and spreads of a forecast mean what they say, and how to make them.

``A`` agents, ``K`` modes, ``F`` future steps; which mode is an agent's best is the caller's choice (usually
the one with the least final error).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.errors import require

Floats = NDArray[np.float64]

#: A probability of zero counts as this: a mode that was excluded and came true costs much, not everything.
SMALLEST_PROBABILITY = 1e-12
#: Temperatures are sought between 1 / this and this.
EXTREME_TEMPERATURE = 1e3


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram of ``B`` bins of equal width over [0, 1].

    Attributes:
        probability: ``[B]`` mean predicted probability; NaN in an empty bin.
        frequency: ``[B]`` share of the modes there that were the best one; NaN in an empty bin.
        count: ``[B]`` int64.
    """

    probability: Floats
    frequency: Floats
    count: NDArray[np.int64]

    @property
    def expected_calibration_error(self) -> float:
        """``Σ_b n_b / n |frequency_b - probability_b|`` (Guo et al. 2017, "On Calibration of Modern Neural
        Networks", equation 3); NaN without any prediction."""
        gap = np.where(self.count > 0, np.abs(self.frequency - self.probability), 0.0)
        total = int(self.count.sum())
        return float((self.count * gap).sum() / total) if total else float("nan")


def reliability(
    probability: Floats, best: NDArray[np.int64], bins: int = 10, top_only: bool = False
) -> Reliability:
    """How often modes of a predicted probability turn out to be the best one.

    Args:
        probability: ``[A, K]`` in [0, 1].
        best: ``[A]`` each agent's best mode.
        bins: how many.
        top_only: judge each agent's most probable mode alone (confidence and accuracy, as Guo et al. do;
            ties go to the lower index) instead of all modes.
    """
    hit = np.arange(probability.shape[1]) == best[:, None]
    if top_only:
        top = probability.argmax(1)[:, None]
        probability, hit = (np.take_along_axis(x, top, 1) for x in (probability, hit))
    p, came_true = probability.ravel(), hit.ravel().astype(np.float64)
    index = np.clip((p * bins).astype(np.int64), 0, bins - 1)
    count, mass, hits = (np.bincount(index, weight, bins) for weight in (None, p, came_true))
    some = np.where(count > 0, count, np.nan)
    return Reliability(mass / some, hits / some, count.astype(np.int64))


def expected_calibration_error(
    probability: Floats, best: NDArray[np.int64], bins: int = 10, top_only: bool = False
) -> float:
    """That of :func:`reliability`, in [0, 1]."""
    return reliability(probability, best, bins, top_only).expected_calibration_error


def fit_temperature(logits: Floats, best: NDArray[np.int64]) -> float:
    """The temperature T > 0 with the least negative log-likelihood of the best modes (Guo et al. 2017, 4.2).

    The likelihood of softmax(logits / T) is convex in 1/T, its slope ``Σ E[logit] - logit of the best``
    grows with 1/T: bisection of log(1/T) finds the root to machine precision. Where there is none (every best
    mode is the top one, or worse than chance) T is 1e-3 or 1e3.

    Args:
        logits: ``[A, K]`` logits or log-probabilities; -inf counts as :data:`SMALLEST_PROBABILITY`.
        best: ``[A]`` each agent's best mode.

    Raises:
        DataError: there is no agent.
    """
    require(len(best) > 0, "best", "has no agent to fit a temperature to")
    logits = np.asarray(logits, np.float64)
    shifted = np.maximum(logits - logits.max(1, keepdims=True), np.log(SMALLEST_PROBABILITY))
    of_best = np.take_along_axis(shifted, best[:, None], 1)[:, 0]
    low, high = -np.log(EXTREME_TEMPERATURE), np.log(EXTREME_TEMPERATURE)
    while low < (middle := (low + high) / 2) < high:
        weight = np.exp(shifted * np.exp(middle))
        expected = (weight * shifted).sum(1) / weight.sum(1)
        low, high = (low, middle) if (expected - of_best).sum() > 0 else (middle, high)
    return float(np.exp(-middle))


def apply_temperature(probability: Floats, temperature: float) -> Floats:
    """``p^(1/T)``, rows made to sum to 1: ``[A, K]``. T > 1 flattens, T < 1 sharpens; zeros stay zero."""
    require(temperature > 0, "temperature", f"must be positive, is {temperature}")
    relative = probability / probability.max(1, keepdims=True)  # before the power, which could underflow
    powered: Floats = relative ** (1 / temperature)
    return powered / powered.sum(1, keepdims=True)


def laplace_coverage(error: Floats, scale: Floats, levels: ArrayLike) -> Floats:
    """How many true coordinates lie within the central interval of each level; a calibrated spread gives
    the levels back.

    The central interval of a Laplace distribution that holds a share q is ``|error| <= -scale ln(1 - q)``.

    Args:
        error: ``[A, F, 2]`` metres, truth minus the best mode, along the axes of the agent's own frame at its
            last observed pose; NaN where the truth is unknown.
        scale: ``[A, F, 2]`` metres, the best mode's.
        levels: ``[Q]`` in [0, 1).

    Returns:
        ``[Q]`` shares; NaN where no coordinate is known.
    """
    needed = -np.expm1(-np.abs(error) / scale)  # the level that just reaches the truth
    needed = np.sort(needed[np.isfinite(needed)])
    within = np.searchsorted(needed, np.asarray(levels, np.float64), side="right")
    return within / (len(needed) or np.nan)
