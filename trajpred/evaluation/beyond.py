"""What displacement does not tell: roads kept, no collisions, plausible motion, honest probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.evaluation.judged import GROUPS, Judged
from trajpred.geometry import rotate
from trajpred.metrics import final_error
from trajpred.metrics.calibration import laplace_coverage, reliability
from trajpred.metrics.collisions import collisions
from trajpred.metrics.map_compliance import is_road_vehicle, off_road, on_road, wrong_way
from trajpred.metrics.plausibility import diversity, infeasible, kinematics
from trajpred.object_sizes import TYPICAL_SIZES
from trajpred.scenario import Scenario

Columns = dict[str, NDArray[Any]]
#: Means of these are shares of probability: of modes that do so.
SHARES = ("off-road", "wrong-way", "infeasible", "collision")
#: And these are metres between the end points of an agent's modes.
SPREADS = ("spread", "spread of top two")
#: Central intervals of the predicted Laplace laws that are looked at.
LEVELS = (0.5, 0.8, 0.9, 0.95)


def beyond_columns(some: Judged, scenarios: Sequence[Scenario], worlds: NDArray[np.bool_]) -> Columns:
    """For each judged agent ``[A]`` the names above, NaN where a metric does not apply to it.

    Road vehicles that start on the road are judged by the map and by their motion, everyone by ``spread``.

    Args:
        some: the agents.
        scenarios: theirs.
        worlds: ``[A]``, agents whose modes are worlds together with those of the same scene.
    """
    step_s = scenarios[0].step_s
    motion = kinematics(some.trajectory, some.origin, some.velocity, step_s)
    by_map = [_by_map(some, scenario, i) for i, scenario in enumerate(scenarios)]
    kept = np.concatenate([part["kept"] for part in by_map])
    found = {name: np.concatenate([part[name] for part in by_map]) for name in ("off-road", "wrong-way")}
    found["infeasible"] = np.where(kept[:, None], infeasible(motion), np.nan)
    share = {name: (some.probability * modes).sum(1) for name, modes in found.items()}
    apart = diversity(some.trajectory, some.probability, some.origin_heading)
    spread = dict(zip(SPREADS, (apart["pairwise"], apart["top_two"]), strict=True))
    return {**share, "collision": _colliding(some, worlds), **spread}


def _by_map(some: Judged, scenario: Scenario, index: int) -> Columns:
    """Of the agents of one scene ``[a, K]``, NaN where the map judges them not; ``kept``: where it does."""
    rows = some.scene == index
    path, heading = some.trajectory[rows], some.heading[rows]
    starts = on_road(some.origin[rows], scenario.map)
    off, wrong = off_road(path, scenario.map), wrong_way(path, heading, scenario.map, scenario.step_s)
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


def calibration_columns(some: Judged) -> Columns:
    """``probability [A, K]``, the ``best`` mode ``[A]`` and, with scales, its relative ``error [A, F, 2]``.

    The error is that of the truth in units of the best mode's scale, NaN where there is no truth.
    """
    given = (some.trajectory, some.target, some.valid)
    error = final_error(*map(torch.from_numpy, given)).numpy()
    best = np.where(np.isnan(error), np.inf, error).argmin(axis=1)
    columns: Columns = {"probability": some.probability.astype(np.float32), "best": best.astype(np.int8)}
    if some.scale is not None:
        row = np.arange(len(some))
        error = rotate(some.target - some.trajectory[row, best], -some.origin_heading[:, None])
        relative = np.where(some.valid[..., None], error / some.scale[row, best], np.nan)
        columns["error"] = relative.astype(np.float32)
    return columns


def calibration(columns: Columns) -> dict[str, dict[str, Any]]:
    """For each group how honest probabilities and scales are.

    ``ECE`` over all modes and ``top ECE`` of the most probable one (Guo et al. 2017), ``reliability`` as
    lists (``probability``, ``frequency``, ``count`` of bins), ``coverage`` of Laplace intervals by level.
    """
    found = {}
    for group in GROUPS:
        member = columns[group]
        if not member.any():
            continue
        probability, best = columns["probability"][member].astype(np.float64), columns["best"][member]
        every = reliability(probability, best.astype(np.int64))
        top = reliability(probability, best.astype(np.int64), top_only=True)
        bins = {name: getattr(every, name).tolist() for name in ("probability", "frequency", "count")}
        some = np.array(bins["count"]) > 0
        bins = {name: [v for v, kept in zip(x, some, strict=True) if kept] for name, x in bins.items()}
        found[group] = {
            "ECE": every.expected_calibration_error,
            "top ECE": top.expected_calibration_error,
            "reliability": bins,
        }
        if "error" in columns:
            error = columns["error"][member].astype(np.float64)
            held = laplace_coverage(error, np.ones_like(error), LEVELS)
            found[group]["coverage"] = {f"{q:.0%}": float(x) for q, x in zip(LEVELS, held, strict=True)}
    return found
