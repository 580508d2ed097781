"""Ways ahead along lanes: from the lanes beside a road user through the successor graph, as smooth curves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import Pose, direction, norm, rotate, wrap_angle
from trajpred.graph.ragged import smallest
from trajpred.lane_map import LaneMap

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

#: A lane is a candidate whose centreline runs this near (metres) in a direction this near (radians). The
#: next lane, 3 to 4 m aside, is one too: changing to it is a way ahead.
MATCH_RADIUS_M, MATCH_ANGLE = 5.0, np.pi / 4
#: Standard deviations of both, by which ways are weighted.
OFFSET_SD_M, ANGLE_SD = 1.5, 0.3
#: Standard deviation (radians) of how far a way turns: most drive straight on.
TURN_SD = 1.0
#: How many of the lanes that fit a road user best are followed, and the ways looked at from each.
MAX_LANES, MAX_WAYS = 4, 8


@dataclass(frozen=True)
class Ways:
    """``N`` curves, ascending by road user.

    Attributes:
        agent: ``[N]`` row of the road user.
        curve: ``[N, P, 2]`` metres, from where it is, points at equal distances.
        weight: ``[N]``, at most 1: how well the road user's pose fits the way.
    """

    agent: Rows
    curve: Floats
    weight: Floats


@dataclass(frozen=True)
class _Matches:
    """Which road user ``[N]`` is beside which lane ``[N]``, and at how many metres ``[N]`` along it."""

    agent: Rows
    lane: Rows
    along: Floats
    weight: Floats


def lane_ways(lanes: LaneMap, pose: Pose[np.ndarray], reach: Floats, fade: Floats, points: int) -> Ways:
    """The ways of all road users over the lanes beside them; none for those far from any.

    Where the map ends a way goes straight on. It starts where the road user is: the offset to the
    centreline is kept at first and fades out smoothly.

    Args:
        pose: ``[A]`` where they are and where they are going.
        reach: ``[A]`` metres, length of the curves.
        fade: ``[A]`` metres, above 0, after which they run on the centreline.
        points: P.
    """
    found, length, following = _match(lanes, pose), _lengths(lanes), _following(lanes)
    ways: list[list[int]] = []
    match: list[int] = []
    for i, (agent, lane) in enumerate(zip(found.agent.tolist(), found.lane.tolist(), strict=True)):
        near = list(islice(_walk(lane, found.along[i] + reach[agent], length, following), MAX_WAYS))
        ways += near
        match += [i] * len(near)
    if not ways:
        return Ways(found.agent, np.zeros((0, points, 2)), found.weight)
    agent, along = found.agent[match], found.along[match]
    distance = reach[agent, None] * np.linspace(0, 1, points)
    center = _points_along(*_join(lanes, ways), along[:, None] + distance)
    heading = _headings(center)
    offset = rotate(pose.position[agent] - center[:, 0], -heading[:, 0])
    kept = _smooth_step(1 - distance / fade[agent, None])
    curve = center + rotate(offset[:, None] * kept[..., None], heading)
    turn = wrap_angle(heading[:, -1] - heading[:, 0])
    weight = found.weight[match] * np.exp(-0.5 * (turn / TURN_SD) ** 2)
    return Ways(agent, _equally_spaced(curve, reach[agent]), weight)


def _equally_spaced(curve: Floats, reach: Floats) -> Floats:
    """``curve`` ``[N, P, 2]`` with its points at equal distances, ``reach`` ``[N]`` metres in all."""
    N, P = curve.shape[:2]
    first = np.arange(N) * P
    distance = reach[:, None] * np.linspace(0, 1, P)
    return _points_along(curve.reshape(-1, 2), first, first + P - 1, distance)


def _match(lanes: LaneMap, pose: Pose[np.ndarray]) -> _Matches:
    """For each road user the :data:`MAX_LANES` best lanes within radius and angle."""
    xy, owner = lanes.centerline.values[:, :2], np.repeat(np.arange(len(lanes)), lanes.centerline.lengths)
    step = np.diff(xy, axis=0)
    # Coincident points have no direction: a lane of nothing else is no candidate.
    real = np.flatnonzero((owner[1:] == owner[:-1]) & (norm(step) > 1e-6))
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
    return _Matches(agent, owner[segment], along, np.exp(-0.5 * cost[best]))


def _arc(lanes: LaneMap) -> Floats:
    """``[N]`` metres from the start of its lane to each point."""
    gap = np.concatenate((np.zeros(1), norm(np.diff(lanes.centerline.values[:, :2], axis=0))))
    arc = np.cumsum(gap[: len(lanes.centerline.values)])
    begin = lanes.centerline.offsets[:-1]
    return arc - np.repeat(arc[begin], lanes.centerline.lengths)


def _lengths(lanes: LaneMap) -> list[float]:
    length: list[float] = _arc(lanes)[lanes.centerline.offsets[1:] - 1].tolist()
    return length


def _following(lanes: LaneMap) -> list[list[int]]:
    """For each lane the rows of its successors inside the map."""
    row = {lane_id: i for i, lane_id in enumerate(lanes.lane_id.tolist())}
    return [[row[i] for i in dict.fromkeys(ids.tolist()) if i in row] for ids in lanes.successors]


def _walk(lane: int, reach: float, length: list[float], following: list[list[int]]) -> Iterator[list[int]]:
    """Every way of ``reach`` metres from the start of ``lane``, depth first; none visits a lane twice."""
    open_ways = [([lane], reach - length[lane])]
    while open_ways:
        way, left = open_ways.pop()
        onward = [i for i in following[way[-1]] if i not in way] if left > 0 else []
        if not onward:
            yield way
        open_ways += [([*way, i], left - length[i]) for i in reversed(onward)]


def _join(lanes: LaneMap, ways: list[list[int]]) -> tuple[Floats, Rows, Rows]:
    """The centrelines of N ways as one array ``[Q, 2]``; first and last row ``[N]`` of each."""
    lane, way_size = np.array([i for way in ways for i in way], np.int64), [len(way) for way in ways]
    size = lanes.centerline.lengths[lane]
    shift = lanes.centerline.offsets[lane] - (np.cumsum(size) - size)
    xy = lanes.centerline.values[np.repeat(shift, size) + np.arange(size.sum()), :2]
    end = np.cumsum(size)[np.cumsum(way_size) - 1]
    return xy, np.concatenate((np.zeros(1, np.int64), end[:-1])), end - 1


def _points_along(xy: Floats, first: Rows, last: Rows, distance: Floats) -> Floats:
    """Points ``[N, P, 2]`` at ``distance`` ``[N, P]`` metres along N polylines, straight on at their ends.

    Args:
        xy: ``[Q, 2]``, one polyline behind another.
        first, last: ``[N]`` rows of their ends.
    """
    # One arc length over all of them, a metre's gap before each: a single interpolation serves them all.
    gap = np.ones(len(xy))
    gap[1:] = norm(np.diff(xy, axis=0))
    gap[first] = 1.0
    arc = np.cumsum(gap)
    inside = np.minimum(distance, (arc[last] - arc[first])[:, None])
    # Straight on as over the last metre: the last two points may coincide.
    ahead = xy[last] - _interpolate(np.maximum(arc[last] - 1, arc[first]), arc, xy)
    ahead /= np.maximum(norm(ahead), 1e-9)[:, None]
    point = _interpolate(inside + arc[first, None], arc, xy)
    return point + ahead[:, None] * (distance - inside)[..., None]


def _interpolate(at: Floats, arc: Floats, xy: Floats) -> Floats:
    """``xy`` ``[..., 2]`` where the arc length ``arc`` ``[Q]`` is ``at`` ``[...]``."""
    return np.stack((np.interp(at, arc, xy[:, 0]), np.interp(at, arc, xy[:, 1])), -1)


def _headings(curve: Floats) -> Floats:
    """Direction ``[N, P]`` at each point of ``[N, P, 2]``: of the step to it and the one from it."""
    return direction(np.gradient(curve, axis=1))


def _smooth_step(x: Floats) -> Floats:
    """From 0 at 0 to 1 at 1, level at both."""
    x = np.clip(x, 0, 1)
    return x * x * (3 - 2 * x)
