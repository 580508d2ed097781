"""Match agents with the lanes beside them. NumPy only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpred.features.ragged import smallest_in_scene
from trajpred.geometry import Pose, direction, norm, wrap_angle
from trajpred.lane_map import LaneMap
from trajpred.motion import UNKNOWN_HEADING
from trajpred.ragged import Ragged

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

    :data:`~trajpred.motion.UNKNOWN_HEADING` where none is within :data:`MATCH_RADIUS_M`.
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
