"""Match agents with lanes beside them, and follow these lanes and their successors. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.data.geometry import Pose, direction, norm, rotate, wrap_angle
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import UNKNOWN_HEADING
from trajpred.data.ragged import (
    Ragged,
    arc_over_lines,
    find_in_scenes,
    interpolate,
    pairs_in_scenes,
    rank_in_scene,
    rows_around,
    smallest_in_scene,
)

#: A lane matches if its centreline is this near (m): adjacent lanes, 3 to 4 m aside, match too, as lane
#: changes.
MATCH_RADIUS_M = 5.0
#: Largest difference in direction (radians) of a matching lane.
MATCH_ANGLE = np.pi / 4
#: Standard deviation (m) of the distance to the centreline, for weighting paths.
OFFSET_SD_M = 1.5
#: Standard deviation (radians) of the difference in direction.
ANGLE_SD = 0.3
#: Number of best-matching lanes to follow.
MAX_LANES = 4


class Segments(NamedTuple):
    """The ``N`` straight pieces of centrelines with a direction.

    Attributes:
        of_lane: rows of each lane's pieces.
        start: ``[N, 2]`` metres.
        step: ``[N, 2]`` metres, from start to end.
        size: ``[N]`` metres, the length of the step.
        heading: ``[N]`` radians.
        along: ``[N]`` metres from the lane's start to the piece's start.
    """

    of_lane: Ragged
    start: NDArray[np.float64]
    step: NDArray[np.float64]
    size: NDArray[np.float64]
    heading: NDArray[np.float64]
    along: NDArray[np.float64]


@dataclass(frozen=True)
class Routes:
    """Where lanes lead: the parts of a :class:`~trajpred.data.lane_map.LaneMap` that paths need.

    Everything that depends only on the lanes is computed once; a vehicle keeps its routes as long as its map.

    Attributes:
        scene: ``[L]``, ascending.
        lane_id: ``[L]``, unique within a scene only.
        centerline: ``L`` lines in metres.
        successors: ids of ``L`` lanes.
    """

    scene: NDArray[np.int64]
    lane_id: NDArray[np.int64]
    centerline: Ragged
    successors: Ragged

    @classmethod
    def of(cls, lanes: LaneMap, scene: NDArray[np.int64] | None = None) -> Routes:
        """Select the fields of a map; ``scene`` is that of each lane, by default one for all."""
        if scene is None:
            scene = np.zeros(len(lanes), np.int64)
        return cls(scene, lanes.lane_id, lanes.centerline, lanes.successors)

    @cached_property
    def box(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lowest and highest coordinates of each centreline, ``[L, 2]``; there must be a lane."""
        xy = self.centerline.values[:, :2]
        first = self.centerline.offsets[:-1]
        return np.minimum.reduceat(xy, first), np.maximum.reduceat(xy, first)

    @cached_property
    def segments(self) -> Segments:
        """The pieces of all centrelines that have a length."""
        xy = self.centerline.values[:, :2]
        lane = np.repeat(np.arange(len(self.scene)), self.centerline.lengths)
        step = np.diff(xy, axis=0)
        size = norm(step)
        # Steps from one lane to the next are not segments.
        real = np.flatnonzero((lane[1:] == lane[:-1]) & (size > 1e-6))
        count = np.bincount(lane[real], minlength=len(self.scene))
        return Segments(
            of_lane=Ragged.from_lengths(np.arange(len(real)), count),
            start=xy[real],
            step=step[real],
            size=size[real],
            heading=direction(step[real]),
            along=self.arc[real],
        )

    @cached_property
    def arc(self) -> NDArray[np.float64]:
        """Metres from the centreline's start to each point."""
        values = self.centerline.values
        gap = np.concatenate((np.zeros(1), norm(np.diff(values[:, :2], axis=0))))
        arc = np.cumsum(gap[: len(values)])
        return arc - np.repeat(arc[self.centerline.offsets[:-1]], self.centerline.lengths)

    @cached_property
    def length(self) -> NDArray[np.float64]:
        """Length of each centreline, ``[L + 1]`` metres; infinite in the last row, for row -1 (no lane)."""
        return np.append(self.arc[self.centerline.offsets[1:] - 1], np.inf)

    @cached_property
    def following(self) -> Ragged:
        """Rows of each lane's distinct successors within the map."""
        row, successor = self._branches
        _, first = np.unique(row * len(self.scene) + successor, return_index=True)
        rows = np.sort(first[successor[first] >= 0])
        return Ragged.from_lengths(successor[rows], np.bincount(row[rows], minlength=len(self.scene)))

    @cached_property
    def fork(self) -> NDArray[np.int64]:
        """Row of the lane that forks into each lane ``[L]`` and others; -1 without one."""
        row, branch = self._branches
        inside = (branch >= 0) & (self.successors.lengths[row] > 1)
        fork = np.full(len(self.scene), -1)
        fork[branch[inside]] = row[inside]
        return fork

    @cached_property
    def _branches(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of each pair of a lane and its successor; -1 for a lane outside the map."""
        row = np.repeat(np.arange(len(self.scene)), self.successors.lengths)
        return row, find_in_scenes(self.scene, self.lane_id, self.scene[row], self.successors.values)


class Nearby(NamedTuple):
    """``N`` pairs of an agent and a segment of a centreline within :data:`MATCH_RADIUS_M`.

    Attributes:
        agent: ``[N]`` rows, ascending.
        lane: ``[N]`` rows.
        heading: ``[N]`` radians, the segment's direction.
        along: ``[N]`` metres from the start of the lane to the point nearest to the agent.
        gap: ``[N]`` metres from there to the agent.
    """

    agent: NDArray[np.int64]
    lane: NDArray[np.int64]
    heading: NDArray[np.float64]
    along: NDArray[np.float64]
    gap: NDArray[np.float64]

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Nearby:
        """Select pairs."""
        return Nearby._make(values[rows] for values in self)


def lanes_beside(
    lanes: Routes,
    scene: NDArray[np.int64],
    position: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pair each agent with the lanes of its scene whose bounding boxes are within :data:`MATCH_RADIUS_M`.

    Returns ``[N]`` agents, ascending, and lanes.
    """
    if not len(lanes.scene) or not len(scene):
        none = np.zeros(0, np.int64)
        return none, none
    low, high = lanes.box
    margin = np.full((len(scene), 1), MATCH_RADIUS_M)
    around = rows_around(lanes.scene, low, high, scene, position, margin)
    agent, row, _ = pairs_in_scenes(scene, lanes.scene[around])
    lane = around[row]
    gap = norm(np.maximum(low[lane] - position[agent], position[agent] - high[lane]).clip(0))
    near = gap <= MATCH_RADIUS_M
    return agent[near], lane[near]


def match_lanes(
    lanes: Routes, pose: Pose[np.ndarray], agent: NDArray[np.int64], lane: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Match each agent with the best of the lanes paired with it by :func:`lanes_beside`.

    Returns ``[N]`` agents, lanes, metres along the lane, and weights.
    """
    near = _nearby(lanes, pose.position, agent, lane)
    angle = wrap_angle(pose.heading[near.agent] - near.heading)
    aligned = np.abs(angle) <= MATCH_ANGLE
    near = near.take(aligned)
    cost = (near.gap / OFFSET_SD_M) ** 2 + (angle[aligned] / ANGLE_SD) ** 2
    agent_and_lane = near.agent * max(len(lanes.lane_id), 1) + near.lane
    best = smallest_in_scene(agent_and_lane, 1, cost)
    best = best[smallest_in_scene(near.agent[best], MAX_LANES, cost[best])]
    chosen = near.take(best)
    return chosen.agent, chosen.lane, chosen.along, np.exp(-0.5 * cost[best])


def nearest_heading(
    lanes: Routes, scene: NDArray[np.int64], position: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the direction ``[A]`` (radians) of the centreline nearest to each position ``[A, 2]``.

    It is :data:`~trajpred.data.motion.UNKNOWN_HEADING` if none is within :data:`MATCH_RADIUS_M`.
    """
    heading = np.full(len(position), UNKNOWN_HEADING)
    agent, lane = lanes_beside(lanes, scene, position)
    if not len(agent):
        return heading
    near = _nearby(lanes, position, agent, lane)
    nearest = near.take(smallest_in_scene(near.agent, 1, near.gap))
    heading[nearest.agent] = nearest.heading
    return heading


def _nearby(
    lanes: Routes, position: NDArray[np.float64], agent: NDArray[np.int64], lane: NDArray[np.int64]
) -> Nearby:
    """Find the segments near positions ``[A, 2]`` for pairs of ``agent`` and ``lane`` ``[N]``."""
    segments = lanes.segments
    of_pairs = segments.of_lane.take(lane)
    segment = of_pairs.values
    pair = np.repeat(np.arange(len(lane)), of_pairs.lengths)
    step = segments.step[segment]
    size = segments.size[segment]
    to_agent = position[agent[pair]] - segments.start[segment]
    # The point of the segment that is nearest to the agent, as a share of the segment.
    share = np.clip((to_agent * step).sum(-1) / size**2, 0, 1)
    gap = norm(to_agent - share[:, None] * step)
    near = np.flatnonzero(gap <= MATCH_RADIUS_M)
    return Nearby(
        agent=agent[pair[near]],
        lane=lane[pair[near]],
        heading=segments.heading[segment[near]],
        along=segments.along[segment[near]] + share[near] * size[near],
        gap=gap[near],
    )


#: Points of a path.
POINTS = 64
#: Standard deviation (radians) of a path's turn after a fork.
TURN_SD = 1.0
#: Number of paths from each matching lane.
MAX_PATHS = 8


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
    scene: NDArray[np.int64],
    pose: Pose[np.ndarray],
    reach: NDArray[np.float64],
    fade: NDArray[np.float64],
) -> LanePaths:
    """Return the paths of all agents along lanes beside them; agents far from any lane have none.

    Where the map ends, a path goes straight. It starts at the agent: the offset from the centreline is kept
    at first and fades out smoothly over ``fade`` ``[A]`` metres. Paths are ``reach`` ``[A]`` metres long.
    Branches of a fork are weighted against each other by their turns; the only path along a road keeps its
    weight, however much the road turns. ``scene`` ``[A]`` is ascending, like the lanes' scene.
    """
    agents, starts, alongs, weights = match_lanes(lanes, pose, *lanes_beside(lanes, scene, pose.position))
    if not len(agents):
        return LanePaths(agents, np.zeros((0, POINTS, 2)), weights)
    group = _alternatives(agents, starts, lanes.fork)
    alone = np.bincount(group)[group] == 1
    match, chains = _walk(starts, alongs + reach[agents], lanes.length, lanes.following)
    until_fork = np.where(alone, _common_length(match, chains, lanes.length) - alongs, 0.0)
    # From here on, a row for each chain of lanes.
    agents = agents[match]
    alongs = alongs[match]
    distance = reach[agents, None] * np.linspace(0, 1, POINTS)
    lines, line_start, line_end = _join(lanes, chains)
    center = _points_along(lines, line_start, line_end, alongs[:, None] + distance)
    heading = direction(np.gradient(center, axis=1))
    likelihood = _turn_likelihood(heading, until_fork[match] / reach[agents], group[match])
    offset = rotate(pose.position[agents] - center[:, 0], -heading[:, 0])
    x = np.clip(1 - distance / fade[agents, None], 0, 1)
    remaining = x * x * (3 - 2 * x)  # from 1 to 0, level at both ends
    curve = center + rotate(offset[:, None] * remaining[..., None], heading)
    # Resample to equal distances: the offset has changed the length.
    first = np.arange(len(curve)) * POINTS
    curve = _points_along(curve.reshape(-1, 2), first, first + POINTS - 1, distance)
    return LanePaths(agents, curve, weights[match] * likelihood)


def _alternatives(
    agents: NDArray[np.int64], starts: NDArray[np.int64], fork: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Number the groups ``[N]`` of matches: lanes beside an agent that leave one fork are one group."""
    has_no_fork = fork[starts] < 0
    lane = np.where(has_no_fork, starts, fork[starts])
    keys = np.stack((agents, has_no_fork, lane))
    _, group = np.unique(keys, axis=1, return_inverse=True)
    return group.reshape(-1)


def _walk(
    start: NDArray[np.int64], metres: NDArray[np.float64], length: NDArray[np.float64], following: Ragged
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Follow every lane ``start`` for ``metres`` ``[M]`` without loops, all in parallel lane by lane.

    Returns rows ``[N]`` of ``start``, ascending, and chains of lanes ``[N, D]``, -1 after their ends: for
    each start the first :data:`MAX_PATHS` in order of successors. ``length`` is ``[L + 1]``, with the length
    for -1 last.
    """
    match = np.arange(len(start))
    chains = start[:, None]
    metres_left = metres - length[start]
    while True:
        unfinished = np.flatnonzero(metres_left > 0)
        onward = following.take(chains[unfinished, -1])
        chain = np.repeat(unfinished, onward.lengths)
        is_loop = (chains[chain] == onward.values[:, None]).any(axis=1)
        branches = np.bincount(chain[~is_loop], minlength=len(chains))
        if not branches.any():
            return match, chains
        # A chain continues as one chain for each branch; without any, it is padded with -1.
        parent = np.repeat(np.arange(len(chains)), np.maximum(branches, 1))
        successor = np.full(len(parent), -1)
        successor[branches[parent] > 0] = onward.values[~is_loop]
        # Each chain has an end: chains beyond the first few would exceed the limit there, too.
        is_kept = rank_in_scene(match[parent]) < MAX_PATHS
        parent = parent[is_kept]
        successor = successor[is_kept]
        match = match[parent]
        metres_left = metres_left[parent] - length[successor]
        chains = np.concatenate((chains[parent], successor[:, None]), axis=1)


def _common_length(
    match: NDArray[np.int64], chains: NDArray[np.int64], length: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the metres ``[M]`` that all chains of a match have in common from their start."""
    first = np.searchsorted(match, np.arange(match[-1] + 1))
    is_same = (chains == chains[first[match]]) & (chains >= 0)
    common = np.logical_and.accumulate(np.logical_and.reduceat(is_same, first), axis=1)
    return np.where(common, length[chains[first]], 0.0).sum(axis=1)


def _turn_likelihood(
    heading: NDArray[np.float64], fork_share: NDArray[np.float64], group: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Rate each path ``[N]`` by its turn since the fork, relative to the straightest path of its group.

    ``heading`` is ``[N, P]`` radians, ``fork_share`` ``[N]`` the part of the path before the fork.
    """
    last = heading.shape[1] - 1
    fork = np.clip(np.rint(fork_share * last), 0, last).astype(np.int64)
    turn = wrap_angle(heading[:, -1] - heading[np.arange(len(heading)), fork])
    exponent = 0.5 * (turn / TURN_SD) ** 2
    straightest = np.full(group.max() + 1, np.inf)
    np.minimum.at(straightest, group, exponent)
    return np.exp(straightest[group] - exponent)


def _join(
    lanes: Routes, chains: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Join the centrelines of N chains to one array ``[Q, 2]``, with the first and last row ``[N]``."""
    inside = chains >= 0
    joined = lanes.centerline.take(chains[inside])
    end = joined.offsets[np.cumsum(inside.sum(axis=1))]
    first = np.concatenate((np.zeros(1, np.int64), end[:-1]))
    return joined.values[:, :2], first, end - 1


def _points_along(
    xy: NDArray[np.float64],
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    distance: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return points ``[N, P, 2]`` at ``distance`` ``[N, P]`` metres along N polylines, extended straight.

    ``xy`` ``[Q, 2]`` contains one polyline after another, which end at rows ``first`` and ``last`` ``[N]``.
    """
    arc = arc_over_lines(xy, first)
    length = arc[last] - arc[first]
    inside = np.minimum(distance, length[:, None])
    # Straight on in the direction of the last metre: the last two points may coincide.
    metre_before = np.maximum(arc[last] - 1, arc[first])
    ahead = xy[last] - interpolate(metre_before, arc, xy)
    ahead /= np.maximum(norm(ahead), 1e-9)[:, None]
    points = interpolate(inside + arc[first, None], arc, xy)
    return points + ahead[:, None] * (distance - inside)[..., None]
