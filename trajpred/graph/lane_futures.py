"""Six futures per agent, from paths along the lanes and accelerations; nothing is learned. NumPy only.

All constants are round numbers, chosen by hand on the focal tracks of 800 Argoverse 1 training sequences, not
on validation scenes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import STANDING_SPEED, Pose, arc, direction, norm, rotate, unit_vector, wrap_angle
from trajpred.graph.ragged import place_within, smallest
from trajpred.lane_map import LaneMap
from trajpred.scenario import OBJECT_TYPES

#: Futures of each agent, and points of a path.
MODES, POINTS = 6, 64
#: Accelerations (m/s²) for the next ACCELERATING_S seconds, and their weights. They are not proportional to
#: the speed: positions after 3 s are equally uncertain (±4 m, quartiles) at 3 and at 12 m/s.
ACCELERATIONS = np.array([0.0, -1.0, 1.0, -2.0, 2.0, -4.0])
ACCELERATION_WEIGHTS = np.array([0.4, 0.2, 0.2, 0.08, 0.08, 0.04])
ACCELERATING_S = 3.0
#: Turn rates (rad/s) of paths off the lanes, and their weights beside the lanes' (at most 1).
TURN_RATES = np.array([0.0, 0.15, -0.15])
TURN_WEIGHTS = np.array([0.04, 0.01, 0.01])
#: The offset to the centreline fades out over this time at the present speed, or at least this distance.
FADE_S, MIN_FADE_M = 5.0, 20.0
#: Futures that end closer than this (metres) are merged.
SAME_END_M = 3.0
#: Types that follow lanes. Others go straight or turn, and change speed less by this factor.
DRIVERS = [OBJECT_TYPES.index(name) for name in ("vehicle", "motorcyclist", "cyclist", "bus", "unknown")]
WALKER_SHARE = 0.25
#: A lane matches if its centreline is this near (metres) in a direction this near (radians): adjacent lanes,
#: 3 to 4 m aside, match too, as lane changes.
MATCH_RADIUS_M, MATCH_ANGLE = 5.0, np.pi / 4
#: Standard deviations of both, and of the total turn of a path (radians), which weigh the paths.
OFFSET_SD_M, ANGLE_SD, TURN_SD = 1.5, 0.3, 1.0
#: How many of the best matching lanes are followed, and how many paths from each.
MAX_LANES, MAX_PATHS = 4, 8


@dataclass(frozen=True)
class LanePaths:
    """``N`` paths, ascending by agent.

    Attributes:
        agent: ``[N]`` row of the agent.
        curve: ``[N, P, 2]`` metres, equidistant points from the agent's position.
        weight: ``[N]``, at most 1: how well the agent's pose fits the path.
    """

    agent: NDArray[np.int64]
    curve: NDArray[np.float64]
    weight: NDArray[np.float64]


def lane_futures(
    lanes: LaneMap,
    agents: Pose[np.ndarray],
    velocity: NDArray[np.float64],
    object_type: NDArray[np.int8],
    time: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Predict six futures of every agent, the most probable first: along lanes, at several speeds.

    A future is a path with an acceleration. Paths lead along the lanes beside the agent (adjacent ones too,
    as lane changes) through their successors; one goes straight and two turn, which are the only ones of
    pedestrians and far from lanes. The most probable future is chosen, those that end nearby add to its
    probability, and so on. Until ``time[:, 0]`` the speed is constant.

    Args:
        agents: ``[A, 2]`` metres and ``[A]`` radians, last observed poses, in the frame of the map.
        velocity: ``[A, 2]`` m/s, frame of the map; object_type: ``[A]``.
        time: ``[A, T]`` seconds since those poses, ascending: of the last observed step and of T - 1 others.

    Returns:
        Positions ``[A, 6, T, 2]`` metres, frame of the map, and probabilities ``[A, 6]``.
    """
    drives, speed = np.isin(object_type, DRIVERS), norm(velocity)
    share = np.where(drives, 1.0, WALKER_SHARE)
    course = np.where(speed > STANDING_SPEED, direction(velocity), agents.heading)
    distance = _distances(speed, share[:, None] * ACCELERATIONS, time)
    reach = distance.max(axis=(1, 2))
    curve, path_weight = _paths(lanes, Pose(agents.position, course), speed, drives, reach)
    # All pairs of path and acceleration are N futures: their endpoints decide which ones are chosen.
    path, change = (index.ravel() for index in np.indices((curve.shape[1], len(ACCELERATIONS))))
    end = _positions(curve, path[None], distance[:, change, -1:], reach)[:, :, 0]
    weight = path_weight[:, path] * ACCELERATION_WEIGHTS[change]
    chosen, probability = _choose(end, weight, SAME_END_M * share)
    travelled = distance[np.arange(len(speed))[:, None], change[chosen]]
    return _positions(curve, path[chosen], travelled, reach), probability


