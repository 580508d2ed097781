"""Synthetic road users: how they move along the paths of a road network, and what the ego vehicle records.

Metres, radians, seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tools.synthetic_roads import ARM_LENGTH, GRID, SHOULDER, SPEED_LIMIT, Paths, Roads
from trajpred.data.geometry import norm, to_local, unit_vector, wrap_angle
from trajpred.data.tracks import EGO_ID, OBJECT_TYPES, TYPICAL_SIZES, TrackCategory, Tracks

#: Seconds between steps.
STEP_S = 0.1
#: Mean speed of pedestrians (m/s).
WALKING_SPEED = 1.4
#: Sensor range (metres).
RANGE = 95.0
#: Steps of the shortest recorded track.
SHORTEST = 5
#: Standard deviations of the noise of x, y, heading and velocity.
NOISE = np.array([0.06, 0.06, 0.01, 0.08, 0.08])
#: Correlation of the noise from step to step.
CORRELATION = 0.85
#: Number of moving vehicles.
VEHICLES = 24
#: Number of vehicles that pass the middle near the present; the ego and the focal vehicle are among them.
LEADERS = 8
#: Number of parked vehicles.
PARKED = 6
#: Number of pedestrians.
PEDESTRIANS = 10
#: Types of the vehicles that are no leaders, with their shares.
FOLLOWERS = {"vehicle": 0.8, "bus": 0.07, "motorcyclist": 0.05, "cyclist": 0.08}
#: Maximum number of scored tracks beside the focal one.
SCORED = 5


@dataclass
class Users:
    """True states of ``A`` road users over ``T`` steps; row 0 is the ego vehicle.

    Attributes:
        states: ``[A, T, 5]`` position, heading and velocity.
        present: ``[A, T]``, True where on the map.
        focal: row of the focal vehicle.
    """

    object_type: NDArray[np.int8]
    states: NDArray[np.float64]
    present: NDArray[np.bool_]
    focal: int


class Kind(IntEnum):
    """What moves along which paths."""

    VEHICLE = 0
    PEDESTRIAN = 1
    PARKED = 2


def simulate(rng: np.random.Generator, roads: Roads, steps: int, observed: int) -> Users:
    """Move vehicles, pedestrians and parked cars along random paths, and omit those that would overlap."""
    routes = roads.routes()
    curbs = roads.roadsides(1.3)
    crossings = [edges.mean(axis=0) for edges in roads.crossings()]
    walks = roads.roadsides(SHOULDER + 1.5) + crossings
    paths = Paths.along([*routes, *walks, *curbs])
    kind = np.repeat(list(Kind), (VEHICLES, PEDESTRIANS, PARKED))
    walks_from = len(routes)
    curbs_from = walks_from + len(walks)
    path = np.concatenate(
        (
            rng.integers(0, walks_from, VEHICLES),
            rng.integers(walks_from, curbs_from, PEDESTRIANS),
            rng.integers(curbs_from, curbs_from + len(curbs), PARKED),
        )
    )
    object_type = _object_types(rng, kind)
    length = paths.last[path] * GRID
    start = rng.uniform(-60, 0.9 * length)
    in_middle = ARM_LENGTH + rng.uniform(-30, 20, LEADERS)
    start[:LEADERS] = in_middle - 0.75 * SPEED_LIMIT * observed * STEP_S
    start = np.where(kind == Kind.PARKED, rng.uniform(0.1, 0.9, len(kind)) * length, start)
    pace = np.clip(rng.normal(0.95, 0.1, len(kind)), 0.6, 1.1)
    pace[object_type == OBJECT_TYPES.index("cyclist")] *= 0.4
    pace[kind == Kind.PEDESTRIAN] *= WALKING_SPEED / SPEED_LIMIT
    pace[kind == Kind.PARKED] = 0
    travelled, speed = _drive(paths, path, start, pace, steps)
    row = path[:, None]
    index = np.clip((travelled / GRID).astype(np.int64), 0, paths.last[path][:, None] - 1)
    heading = paths.heading[row, index]
    # Beyond the ends of their paths, road users move straight on.
    position = paths.point[row, index] + (travelled - index * GRID)[..., None] * unit_vector(heading)
    position += rng.normal(0, 0.15, (len(kind), 1, 1)) * unit_vector(heading + np.pi / 2)
    on_path = (travelled >= 0) & (travelled <= length[:, None])
    present = on_path & (rng.random((len(kind), 1)) < 0.85)
    present[:LEADERS] = True
    keep = _without_overlap(position, heading, TYPICAL_SIZES[object_type], present)
    focal = 1 + int(keep[1:LEADERS].argmax())
    keep[focal] = True
    velocity = speed[..., None] * unit_vector(heading)
    return Users(
        object_type=object_type.astype(np.int8),
        states=np.concatenate((position, heading[..., None], velocity), -1),
        present=present & keep[:, None],
        focal=focal,
    )


def _object_types(rng: np.random.Generator, kind: NDArray[np.int64]) -> NDArray[np.int64]:
    """Draw the types of the vehicles that follow the leaders, which are cars."""
    object_type = np.full(len(kind), OBJECT_TYPES.index("vehicle"))
    object_type[kind == Kind.PEDESTRIAN] = OBJECT_TYPES.index("pedestrian")
    codes = [OBJECT_TYPES.index(name) for name in FOLLOWERS]
    shares = list(FOLLOWERS.values())
    object_type[LEADERS:VEHICLES] = rng.choice(codes, VEHICLES - LEADERS, p=shares)
    return object_type


def _drive(
    paths: Paths,
    path: NDArray[np.int64],
    start: NDArray[np.float64],
    pace: NDArray[np.float64],
    steps: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the distance along its path ``[A, T]`` and the speed ``[A, T]`` of each road user.

    Args:
        path: ``[A]``, row of ``paths``.
        start: ``[A]`` metres along the path at the first step.
        pace: ``[A]``, factor on the speed of the path.
    """
    travelled = np.empty((len(path), steps))
    speed = np.empty((len(path), steps))
    distance = start
    for step in range(steps):
        index = np.clip((distance / GRID).astype(np.int64), 0, paths.last[path])
        travelled[:, step] = distance
        speed[:, step] = pace * paths.speed[path, index]
        distance = distance + speed[:, step] * STEP_S
    return travelled, speed


