"""How certain a mean over scenarios is, and a difference of two: bootstrap intervals of 95 %."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.errors import DataError, require
from trajpred.evaluation.results import Evaluation

RESAMPLES = 10_000
#: Indices drawn at a time: 8 MB, however many scenarios there are.
_DRAWN = 1 << 20


class Interval(NamedTuple):
    """A mean over scenarios, and between which bounds it lies in 95 % of the resamples."""

    mean: float
    low: float
    high: float


def bootstrap(values: ArrayLike, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The mean of ``values [N]`` with its percentile interval. Raises: DataError if there are none."""
    sample = np.asarray(values, np.float64)
    require(sample.ndim == 1 and len(sample) > 0, "values", f"must be [N], is {list(sample.shape)}")
    return bootstrap_each({"": sample}, resamples, seed)[""]


def bootstrap_each(
    columns: Mapping[str, NDArray[np.floating]], resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Interval]:
    """The means of several ``columns [N]`` with their percentile intervals, of the same resamples."""
    sample = np.stack([*columns.values()], axis=1).astype(np.float64)
    random, size = np.random.default_rng(seed), len(sample)
    rows, means = max(1, _DRAWN // size), list[NDArray[np.float64]]()
    for start in range(0, resamples, rows):
        drawn = random.integers(size, size=(min(rows, resamples - start), size))
        # How often each was drawn: one product for all columns instead of a gather for each.
        drawn += np.arange(len(drawn))[:, None] * size
        times = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)
        means += [row @ sample / size for row in times]  # one by one: rounded alike however many are drawn
    low, high = np.quantile(means, (0.025, 0.975), axis=0)
    bounds = zip(sample.mean(axis=0).tolist(), low.tolist(), high.tolist(), strict=True)
    return {name: Interval(*each) for name, each in zip(columns, bounds, strict=True)}


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


def in_common(first: Evaluation, second: Evaluation) -> tuple[Evaluation, Evaluation]:
    """Both, of the scenarios alone whose focal agents both predict: a file may hold a part of a split."""
    shared = set(first.per_scenario["scenario_id"]) & set(second.per_scenario["scenario_id"])

    def kept(one: Evaluation) -> Evaluation:
        rows = [i for i, name in enumerate(one.per_scenario["scenario_id"]) if name in shared]
        return replace(one, per_scenario={k: [x[i] for i in rows] for k, x in one.per_scenario.items()})

    return kept(first), kept(second)


def per_scenario(seeds: Sequence[Evaluation], metric: str) -> dict[str, float]:
    """The focal agent's ``metric`` by scenario, the mean of ``seeds``. Raises: DataError."""
    each = [one.focal(metric) for one in seeds]
    for values, one in zip(each, seeds, strict=True):
        same_scenarios(each[0], values, seeds[0], one)
    return {scenario: float(np.mean([values[scenario] for values in each])) for scenario in each[0]}


def same_scenarios(a: dict[str, float], b: dict[str, float], first: Evaluation, second: Evaluation) -> None:
    """Raise :class:`DataError` unless both hold the same scenarios, at least one, in whatever order."""
    if not a and not b:
        raise DataError(f"{first.predictor} and {second.predictor} predict no focal agent to compare by")
    if a.keys() != b.keys():
        names = f"{first.predictor} and {second.predictor}"
        raise DataError(f"{names} were scored on other scenarios: {len(a.keys() ^ b.keys())} have no pair")
