"""Everyone follows a lane: six futures from ways along the lanes and ways of speeding up or braking.

All constants here and in :mod:`trajpred.predictors.lane_paths` are round numbers, chosen by hand on the focal
tracks of 800 Argoverse 1 training sequences; no validation scene was looked at.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trajpred.forecast import Forecast
from trajpred.geometry import STANDING_SPEED, Pose, direction, norm, unit_vector
from trajpred.graph.ragged import place_within
from trajpred.predictors.lane_paths import Ways, lane_ways
from trajpred.predictors.motion import arc, as_forecast, last_observed, time_ahead
from trajpred.scenario import OBJECT_TYPES, Scenario

Floats = NDArray[np.float64]

#: Futures of each track, and points of the curves they run on.
MODES, POINTS = 6, 64
#: What a driver may do (m/s²) for the next ACCELERATING_S seconds, and how likely. Not factors of the speed:
#: where cars are after 3 s is equally uncertain (±4 m, quartiles) whether they drive 3 or 12 m/s.
ACCELERATIONS = np.array([0.0, -1.0, 1.0, -2.0, 2.0, -4.0])
ACCELERATION_WEIGHTS = np.array([0.4, 0.2, 0.2, 0.08, 0.08, 0.04])
ACCELERATING_S = 3.0
#: Turn rates (rad/s) of the ways that no lane leads, and their weights beside the lanes' (at most 1).
TURN_RATES = np.array([0.0, 0.15, -0.15])
TURN_WEIGHTS = np.array([0.04, 0.01, 0.01])
#: The offset to the centreline has faded after so many seconds at the present speed, or metres.
FADE_S, MIN_FADE_M = 5.0, 20.0
#: Futures that end less than this (metres) apart are one.
SAME_END_M = 3.0
#: Who follows lanes. Everyone else walks or stands: goes straight or turns, and changes speed this much less.
DRIVERS = [OBJECT_TYPES.index(name) for name in ("vehicle", "motorcyclist", "cyclist", "bus", "unknown")]
WALKER_SHARE = 0.25


def lane_following(scenario: Scenario, num_future: int | None = None) -> Forecast:
    """Six futures of every track, the likeliest first: along lanes where there are some, at several speeds.

    A future is a way times an acceleration. Ways lead along the lanes beside the track (the neighbours'
    too, as lane changes) through their successors; one goes straight on and two turn, which is all there
    is for walkers and far from lanes. The likeliest future is kept, those that end where it ends count
    towards its probability, and so on. Between when a track was last seen and now, its speed is constant.

    Args and errors: see :func:`trajpred.predictors.motion.constant_velocity`.
    """
    rows, last = last_observed(scenario)
    tracks, time = scenario.tracks, time_ahead(scenario, last, num_future)
    velocity, drives = tracks.velocity[rows, last], np.isin(tracks.object_type[rows], DRIVERS)
    speed, share = norm(velocity), np.where(drives, 1.0, WALKER_SHARE)
    course = np.where(speed > STANDING_SPEED, direction(velocity), tracks.heading[rows, last])
    distance = _distances(speed, share[:, None] * ACCELERATIONS, time)
    reach, pose = distance.max(axis=(1, 2)), Pose(tracks.position[rows, last], course)
    curve, way_weight = _ways(scenario, pose, speed, drives, reach)
    # The ways and accelerations of a track are joined to N futures; the whole path is made of the chosen.
    way, change = (index.ravel() for index in np.indices((curve.shape[1], len(ACCELERATIONS))))
    end = _positions(curve, way[None], distance[:, change, -1:], reach)[:, :, 0]
    weight = way_weight[:, way] * ACCELERATION_WEIGHTS[change]
    chosen, probability = _choose(end, weight, SAME_END_M * share)
    travelled = distance[np.arange(len(rows))[:, None], change[chosen]]
    path = _positions(curve, way[chosen], travelled, reach)
    return as_forecast(scenario, rows, last, path, probability)


def _distances(speed: Floats, acceleration: Floats, time: Floats) -> Floats:
    """Metres travelled ``[A, M, T]``; who brakes to a standstill stays there.

    Args:
        speed: ``[A]`` m/s at time 0.
        acceleration: ``[A, M]``, from the first of the times on, for :data:`ACCELERATING_S`.
        time: ``[A, T]`` seconds.
    """
    v, a = speed[:, None, None], acceleration[..., None]
    until_standing = v / np.maximum(-a, 1e-9)
    duration = np.where(a < 0, np.minimum(until_standing, ACCELERATING_S), ACCELERATING_S)
    elapsed = (time - time[:, :1])[:, None]
    changing = np.minimum(elapsed, duration)
    # The speed in the middle of the change is its mean speed.
    changed = (v + a * changing / 2) * changing + (v + a * changing) * (elapsed - changing)
    metres: Floats = v * time[:, None, :1] + changed
    return metres


def _ways(
    scenario: Scenario, pose: Pose[np.ndarray], speed: Floats, drives: NDArray[np.bool_], reach: Floats
) -> tuple[Floats, Floats]:
    """Curves ``[A, C, P, 2]`` of ``reach`` ``[A]`` metres, and their weights ``[A, C]``.

    C is the largest number of ways anyone has; the others' curves are filled up with weight 0.
    """
    driver, fade = np.flatnonzero(drives), np.maximum(FADE_S * speed, MIN_FADE_M)
    lanes = lane_ways(scenario.map, pose[driver], reach[driver], fade[driver], POINTS)
    steady = _steady_ways(pose, speed, reach)
    agent = np.concatenate((driver[lanes.agent], steady.agent))
    order = np.argsort(agent, kind="stable")
    agent = agent[order]
    slot = place_within(agent)
    curve = np.zeros((len(speed), int(slot.max(initial=-1)) + 1, POINTS, 2))
    weight = np.zeros(curve.shape[:2])
    curve[agent, slot] = np.concatenate((lanes.curve, steady.curve))[order]
    weight[agent, slot] = np.concatenate((lanes.weight, steady.weight))[order]
    return curve, weight


def _steady_ways(pose: Pose[np.ndarray], speed: Floats, reach: Floats) -> Ways:
    """Ways that turn steadily, as at the present ``speed`` ``[A]`` with :data:`TURN_RATES`."""
    agent = np.repeat(np.arange(len(speed)), len(TURN_RATES))
    # Below 1 m/s a given turn rate would be a turn on the spot.
    curvature = np.tile(TURN_RATES, len(speed)) / np.maximum(speed[agent], 1.0)
    distance = reach[agent, None] * np.linspace(0, 1, POINTS)
    curve = pose.position[agent, None] + arc(unit_vector(pose.heading[agent]), curvature, distance)
    return Ways(agent, curve, np.tile(TURN_WEIGHTS, len(speed)))


def _positions(curve: Floats, way: NDArray[np.int64], distance: Floats, reach: Floats) -> Floats:
    """Points ``[A, N, T, 2]`` at ``distance`` ``[A, N, T]`` along N of the curves ``[A, C, P, 2]``.

    Args:
        way: ``[A, N]``, or ``[1, N]`` for all, which of them.
        reach: ``[A]`` metres, their length.
    """
    at = (POINTS - 1) * distance / reach[:, None, None]
    before = np.minimum(at.astype(np.int64), POINTS - 2)
    row = np.arange(len(curve))[:, None, None]
    start, end = curve[row, way[..., None], before], curve[row, way[..., None], before + 1]
    points: Floats = start + (at - before)[..., None] * (end - start)
    return points


def _choose(end: Floats, weight: Floats, same_end: Floats) -> tuple[NDArray[np.int64], Floats]:
    """The likeliest of N futures that end in different places, and their probabilities, both ``[A, K]``.

    Where there are not K such places, the likeliest of the others follow, with hardly any probability.

    Args:
        end: ``[A, N, 2]`` where they end.
        weight: ``[A, N]``, positive for K of them at least.
        same_end: ``[A]`` metres.
    """
    row, left = np.arange(len(end)), weight.copy()
    chosen = np.zeros((len(end), MODES), np.int64)
    covered = np.zeros((len(end), MODES))
    for k in range(MODES):
        best = left.argmax(axis=1)
        same = norm(end - end[row, best][:, None]) < same_end[:, None]
        chosen[:, k], covered[:, k] = best, (left * same).sum(axis=1)
        left = np.where(same, 1e-6 * left, left)
        left[row, best] = 0.0
    order = np.argsort(-covered, axis=1, kind="stable")
    covered = np.take_along_axis(covered, order, axis=1)
    return np.take_along_axis(chosen, order, axis=1), covered / covered.sum(axis=1, keepdims=True)
