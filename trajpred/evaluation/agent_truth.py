"""What is known of agents without a forecast: their groups, true futures, and facts that results are broken
down by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.data.geometry import Pose, norm, relative_pose, wrap_angle
from trajpred.data.motion import heading_known, steady_heading
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES, agent_groups
from trajpred.features.agents import last_poses

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
#: Change of heading (radians) beyond which a future is a turn.
TURN = np.deg2rad(30.0)
#: Change of heading (radians) beyond which it is a U-turn.
U_TURN = np.deg2rad(135.0)
#: A lane change ends more than this far aside (metres) …
ASIDE_M = 2.5
#: … at most at this slope …
SLOPE = 0.25
#: … and turns by less than this (radians).
PARALLEL = np.deg2rad(10.0)


def groups_of(scenario: Scenario, steps: int | None = None) -> dict[str, NDArray[np.bool_]]:
    """Return the tracks ``[A]`` of each group: those visible at the last observed step that have a future.

    Of the future the first ``steps`` count, by default all.
    """
    tracks = scenario.tracks
    now = scenario.num_observed
    last = scenario.num_steps if steps is None else now + steps
    future = tracks.valid[:, now:last]
    distance = norm(tracks.position[:, last - 1] - tracks.position[:, now - 1])
    known = tracks.valid[:, now - 1] & future.any(axis=1)
    return agent_groups(tracks.category, known, future.all(axis=1), distance)


def facts_of(scenario: Scenario) -> dict[str, dict[str, str]]:
    """Return :data:`FACTS` by track, for the group ``all`` over the whole future; no forecast is needed."""
    rows = np.flatnonzero(groups_of(scenario)["all"])
    columns = truth_of(scenario, rows, scenario.num_steps - scenario.num_observed)
    facts = facts_of_columns([scenario], np.zeros(len(rows), np.int64), columns)
    by_track: dict[str, dict[str, str]] = {}
    for i, name in enumerate(columns["track_id"].tolist()):
        by_track[name] = {fact: str(values[i]) for fact, values in facts.items()}
    return by_track


def truth_of(scenario: Scenario, rows: NDArray[np.int64], steps: int) -> dict[str, NDArray[Any]]:
    """Build the columns that do not depend on a forecast, and the number of ``neighbours``.

    Headings that data lack are NaN in the future, and at the last observed step those that models complete;
    single ones that are turned by π are turned back.
    """
    tracks = scenario.tracks
    now = scenario.num_observed - 1
    future = slice(now + 1, now + 1 + steps)
    seen = tracks.valid[:, now]
    apart = norm(tracks.position[rows, None, now] - tracks.position[None, seen, now])
    known = heading_known(tracks.heading[rows], tracks.position[rows], tracks.valid[rows])
    heading = steady_heading(tracks.heading[rows], known, scenario.step_s)
    completed = last_poses(scenario, rows).heading
    return {
        "neighbours": (apart <= NEIGHBOUR_M).sum(axis=1) - 1,  # without itself
        "track_id": tracks.track_id[rows],
        "target": tracks.position[rows, future],
        "target_heading": np.where(known, heading, np.nan)[:, future],
        "valid": tracks.valid[rows, future],
        "object_type": tracks.object_type[rows],
        "origin": tracks.position[rows, now],
        "origin_heading": np.where(known[:, now], heading[:, now], completed),
        "velocity": tracks.velocity[rows, now],
    }


def facts_of_columns(
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
    facts = {
        "class": np.array(OBJECT_TYPES)[columns["object_type"]],
        "city": np.array([scenario.city or "unknown" for scenario in scenarios])[scene],
        "manoeuvre": np.array(MANOEUVRES)[manoeuvre],
    }
    numbers = (norm(columns["velocity"]), columns["neighbours"], error)
    for (name, bounds), values in zip(BOUNDS.items(), numbers, strict=True):
        facts[name] = _interval(values, bounds)
    return facts


def _interval(values: NDArray[Any], bounds: tuple[float, ...]) -> NDArray[np.str_]:
    """Name the interval of each value: ``5 to 10``, or of integers ``5 to 9``."""
    is_whole = values.dtype.kind == "i"
    names: list[str] = []
    low = 0.0
    for bound in bounds:
        high = bound - 1 if is_whole else bound
        names.append(f"{low:g} to {high:g}" if low < high else f"{low:g}")
        low = bound
    names.append(f"{low:g} and more")
    return np.array(names)[np.digitize(values, bounds)]


def manoeuvres(
    future: NDArray[np.float64], heading: NDArray[np.float64], valid: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Classify each agent's manoeuvre by its future up to the last valid step: index into :data:`MANOEUVRES`.

    ``stationary`` without a valid step. The map is not used: a bend in the road is a turn, and a lane change
    on a bend is not detected.

    Args:
        future: ``[A, F, 2]`` metres in the agent's own frame at the last observed step (x ahead, y left).
        heading: ``[A, F]`` radians in the same frame; NaN where unknown, which is no turn.
        valid: ``[A, F]``.
    """
    row = np.arange(len(valid))
    last = np.where(valid, np.arange(valid.shape[1]), 0).max(axis=1, initial=0)
    x, y = future[row, last].T
    turned = wrap_angle(heading[row, last])
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