def _without_overlap(
    xy: NDArray[np.float64],
    heading: NDArray[np.float64],
    size: NDArray[np.float64],
    present: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Return which users ``[A]`` to keep so that none overlaps an earlier one, checked twice a second."""
    position = xy[:, ::5]
    heading = heading[:, ::5]
    present = present[:, ::5]
    offset = np.abs(to_local(position[None], position[:, None], heading[:, None]))
    reach = (size[:, None] + size) / 2 + 0.2
    is_near = (offset < reach[:, :, None]).all(-1)
    overlaps = (is_near & present[:, None] & present).any(-1)
    overlaps = overlaps | overlaps.T
    keep = np.ones(len(position), np.bool_)
    for user in range(1, len(position)):
        keep[user] = not (overlaps[user, :user] & keep[:user]).any()
    return keep


def observe(rng: np.random.Generator, users: Users, observed: int) -> tuple[Tracks, str]:
    """Return the tracks that the ego vehicle records, with noise and gaps, and the focal track's id."""
    A, T = users.present.shape
    focal = users.focal
    position = users.states[..., :2]
    step = np.arange(T)
    begin = rng.integers(0, T, (A, 1))
    end = begin + rng.integers(1, 13, (A, 1))
    has_gap = rng.random((A, 1)) < 0.25
    in_gap = (step >= begin) & (step < end) & has_gap
    in_range = norm(position - position[0]) < RANGE
    valid = users.present & in_range & ~in_gap
    valid[valid.sum(1) < SHORTEST] = False
    valid[[0, focal]] = True
    noise = rng.standard_normal(users.states.shape) * NOISE
    for t in range(1, T):
        noise[:, t] = CORRELATION * noise[:, t - 1] + np.sqrt(1 - CORRELATION**2) * noise[:, t]
    noise[0] *= 0.1
    states = users.states + noise
    states[..., 2] = wrap_angle(states[..., 2])
    rows = np.roll(np.flatnonzero(valid.any(1)), -1)  # the ego comes last, which is the order of the ids
    mask = valid[rows]
    seen = np.where(mask[..., None], states[rows], 0.0)
    tracks = Tracks(
        track_id=np.where(rows == 0, EGO_ID, (1000 + rows).astype(str)),
        object_type=users.object_type[rows],
        category=_categories(users, valid, observed)[rows],
        valid=mask,
        position=seen[..., :2],
        heading=seen[..., 2],
        velocity=seen[..., 3:],
    )
    return tracks, str(1000 + focal)


def _categories(users: Users, valid: NDArray[np.bool_], observed: int) -> NDArray[np.int8]:
    """Return the category ``[A]``; scored are the moving vehicles next to the focal one, always visible."""
    position = users.states[..., :2]
    moved = norm(position[:, -1] - position[:, 0]) > 4.0
    distance = norm(position[:, observed - 1] - position[users.focal, observed - 1])
    distance[~(valid.all(1) & moved)] = np.inf
    distance[[0, users.focal]] = np.inf
    rank = distance.argsort().argsort()
    category = np.where(valid.mean(1) < 0.5, TrackCategory.FRAGMENT, TrackCategory.UNSCORED)
    category[(distance < 50) & (rank < SCORED)] = TrackCategory.SCORED
    category[users.focal] = TrackCategory.FOCAL
    return category.astype(np.int8)
