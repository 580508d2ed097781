"""Match agents with the lanes beside them. NumPy only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.data.checks import row_of
from trajpred.data.geometry import Pose, direction, norm, rotate, wrap_angle
from trajpred.data.lane_map import LaneMap
from trajpred.data.motion import UNKNOWN_HEADING
from trajpred.data.ragged import Ragged
from trajpred.features.ragged import interpolate, smallest_in_scene

#: A lane matches if its centreline is this near (m): adjacent lanes, 3 to 4 m aside, match too, as lane
#: changes.
MATCH_RADIUS_M = 5.0
#: Its direction must also be this near (radians).
MATCH_ANGLE = np.pi / 4
#: Standard deviation (m) of the distance to the centreline, which weighs the paths.
OFFSET_SD_M = 1.5
#: Standard deviation (radians) of the difference of directions.
ANGLE_SD = 0.3
#: Number of best matching lanes that are followed.
MAX_LANES = 4


class Routes(NamedTuple):
    """Where lanes lead: the fields of a :class:`~trajpred.data.lane_map.LaneMap` that paths follow."""

    lane_id: NDArray[np.int64]
    centerline: Ragged
    successors: Ragged

    @classmethod
    def of(cls, lanes: LaneMap) -> Routes:
        return cls(lanes.lane_id, lanes.centerline, lanes.successors)

    def take(self, rows: NDArray[np.int64]) -> Routes:
        """Select lanes by their rows."""
        return Routes(self.lane_id[rows], self.centerline.take(rows), self.successors.take(rows))


class Nearby(NamedTuple):
    """``N`` pairs of an agent and a segment of a centreline within :data:`MATCH_RADIUS_M`.

    Attributes:
        agent: ``[N]`` rows, ascending.
        lane: ``[N]`` rows.
        heading: ``[N]`` radians, of the segment.
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
        return Nearby(
            agent=self.agent[rows],
            lane=self.lane[rows],
            heading=self.heading[rows],
            along=self.along[rows],
            gap=self.gap[rows],
        )


