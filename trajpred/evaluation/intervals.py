"""Bootstrap intervals of means over scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.errors import require

RESAMPLES = 10_000


class Interval(NamedTuple):
    """A mean over scenarios, with the bounds of 95 % of its bootstrap resamples."""

    mean: float
    low: float
    high: float


def bootstrap(values: ArrayLike, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Compute the mean of ``values`` ``[N]`` with its interval. Raises: DataError if there are none."""
    sample = np.asarray(values, np.float64)
    require(sample.ndim == 1 and len(sample) > 0, "values", f"must be [N], is {list(sample.shape)}")
    return bootstrap_columns({"": sample}, None, resamples, seed)[""]


def bootstrap_columns(
    columns: Mapping[str, NDArray[np.floating]],
    count: NDArray[Any] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Interval]:
    """Compute the means of ``columns`` ``[N]`` with their percentile intervals, from the same resamples.

    With the number of agents ``count`` ``[N]`` of each scenario, the columns are sums over them and the means
    are over agents. Whole scenarios are drawn, because the agents of one are not independent.
    """
    values = list(columns.values())
    size = len(values[0])
    weight = np.ones(size) if count is None else count
    sample = np.stack((*values, weight), axis=1, dtype=np.float64)
    random = np.random.default_rng(seed)
    resampled = np.zeros((resamples, len(values)))
    for row in range(resamples):
        drawn = random.integers(size, size=size)
        # Count how often each was drawn: one product serves all columns, instead of a gather for each.
        times = np.bincount(drawn, minlength=size).astype(np.float64)
        total = times @ sample
        resampled[row] = total[:-1] / total[-1]
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0).tolist()
    mean = (sample[:, :-1].sum(axis=0) / sample[:, -1].sum()).tolist()
    intervals: dict[str, Interval] = {}
    for column, name in enumerate(columns):
        intervals[name] = Interval(mean[column], low[column], high[column])
    return intervals
