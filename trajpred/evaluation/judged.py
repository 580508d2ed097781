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


@dataclass(frozen=True)
class Judged:
    """``A`` judged agents of several scenarios, scenario by scenario, and their forecasts.

    Attributes:
        scene: ``[A]`` int64 ascending, index into the scenarios given.
        track_id: ``[A]`` strings.
        member: for each of :data:`GROUPS` ``[A]`` bool.
        trajectory: ``[A, K, F, 2]`` metres, city frame; where scenarios have fewer modes than others, their
            first one is repeated with probability 0.
        probability: ``[A, K]``; heading: ``[A, K, F]`` radians along each mode.
        target: ``[A, F, 2]``; target_heading: ``[A, F]``; valid: ``[A, F]``: what became of them.
        facts: by name what results can be broken down by, ``[A]`` strings each.
        missing: how many judged tracks were not forecast; they are not among the ``A``.
    """

    scene: NDArray[np.int64]
    track_id: NDArray[np.str_]
    member: dict[str, NDArray[np.bool_]]
    trajectory: NDArray[np.float64]
    probability: NDArray[np.float64]
    heading: NDArray[np.float64]
    target: NDArray[np.float64]
    target_heading: NDArray[np.float64]
    valid: NDArray[np.bool_]
    facts: dict[str, NDArray[np.str_]]
    missing: int

    def __len__(self) -> int:
        return len(self.scene)

    @classmethod
    def of(cls, scenarios: Sequence[Scenario], forecasts: Sequence[Forecast]) -> Judged:
        """Raises: DataError if a forecast goes on for longer than its scenario."""
        modes = max((forecast.trajectory.shape[1] for forecast in forecasts), default=0)
        parts = [_one(*pair, modes) for pair in zip(scenarios, forecasts, strict=True)]
        counts = [len(part["track_id"]) for part in parts]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        member = {name: columns.pop(name) for name in GROUPS}
        facts = _facts(scenarios, np.repeat(np.arange(len(parts)), counts), columns)
        asked = sum(int(judged(scenario)["all"].sum()) for scenario in scenarios)
        for name in ("row", "now"):
            del columns[name]
        scene = np.repeat(np.arange(len(parts)), counts)
        return cls(scene, member=member, facts=facts, missing=asked - len(scene), **columns)


def judged(scenario: Scenario) -> dict[str, NDArray[np.bool_]]:
    """Which tracks each group holds, ``[A]``: those seen at the last observed step that have a future."""
    tracks, now = scenario.tracks, scenario.num_observed
    known = tracks.valid[:, now - 1] & tracks.valid[:, now:].any(axis=1)
    return {
        "focal": known & (tracks.category == TrackCategory.FOCAL),
        "scored": known & (tracks.category >= TrackCategory.SCORED),
        "all": known,
    }


def _one(scenario: Scenario, forecast: Forecast, modes: int) -> dict[str, NDArray[Any]]:
    """The judged and forecast tracks of one scenario: ``row`` in its tracks, ``now``, and the columns."""
    groups, found = judged(scenario), forecast.rows(scenario.tracks.track_id)
    rows = np.flatnonzero(groups["all"] & (found >= 0))
    tracks, now, said = scenario.tracks, scenario.num_observed, found[rows]
    K, F = forecast.trajectory.shape[1:3]
    steps = scenario.num_steps - now
    require(steps >= F, "trajectory", f"{scenario.scenario_id}: forecast of {F} steps, {steps} are known")
    mode, taken = np.minimum(np.arange(modes), K - 1), np.arange(modes) < K
    mode = np.where(taken, mode, 0)
    future = slice(now, now + F)
    return {
        **{name: group[rows] for name, group in groups.items()},
        "row": rows,
        "now": np.full(len(rows), now - 1),
        "track_id": tracks.track_id[rows],
        "trajectory": forecast.trajectory[said][:, mode],
        "probability": forecast.probability[said][:, mode] * taken,
        "heading": forecast.heading[said][:, mode],
        "target": tracks.position[rows, future],
        "target_heading": tracks.heading[rows, future],
        "valid": tracks.valid[rows, future],
    }


def _facts(
    scenarios: Sequence[Scenario], scene: NDArray[np.int64], columns: dict[str, NDArray[Any]]
) -> dict[str, NDArray[np.str_]]:
    """What is known of each agent, as words."""
    states = [_states(s, columns["row"][scene == i]) for i, s in enumerate(scenarios)]
    place, angle, velocity, kind, near, ahead = (np.concatenate(x) for x in zip(*states, strict=True))
    frame = Pose(place[:, None], angle[:, None])
    own = relative_pose(Pose(columns["target"], columns["target_heading"]), frame)
    did = manoeuvres(own.position, own.heading, columns["valid"])
    steps = columns["valid"].shape[1]
    last = np.where(columns["valid"], np.arange(steps), 0).max(axis=1, initial=0)
    steady = place + velocity * ((last + 1) * ahead)[:, None]
    error = norm(steady - columns["target"][np.arange(len(scene)), last])
    numbers = dict(zip(BOUNDS, (norm(velocity), near, error), strict=True))
    return {
        "class": np.array(OBJECT_TYPES)[kind],
        "city": np.array([s.city or "unknown" for s in scenarios])[scene],
        "manoeuvre": np.array(MANOEUVRES)[did],
        **{name: _interval(values, BOUNDS[name]) for name, values in numbers.items()},
    }


def _states(scenario: Scenario, rows: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
    """At the last observed step of ``rows``: place, heading, velocity, class, neighbours, time step."""
    tracks, now = scenario.tracks, scenario.num_observed - 1
    seen = tracks.valid[:, now]
    apart = norm(tracks.position[rows, None, now] - tracks.position[None, seen, now])
    near = (apart <= NEIGHBOUR_M).sum(axis=1) - 1  # without itself
    state = (x[rows, now] for x in (tracks.position, tracks.heading, tracks.velocity))
    return *state, tracks.object_type[rows], near, np.full(len(rows), scenario.step_s)


def _interval(values: NDArray[Any], bounds: tuple[float, ...]) -> NDArray[np.str_]:
    """The interval that each value lies in, as text that sorts as the numbers do."""
    names = [f"{low:g} to {high:g}" for low, high in zip((0, *bounds), bounds, strict=False)]
    return np.array([*names, f"{bounds[-1]:g} and more"])[np.digitize(values, bounds)]
