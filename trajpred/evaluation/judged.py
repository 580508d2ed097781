"""The road users that are judged: who they are, what became of them, and what was forecast. NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.evaluation.manoeuvre import MANOEUVRES, manoeuvres
from trajpred.forecast import Forecast
from trajpred.geometry import Pose, norm, relative_pose
from trajpred.scenario import OBJECT_TYPES, Scenario, TrackCategory

GROUPS = ("focal", "scored", "all")
#: Neighbours are the others within this many metres at the last observed step.
NEIGHBOUR_M = 30.0
#: Upper bounds of the intervals that numbers are sorted into; the last one has none.
BOUNDS: dict[str, tuple[float, ...]] = {
    "speed (m/s)": (0.5, 5.0, 10.0, 15.0),
    "neighbours within 30 m": (1, 5, 10, 20),
    "error of constant velocity (m)": (1.0, 3.0, 6.0, 12.0),
}
#: What results can be broken down by.
FACTS = ("class", "city", "manoeuvre", *BOUNDS)

#: Values of agents by name, ``[A]`` each.
Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Judged:
    """``A`` judged agents of several scenarios, scenario by scenario, and their forecasts.

    Attributes:
        scene: ``[A]`` int64 ascending, index into the scenarios given.
        track_id: ``[A]`` strings.
        member: for each of :data:`GROUPS` ``[A]`` bool.
        trajectory: ``[A, K, F, 2]`` metres, city frame; where scenarios have fewer modes than others, their
            first one is repeated with probability 0.
        modes: ``[A]`` int64, how many there really are.
        probability: ``[A, K]``; heading: ``[A, K, F]`` radians along each mode.
        target: ``[A, F, 2]``; target_heading: ``[A, F]``; valid: ``[A, F]``: what became of them.
        object_type: ``[A]``, index into ``OBJECT_TYPES``.
        origin: ``[A, 2]`` metres; origin_heading: ``[A]`` radians; velocity: ``[A, 2]`` m/s: last observed.
        scale: ``[A, K, F, 2]`` Laplace scales in each agent's own frame; None unless all forecasts have them.
        facts: by name what results can be broken down by, ``[A]`` strings each.
        step_s: seconds between future steps, of the first scenario.
        missing: for each group how many judged tracks were not forecast; they are not among the ``A``.
        complete: ``[S]`` bool, scenes whose scored tracks were all forecast.
    """

    scene: NDArray[np.int64]
    track_id: NDArray[np.str_]
    member: dict[str, NDArray[np.bool_]]
    trajectory: NDArray[np.float64]
    modes: NDArray[np.int64]
    probability: NDArray[np.float64]
    heading: NDArray[np.float64]
    target: NDArray[np.float64]
    target_heading: NDArray[np.float64]
    valid: NDArray[np.bool_]
    object_type: NDArray[np.int8]
    origin: NDArray[np.float64]
    origin_heading: NDArray[np.float64]
    velocity: NDArray[np.float64]
    scale: NDArray[np.float64] | None
    facts: dict[str, NDArray[np.str_]]
    step_s: float
    missing: dict[str, int]
    complete: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.scene)

    @classmethod
    def of(cls, scenarios: Sequence[Scenario], forecasts: Sequence[Forecast]) -> Judged:
        """Raises: DataError if a forecast goes on for longer than its scenario, or is not finite; or if
        forecasts of different lengths or time steps come together."""
        modes = max((forecast.trajectory.shape[1] for forecast in forecasts), default=0)
        steps = {forecast.trajectory.shape[2] for forecast in forecasts}
        require(len(steps) == 1, "trajectory", f"forecasts of {sorted(steps)} steps are not scored together")
        step_s = scenarios[0].step_s
        for scenario in scenarios:
            require_step(scenario.step_s, step_s, scenario.scenario_id)
        wanted = [judged(scenario) for scenario in scenarios]
        parts = [_one(*each, modes) for each in zip(scenarios, forecasts, wanted, strict=True)]
        scene = np.repeat(np.arange(len(parts)), [len(part["track_id"]) for part in parts])
        scaled = all("scale" in part for part in parts)
        columns: dict[str, Any] = {"scale": None}
        columns |= {n: np.concatenate([p[n] for p in parts]) for n in parts[0] if scaled or n != "scale"}
        facts = _facts(scenarios, scene, columns)
        del columns["near"]
        member = {name: columns.pop(name) for name in GROUPS}
        asked = {group: np.array([one[group].sum() for one in wanted]) for group in GROUPS}
        complete = np.bincount(scene[member["scored"]], minlength=len(parts)) == asked["scored"]
        missing = {group: int(asked[group].sum() - member[group].sum()) for group in GROUPS}
        once: dict[str, Any] = {"step_s": step_s, "missing": missing, "complete": complete}
        return cls(scene, member=member, facts=facts, **once, **columns)


def require_step(step_s: float, usual: float, scenario_id: str) -> None:
    """Raise :class:`DataError` unless steps last as long as usual: clocks jitter by less than a hundredth."""
    told = f"{scenario_id}: steps of {step_s:g} s are not scored with those of {usual:g} s"
    require(abs(step_s - usual) < 0.01 * usual, "step_s", told)


def judged(scenario: Scenario) -> dict[str, NDArray[np.bool_]]:
    """Which tracks each group holds, ``[A]``: those seen at the last observed step that have a future."""
    tracks, now = scenario.tracks, scenario.num_observed
    known = tracks.valid[:, now - 1] & tracks.valid[:, now:].any(axis=1)
    return {
        "focal": known & (tracks.category == TrackCategory.FOCAL),
        "scored": known & (tracks.category >= TrackCategory.SCORED),
        "all": known,
    }


def _one(
    scenario: Scenario, forecast: Forecast, groups: dict[str, NDArray[np.bool_]], modes: int
) -> dict[str, NDArray[Any]]:
    """The columns of one scenario's judged and forecast tracks, and how many neighbours are ``near``."""
    found = forecast.rows(scenario.tracks.track_id)
    rows = np.flatnonzero(groups["all"] & (found >= 0))
    said, now = found[rows], scenario.num_observed
    K, F = forecast.trajectory.shape[1:3]
    steps = scenario.num_steps - now
    require(steps >= F, "trajectory", f"{scenario.scenario_id}: forecast of {F} steps, {steps} are known")
    finite = bool(np.isfinite(forecast.trajectory[said]).all())
    require(finite, "trajectory", f"{scenario.scenario_id}: forecast is not finite")
    taken = np.arange(modes) < K
    mode = np.where(taken, np.arange(modes), 0)
    scale = {} if forecast.scale is None else {"scale": forecast.scale[said][:, mode]}
    return {
        **{name: group[rows] for name, group in groups.items()},
        **scale,
        **_became(scenario, rows, F),
        "trajectory": forecast.trajectory[said][:, mode],
        "modes": np.full(len(rows), K),
        "probability": forecast.probability[said][:, mode] * taken,
        "heading": forecast.heading[said][:, mode],
    }


