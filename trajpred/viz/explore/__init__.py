"""Manual edits of a scenario, as plain data: road users moved, removed and added, lanes removed.

``server`` serves the page on which models answer them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trajpred.data.batch import concatenate
from trajpred.data.checks import as_number
from trajpred.data.geometry import norm, rotate, unit_vector
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import STEP_S
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES, TrackCategory, Tracks
from trajpred.errors import quoted, require
from trajpred.predictors.perturbations import without
from trajpred.viz.map_layer import middle_pose, polylines

#: The parts of edits, each empty if nothing is edited.
PARTS: dict[str, type[dict[str, Any]] | type[list[Any]]] = {
    "moved": dict,
    "removed": list,
    "added": list,
    "lanes": list,
}
#: Values that move a road user: metres in the city frame, radians; m/s, None as recorded.
POSE = {"x": 0.0, "y": 0.0, "turn": 0.0, "speed": None}
#: Values of an added road user, which came straight along its heading.
STATE = {"object_type": None, "x": None, "y": None, "heading": 0.0, "speed": 0.0}
#: Largest numbers; positions may be in a national grid.
LIMITS = {"x": 1e8, "y": 1e8, "turn": 10.0, "heading": 10.0, "speed": 100.0}
#: Maximum number of added road users.
MAX_ADDED = 100
#: Road users slower than this (m/s) have no path to stretch: with a new speed they get a straight history.
MIN_STRETCHED = 1.0
#: Observed steps of the car on a map alone.
ALONE_STEPS = 20
#: Its speed (m/s).
ALONE_SPEED = 8.0


def apply(scenario: Scenario, edits: Mapping[str, Any]) -> Scenario:
    """Return the scenario after ``edits``, without its future, which nobody drove.

    Without any edit, the scenario is unchanged.

    Args:
        edits: ``moved``: :data:`POSE` by track id, applied to the whole history. ``removed``: track ids.
            ``added``: a list of :data:`STATE`, with track ids ``added 1``, ``added 2``, … ``lanes``: ids of
            lane segments to remove, as strings. Each part can be omitted.

    Raises: DataError naming a part that is invalid or not in the scenario.

    Example:
        >>> changed = apply(scenario, {"moved": {"0": {"x": 2.5, "turn": 0.3}}})
    """
    _require_object(edits, PARTS, "edits")
    for name, part in edits.items():
        kind = dict if name == "added" else str
        fits = isinstance(part, PARTS[name]) and all(isinstance(item, kind) for item in part)
        require(fits, name, f"must be a {PARTS[name].__name__} of {kind.__name__}, is {quoted(part)}")
    if not any(edits.values()):
        return scenario
    removed = edits.get("removed", [])
    tracks = _moved(scenario, edits.get("moved", {}))
    lanes = _without_lanes(scenario.map, edits.get("lanes", []))
    changed = replace(scenario, tracks=tracks, map=lanes)
    if removed:
        changed = without(changed, removed)
    return replace(changed, tracks=_with_added(changed, edits.get("added", []))).without_future()


def _require_object(content: Any, known: Mapping[str, Any], where: str) -> None:
    require(isinstance(content, Mapping), where, f"must be an object, is {quoted(content)}")
    for name in content:
        require(name in known, where, f"has {quoted(name)}, none of {', '.join(known)}")


def _filled(content: Any, defaults: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the checked values of a road user, with defaults for missing ones."""
    _require_object(content, defaults, where)
    values = {**defaults, **content}
    for name, value in values.items():
        if name == "object_type":
            require(value in OBJECT_TYPES, name, f"is {quoted(value)}, none of {', '.join(OBJECT_TYPES)}")
            continue
        if defaults is POSE and name == "speed" and value is None:  # as recorded
            continue
        number = as_number(value, name)
        lowest = 0.0 if name == "speed" else -LIMITS[name]
        require(lowest <= number <= LIMITS[name], name, f"is beyond what can be edited: {number:g}")
        values[name] = number
    return values


