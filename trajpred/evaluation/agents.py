"""The scored agents: their forecasts, their true futures, and the facts that results are broken down by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.clock import SAME_STEP
from trajpred.errors import require
from trajpred.forecast import SAME_PROBABILITY, Forecast
from trajpred.geometry import Pose, norm, relative_pose, wrap_angle
from trajpred.metrics.groups import agent_groups
from trajpred.metrics.plausibility import Futures
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.splits import GROUPS
from trajpred.store.windows import ADVICE

#: The groups whose futures together are worlds.
WORLD_GROUPS = ("scored", "all")
#: Neighbours are the other agents within this distance (metres) at the last observed step.
NEIGHBOUR_M = 30.0
#: Upper bounds of the intervals of numeric facts; the last interval is open.
BOUNDS: dict[str, tuple[float, ...]] = {
    "speed (m/s)": (0.5, 5.0, 10.0, 15.0),
    "neighbours (within 30 m)": (1, 5, 10, 20),
    "error of constant velocity (m)": (1.0, 3.0, 6.0, 12.0),
}
#: What results can be broken down by.
FACTS = ("class", "city", "manoeuvre", *BOUNDS)
#: In order of precedence; ``straight`` is what remains.
MANOEUVRES = ("stationary", "U-turn", "left turn", "right turn", "lane change", "straight")
#: A stationary agent stays within this distance (metres) of its origin.
STATIONARY_M = 2.0
#: Changes of heading (radians) beyond which a future is a turn, or a U-turn.
TURN, U_TURN = np.deg2rad(30.0), np.deg2rad(135.0)
#: A lane change ends more than this far aside (metres), at a slope below one in four, with less than this
#: change of heading (radians).
ASIDE_M, SLOPE, PARALLEL = 2.5, 0.25, np.deg2rad(10.0)


@dataclass(frozen=True)
class ScoredAgents(Futures):
    """``A`` agents of several scenarios with a forecast and a true future, grouped by scenario.

    Where scenarios have fewer modes than others, their first mode is repeated with probability 0.

    Attributes:
        track_id: ``[A]`` strings.
        member: for each of :data:`GROUPS` ``[A]`` bool.
        target_heading: ``[A, F]`` radians, of the true futures.
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
            scenarios: with futures; forecasts: one for each.
            joint: whether forecasts whose agents share their probabilities are worlds.

        Raises: DataError if a forecast is longer than its scenario or not finite, or if numbers of steps or
            time steps differ.
        """
        modes = max((forecast.trajectory.shape[1] for forecast in forecasts), default=0)
        steps = {forecast.trajectory.shape[2] for forecast in forecasts}
        problem = f"forecasts of {sorted(steps)} steps cannot be evaluated together"
        require(len(steps) == 1, "trajectory", problem)
        for scenario in scenarios:
            known = scenario.num_steps - scenario.num_observed
            longer = f"{scenario.scenario_id}: forecast of {min(steps)} steps, {known} are known"
            require(known >= min(steps), "trajectory", longer)
            require_step(scenario.step_s, scenarios[0].step_s, scenario.scenario_id)
        groups = [groups_of(scenario, *steps) for scenario in scenarios]
        parts = [_one(*each, modes) for each in zip(scenarios, forecasts, groups, strict=True)]
        columns: dict[str, Any] = {"scale": None}
        scaled = all("scale" in part for part in parts)
        columns |= {n: np.concatenate([p[n] for p in parts]) for n in parts[0] if scaled or n != "scale"}
        scene = np.repeat(np.arange(len(parts)), [len(part["track_id"]) for part in parts])
        columns["facts"] = _facts(scenarios, scene, columns)
        del columns["neighbours"]
        member = {name: columns.pop(name) for name in GROUPS}
        expected = {group: np.array([one[group].sum() for one in groups]) for group in GROUPS}
        found = {g: np.bincount(scene[member[g]], minlength=len(parts)) for g in WORLD_GROUPS}
        complete = {group: found[group] == expected[group] for group in WORLD_GROUPS}
        p = columns["probability"]
        worlds = {g: _in_world(scene, member[g] & complete[g][scene] & joint, p) for g in WORLD_GROUPS}
        return cls(
            scene=scene,
            maps=[scenario.map for scenario in scenarios],
            step_s=scenarios[0].step_s,
            member=member,
            in_world=worlds["scored"],
            worlds=worlds,
            missing={group: int(expected[group].sum() - member[group].sum()) for group in GROUPS},
            incomplete={group: int((~each).sum()) for group, each in complete.items()},
            **columns,
        )


def require_step(step_s: float, usual: float, scenario_id: str) -> None:
    """Raise :class:`DataError` unless time steps are equal up to :data:`~trajpred.clock.SAME_STEP`."""
    problem = f"{scenario_id}: steps of {step_s:g} s and of {usual:g} s cannot be evaluated together"
    require(abs(step_s - usual) < SAME_STEP * usual, "step_s", f"{problem}; {ADVICE}")


def whole_seconds(steps: int, step_s: float) -> dict[int, int]:
    """Map the whole seconds within ``steps`` to numbers of steps; seconds between two steps are omitted."""
    count = {s: round(s / step_s) for s in range(1, int(1.01 * steps * step_s) + 1)}
    return {s: n for s, n in count.items() if n <= steps and abs(n * step_s - s) < 0.01 * s}


def groups_of(scenario: Scenario, steps: int | None = None) -> dict[str, NDArray[np.bool_]]:
    """Return the tracks ``[A]`` of each group: those visible at the last observed step that have a future.

    Of the future the first ``steps`` count, by default all.
    """
    tracks, now = scenario.tracks, scenario.num_observed
    last = scenario.num_steps if steps is None else now + steps
    future = tracks.valid[:, now:last]
    distance = norm(tracks.position[:, last - 1] - tracks.position[:, now - 1])
    known = tracks.valid[:, now - 1] & future.any(axis=1)
    return agent_groups(tracks.category, known, future.all(axis=1), distance)


def facts_of(scenario: Scenario) -> dict[str, dict[str, str]]:
    """Return :data:`FACTS` by track, for the group ``all`` over the whole future; no forecast is needed."""
    rows = np.flatnonzero(groups_of(scenario)["all"])
    columns = _truth(scenario, rows, scenario.num_steps - scenario.num_observed)
    facts = _facts([scenario], np.zeros(len(rows), np.int64), columns)
    ids = columns["track_id"].tolist()
    return {name: {fact: str(values[i]) for fact, values in facts.items()} for i, name in enumerate(ids)}


def _one(
    scenario: Scenario, forecast: Forecast, groups: dict[str, NDArray[np.bool_]], modes: int
) -> dict[str, NDArray[Any]]:
    """Build the columns of one scenario's scored agents, with their modes filled up to ``modes``."""
    found = forecast.rows(scenario.tracks.track_id)
    rows = np.flatnonzero(groups["all"] & (found >= 0))
    row = found[rows]
    K, F = forecast.trajectory.shape[1:3]
    for name in ("trajectory", "probability"):
        finite = bool(np.isfinite(getattr(forecast, name)[row]).all())
        require(finite, name, f"{scenario.scenario_id}: forecast is not finite")
    real = np.arange(modes) < K
    mode = np.where(real, np.arange(modes), 0)
    scale = {} if forecast.scale is None else {"scale": forecast.scale[row][:, mode]}
    return {
        **{name: group[rows] for name, group in groups.items()},
        **scale,
        **_truth(scenario, rows, F),
        "trajectory": forecast.trajectory[row][:, mode],
        "modes": np.full(len(rows), K),
        "probability": forecast.probability[row][:, mode] * real,
        "heading": forecast.heading[row][:, mode],
    }


