"""How certain a mean over scenarios is, and a difference of two: bootstrap intervals of 95 %."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from trajpred.errors import DataError, require
from trajpred.evaluation.results import Evaluation

RESAMPLES = 10_000
#: Indices drawn at a time: 32 MB, however many scenarios there are.
_DRAWN = 1 << 22


class Interval(NamedTuple):
    """A mean over scenarios, and between which bounds it lies in 95 % of the resamples."""

    mean: float
    low: float
    high: float


def bootstrap(values: ArrayLike, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The mean of ``values [N]`` with its percentile interval. Raises: DataError if there are none."""
    sample = np.asarray(values, np.float64)
    require(sample.ndim == 1 and len(sample) > 0, "values", f"must be [N], is {list(sample.shape)}")
    random, rows = np.random.default_rng(seed), max(1, _DRAWN // len(sample))
    means = [
        sample[random.integers(len(sample), size=(min(rows, resamples - start), len(sample)))].mean(axis=1)
        for start in range(0, resamples, rows)
    ]
    low, high = np.quantile(np.concatenate(means), (0.025, 0.975))
    return Interval(float(sample.mean()), float(low), float(high))


def compare(
    first: Sequence[Evaluation],
    second: Sequence[Evaluation],
    metric: str = "minFDE6",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """``first`` minus ``second`` in the focal agent's ``metric``, paired by scenario.

    What makes some scenarios hard is hard for both: pairs differ less than two means would suggest. Each
    side is one evaluation or those of several seeds, averaged in every scenario; the interval is over
    scenarios and says nothing of the spread over seeds.

    Raises: DataError if the two sides were not scored on the same scenarios.
    """
    a, b = per_scenario(first, metric), per_scenario(second, metric)
    same_scenarios(a, b, first[0], second[0])
    difference = np.array([a[scenario] - b[scenario] for scenario in a])
    return bootstrap(difference, resamples, seed)


def changes(
    first: Sequence[Evaluation], second: Sequence[Evaluation], count: int, metric: str = "minFDE6"
) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """The ``count`` scenarios in which ``first`` is better than ``second`` by most, and those in which worse.

    Each with ``first`` minus ``second``, the largest change first. Raises: DataError as :func:`compare`.
    """
    a, b = per_scenario(first, metric), per_scenario(second, metric)
    same_scenarios(a, b, first[0], second[0])
    ordered = sorted(((scenario, a[scenario] - b[scenario]) for scenario in a), key=lambda pair: pair[1])
    better = [pair for pair in ordered[:count] if pair[1] < 0]
    return better, [pair for pair in ordered[::-1][:count] if pair[1] > 0]


def per_scenario(seeds: Sequence[Evaluation], metric: str) -> dict[str, float]:
    """The focal agent's ``metric`` by scenario, the mean of ``seeds``. Raises: DataError."""
    each = [one.focal(metric) for one in seeds]
    for values, one in zip(each, seeds, strict=True):
        same_scenarios(each[0], values, seeds[0], one)
    return {scenario: float(np.mean([values[scenario] for values in each])) for scenario in each[0]}


def same_scenarios(a: dict[str, float], b: dict[str, float], first: Evaluation, second: Evaluation) -> None:
    """Raise :class:`DataError` unless both hold the same scenarios, in whatever order."""
    if a.keys() != b.keys():
        names = f"{first.predictor} and {second.predictor}"
        raise DataError(f"{names} were scored on other scenarios: {len(a.keys() ^ b.keys())} have no pair")
