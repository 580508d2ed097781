"""Six futures per agent, from paths along the lanes and accelerations; nothing is learned. NumPy only.

All constants, here and in :mod:`~trajpred.features.lane_paths`, are round numbers chosen by hand on focal
tracks of 800 Argoverse 1 training sequences, not on validation scenes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trajpred.data.geometry import Pose, direction, norm, unit_vector
from trajpred.data.motion import STANDING_SPEED, displacement_on_arc
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.features.lane_paths import POINTS, LanePaths, Routes, lane_paths

#: Futures of each agent.
MODES = 6
#: Accelerations (m/s²) of the futures. They are not proportional to the speed: positions after 3 s are
#: equally uncertain (±4 m, quartiles) at 3 and at 12 m/s.
ACCELERATIONS = np.array([0.0, -1.0, 1.0, -2.0, 2.0, -4.0])
#: Weights of these accelerations.
ACCELERATION_WEIGHTS = np.array([0.4, 0.2, 0.2, 0.08, 0.08, 0.04])
#: Seconds during which accelerations act.
ACCELERATING_S = 3.0
#: Turn rates (rad/s) of paths off the lanes.
TURN_RATES = np.array([0.0, 0.15, -0.15])
#: Weights of these turn rates; those of lanes are at most 1.
TURN_WEIGHTS = np.array([0.04, 0.01, 0.01])
#: The offset from the centreline fades out over this time at the current speed …
FADE_S = 5.0
#: … or at least over this distance (m).
MIN_FADE_M = 20.0
#: Futures that end closer than this (metres) are merged.
SAME_END_M = 3.0
#: Relative difference up to which the weights of two futures count as equal.
SAME_WEIGHT = 1e-6
#: Whether each object type follows lanes; others go straight or turn.
DRIVERS = np.isin(OBJECT_TYPES, ("vehicle", "motorcyclist", "cyclist", "bus", "unknown"))
#: Factor of the accelerations for other types.
WALKER_SHARE = 0.25


def lane_futures(
    lanes: Routes,
    scene: NDArray[np.int64],
    agents: Pose[np.ndarray],
    velocity: NDArray[np.float64],
    object_type: NDArray[np.int8],
    time: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Predict six futures of every agent along lanes, at several speeds.

    A future is a path with an acceleration. Paths follow the lanes beside the agent (and adjacent lanes, as
    lane changes) through their successors; one more goes straight and two turn, which are the only paths of
    pedestrians and of agents far from lanes. The most probable future is chosen, futures that end nearby add
    to its probability, and so on. Until ``time[:, 0]`` the speed is constant.

    Args:
        scene: ``[A]``, ascending, like the lanes' scene.
        agents: ``[A, 2]`` metres and ``[A]`` radians, last observed poses, in the frame of the map.
        velocity: ``[A, 2]`` m/s, frame of the map; object_type: ``[A]``.
        time: ``[A, T]`` seconds since those poses, ascending: the last observed step, then T - 1 others.

    Returns:
        Positions ``[A, 6, T, 2]`` metres, frame of the map, and probabilities ``[A, 6]``, in order of choice.
    """
    drives = DRIVERS[object_type]
    speed = norm(velocity)
    share = np.where(drives, 1.0, WALKER_SHARE)
    course = np.where(speed > STANDING_SPEED, direction(velocity), agents.heading)
    distance = _distances(speed, share[:, None] * ACCELERATIONS, time)
    reach = distance.max(axis=(1, 2))
    paths = _paths(lanes, scene, Pose(agents.position, course), speed, drives, reach)
    point = (POINTS - 1) * distance / reach[:, None, None]
    # Every pair of path and acceleration is a future; endpoints decide which are chosen.
    path = np.arange(len(paths.agent))
    end = _positions(paths.curve, path[:, None], point[paths.agent, :, -1:])
    weight = paths.weight[:, None] * ACCELERATION_WEIGHTS
    agent = np.repeat(paths.agent, len(ACCELERATIONS))
    future, probability = _choose(agent, end.reshape(-1, 2), weight.ravel(), SAME_END_M * share)
    path, change = np.divmod(future, len(ACCELERATIONS))
    return _positions(paths.curve, path, point[paths.agent[path], change]), probability


