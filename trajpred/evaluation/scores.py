"""Scores of agents, averaged by group, horizon and fact, batch by batch.

Each batch is a table: a row per agent, with its groups, facts and metrics. Its sums by group are added up and
the table is dropped; of each scenario only the sums over the agents of each group are kept, for intervals.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.data.splits import GROUPS
from trajpred.evaluation.agent_scores import (
    agent_scores,
    best_modes,
    horizon_columns,
    horizon_scores,
    interval_levels,
    score_worlds,
)
from trajpred.evaluation.agent_truth import BOUNDS, FACTS
from trajpred.evaluation.agents import WORLD_GROUPS, ScoredAgents, require_step
from trajpred.evaluation.av2_check import Av2Check
from trajpred.evaluation.updates import ERRORS, score_streams
from trajpred.metrics import METRICS, columns, metric_names, paired_columns
from trajpred.metrics.calibration import reliability

Means = dict[str, dict[str, float]]
#: Central intervals of the predicted Laplace distributions whose coverage is measured.
LEVELS = (0.5, 0.8, 0.9, 0.95)
#: Track ids of moving agents that are packed together.
IDS_AT_ONCE = 4096
#: Bins of the reliability diagram.
BINS = 10


class GroupMeans:
    """Means of the metrics ``names`` by part (a horizon, a class …) and group of agents, from sums."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        #: By part and group: agents; by metric, agents with a value, and the sum of these.
        self.count: dict[str, dict[str, int]] = {}
        self._sums: dict[str, dict[str, NDArray[np.float64]]] = {}

    def add(self, part: str, member: dict[str, NDArray[np.bool_]], values: NDArray[np.floating]) -> None:
        """Add agents, with the metrics ``values`` ``[A, M]``, to a part."""
        count = self.count.setdefault(part, dict.fromkeys(GROUPS, 0))
        sums = self._sums.setdefault(part, {group: np.zeros((2, len(self.names))) for group in GROUPS})
        for group in GROUPS:
            rows = values[member[group]].astype(np.float64)
            count[group] += len(rows)
            sums[group] += np.stack(((~np.isnan(rows)).sum(0), np.nansum(rows, 0)))

    def means(self, part: str, names: Sequence[str] | None = None) -> Means:
        """Return for each group ``count`` and the means of ``names`` over agents with a value (not NaN)."""
        by_group: Means = {}
        for group, (count, total) in self._sums[part].items():
            means: dict[str, float] = {"count": self.count[part][group]}
            for name in names or self.names:
                column = self.names.index(name)
                if count[column]:
                    means[name] = float(total[column] / count[column])
            by_group[group] = means
        return by_group


