"""Values of every judged agent and scene over a whole split, as columns, and their means."""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.evaluation.beyond import Calibration, beyond_columns
from trajpred.evaluation.judged import BOUNDS, GROUPS, Judged
from trajpred.forecast import Forecast
from trajpred.metrics import agent_metrics, heading_metrics, horizon_metrics, world_metrics
from trajpred.scenario import Scenario

#: Kept of every scenario's focal agent, for intervals and comparisons.
PER_SCENARIO = ("minADE6", "minFDE6", "brier-minFDE6")
#: What is told of each part of a breakdown and of each horizon.
SHORT = ("minADE6", "minFDE6", "MR6", "brier-minFDE6")
#: Modes whose probabilities differ by more than this among the agents of a scene are no worlds.
SAME = 1e-4

Means = dict[str, dict[str, float]]
Columns = dict[str, NDArray[Any]]


class Scores:
    """Columns that grow batch by batch: under a kilobyte for each judged agent.

    Args:
        ks: for each k, judge the k most probable modes.
        beyond: also look at what displacement does not tell (:mod:`trajpred.evaluation.beyond`).
        joint: whether mode k of all agents of a scene is one world.
    """

    def __init__(self, ks: Sequence[int] = (1, 6), beyond: bool = False, joint: bool = False) -> None:
        self.ks, self.joint, self.missing = tuple(ks), joint, 0
        self.calibration = Calibration() if beyond else None
        self.judged = 0
        self._agents: list[Columns] = []
        self._worlds: list[Columns] = []
        self._step_s = 0.1

    def add(self, scenarios: Sequence[Scenario], forecasts: Sequence[Forecast]) -> None:
        """Score a batch. Raises: DataError if a forecast does not fit its scenario."""
        some = Judged.of(scenarios, forecasts)
        self.missing += some.missing
        self.judged += len(some)
        self._step_s = round(scenarios[0].step_s, 2)  # clocks jitter
        worlds = in_worlds(some) if self.joint else np.zeros(len(some), bool)
        columns = {name: x.astype(np.float32) for name, x in self._displacement(some).items()}
        if self.calibration is not None:
            columns |= beyond_columns(some, scenarios, worlds)
            self.calibration.add(some)
        names = np.array([s.scenario_id for s in scenarios])[some.scene]
        words = {**some.facts, "scenario_id": names, "track_id": some.track_id}
        self._agents.append(some.member | {name: _shared(x) for name, x in words.items()} | columns)
        self._worlds.append(_worlds(some, worlds))

    def _displacement(self, some: Judged) -> Columns:
        names = ("trajectory", "probability", "heading", "target", "target_heading", "valid")
        path, p, heading, target, angle, valid = (torch.from_numpy(getattr(some, name)) for name in names)
        found = agent_metrics(path, p, target, valid, self.ks)
        found |= heading_metrics(path, p, heading, target, angle, valid)
        ends = self._horizons(valid.shape[1])
        values = horizon_metrics(path, p, target, valid, [*ends.values()])
        for second, step in ends.items():
            found |= {f"{name} at {second}": x for name, x in values[step].items()}
        return {name: x.numpy() for name, x in found.items()}

    def _horizons(self, steps: int) -> dict[str, int]:
        """Whole seconds to the end that are so many steps: name -> steps."""
        return {f"{s:g} s": n for s, n in whole_seconds(steps, self._step_s).items()}

    def agents(self) -> Columns:
        """All columns, ``[A]`` each: metrics by name, groups, facts, ``scenario_id`` and ``track_id``."""
        names = list(dict.fromkeys(name for part in self._agents for name in part))
        blank = {name: part[name] for part in self._agents for name in part}
        return {
            name: np.concatenate([_column(part, name, blank[name]) for part in self._agents])
            for name in names
        }

    def worlds(self) -> dict[str, float]:
        """Means over scenes of the world metrics, and ``count``; only ``count`` where there is none."""
        parts = [part for part in self._worlds if part]
        if not parts:
            return {"count": 0}
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        size = joined.pop("agents")
        means = {name: float(x.mean()) for name, x in joined.items() if not name.startswith("actor")}
        # Of actors these are shares of all actors, as av2's leaderboard counted them.
        shares = {n: float((x * size).sum() / size.sum()) for n, x in joined.items() if n.startswith("actor")}
        return {"count": len(size), "actors": int(size.sum()), **means, **shares}


