"""Values of every judged agent and scene over a whole split, as columns, and their means."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from sys import intern
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.evaluation.beyond import Calibration, beyond_columns
from trajpred.evaluation.judged import BOUNDS, GROUPS, Columns, Judged, require_step
from trajpred.forecast import SAME_PROBABILITY, Forecast
from trajpred.metrics import agent_metrics, heading_metrics, horizon_metrics, world_metrics
from trajpred.scenario import Scenario

#: What is told of each part of a breakdown and of each horizon, and kept of every scenario's focal agent.
SHORT = ("minADE6", "minFDE6", "MR6", "brier-minFDE6")
#: The same without K, as the metrics know them.
_SHORT = tuple(name.removesuffix("6") for name in SHORT)

Means = dict[str, dict[str, float]]


class Scores:
    """Columns that grow batch by batch: about a kilobyte for each judged agent, two while they are joined.

    Args:
        ks: for each k, judge the k most probable modes.
        beyond: also look at what displacement does not tell (:mod:`trajpred.evaluation.beyond`).
        joint: whether mode k of all agents of a scene is one world.
    """

    def __init__(self, ks: Sequence[int] = (1, 6), beyond: bool = False, joint: bool = False) -> None:
        self.ks, self.joint, self.judged = tuple(ks), joint, 0
        self.missing = dict.fromkeys(GROUPS, 0)
        self.calibration = Calibration() if beyond else None
        self._agents: list[Columns] = []
        self._worlds: list[Columns] = []
        self._horizons: dict[str, list[Columns]] = defaultdict(list)
        self._incomplete, self._step_s = 0, 0.0

    def add(self, scenarios: Sequence[Scenario], forecasts: Sequence[Forecast]) -> None:
        """Score a batch. Raises: DataError if a forecast does not fit its scenario."""
        some = Judged.of(scenarios, forecasts)
        self._step_s = self._step_s or some.step_s
        require_step(some.step_s, self._step_s, scenarios[0].scenario_id)
        self.judged += len(some)
        self.missing = {group: count + some.missing[group] for group, count in self.missing.items()}
        columns = _displacement(some, self.ks)
        worlds = in_worlds(some) if self.joint else np.zeros(len(some), bool)
        if self.calibration is not None:
            columns |= beyond_columns(some, scenarios, worlds)
            self.calibration.add(some)
        names = np.array([s.scenario_id for s in scenarios])[some.scene]
        words = {**some.facts, "scenario_id": names, "track_id": some.track_id}
        self._agents.append(some.member | {name: _shared(x) for name, x in words.items()} | columns)
        for second, values in _horizons(some).items():
            self._horizons[second].append(values)
        self._worlds.append(_worlds(some, worlds))
        self._incomplete += int((~some.complete).sum())

    def agents(self) -> Columns:
        """All columns, ``[A]`` each: metrics by name, groups, facts, ``scenario_id`` and ``track_id``."""
        return _joined(self._agents)

    def horizons(self) -> dict[str, Columns]:
        """For ``"1 s"``, ``"2 s"`` … the groups and :data:`SHORT` of the agents that are there then."""
        return {second: _joined(parts) for second, parts in self._horizons.items()}

    def worlds(self) -> dict[str, float]:
        """Means over scenes of the world metrics, ``count``, and how many scenes are ``incomplete``: not all
        of their scored tracks were forecast. No means where no scene has worlds."""
        parts = [part for part in self._worlds if part]
        if not parts:
            return {"count": 0, "incomplete": self._incomplete}
        joined = _joined(parts)
        size = joined.pop("agents")
        means = {name: float(x.mean()) for name, x in joined.items() if not name.startswith("actor")}
        # Of actors these are shares of all actors, as av2's leaderboard counted them.
        shares = {n: float((x * size).sum() / size.sum()) for n, x in joined.items() if n.startswith("actor")}
        counts = {"count": len(size), "incomplete": self._incomplete, "actors": int(size.sum())}
        return {**counts, **means, **shares}


def _displacement(some: Judged, ks: Sequence[int]) -> Columns:
    """Errors of place and heading, ``[A]`` float32 by name."""
    path, p, target, valid, heading, target_heading = _tensors(some, "heading", "target_heading")
    found = agent_metrics(path, p, target, valid, ks)
    found |= heading_metrics(path, p, heading, target, target_heading, valid)
    return {name: x.float().numpy() for name, x in found.items()}


def _horizons(some: Judged) -> dict[str, Columns]:
    """For every whole second the errors of the agents that are there then, and their groups."""
    path, p, target, valid = _tensors(some)
    ends = whole_seconds(some.valid.shape[1], some.step_s)
    values = horizon_metrics(path, p, target, valid, [*ends.values()], _SHORT)
    found = {}
    for second, step in ends.items():
        there = some.valid[:, step - 1]
        columns = some.member | {name: x.float().numpy() for name, x in values[step].items()}
        found[f"{second:g} s"] = {name: x[there] for name, x in columns.items()}
    return found


def _tensors(some: Judged, *more: str) -> list[torch.Tensor]:
    names = ("trajectory", "probability", "target", "valid", *more)
    return [torch.from_numpy(getattr(some, name)) for name in names]


def _joined(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _shared(words: NDArray[np.str_]) -> NDArray[np.object_]:
    """The same words, each of them once in memory: fixed-width text would be most of what is kept."""
    known, index = np.unique(words, return_inverse=True)
    return np.array([intern(word) for word in known.tolist()], object)[index]


def in_worlds(some: Judged) -> NDArray[np.bool_]:
    """``[A]``: scored agents of scenes in which all of these were forecast, with the same probabilities.

    Mode k of all of them is then one possible world; marginal forecasts of several agents are none.
    """
    rows = np.flatnonzero(some.member["scored"] & some.complete[some.scene])
    scene, probability = some.scene[rows], some.probability[rows]
    first = np.searchsorted(scene, scene)  # of each one's scene
    differ = np.abs(probability - probability[first]).max(axis=1, initial=0.0) > SAME_PROBABILITY
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
    count = {s: round(s / step_s) for s in range(1, int(1.01 * steps * step_s) + 1)}
    return {s: n for s, n in count.items() if n <= steps and abs(n * step_s - s) < 0.01 * s}


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