class Scores:
    """Scores of a predictor over a split, batch by batch.

    Args:
        ks: evaluate the k most probable modes for each k.
        plausibility: also compute plausibility metrics and calibration.
        joint: whether mode k of all agents of a scene is one world.
        check: also gets every batch.

    Attributes:
        agents: number of scored agents.
        missing: number of agents without a forecast, by group.
        scenario_ids: the scenarios, in order.
        seconds: of the future, those that are scored and those that are known.
    """

    def __init__(
        self,
        ks: Sequence[int] = (1, 6),
        plausibility: bool = False,
        joint: bool = False,
        check: Av2Check | None = None,
    ) -> None:
        self.ks = tuple(ks)
        self.joint = joint
        self.check = check
        self.agents = 0
        self.missing = dict.fromkeys((*GROUPS, "scenarios"), 0)
        self.calibration = Calibration() if plausibility else None
        self.worlds = {group: WorldMeans(group) for group in WORLD_GROUPS}
        self.names: tuple[str, ...] = ()
        self._all = GroupMeans(())
        self._horizons = GroupMeans(horizon_columns(plausibility))
        self._facts = {fact: GroupMeans(columns("breakdown")) for fact in FACTS}
        self._updates = GroupMeans((*ERRORS, *metric_names("streaming")))
        self.scenario_ids: list[str] = []
        # One buffer for each group: thousands of small arrays would fragment the heap.
        self._scene_sums = {group: array("f") for group in GROUPS}
        self._moving = array("f")
        self._moving_ids: list[pa.Array] = []
        self._recent_ids: list[str] = []
        self._step_s = 0.0
        self.seconds: list[float] = []

    def add(self, scenarios: Sequence[Scenario], forecasts: Sequence[Forecast]) -> None:
        """Score a batch. Raises: DataError if a forecast does not fit its scenario."""
        agents = ScoredAgents.of(scenarios, forecasts, self.joint)
        self._step_s = self._step_s or agents.step_s
        require_step(agents.step_s, self._step_s, scenarios[0].scenario_id)
        scored = agents.valid.shape[1]
        recorded = scenarios[0].num_steps - scenarios[0].num_observed
        self.seconds = [round(steps * self._step_s, 2) for steps in (scored, recorded)]
        self.agents += len(agents)
        for group, count in agents.missing.items():
            self.missing[group] += count
        self.missing["scenarios"] += len(scenarios) - len(np.unique(agents.scene))
        for worlds in self.worlds.values():
            worlds.add(agents)
        if self.check is not None:
            self.check.add(agents)
        scores = agent_scores(agents, self.ks, self.calibration is not None)
        if self.calibration is not None:
            self.calibration.add(agents)
        updates, changed = score_streams(scenarios, forecasts, agents)
        scores |= changed
        for observed, table in updates.items():
            update = f"{round(observed * self._step_s, 2):g} s"
            self._updates.add(update, _members(agents, ~np.isnan(table[:, 0])), table)
        if not self.names:
            self.names = tuple(scores)
            self._all = GroupMeans(self.names)
        self.scenario_ids += [scenario.scenario_id for scenario in scenarios]
        for group, sums in self._scene_sums.items():
            by_scene = _scene_sums(agents, group, _table(scores, self._kept(group)))
            sums.frombytes(by_scene.tobytes())
        moving = agents.member["moving"]
        self._recent_ids += agents.track_id[moving].tolist()
        if len(self._recent_ids) >= IDS_AT_ONCE:
            self._pack_ids()
        self._moving.frombytes(_table(scores, self._kept("moving"))[moving].astype(np.float32).tobytes())
        self._all.add("", agents.member, _table(scores, self.names))
        for second, ahead in horizon_scores(agents, self.calibration is not None).items():
            self._horizons.add(second, _members(agents, ahead.visible), ahead.values)
        short = _table(scores, columns("breakdown"))
        for fact, means in self._facts.items():
            for part in np.unique(agents.facts[fact]).tolist():
                means.add(part, _members(agents, agents.facts[fact] == part), short)

    def means(self, names: Sequence[str]) -> Means:
        """Return the means of ``names`` over the agents of each group."""
        return self._all.means("", names)

    def horizons(self) -> dict[str, Means]:
        """Return the means of the metrics by seconds ahead over the agents visible at each horizon."""
        return {second: self._horizons.means(second) for second in self._horizons.count}

    def updates(self) -> dict[str, Means]:
        """Return the errors of each update and its changes, over the agents visible at all of them."""
        return {update: self._updates.means(update) for update in self._updates.count}

    def breakdown(self, fact: str) -> dict[str, Means]:
        """Return the means for each value of ``fact``: intervals in order, words by descending frequency."""
        means = self._facts[fact]

        def place(value: str) -> tuple[float, str]:
            if fact in BOUNDS:
                return float(value.split()[0]), ""
            return -means.count[value]["all"], value

        return {value: means.means(value) for value in sorted(means.count, key=place)}

    def by_scenario(self, group: str) -> dict[str, NDArray[np.float32]]:
        """Return ``count`` and sums ``[S]`` over a group's agents; of focal ones all metrics."""
        table = np.frombuffer(self._scene_sums[group], np.float32).reshape(len(self.scenario_ids), -1)
        return dict(zip(("count", *self._kept(group)), table.T, strict=True))

    def by_agent(self) -> pa.Table:
        """Return ``track_id`` and metrics, to 0.1 mm, of the moving agents, scenario by scenario."""
        self._pack_ids()
        names = self._kept("moving")
        values = np.frombuffer(self._moving, np.float32).reshape(-1, len(names))
        columns = {"track_id": pa.chunked_array(self._moving_ids, pa.string())}
        for name, column in zip(names, values.T, strict=True):
            columns[name] = pa.array(np.round(column.astype(np.float64), 4))
        return pa.table(columns)

    def _pack_ids(self) -> None:
        """Move the recent ids to an Arrow array, which takes a fraction of the memory of a list of them."""
        self._moving_ids.append(pa.array(self._recent_ids, pa.string()))
        self._recent_ids.clear()

    def _kept(self, group: str) -> tuple[str, ...]:
        """Return the metrics of which the sums by scenario are kept."""
        if group == "focal":
            return self.names
        return tuple(name for name in paired_columns() if name in self.names)