def _shared(words: NDArray[np.str_]) -> NDArray[np.object_]:
    """The same words, each of them once in memory: fixed-width text would be most of what is kept."""
    known, index = np.unique(words, return_inverse=True)
    return np.array([intern(word) for word in known.tolist()], object)[index]


def _column(part: Columns, name: str, like: NDArray[Any]) -> NDArray[Any]:
    """The column, or NaN where a batch has none of that name (a shorter horizon)."""
    return part[name] if name in part else np.full(len(part["track_id"]), np.nan, like.dtype)


def in_worlds(some: Judged) -> NDArray[np.bool_]:
    """``[A]``: scored agents of scenes in which all of these were forecast, with the same probabilities.

    Mode k of all of them is then one possible world; marginal forecasts of several agents are none.
    """
    rows = np.flatnonzero(some.member["scored"] & some.complete[some.scene])
    scene, probability = some.scene[rows], some.probability[rows]
    first = np.searchsorted(scene, scene)  # of each one's scene
    differ = np.abs(probability - probability[first]).max(axis=1, initial=0.0) > SAME
    chosen = np.zeros(len(some), bool)
    chosen[rows[~np.isin(scene, scene[differ])]] = True
    return chosen


def _worlds(some: Judged, chosen: NDArray[np.bool_]) -> Columns:
    """World metrics of the scenes of the ``chosen`` agents ``[A]``, and how many ``agents`` each has."""
    if not chosen.any():
        return {}
    known, index = np.unique(some.scene[chosen], return_inverse=True)
    start = np.searchsorted(index, np.arange(len(known)))
    path, p, target, valid = (x[chosen] for x in (some.trajectory, some.probability, some.target, some.valid))
    found = world_metrics(*map(torch.from_numpy, (path, p[start], target, valid, index)))
    return {name: x.numpy() for name, x in found.items()} | {"agents": np.bincount(index)}


def whole_seconds(steps: int, step_s: float) -> dict[int, int]:
    """Whole seconds within ``steps`` -> their number of steps; those that fall between steps are left out."""
    count = {s: round(s / step_s) for s in range(1, int(steps * step_s + 1e-6) + 1)}
    return {s: n for s, n in count.items() if abs(n * step_s - s) < 0.01 * s}


def group_means(columns: Columns, names: Sequence[str], keep: NDArray[np.bool_] | None = None) -> Means:
    """For each group ``count`` and the means of ``names`` over its agents (of ``keep``).

    Agents for which a metric is not defined (NaN) count in none of its means; an infinite error shows.
    """
    means: Means = {}
    for group in GROUPS:
        member = columns[group] if keep is None else columns[group] & keep
        means[group] = {"count": int(member.sum())}
        if member.any():
            each = {name: columns[name][member].astype(np.float64) for name in names if name in columns}
            means[group] |= {name: float(np.nanmean(x)) for name, x in each.items() if not np.isnan(x).all()}
    return means


def breakdown(columns: Columns, fact: str, names: Sequence[str] = SHORT) -> dict[str, Means]:
    """:func:`group_means` for each value of ``fact``, the most frequent first for words."""
    values, count = np.unique(columns[fact], return_counts=True)
    ordered = _sorted(values) if fact in BOUNDS else values[np.argsort(-count, kind="stable")]
    return {str(value): group_means(columns, names, columns[fact] == value) for value in ordered}


def _sorted(values: NDArray[Any]) -> NDArray[Any]:
    return np.array(sorted(values.tolist(), key=lambda text: float(text.split()[0])))