def _moved(scenario: Scenario, poses: Mapping[str, Any]) -> Tracks:
    """Return the tracks with each of ``poses`` applied about the road user's last observed position."""
    tracks = scenario.tracks
    position = tracks.position.copy()
    heading = tracks.heading.copy()
    velocity = tracks.velocity.copy()
    for name, pose in poses.items():
        to = _filled(pose, POSE, "moved")
        require(name in tracks.track_id, "moved", f"track {quoted(name)} is not in this scenario")
        row = tracks.index(name)
        last = scenario.last_seen[row]
        require(last >= 0, "moved", f"track {quoted(name)} was not observed")
        path = rotate(position[row] - position[row, last], to["turn"])
        motion = rotate(velocity[row], to["turn"])
        heading[row] += to["turn"]
        speed = norm(motion[last])
        if to["speed"] is not None and speed >= MIN_STRETCHED:
            path *= to["speed"] / speed
            motion *= to["speed"] / speed
        elif to["speed"] is not None:  # a straight history
            heading[row] = heading[row, last]
            motion = to["speed"] * unit_vector(heading[row])
            seconds = scenario.step_s * (np.arange(len(path)) - last)
            path = motion * seconds[:, None]
        velocity[row] = motion
        position[row] = position[row, last] + np.array([to["x"], to["y"]]) + path
    return replace(tracks, position=position, heading=heading, velocity=velocity)


def _with_added(scenario: Scenario, added: Sequence[Any]) -> Tracks:
    """Return the tracks with those of ``added`` at the end."""
    tracks = scenario.tracks
    require(len(added) <= MAX_ADDED, "added", f"must be at most {MAX_ADDED} road users, are {len(added)}")
    if not added:
        return tracks
    states = [_filled(state, STATE, "added") for state in added]
    names = [f"added {number + 1}" for number in range(len(states))]
    are_new = not np.isin(names, tracks.track_id).any()
    require(are_new, "added", "the scenario already has tracks of these names")
    A = len(added)
    T = scenario.num_steps
    time = (np.arange(T) - scenario.num_observed + 1) * scenario.step_s
    heading = np.array([state["heading"] for state in states])
    speed = np.array([state["speed"] for state in states])
    velocity = speed[:, None] * unit_vector(heading)
    now = np.array([[state["x"], state["y"]] for state in states])
    added_tracks = Tracks(
        track_id=np.array(names),
        object_type=np.array([OBJECT_TYPES.index(state["object_type"]) for state in states], np.int8),
        category=np.full(A, TrackCategory.SCORED, np.int8),
        valid=np.ones((A, T), bool),
        position=now[:, None] + velocity[:, None] * time[:, None],
        heading=np.tile(heading[:, None], T),
        velocity=np.tile(velocity[:, None], (1, T, 1)),
    )
    return concatenate([tracks, added_tracks])


def _without_lanes(lanes: LaneMap, names: Sequence[Any]) -> LaneMap:
    """Return the map without some lane segments; crossings and drivable areas stay."""
    ids = lanes.lane_id.astype(str)
    for name in names:
        require(name in ids.tolist(), "lanes", f"lane segment {quoted(name)} is not in the map")
    return lanes.take(np.flatnonzero(~np.isin(ids, names)), np.arange(len(lanes.crossing_id)))


def at_step(scenario: Scenario, observed: int) -> Scenario:
    """Return the scenario after its first ``observed`` steps, with a future of unchanged length.

    Raises: DataError if it has fewer steps, or the focal agent had not been seen.
    """
    most = scenario.num_observed
    require(1 <= observed <= most, "observed", f"must be 1 to {most} steps, is {observed}")
    earlier = scenario.window(observed, later=observed - most)
    require(earlier.last_seen[earlier.focal] >= 0, "observed", "the focal agent had not been seen by then")
    return earlier


def scenario_on(lanes: LaneMap, name: str) -> Scenario:
    """Return a map with one car on the lane nearest to its middle, for exploring.

    Raises: DataError if it has no lanes.
    """
    require(len(lanes) > 0, "map", "has no lanes")
    poses = np.stack([middle_pose(line) for line in polylines(lanes.centerline)])
    x, y, heading = poses[norm(poses[:, :2] - np.median(poses[:, :2], axis=0)).argmin()]
    time = (np.arange(ALONE_STEPS) - ALONE_STEPS + 1) * STEP_S
    path = np.array([x, y]) + ALONE_SPEED * time[:, None] * unit_vector(heading)
    return Scenario.from_arrays(
        path[None], num_observed=ALONE_STEPS, map=lanes, scenario_id=name, track_id=["car"]
    )