def _distances(
    speed: NDArray[np.float64], acceleration: NDArray[np.float64], time: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute the metres travelled ``[A, M, T]``; agents that brake to a standstill stay there.

    ``acceleration`` ``[A, M]`` acts from the first ``time`` ``[A, T]`` on, for :data:`ACCELERATING_S`.
    """
    v, a = speed[:, None, None], acceleration[..., None]
    until_standing = v / np.maximum(-a, 1e-9)
    duration = np.where(a < 0, np.minimum(until_standing, ACCELERATING_S), ACCELERATING_S)
    elapsed = (time - time[:, :1])[:, None]
    changing = np.minimum(elapsed, duration)
    # The speed in the middle of the change is its mean speed.
    changed = (v + a * changing / 2) * changing + (v + a * changing) * (elapsed - changing)
    metres: NDArray[np.float64] = v * time[:, None, :1] + changed
    return metres


def _paths(
    lanes: LaneMap,
    pose: Pose[np.ndarray],
    speed: NDArray[np.float64],
    drives: NDArray[np.bool_],
    reach: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return paths ``[A, C, P, 2]`` of ``reach`` ``[A]`` metres, and their weights ``[A, C]``.

    C is the largest number of paths of an agent; other agents have further ones of weight 0.
    """
    driver, fade = np.flatnonzero(drives), np.maximum(FADE_S * speed, MIN_FADE_M)
    along = lane_paths(lanes, pose[driver], reach[driver], fade[driver])
    steady = _steady_paths(pose, speed, reach)
    agent = np.concatenate((driver[along.agent], steady.agent))
    order = np.argsort(agent, kind="stable")
    agent = agent[order]
    slot = place_within(agent)
    curve = np.zeros((len(speed), int(slot.max(initial=-1)) + 1, POINTS, 2))
    weight = np.zeros(curve.shape[:2])
    curve[agent, slot] = np.concatenate((along.curve, steady.curve))[order]
    weight[agent, slot] = np.concatenate((along.weight, steady.weight))[order]
    return curve, weight


def _steady_paths(
    pose: Pose[np.ndarray], speed: NDArray[np.float64], reach: NDArray[np.float64]
) -> LanePaths:
    """Return paths that turn at :data:`TURN_RATES` at the present ``speed`` ``[A]``."""
    agent = np.repeat(np.arange(len(speed)), len(TURN_RATES))
    # Below 1 m/s a given turn rate would be a turn on the spot.
    curvature = np.tile(TURN_RATES, len(speed)) / np.maximum(speed[agent], 1.0)
    distance = reach[agent, None] * np.linspace(0, 1, POINTS)
    curve = pose.position[agent, None] + arc(unit_vector(pose.heading[agent]), curvature, distance)
    return LanePaths(agent, curve, np.tile(TURN_WEIGHTS, len(speed)))


def _positions(
    curve: NDArray[np.float64],
    path: NDArray[np.int64],
    distance: NDArray[np.float64],
    reach: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return points ``[A, N, T, 2]`` at ``distance`` ``[A, N, T]`` along N of the paths ``[A, C, P, 2]``.

    ``path`` is ``[A, N]``, or ``[1, N]`` for all agents; the paths are ``reach`` ``[A]`` metres long.
    """
    at = (POINTS - 1) * distance / reach[:, None, None]
    before = np.minimum(at.astype(np.int64), POINTS - 2)
    row = np.arange(len(curve))[:, None, None]
    start, end = curve[row, path[..., None], before], curve[row, path[..., None], before + 1]
    points: NDArray[np.float64] = start + (at - before)[..., None] * (end - start)
    return points


def _choose(
    end: NDArray[np.float64], weight: NDArray[np.float64], same_end: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Choose the most probable of N futures that end apart: indices and probabilities, both ``[A, K]``.

    If there are fewer than K such futures, the most probable others follow, with hardly any probability.
    ``end`` is ``[A, N, 2]``, ``weight`` ``[A, N]``, positive for at least K, ``same_end`` ``[A]`` metres.
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
    # Equal accelerations and decelerations are equally probable: without rounding, their order is arbitrary.
    order = np.argsort(-covered.round(9), axis=1, kind="stable")
    covered = -np.sort(-covered, axis=1)
    return np.take_along_axis(chosen, order, axis=1), covered / covered.sum(axis=1, keepdims=True)


def lane_paths(
    lanes: LaneMap,
    pose: Pose[np.ndarray],
    reach: NDArray[np.float64],
    fade: NDArray[np.float64],
) -> LanePaths:
    """Return paths of all agents along the lanes beside them; agents far from any lane have none.

    Where the map ends a path goes straight. It starts at the agent: the offset to the centreline is kept at
    first and fades out smoothly over ``fade`` ``[A]`` metres. Paths are ``reach`` ``[A]`` metres long.
    """
    lanes = _within_reach(lanes, pose.position, reach)
    agents, starts, alongs, weights = _match(lanes, pose)
    lengths = _arc(lanes)[lanes.centerline.offsets[1:] - 1].tolist()
    row = {lane_id: i for i, lane_id in enumerate(lanes.lane_id.tolist())}
    following = [[row[i] for i in dict.fromkeys(ids.tolist()) if i in row] for ids in lanes.successors]
    chains: list[list[int]] = []
    match: list[int] = []
    for i, (agent, lane) in enumerate(zip(agents.tolist(), starts.tolist(), strict=True)):
        found = list(islice(_walk(lane, alongs[i] + reach[agent], lengths, following), MAX_PATHS))
        chains += found
        match += [i] * len(found)
    if not chains:
        return LanePaths(agents, np.zeros((0, POINTS, 2)), weights)
    agents, alongs = agents[match], alongs[match]
    distance = reach[agents, None] * np.linspace(0, 1, POINTS)
    center = _points_along(*_join(lanes, chains), alongs[:, None] + distance)
    heading = direction(np.gradient(center, axis=1))
    offset = rotate(pose.position[agents] - center[:, 0], -heading[:, 0])
    x = np.clip(1 - distance / fade[agents, None], 0, 1)
    kept = x * x * (3 - 2 * x)  # from 1 to 0, level at both ends
    curve = center + rotate(offset[:, None] * kept[..., None], heading)
    turn = wrap_angle(heading[:, -1] - heading[:, 0])
    # Resample to equal distances: the offset has changed the length.
    first = np.arange(len(curve)) * POINTS
    curve = _points_along(curve.reshape(-1, 2), first, first + POINTS - 1, distance)
    return LanePaths(agents, curve, weights[match] * np.exp(-0.5 * (turn / TURN_SD) ** 2))


def _within_reach(lanes: LaneMap, position: NDArray[np.float64], reach: NDArray[np.float64]) -> LaneMap:
    """Select the lanes that paths can touch, since the map may be a whole city's."""
    if not len(lanes):
        return lanes
    xy, first = lanes.centerline.values[:, :2], lanes.centerline.offsets[:-1]
    low, high = np.minimum.reduceat(xy, first), np.maximum.reduceat(xy, first)
    gap = np.maximum(low - position[:, None], position[:, None] - high).clip(0)
    return lanes.routes(np.flatnonzero((norm(gap) <= reach[:, None] + MATCH_RADIUS_M).any(axis=0)))


def _match(
    lanes: LaneMap, pose: Pose[np.ndarray]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Match each agent with the best lanes: ``[N]`` agents, lanes, metres along the lane, and weights."""
    xy, owner = lanes.centerline.values[:, :2], np.repeat(np.arange(len(lanes)), lanes.centerline.lengths)
    step = np.diff(xy, axis=0)
    real = np.flatnonzero((owner[1:] == owner[:-1]) & (norm(step) > 1e-6))  # others have no direction
    start, step, owner = xy[real], step[real], owner[real]
    size, heading = norm(step), direction(step)
    to_agent = pose.position[:, None] - start
    share = np.clip((to_agent * step).sum(-1) / size**2, 0, 1)
    gap, angle = norm(to_agent - share[..., None] * step), wrap_angle(pose.heading[:, None] - heading)
    agent, segment = np.nonzero((gap <= MATCH_RADIUS_M) & (np.abs(angle) <= MATCH_ANGLE))
    cost = (gap[agent, segment] / OFFSET_SD_M) ** 2 + (angle[agent, segment] / ANGLE_SD) ** 2
    best = smallest(agent * max(len(lanes), 1) + owner[segment], 1, cost)
    best = best[smallest(agent[best], MAX_LANES, cost[best])]
    agent, segment = agent[best], segment[best]
    along = _arc(lanes)[real[segment]] + share[agent, segment] * size[segment]
    return agent, owner[segment], along, np.exp(-0.5 * cost[best])


def _arc(lanes: LaneMap) -> NDArray[np.float64]:
    """Return the metres ``[N]`` from the start of its lane to each point."""
    gap = np.concatenate((np.zeros(1), norm(np.diff(lanes.centerline.values[:, :2], axis=0))))
    arc = np.cumsum(gap[: len(lanes.centerline.values)])
    return arc - np.repeat(arc[lanes.centerline.offsets[:-1]], lanes.centerline.lengths)


def _walk(lane: int, reach: float, length: list[float], following: list[list[int]]) -> Iterator[list[int]]:
    """Yield every chain of lanes of ``reach`` metres from ``lane``, depth first and without loops."""
    stack = [([lane], reach - length[lane])]
    while stack:
        chain, left = stack.pop()
        onward = [i for i in following[chain[-1]] if i not in chain] if left > 0 else []
        if not onward:
            yield chain
        stack += [([*chain, i], left - length[i]) for i in reversed(onward)]


def _join(
    lanes: LaneMap, chains: list[list[int]]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Join the centrelines of N chains to one array ``[Q, 2]``, with the first and last row ``[N]``."""
    lane, chain_size = np.array([i for chain in chains for i in chain], np.int64), [len(c) for c in chains]
    joined = lanes.centerline.take(lane)
    end = joined.offsets[np.cumsum(chain_size)]
    return joined.values[:, :2], np.concatenate((np.zeros(1, np.int64), end[:-1])), end - 1


def _points_along(
    xy: NDArray[np.float64],
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    distance: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return points ``[N, P, 2]`` at ``distance`` ``[N, P]`` metres along N polylines, extended straight.

    ``xy`` ``[Q, 2]`` contains one polyline after another, which end at rows ``first`` and ``last`` ``[N]``.
    """
    # One arc length over all polylines, with a gap of a metre before each: a single interpolation suffices.
    gap = np.ones(len(xy))
    gap[1:] = norm(np.diff(xy, axis=0))
    gap[first] = 1.0
    arc = np.cumsum(gap)

    def interpolate(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack((np.interp(at, arc, xy[:, 0]), np.interp(at, arc, xy[:, 1])), -1)

    inside = np.minimum(distance, (arc[last] - arc[first])[:, None])
    # Straight on in the direction of the last metre: the last two points may coincide.
    ahead = xy[last] - interpolate(np.maximum(arc[last] - 1, arc[first]))
    ahead /= np.maximum(norm(ahead), 1e-9)[:, None]
    return interpolate(inside + arc[first, None]) + ahead[:, None] * (distance - inside)[..., None]
