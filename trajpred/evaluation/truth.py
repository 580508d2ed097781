"""Ground truth per agent, which needs no forecast: groups, true futures, and facts of breakdowns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.data.geometry import Pose, norm, relative_pose, wrap_angle
from trajpred.data.motion import heading_known, steady_heading
from trajpred.data.scenario import Scenario
from trajpred.data.splits import GROUPS
from trajpred.data.tracks import OBJECT_TYPES, agent_groups
from trajpred.features.agents import last_poses

#: Neighbours are the other agents within this distance (metres) at the last observed step.
NEIGHBOUR_M = 30.0
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


def truth_of(scenarios: Sequence[Scenario], steps: int) -> dict[str, NDArray[Any]]:
    """Return what is known of the ``N`` agents of the group ``all``, by column; ``scene`` ``[N]`` counts up.

    Headings that data lack are NaN in the future, and at the last observed step those that models complete;
    single ones that are turned by π are turned back.
    """
    parts: list[dict[str, NDArray[Any]]] = []
    for scene, scenario in enumerate(scenarios):
        part = _truth(scenario, steps)
        part["scene"] = np.full(len(part["track_id"]), scene)
        parts.append(part)
    columns: dict[str, NDArray[Any]] = {}
    for name in parts[0]:
        columns[name] = np.concatenate([part[name] for part in parts])
    return columns


def _truth(scenario: Scenario, steps: int) -> dict[str, NDArray[Any]]:
    groups = groups_of(scenario, steps)
    rows = np.flatnonzero(groups["all"])
    tracks = scenario.tracks
    now = scenario.num_observed - 1
    future = slice(now + 1, now + 1 + steps)
    valid = tracks.valid[rows, future]
    position = tracks.position[rows, now]
    velocity = tracks.velocity[rows, now]
    target = tracks.position[rows, future]
    known = heading_known(tracks.heading[rows], tracks.position[rows], tracks.valid[rows])
    steady = steady_heading(tracks.heading[rows], known, scenario.step_s)
    heading = np.where(known[:, now], steady[:, now], last_poses(scenario, rows).heading)
    target_heading = np.where(known, steady, np.nan)[:, future]
    seen = tracks.valid[:, now]
    apart = norm(position[:, None] - tracks.position[None, seen, now])
    last = np.where(valid, np.arange(steps), 0).max(axis=1, initial=0)
    constant = position + velocity * ((last + 1) * scenario.step_s)[:, None]
    frame = Pose(position[:, None], heading[:, None])
    local = relative_pose(Pose(target, target_heading), frame)
    manoeuvre = manoeuvres(local.position, local.heading, valid)
    return {
        **{group: groups[group][rows] for group in GROUPS},
        "track_id": tracks.track_id[rows],
        "target": target,
        "target_heading": target_heading,
        "valid": valid,
        "object_type": tracks.object_type[rows],
        "size": tracks.box()[rows],
        "origin": position,
        "origin_heading": heading,
        "velocity": velocity,
        "class": np.array(OBJECT_TYPES)[tracks.object_type[rows]],
        "city": np.full(len(rows), scenario.city or "unknown"),
        "manoeuvre": np.array(MANOEUVRES)[manoeuvre],
        "speed": norm(velocity),
        "neighbours": (apart <= NEIGHBOUR_M).sum(axis=1) - 1,  # without itself
        "error": norm(constant - target[np.arange(len(rows)), last]),
    }


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
