"""The scored agents: their forecasts beside their true futures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.data.forecast import SAME_PROBABILITY, Forecast
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.data.splits import GROUPS
from trajpred.data.time import SAME_STEP
from trajpred.errors import require
from trajpred.evaluation.agent_truth import facts_of_columns, groups_of, truth_of
from trajpred.metrics.plausibility import Futures
from trajpred.store.windows import ADVICE

#: The groups whose futures together are worlds.
WORLD_GROUPS = ("scored", "all")


@dataclass(frozen=True)
class ScoredAgents(Futures):
    """``A`` agents of several scenarios with a forecast and a true future, grouped by scenario.

    Where scenarios have fewer modes than others, their first mode is repeated with probability 0.

    Attributes:
        track_id: ``[A]`` strings.
        member: for each of :data:`GROUPS` ``[A]`` bool.
        target_heading: ``[A, F]`` radians, of the true futures; NaN where the data lack it.
        scale: ``[A, K, F, 2]`` Laplace scales in each agent's own frame; None unless all forecasts have them.
        facts: ``[A]`` strings for each of :data:`FACTS`.
        missing: for each group, the number of agents without a forecast; they are not among the ``A``.
        worlds: for each of :data:`WORLD_GROUPS` ``[A]`` bool, the agents of scenarios all of whose agents of
            that group have a forecast and share one probability per mode.
        incomplete: for each of :data:`WORLD_GROUPS`, the number of scenarios that miss one of its agents.
    """

    track_id: NDArray[np.str_]
    member: dict[str, NDArray[np.bool_]]
    target_heading: NDArray[np.float64]
    scale: NDArray[np.float64] | None
    facts: dict[str, NDArray[np.str_]]
    missing: dict[str, int]
    worlds: dict[str, NDArray[np.bool_]]
    incomplete: dict[str, int]

    def __len__(self) -> int:
        return len(self.scene)

    @classmethod
    def of(
        cls, scenarios: Sequence[Scenario], forecasts: Sequence[Forecast], joint: bool = True
    ) -> ScoredAgents:
        """Match forecasts with true futures.

        Args:
            scenarios: with futures.
            forecasts: one for each scenario.
            joint: whether forecasts whose agents share their probabilities are worlds.

        Raises: DataError if a forecast is longer than its scenario or not finite, or if numbers of steps or
            time steps differ.
        """
        modes = max((forecast.trajectory.shape[1] for forecast in forecasts), default=0)
        steps = _common_steps(forecasts)
        maps: list[LaneMap] = []
        groups: list[dict[str, NDArray[np.bool_]]] = []
        parts: list[dict[str, NDArray[Any]]] = []
        lengths: list[int] = []
        for scenario, forecast in zip(scenarios, forecasts, strict=True):
            known = scenario.num_steps - scenario.num_observed
            longer = f"{scenario.scenario_id}: forecast of {steps} steps, {known} are known"
            require(known >= steps, "trajectory", longer)
            require_step(scenario.step_s, scenarios[0].step_s, scenario.scenario_id)
            maps.append(scenario.map)
            members = groups_of(scenario, steps)
            groups.append(members)
            part = _columns(scenario, forecast, members, modes)
            parts.append(part)
            lengths.append(len(part["track_id"]))
        columns = _concatenated(parts)
        scene = np.repeat(np.arange(len(parts)), lengths)
        facts = facts_of_columns(scenarios, scene, columns)
        del columns["neighbours"]
        member: dict[str, NDArray[np.bool_]] = {}
        expected: dict[str, NDArray[np.int64]] = {}
        missing: dict[str, int] = {}
        for group in GROUPS:
            member[group] = columns.pop(group)
            expected[group] = _counts(groups, group)
            missing[group] = int(expected[group].sum() - member[group].sum())
        worlds: dict[str, NDArray[np.bool_]] = {}
        incomplete: dict[str, int] = {}
        for group in WORLD_GROUPS:
            forecast_count = np.bincount(scene[member[group]], minlength=len(parts))
            complete = forecast_count == expected[group]
            candidate = member[group] & complete[scene] & joint
            worlds[group] = _in_world(scene, candidate, columns["probability"])
            incomplete[group] = int((~complete).sum())
        return cls(
            scene=scene,
            maps=maps,
            step_s=scenarios[0].step_s,
            member=member,
            in_world=worlds["scored"],
            worlds=worlds,
            missing=missing,
            incomplete=incomplete,
            facts=facts,
            **columns,
        )


def _common_steps(forecasts: Sequence[Forecast]) -> int:
    """Return the number of future steps of all forecasts. Raises: DataError if they differ."""
    steps = {forecast.trajectory.shape[2] for forecast in forecasts}
    problem = f"forecasts of {sorted(steps)} steps cannot be evaluated together"
    require(len(steps) == 1, "trajectory", problem)
    return steps.pop()


def require_step(step_s: float, usual: float, scenario_id: str) -> None:
    """Raise :class:`DataError` unless time steps are equal up to :data:`~trajpred.data.time.SAME_STEP`."""
    problem = f"{scenario_id}: steps of {step_s:g} s and of {usual:g} s cannot be evaluated together"
    require(abs(step_s - usual) < SAME_STEP * usual, "step_s", f"{problem}; {ADVICE}")


def whole_seconds(steps: int, step_s: float) -> dict[int, int]:
    """Map the whole seconds within ``steps`` to numbers of steps; seconds between two steps are omitted."""
    counts: dict[int, int] = {}
    for second in range(1, int(1.01 * steps * step_s) + 1):
        count = round(second / step_s)
        if count <= steps and abs(count * step_s - second) < 0.01 * second:
            counts[second] = count
    return counts


def _columns(
    scenario: Scenario, forecast: Forecast, groups: dict[str, NDArray[np.bool_]], modes: int
) -> dict[str, NDArray[Any]]:
    """Build the columns of one scenario's agents of any group that have a forecast."""
    row_of_track = forecast.rows(scenario.tracks.track_id)
    tracks = np.flatnonzero(groups["all"] & (row_of_track >= 0))
    row = row_of_track[tracks]
    count = forecast.trajectory.shape[1]
    steps = forecast.trajectory.shape[2]
    for name in ("trajectory", "probability"):
        finite = bool(np.isfinite(getattr(forecast, name)[row]).all())
        require(finite, name, f"{scenario.scenario_id}: forecast is not finite")
    # Modes are filled up by the first one, with probability 0.
    is_real = np.arange(modes) < count
    mode = np.where(is_real, np.arange(modes), 0)
    columns: dict[str, NDArray[Any]] = {group: members[tracks] for group, members in groups.items()}
    columns |= truth_of(scenario, tracks, steps)
    columns["trajectory"] = forecast.trajectory[row][:, mode]
    columns["modes"] = np.full(len(tracks), count)
    columns["probability"] = forecast.probability[row][:, mode] * is_real
    columns["heading"] = forecast.heading[row][:, mode]
    if forecast.scale is not None:
        columns["scale"] = forecast.scale[row][:, mode]
    return columns


def _counts(groups: Sequence[dict[str, NDArray[np.bool_]]], group: str) -> NDArray[np.int64]:
    """Count the agents of a group in each scenario."""
    return np.array([members[group].sum() for members in groups])


def _concatenated(parts: Sequence[dict[str, NDArray[Any]]]) -> dict[str, Any]:
    """Concatenate the columns of all scenarios; scales are None unless all have them."""
    columns: dict[str, Any] = {}
    for name in parts[0]:
        if all(name in part for part in parts):
            columns[name] = np.concatenate([part[name] for part in parts])
    columns.setdefault("scale", None)
    return columns


def _in_world(
    scene: NDArray[np.int64], candidate: NDArray[np.bool_], probability: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Select the ``candidate`` agents ``[A]`` of scenes whose candidates share their probabilities.

    Mode k of all of them is then one world.
    """
    rows = np.flatnonzero(candidate)
    first = np.searchsorted(scene[rows], scene[rows])  # of each agent's scene
    differ = np.abs(probability[rows] - probability[rows][first]).max(axis=1, initial=0.0) > SAME_PROBABILITY
    return candidate & ~np.isin(scene, scene[rows][differ])