def _became(scenario: Scenario, rows: NDArray[np.int64], steps: int) -> dict[str, NDArray[Any]]:
    """The columns that no forecast is needed for, and how many neighbours are ``near``."""
    tracks, now = scenario.tracks, scenario.num_observed - 1
    future, seen = slice(now + 1, now + 1 + steps), tracks.valid[:, now]
    apart = norm(tracks.position[rows, None, now] - tracks.position[None, seen, now])
    return {
        "near": (apart <= NEIGHBOUR_M).sum(axis=1) - 1,  # without itself
        "track_id": tracks.track_id[rows],
        "target": tracks.position[rows, future],
        "target_heading": tracks.heading[rows, future],
        "valid": tracks.valid[rows, future],
        "object_type": tracks.object_type[rows],
        "origin": tracks.position[rows, now],
        "origin_heading": tracks.heading[rows, now],
        "velocity": tracks.velocity[rows, now],
    }


def facts_of(scenario: Scenario) -> dict[str, dict[str, str]]:
    """By track, :data:`FACTS` of everyone in the group ``all``, over the whole future; no forecast needed."""
    rows = np.flatnonzero(judged(scenario)["all"])
    columns = _became(scenario, rows, scenario.num_steps - scenario.num_observed)
    facts = _facts([scenario], np.zeros(len(rows), np.int64), columns)
    names = columns["track_id"].tolist()
    return {name: {fact: str(told[i]) for fact, told in facts.items()} for i, name in enumerate(names)}


def _facts(
    scenarios: Sequence[Scenario], scene: NDArray[np.int64], columns: dict[str, Any]
) -> dict[str, NDArray[np.str_]]:
    """What is known of each agent, as words."""
    frame = Pose(columns["origin"][:, None], columns["origin_heading"][:, None])
    own = relative_pose(Pose(columns["target"], columns["target_heading"]), frame)
    did = manoeuvres(own.position, own.heading, columns["valid"])
    steps = columns["valid"].shape[1]
    last = np.where(columns["valid"], np.arange(steps), 0).max(axis=1, initial=0)
    ahead = (last + 1) * np.array([scenario.step_s for scenario in scenarios])[scene]
    steady = columns["origin"] + columns["velocity"] * ahead[:, None]
    error = norm(steady - columns["target"][np.arange(len(scene)), last])
    numbers = dict(zip(BOUNDS, (norm(columns["velocity"]), columns["near"], error), strict=True))
    return {
        "class": np.array(OBJECT_TYPES)[columns["object_type"]],
        "city": np.array([s.city or "unknown" for s in scenarios])[scene],
        "manoeuvre": np.array(MANOEUVRES)[did],
        **{name: _interval(values, BOUNDS[name]) for name, values in numbers.items()},
    }


def _interval(values: NDArray[Any], bounds: tuple[float, ...]) -> NDArray[np.str_]:
    """The interval that each value lies in, as text: ``5 to 10``, and of whole numbers ``5 to 9``."""
    whole = int(values.dtype.kind == "i")
    pairs = [(low, high - whole) for low, high in zip((0, *bounds), bounds, strict=False)]
    names = [f"{low:g} to {high:g}" if low < high else f"{low:g}" for low, high in pairs]
    return np.array([*names, f"{bounds[-1]:g} and more"])[np.digitize(values, bounds)]