def _distances(
    speed: NDArray[np.float64], acceleration: NDArray[np.float64], time: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute the metres travelled ``[A, M, T]``; agents that brake to a standstill stay there.

    ``acceleration`` ``[A, M]`` acts from the first ``time`` ``[A, T]`` on, for :data:`ACCELERATING_S`.
    """
    v = speed[:, None, None]
    a = acceleration[..., None]
    until_standing = v / np.maximum(-a, 1e-9)
    duration = np.where(a < 0, np.minimum(until_standing, ACCELERATING_S), ACCELERATING_S)
    elapsed = (time - time[:, :1])[:, None]
    changing = np.minimum(elapsed, duration)
    # The mean speed is the speed in the middle of the change.
    mean_speed = v + a * changing / 2
    final_speed = v + a * changing
    changed = mean_speed * changing + final_speed * (elapsed - changing)
    metres: NDArray[np.float64] = v * time[:, None, :1] + changed
    return metres


def _paths(
    lanes: Routes,
    scene: NDArray[np.int64],
    pose: Pose[np.ndarray],
    speed: NDArray[np.float64],
    drives: NDArray[np.bool_],
    reach: NDArray[np.float64],
) -> LanePaths:
    """Return all paths of ``reach`` ``[A]`` metres, at least three per agent."""
    driver = np.flatnonzero(drives)
    fade = np.maximum(FADE_S * speed, MIN_FADE_M)
    along = lane_paths(lanes, scene[driver], pose[driver], reach[driver], fade[driver])
    steady = _steady_paths(pose, speed, reach)
    agent = np.concatenate((driver[along.agent], steady.agent))
    curve = np.concatenate((along.curve, steady.curve))
    weight = np.concatenate((along.weight, steady.weight))
    order = np.argsort(agent, kind="stable")
    return LanePaths(agent[order], curve[order], weight[order])


def _steady_paths(
    pose: Pose[np.ndarray], speed: NDArray[np.float64], reach: NDArray[np.float64]
) -> LanePaths:
    """Return paths that turn at :data:`TURN_RATES` at the current ``speed`` ``[A]``."""
    agent = np.repeat(np.arange(len(speed)), len(TURN_RATES))
    # Below 1 m/s, a fixed turn rate would be a turn on the spot.
    curvature = np.tile(TURN_RATES, len(speed)) / np.maximum(speed[agent], 1.0)
    distance = reach[agent, None] * np.linspace(0, 1, POINTS)
    ahead = unit_vector(pose.heading[agent])
    curve = pose.position[agent, None] + displacement_on_arc(ahead, curvature, distance)
    return LanePaths(agent, curve, np.tile(TURN_WEIGHTS, len(speed)))


def _positions(
    curve: NDArray[np.float64], path: NDArray[np.int64], point: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return positions ``[..., T, 2]`` on the paths ``[N, P, 2]`` with rows ``path`` ``[...]``.

    ``point`` ``[..., T]`` counts the points of a path up to the position, with a fraction.
    """
    before = np.minimum(point.astype(np.int64), POINTS - 2)
    share = point - before
    # Rows of the points in a single list of all paths.
    row = path[..., None] * POINTS + before
    positions = np.empty((*point.shape, 2))
    for axis in (0, 1):
        values = curve[..., axis].ravel()
        start = values[row]
        positions[..., axis] = start + share * (values[row + 1] - start)
    return positions


def _choose(
    agent: NDArray[np.int64],
    end: NDArray[np.float64],
    weight: NDArray[np.float64],
    same_end: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Choose the most probable futures that end apart: rows and probabilities, both ``[A, K]``.

    If an agent has fewer than K such futures, the most probable others follow with negligible probability.
    The N futures, at least K per ``agent`` (``[N]``, ascending), have an ``end`` ``[N, 2]`` and a positive
    ``weight`` ``[N]``; ``same_end`` is ``[A]`` metres.
    """
    agents = np.arange(len(same_end))
    first = np.searchsorted(agent, agents)  # future of each agent
    uncovered = weight.copy()  # not yet covered by a chosen future
    chosen = np.zeros((len(agents), MODES), np.int64)
    covered = np.zeros((len(agents), MODES))
    for k in range(MODES):
        # Branches that part beyond the horizon have equal weights: take the first, not the one rounded up.
        least = (1 - SAME_WEIGHT) * np.maximum.reduceat(uncovered, first)
        candidates = np.flatnonzero(uncovered >= least[agent])
        best = candidates[np.searchsorted(agent[candidates], agents)]
        ends_there = norm(end - end[best[agent]]) < same_end[agent]
        chosen[:, k] = best
        covered[:, k] = np.add.reduceat(uncovered * ends_there, first)
        uncovered = np.where(ends_there, 1e-6 * uncovered, uncovered)
        uncovered[best] = 0.0
    # Ordered by these probabilities, futures would trade places when another future ends nearby.
    return chosen, covered / covered.sum(axis=1, keepdims=True)
