"""Paths of agents along the lanes beside them and their successors. NumPy only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import Pose, direction, norm, rotate, wrap_angle
from trajpred.graph.ragged import interpolate, smallest
from trajpred.lane_map import LaneMap, Ragged

#: Points of a path.
POINTS = 64
#: A lane matches if its centreline is this near (metres) in a direction this near (radians): adjacent lanes,
#: 3 to 4 m aside, match too, as lane changes.
MATCH_RADIUS_M, MATCH_ANGLE = 5.0, np.pi / 4
#: Standard deviations of both, and of the total turn of a path (radians), which weigh the paths.
OFFSET_SD_M, ANGLE_SD, TURN_SD = 1.5, 0.3, 1.0
#: How many of the best matching lanes are followed, and how many paths from each.
MAX_LANES, MAX_PATHS = 4, 8


class Routes(NamedTuple):
    """Where lanes lead: the fields of a :class:`~trajpred.lane_map.LaneMap` that paths follow."""

    lane_id: NDArray[np.int64]
    centerline: Ragged
    successors: Ragged

    @classmethod
    def of(cls, lanes: LaneMap) -> Routes:
        return cls(lanes.lane_id, lanes.centerline, lanes.successors)

    def take(self, rows: NDArray[np.int64]) -> Routes:
        """Select lanes by their rows."""
        return Routes(self.lane_id[rows], self.centerline.take(rows), self.successors.take(rows))


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


def lane_paths(
    lanes: Routes,
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
    ids, start = lanes.successors.values.tolist(), lanes.successors.offsets.tolist()
    following = [[row[i] for i in dict.fromkeys(ids[a:b]) if i in row] for a, b in pairwise(start)]
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


def _within_reach(lanes: Routes, position: NDArray[np.float64], reach: NDArray[np.float64]) -> Routes:
    """Select the lanes that paths can touch, since the map may be a whole city's."""
    if not len(lanes.lane_id):
        return lanes
    xy, first = lanes.centerline.values[:, :2], lanes.centerline.offsets[:-1]
    low, high = np.minimum.reduceat(xy, first), np.maximum.reduceat(xy, first)
    gap = np.maximum(low - position[:, None], position[:, None] - high).clip(0)
    return lanes.take(np.flatnonzero((norm(gap) <= reach[:, None] + MATCH_RADIUS_M).any(axis=0)))


def _match(
    lanes: Routes, pose: Pose[np.ndarray]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Match each agent with the best lanes: ``[N]`` agents, lanes, metres along the lane, and weights."""
    xy, owner = (
        lanes.centerline.values[:, :2],
        np.repeat(np.arange(len(lanes.lane_id)), lanes.centerline.lengths),
    )
    step = np.diff(xy, axis=0)
    real = np.flatnonzero((owner[1:] == owner[:-1]) & (norm(step) > 1e-6))  # others have no direction
    start, step, owner = xy[real], step[real], owner[real]
    size, heading = norm(step), direction(step)
    # A square around each start leaves few pairs of agent and segment.
    within = MATCH_RADIUS_M + size
    near_x, near_y = (np.abs(pose.position[:, i, None] - start[:, i]) <= within for i in (0, 1))
    agent, segment = np.nonzero(near_x & near_y)
    to_agent, ahead = pose.position[agent] - start[segment], step[segment]
    share = np.clip((to_agent * ahead).sum(-1) / size[segment] ** 2, 0, 1)
    gap, angle = norm(to_agent - share[:, None] * ahead), wrap_angle(pose.heading[agent] - heading[segment])
    near = (gap <= MATCH_RADIUS_M) & (np.abs(angle) <= MATCH_ANGLE)
    agent, segment, share, gap, angle = (x[near] for x in (agent, segment, share, gap, angle))
    cost = (gap / OFFSET_SD_M) ** 2 + (angle / ANGLE_SD) ** 2
    best = smallest(agent * max(len(lanes.lane_id), 1) + owner[segment], 1, cost)
    best = best[smallest(agent[best], MAX_LANES, cost[best])]
    agent, segment, share = agent[best], segment[best], share[best]
    along = _arc(lanes)[real[segment]] + share * size[segment]
    return agent, owner[segment], along, np.exp(-0.5 * cost[best])


def _arc(lanes: Routes) -> NDArray[np.float64]:
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
    lanes: Routes, chains: list[list[int]]
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

    inside = np.minimum(distance, (arc[last] - arc[first])[:, None])
    # Straight on in the direction of the last metre: the last two points may coincide.
    ahead = xy[last] - interpolate(np.maximum(arc[last] - 1, arc[first]), arc, xy)
    ahead /= np.maximum(norm(ahead), 1e-9)[:, None]
    points = interpolate(inside + arc[first, None], arc, xy)
    return points + ahead[:, None] * (distance - inside)[..., None]
