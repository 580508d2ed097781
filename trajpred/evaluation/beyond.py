"""What displacement does not tell: roads kept, no collisions, plausible motion, honest probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.evaluation.judged import GROUPS, Columns, Judged
from trajpred.geometry import rotate
from trajpred.metrics import final_error, metrics_of
from trajpred.metrics.calibration import Reliability, laplace_coverage, reliability
from trajpred.metrics.plausibility import Futures
from trajpred.scenario import Scenario

#: Central intervals of the predicted Laplace laws that are looked at.
LEVELS = (0.5, 0.8, 0.9, 0.95)
#: Of the reliability diagram.
BINS = 10


def beyond_columns(some: Judged, scenarios: Sequence[Scenario], worlds: NDArray[np.bool_]) -> Columns:
    """Compute the plausibility metrics of each agent ``[A]``.

    Args:
        some: the agents.
        scenarios: theirs.
        worlds: ``[A]``, agents whose modes are worlds together with those of the same scene.
    """
    shared = {f.name for f in fields(Futures)} - {"maps", "in_world"}
    given = {name: getattr(some, name) for name in shared}
    futures = Futures(**given, maps=[one.map for one in scenarios], in_world=worlds)
    return {metric.name: metric.compute(futures) for metric in metrics_of("plausibility")}


class Calibration:
    """How honest probabilities and scales are, group by group; it keeps sums, not forecasts."""

    def __init__(self) -> None:
        # Of every group: bins by count, sum of probabilities and of hits, for all modes and for the top one.
        self._bins = {group: np.zeros((2, 3, BINS)) for group in GROUPS}
        self._held = {group: np.zeros(len(LEVELS) + 1) for group in GROUPS}

    def add(self, some: Judged) -> None:
        best = best_modes(some)
        for group, member in some.member.items():
            for k in np.unique(some.modes[member]):
                rows = member & (some.modes == k)
                for top in (False, True):
                    self._bins[group][int(top)] += _sums(some.probability[rows, :k], best[rows], top)
            if some.scale is not None and member.any():
                self._held[group] += _held(some, best, member)

    def summary(self) -> dict[str, dict[str, Any]]:
        """For each group with agents ``ECE`` over all modes and ``top ECE`` of the most probable one (Guo et
        al. 2017), ``reliability`` as lists (``probability``, ``frequency``, ``count`` of the bins in use),
        ``coverage`` of Laplace intervals by level."""
        found: dict[str, dict[str, Any]] = {}
        for group, (every, top) in self._bins.items():
            if not every[0].any():
                continue
            diagram, of_top = _diagram(every), _diagram(top)
            found[group] = {
                "ECE": diagram.expected_calibration_error,
                "top ECE": of_top.expected_calibration_error,
                "reliability": {name: values.tolist() for name, values in vars(diagram).items()},
            }
            *held, known = self._held[group]
            if known:
                found[group]["coverage"] = {f"{q:.0%}": n / known for q, n in zip(LEVELS, held, strict=True)}
        return found


def best_modes(some: Judged) -> NDArray[np.int64]:
    """``[A]`` the mode with the least final error, the first one of an agent without a known step."""
    error = final_error(*map(torch.from_numpy, (some.trajectory, some.target, some.valid))).numpy()
    return np.where(np.isnan(error), np.inf, error).argmin(axis=1)


def _sums(probability: NDArray[np.float64], best: NDArray[np.int64], top: bool) -> NDArray[np.float64]:
    """``[3, BINS]``: count, sum of probabilities, sum of hits."""
    found = reliability(probability, best, BINS, top_only=top)
    means = np.nan_to_num(np.stack((found.probability, found.frequency)))
    return np.concatenate((found.count[None], means * found.count))


def _diagram(sums: NDArray[np.float64]) -> Reliability:
    """The bins in use, of such sums."""
    count, probability, hits = sums[:, sums[0] > 0]
    return Reliability(probability / count, hits / count, count.astype(np.int64))


def _held(some: Judged, best: NDArray[np.int64], member: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How many true coordinates lie within each of :data:`LEVELS`, and how many there are."""
    assert some.scale is not None
    rows = np.flatnonzero(member)
    mode = best[rows]
    away = some.target[rows] - some.trajectory[rows, mode]
    error = np.where(some.valid[rows, :, None], rotate(away, -some.origin_heading[rows, None]), np.nan)
    count = 2 * int(some.valid[rows].sum())
    share = laplace_coverage(error, some.scale[rows, mode], LEVELS)
    return np.append(np.nan_to_num(share) * count, count)