def within_reach(
    lanes: Routes, position: NDArray[np.float64], reach: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the rows of the lanes that paths can touch, since the map may be a whole city's."""
    if not len(lanes.lane_id) or not len(position):
        return np.zeros(0, np.int64)
    xy = lanes.centerline.values[:, :2]
    first = lanes.centerline.offsets[:-1]
    low = np.minimum.reduceat(xy, first)
    high = np.maximum.reduceat(xy, first)
    margin = reach[:, None] + MATCH_RADIUS_M
    # One box around all agents first: of a whole city it leaves few lanes to be compared with each agent.
    is_around = (high >= (position - margin).min(axis=0)) & (low <= (position + margin).max(axis=0))
    row = np.flatnonzero(is_around.all(axis=1))
    gap = np.maximum(low[row] - position[:, None], position[:, None] - high[row]).clip(0)
    return row[(norm(gap) <= margin).any(axis=0)]


def match_lanes(
    lanes: Routes, pose: Pose[np.ndarray]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Match each agent with the best lanes: ``[N]`` agents, lanes, metres along the lane, and weights."""
    near = _nearby(lanes, pose.position)
    angle = wrap_angle(pose.heading[near.agent] - near.heading)
    aligned = np.abs(angle) <= MATCH_ANGLE
    near = near.take(aligned)
    cost = (near.gap / OFFSET_SD_M) ** 2 + (angle[aligned] / ANGLE_SD) ** 2
    agent_and_lane = near.agent * max(len(lanes.lane_id), 1) + near.lane
    best = smallest_in_scene(agent_and_lane, 1, cost)
    best = best[smallest_in_scene(near.agent[best], MAX_LANES, cost[best])]
    chosen = near.take(best)
    return chosen.agent, chosen.lane, chosen.along, np.exp(-0.5 * cost[best])


def nearest_heading(lanes: Routes, position: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the direction ``[A]`` (radians) of the centreline nearest to each position ``[A, 2]``.

    :data:`~trajpred.data.motion.UNKNOWN_HEADING` where none is within :data:`MATCH_RADIUS_M`.
    """
    heading = np.full(len(position), UNKNOWN_HEADING)
    reachable = within_reach(lanes, position, np.zeros(len(position)))
    near = _nearby(lanes.take(reachable), position)
    nearest = near.take(smallest_in_scene(near.agent, 1, near.gap))
    heading[nearest.agent] = nearest.heading
    return heading


def _nearby(lanes: Routes, position: NDArray[np.float64]) -> Nearby:
    """Find the segments near positions ``[A, 2]``."""
    xy = lanes.centerline.values[:, :2]
    lane = np.repeat(np.arange(len(lanes.lane_id)), lanes.centerline.lengths)
    step = np.diff(xy, axis=0)
    # Steps from one lane to the next are no segments; steps without a length have no direction.
    real = np.flatnonzero((lane[1:] == lane[:-1]) & (norm(step) > 1e-6))
    start = xy[real]
    step = step[real]
    size = norm(step)
    # A square around each start leaves few pairs of agent and segment.
    within = MATCH_RADIUS_M + size
    beside = np.abs(position[:, None] - start) <= within[:, None]
    agent, segment = np.nonzero(beside.all(axis=-1))
    to_agent = position[agent] - start[segment]
    ahead = step[segment]
    share = np.clip((to_agent * ahead).sum(-1) / size[segment] ** 2, 0, 1)
    pairs = Nearby(
        agent=agent,
        lane=lane[real][segment],
        heading=direction(ahead),
        along=arc_of(lanes)[real[segment]] + share * size[segment],
        gap=norm(to_agent - share[:, None] * ahead),
    )
    return pairs.take(pairs.gap <= MATCH_RADIUS_M)


def arc_of(lanes: Routes) -> NDArray[np.float64]:
    """Return the metres ``[N]`` from the start of its lane to each point."""
    gap = np.concatenate((np.zeros(1), norm(np.diff(lanes.centerline.values[:, :2], axis=0))))
    arc = np.cumsum(gap[: len(lanes.centerline.values)])
    return arc - np.repeat(arc[lanes.centerline.offsets[:-1]], lanes.centerline.lengths)


#: Points of a path.
POINTS = 64
#: Standard deviation (radians) of the turn of a path after a fork.
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
    pose: Pose[np.ndarray],
    reach: NDArray[np.float64],
    fade: NDArray[np.float64],
) -> LanePaths:
    """Return paths of all agents along the lanes beside them; agents far from any lane have none.

    Where the map ends a path goes straight. It starts at the agent: the offset to the centreline is kept at
    first and fades out smoothly over ``fade`` ``[A]`` metres. Paths are ``reach`` ``[A]`` metres long.
    Branches of a fork are weighed against each other by their turns; the only path along a road keeps its
    weight, however much the road turns.
    """
    forks = _forks(lanes)
    near = within_reach(lanes, pose.position, reach)
    lanes = lanes.take(near)
    agents, starts, alongs, weights = match_lanes(lanes, pose)
    group = _alternatives(agents, starts, forks[near])
    alone = np.bincount(group)[group] == 1
    lengths = arc_of(lanes)[lanes.centerline.offsets[1:] - 1].tolist()
    following = _following(lanes)
    chains: list[list[int]] = []
    match: list[int] = []
    fork_after = np.zeros(len(agents))
    for i, (agent, lane) in enumerate(zip(agents.tolist(), starts.tolist(), strict=True)):
        metres = alongs[i] + reach[agent]
        branches = list(islice(_walk(lane, metres, lengths, following), MAX_PATHS))
        chains += branches
        match += [i] * len(branches)
        if alone[i]:
            fork_after[i] = _common_length(branches, lengths) - alongs[i]
    if not chains:
        return LanePaths(agents, np.zeros((0, POINTS, 2)), weights)
    agents = agents[match]
    alongs = alongs[match]
    distance = reach[agents, None] * np.linspace(0, 1, POINTS)
    lines, line_start, line_end = _join(lanes, chains)
    center = _points_along(lines, line_start, line_end, alongs[:, None] + distance)
    heading = direction(np.gradient(center, axis=1))
    offset = rotate(pose.position[agents] - center[:, 0], -heading[:, 0])
    x = np.clip(1 - distance / fade[agents, None], 0, 1)
    kept = x * x * (3 - 2 * x)  # from 1 to 0, level at both ends
    curve = center + rotate(offset[:, None] * kept[..., None], heading)
    likelihood = _turn_likelihood(heading, fork_after[match] / reach[agents], group[match])
    # Resample to equal distances: the offset has changed the length.
    first = np.arange(len(curve)) * POINTS
    curve = _points_along(curve.reshape(-1, 2), first, first + POINTS - 1, distance)
    return LanePaths(agents, curve, weights[match] * likelihood)


def _following(lanes: Routes) -> list[list[int]]:
    """List the rows of the successors of each lane, without those outside ``lanes``."""
    row = row_of(lanes.lane_id.tolist())
    ids = lanes.successors.values.tolist()
    following: list[list[int]] = []
    for start, end in pairwise(lanes.successors.offsets.tolist()):
        unique = dict.fromkeys(ids[start:end])
        following.append([row[lane_id] for lane_id in unique if lane_id in row])
    return following


def _forks(lanes: Routes) -> NDArray[np.int64]:
    """Return ``[L]`` the row of a lane that forks into each lane and others, -1 where there is none."""
    fork = np.full(len(lanes.lane_id), -1)
    size = lanes.successors.lengths
    row = np.repeat(np.arange(len(size)), size)
    forks = size[row] > 1
    row = row[forks]
    successor = lanes.successors.values[forks]
    order = np.argsort(lanes.lane_id)
    ascending = lanes.lane_id[order]
    inside = np.isin(successor, ascending)
    place = np.searchsorted(ascending, successor[inside])
    fork[order[place]] = row[inside]
    return fork


def _alternatives(
    agents: NDArray[np.int64], starts: NDArray[np.int64], fork: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Number the groups ``[N]`` of matches: lanes beside an agent that leave one fork are one group."""
    alone = fork[starts] < 0
    branch = np.where(alone, starts, fork[starts])
    keys = np.stack((agents, alone, branch))
    return np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)


def _common_length(chains: list[list[int]], length: list[float]) -> float:
    """Return the metres from the start of the chains to where the first one leaves the others."""
    common = 0.0
    for lanes in zip(*chains, strict=False):
        if len(set(lanes)) > 1:
            break
        common += length[lanes[0]]
    return common


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


def _walk(lane: int, reach: float, length: list[float], following: list[list[int]]) -> Iterator[list[int]]:
    """Yield every chain of lanes of ``reach`` metres from ``lane``, depth first and without loops."""
    stack = [([lane], reach - length[lane])]
    while stack:
        chain, left = stack.pop()
        onward: list[int] = []
        if left > 0:
            onward = [successor for successor in following[chain[-1]] if successor not in chain]
        if not onward:
            yield chain
        stack += [([*chain, successor], left - length[successor]) for successor in reversed(onward)]


def _join(
    lanes: Routes, chains: list[list[int]]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Join the centrelines of N chains to one array ``[Q, 2]``, with the first and last row ``[N]``."""
    lane = np.concatenate([np.array(chain, np.int64) for chain in chains])
    chain_size = [len(chain) for chain in chains]
    joined = lanes.centerline.take(lane)
    end = joined.offsets[np.cumsum(chain_size)]
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
