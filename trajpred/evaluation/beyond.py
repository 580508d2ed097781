"""What displacement does not tell: roads kept, no collisions, plausible motion, honest probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.evaluation.judged import GROUPS, Columns, Judged
from trajpred.geometry import rotate
from trajpred.metrics import final_error
from trajpred.metrics.calibration import Reliability, laplace_coverage, reliability
from trajpred.metrics.collisions import collisions
from trajpred.metrics.map_compliance import is_road_vehicle, off_road, on_road, wrong_way
from trajpred.metrics.plausibility import diversity, infeasible, kinematics
from trajpred.scenario import TYPICAL_SIZES, Scenario

#: Means of these are shares of probability: of modes that do so.
SHARES = ("off-road", "wrong-way", "infeasible", "collision")
#: And these are metres between the end points of an agent's modes, by their name in ``diversity``.
SPREADS = {
    "spread": "pairwise",
    "spread of top two": "top_two",
    "spread ahead": "along",
    "spread sideways": "across",
}
#: Central intervals of the predicted Laplace laws that are looked at.
LEVELS = (0.5, 0.8, 0.9, 0.95)
#: Of the reliability diagram.
BINS = 10


def beyond_columns(some: Judged, scenarios: Sequence[Scenario], worlds: NDArray[np.bool_]) -> Columns:
    """For each judged agent ``[A]`` the names above, NaN where a metric does not apply to it.

    Road vehicles that start on the road are judged by the map and by their motion, everyone by ``spread``.

    Args:
        some: the agents.
        scenarios: theirs.
        worlds: ``[A]``, agents whose modes are worlds together with those of the same scene.
    """
    motion = kinematics(some.trajectory, some.origin, some.velocity, some.step_s)
    by_map = [_by_map(some, scenario, i) for i, scenario in enumerate(scenarios)]
    kept = np.concatenate([part["kept"] for part in by_map])
    found = {name: np.concatenate([part[name] for part in by_map]) for name in ("off-road", "wrong-way")}
    found["infeasible"] = np.where(kept[:, None], infeasible(motion), np.nan)
    share = {name: (some.probability * modes).sum(1) for name, modes in found.items()}
    return {**share, "collision": _colliding(some, worlds), **_spread(some)}


def _spread(some: Judged) -> Columns:
    """Of the modes that an agent really has; NaN where that is one alone."""
    found = {name: np.full(len(some), np.nan) for name in SPREADS}
    for k in np.unique(some.modes):
        rows = some.modes == k
        apart = diversity(some.trajectory[rows, :k], some.probability[rows, :k], some.origin_heading[rows])
        for name, its in SPREADS.items():
            found[name][rows] = apart[its] if k > 1 else np.nan
    return found


def _by_map(some: Judged, scenario: Scenario, index: int) -> Columns:
    """Of the agents of one scene ``[a, K]``, NaN where the map judges them not; ``kept``: where it does."""
    rows = some.scene == index
    path, heading = some.trajectory[rows], some.heading[rows]
    starts = on_road(some.origin[rows], scenario.map)
    off, wrong = off_road(path, scenario.map), wrong_way(path, heading, scenario.map, some.step_s)
    if starts is None or off is None or wrong is None:
        none = np.full(path.shape[:2], np.nan)
        return {"kept": is_road_vehicle(some.object_type[rows]), "off-road": none, "wrong-way": none}
    kept = is_road_vehicle(some.object_type[rows]) & starts
    found = {"off-road": off, "wrong-way": wrong}
    return {"kept": kept} | {name: np.where(kept[:, None], x, np.nan) for name, x in found.items()}


def _colliding(some: Judged, worlds: NDArray[np.bool_]) -> NDArray[np.float64]:
    """``[A]`` probability of the worlds in which an agent collides with another; NaN for agents without."""
    share = np.full(len(some), np.nan)
    if worlds.any():
        hit = collisions(
            some.trajectory[worlds],
            some.heading[worlds],
            TYPICAL_SIZES[some.object_type[worlds]],
            some.scene[worlds],
            some.origin[worlds],
            some.origin_heading[worlds],
        )
        share[worlds] = (some.probability[worlds] * hit).sum(1)
    return share


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