def _members(agents: ScoredAgents, rows: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
    """Return the members ``[A]`` of each group among the agents of ``rows`` ``[A]``."""
    return {group: member & rows for group, member in agents.member.items()}


def _table(scores: dict[str, NDArray[np.floating]], names: Sequence[str]) -> NDArray[np.floating]:
    """Return the scores ``[A, M]`` of these metrics."""
    return np.stack([scores[name] for name in names], axis=1)


def _scene_sums(agents: ScoredAgents, group: str, values: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return each scene's number of agents of a group, and sums of ``values`` ``[A, M]``: ``[S, 1 + M]``."""
    rows = agents.member[group]
    sums = np.zeros((len(agents.maps), 1 + values.shape[1]))
    np.add.at(sums, agents.scene[rows], np.column_stack((np.ones(rows.sum()), values[rows])))
    return sums.astype(np.float32)


class WorldMeans:
    """Means of the world metrics of a group over scenes, or over actors where av2's leaderboard did so."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.count = self.actors = self.incomplete = 0
        self._sum = dict.fromkeys(metric_names("world"), 0.0)

    def add(self, agents: ScoredAgents) -> None:
        """Add the scenes with worlds."""
        self.incomplete += agents.incomplete[self.group]
        rows = agents.worlds[self.group]
        if not rows.any():
            return
        metrics, scene = score_worlds(agents, np.flatnonzero(rows))
        actors = np.bincount(scene)
        self.count += len(actors)
        self.actors += int(actors.sum())
        for name, values in metrics.items():
            of_scene = values.numpy()
            if METRICS[name].per_actor:
                of_scene = of_scene * actors
            self._sum[name] += float(of_scene.sum())

    def means(self) -> dict[str, float]:
        """Return the means, if any, and the numbers of scenes (``count``), ``actors`` and ``incomplete``."""
        if not self.count:
            return {"count": 0, "incomplete": self.incomplete}
        means: dict[str, float] = {
            "count": self.count,
            "incomplete": self.incomplete,
            "actors": self.actors,
        }
        for name, total in self._sum.items():
            means[name] = total / (self.actors if METRICS[name].per_actor else self.count)
        return means


class Calibration:
    """Calibration of probabilities and Laplace scales by group, from sums."""

    def __init__(self) -> None:
        empty = reliability(np.zeros((0, 1)), np.zeros(0, np.int64), BINS)
        self._modes = {(group, top): empty for group in GROUPS for top in (False, True)}
        #: By group, the number of true coordinates within each of LEVELS, and of all.
        self._within = {group: np.zeros(len(LEVELS) + 1) for group in GROUPS}

    def add(self, agents: ScoredAgents) -> None:
        """Add the agents of a batch."""
        best = best_modes(agents)
        levels = None if agents.scale is None else interval_levels(agents, best)
        for group, member in agents.member.items():
            for k in np.unique(agents.modes[member]):
                rows = member & (agents.modes == k)
                p = agents.probability[rows, :k]
                for top in (False, True):
                    self._modes[group, top] += reliability(p, best[rows], BINS, top)
            if levels is not None:
                level = levels[agents.valid & member[:, None]]
                within = [(level <= limit).sum() for limit in LEVELS]
                self._within[group] += [*within, level.size]

    def summary(self) -> dict[str, dict[str, Any]]:
        """Summarise each group that has agents.

        ``ECE`` over all modes and ``top ECE`` of the most probable one (Guo et al. 2017), ``reliability``
        (:meth:`~trajpred.metrics.calibration.Reliability.diagram`), ``coverage`` by level.
        """
        by_group: dict[str, dict[str, Any]] = {}
        for group, (*within, coordinates) in self._within.items():
            modes = self._modes[group, False]
            if not modes.count.any():
                continue
            summary = {
                "ECE": modes.expected_calibration_error,
                "top ECE": self._modes[group, True].expected_calibration_error,
                "reliability": modes.diagram(),
            }
            if coordinates:
                coverage: dict[str, float] = {}
                for limit, count in zip(LEVELS, within, strict=True):
                    coverage[f"{limit:.0%}"] = count / coordinates
                summary["coverage"] = coverage
            by_group[group] = summary
        return by_group