def _truth(scenario: Scenario, rows: NDArray[np.int64], steps: int) -> dict[str, NDArray[Any]]:
    """Build the columns that do not depend on a forecast, and the number of ``neighbours``."""
    tracks, now = scenario.tracks, scenario.num_observed - 1
    future, seen = slice(now + 1, now + 1 + steps), tracks.valid[:, now]
    apart = norm(tracks.position[rows, None, now] - tracks.position[None, seen, now])
    return {
        "neighbours": (apart <= NEIGHBOUR_M).sum(axis=1) - 1,  # without itself
        "track_id": tracks.track_id[rows],
        "target": tracks.position[rows, future],
        "target_heading": tracks.heading[rows, future],
        "valid": tracks.valid[rows, future],
        "object_type": tracks.object_type[rows],
        "origin": tracks.position[rows, now],
        "origin_heading": tracks.heading[rows, now],
        "velocity": tracks.velocity[rows, now],
    }


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


def _facts(
    scenarios: Sequence[Scenario], scene: NDArray[np.int64], columns: dict[str, Any]
) -> dict[str, NDArray[np.str_]]:
    """Return each of :data:`FACTS` ``[A]`` as text."""
    frame = Pose(columns["origin"][:, None], columns["origin_heading"][:, None])
    local = relative_pose(Pose(columns["target"], columns["target_heading"]), frame)
    manoeuvre = manoeuvres(local.position, local.heading, columns["valid"])
    steps = columns["valid"].shape[1]
    last = np.where(columns["valid"], np.arange(steps), 0).max(axis=1, initial=0)
    ahead = (last + 1) * np.array([scenario.step_s for scenario in scenarios])[scene]
    steady = columns["origin"] + columns["velocity"] * ahead[:, None]
    error = norm(steady - columns["target"][np.arange(len(scene)), last])
    numbers = dict(zip(BOUNDS, (norm(columns["velocity"]), columns["neighbours"], error), strict=True))
    return {
        "class": np.array(OBJECT_TYPES)[columns["object_type"]],
        "city": np.array([s.city or "unknown" for s in scenarios])[scene],
        "manoeuvre": np.array(MANOEUVRES)[manoeuvre],
        **{name: _interval(values, BOUNDS[name]) for name, values in numbers.items()},
    }


def _interval(values: NDArray[Any], bounds: tuple[float, ...]) -> NDArray[np.str_]:
    """Name the interval of each value: ``5 to 10``, or of integers ``5 to 9``."""
    whole = int(values.dtype.kind == "i")
    pairs = [(low, high - whole) for low, high in zip((0, *bounds), bounds, strict=False)]
    names = [f"{low:g} to {high:g}" if low < high else f"{low:g}" for low, high in pairs]
    return np.array([*names, f"{bounds[-1]:g} and more"])[np.digitize(values, bounds)]


def manoeuvres(
    future: NDArray[np.float64], heading: NDArray[np.float64], valid: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Classify each agent's manoeuvre by its future up to the last valid step: index into :data:`MANOEUVRES`.

    ``stationary`` without a valid step. The map is not used: a bend in the road is a turn, and a lane change
    on a bend is not detected.

    Args:
        future: ``[A, F, 2]`` metres in the agent's own frame at the last observed step (x ahead, y left).
        heading: ``[A, F]`` radians in the same frame; valid: ``[A, F]``.
    """
    steps, row = np.arange(valid.shape[1]), np.arange(len(valid))
    last = np.where(valid, steps, 0).max(axis=1, initial=0)
    (x, y), turned = future[row, last].T, wrap_angle(heading[row, last])
    farthest = np.where(valid, norm(future), 0.0).max(axis=1, initial=0.0)
    conditions = (
        farthest < STATIONARY_M,
        abs(turned) > U_TURN,
        turned > TURN,
        turned < -TURN,
        (abs(y) > ASIDE_M) & (abs(y) < SLOPE * x) & (abs(turned) < PARALLEL),
        np.ones(len(valid), bool),
    )
    return np.stack(conditions).argmax(axis=0)
