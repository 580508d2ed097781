"""Synthetic road networks: lanes, their map, and the paths that road users follow. Metres, radians."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain, pairwise, permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.data.checks import encode
from trajpred.data.geometry import arc_length, direction, norm, points_along, rotate, unit_vector, wrap_angle
from trajpred.data.lane_map import MARK_TYPES, NO_LANE, LaneMap
from trajpred.data.ragged import Ragged

#: Width of a lane (metres).
LANE_WIDTH = 3.5
#: Width of the drivable area beside the lanes (metres).
SHOULDER = 2.6
#: Length of the arms of a network (metres).
ARM_LENGTH = 100.0
#: Length of the segments of their lanes (metres).
SEGMENT_LENGTH = 25.0
#: Spacing of the points of paths (metres).
GRID = 0.5
#: Speed limit (m/s).
SPEED_LIMIT = 12.0
#: Comfortable lateral acceleration (m/s²).
LATERAL = 2.0
#: Comfortable longitudinal acceleration (m/s²).
LONGITUDINAL = 1.5
Points = NDArray[np.float64]


@dataclass
class Lane:
    """A lane segment: ``points`` and ``normals`` to the left ``[P, 2]``, marks, and indices of linked lanes.

    ``joint`` is True for the lanes through the middle, which connect the arms.
    """

    points: Points
    normals: Points
    joint: bool = False
    left_mark: str = "NONE"
    right_mark: str = "NONE"
    left: int = NO_LANE
    right: int = NO_LANE
    successors: list[int] = field(default_factory=list)


class ArmLane(NamedTuple):
    """A lane of an arm: the indices of its first and last segments."""

    first: int
    last: int


class Roads:
    """Straight arms around ``origin`` ``[2]``, whose lanes are joined by curves through the middle.

    ``angles`` ``[N]`` are the directions of the arms, outwards, each with ``width`` lanes both ways.
    """

    def __init__(self, angles: Points, origin: Points, width: int) -> None:
        self.angles = angles
        self.origin = origin
        self.width = width
        self.mouth = 12.0 + LANE_WIDTH * width
        self.lanes: list[Lane] = []
        inward = [self._lanes_of_arm(angle, inward=True) for angle in angles]
        outward = [self._lanes_of_arm(angle, inward=False) for angle in angles]
        self.entries = [lane.first for lane in chain.from_iterable(inward)]
        for source, target in permutations(range(len(angles)), 2):
            turn = angles[target] - angles[source] - np.pi
            self._join(inward[source], outward[target], turn)

    def _place(self, angle: float, local: ArrayLike) -> Points:
        """Transform points ``[..., 2]`` (ahead, left) from the frame of an arm, seen outwards."""
        return self.origin + rotate(np.asarray(local, np.float64), np.array(angle))

    def _lanes_of_arm(self, angle: float, inward: bool) -> list[ArmLane]:
        """Add the lanes of one direction of an arm, counted from the middle of the road."""
        return [self._lane_of_arm(angle, k, inward) for k in range(self.width)]

    def _lane_of_arm(self, angle: float, k: int, inward: bool) -> ArmLane:
        """Add the segments of one lane."""
        ends = self.mouth + np.arange(0, ARM_LENGTH + 1, SEGMENT_LENGTH)
        offset = -(k + 0.5) * LANE_WIDTH
        left = unit_vector(np.array(angle + np.pi / 2))
        if inward:
            ends = ends[::-1]
            offset = -offset
            left = -left
        first = len(self.lanes)
        for i, (start, stop) in enumerate(pairwise(ends)):
            ahead = np.linspace(start, stop, 6)
            points = self._place(angle, np.column_stack((ahead, np.full(6, offset))))
            lane = Lane(points, np.broadcast_to(left, points.shape))
            lane.left_mark = "DASHED_WHITE" if k else "DOUBLE_SOLID_YELLOW"
            lane.right_mark = "DASHED_WHITE" if k < self.width - 1 else "SOLID_WHITE"
            if k:  # the lane beside it was added just before
                lane.left = first + i - len(ends) + 1
                self.lanes[lane.left].right = first + i
            self.lanes.append(lane)
            if i:
                self.lanes[-2].successors.append(first + i)
        return ArmLane(first, len(self.lanes) - 1)

    def _join(self, source: list[ArmLane], target: list[ArmLane], turn: float) -> None:
        """Join every lane straight on, the leftmost lane to the left, the rightmost one to the right."""
        turn = float(wrap_angle(np.array(turn)))
        if len(self.angles) == 2 or abs(turn) < np.pi / 4:
            joined = range(self.width)
        elif turn > 0:
            joined = range(1)
        else:
            joined = range(self.width - 1, self.width)
        for k in joined:
            self._connect(source[k].last, target[k].first)

    def _connect(self, source: int, target: int) -> None:
        """Add the lane from the end of the lane ``source`` to the start of the lane ``target``."""
        start = self.lanes[source]
        end = self.lanes[target]
        a = start.points[-1]
        b = end.points[0]
        # Cubic Bézier curve; its inner control points lie ahead of the start and behind the end.
        reach = norm(b - a) * 0.39
        right = np.array(-np.pi / 2)
        p = a + reach * rotate(start.normals[-1], right)
        q = b - reach * rotate(end.normals[0], right)
        t = np.linspace(0, 1, 13)[:, None]
        points = (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * p + 3 * (1 - t) * t**2 * q + t**3 * b
        tangent = (1 - t) ** 2 * (p - a) + 2 * (1 - t) * t * (q - p) + t**2 * (b - q)
        lane = Lane(points, unit_vector(direction(tangent) + np.pi / 2), joint=True)
        start.successors.append(len(self.lanes))
        lane.successors.append(target)
        self.lanes.append(lane)

    def routes(self) -> list[Points]:
        """Return the points ``[P, 2]`` of every way through the network."""
        ways = [[entry] for entry in self.entries]
        routes: list[Points] = []
        while ways:
            way = ways.pop(0)
            successors = self.lanes[way[-1]].successors
            ways += [[*way, lane] for lane in successors]
            if not successors:
                parts = [self.lanes[index].points[:-1] for index in way]
                routes.append(np.concatenate(parts))
        return routes

    def roadsides(self, left: float) -> list[Points]:
        """Return lines ``left`` metres beside the lanes of each arm, in driving direction on both sides."""
        beside = self.width * LANE_WIDTH + left
        far = self.mouth + ARM_LENGTH
        lines: list[Points] = []
        for angle in self.angles:
            lines.append(self._place(angle, [(far, beside), (self.mouth, beside)]))
            lines.append(self._place(angle, [(self.mouth, -beside), (far, -beside)]))
        return lines

    def crossings(self) -> list[Points]:
        """Return the two edges ``[2, 2, 2]`` of the crossing of each arm; none on plain roads."""
        if len(self.angles) == 2:
            return []
        beside = self.width * LANE_WIDTH + SHOULDER
        near = self.mouth + 2
        far = self.mouth + 5
        edges = [[(near, -beside), (near, beside)], [(far, -beside), (far, beside)]]
        return [self._place(angle, edges) for angle in self.angles]

    def _drivable_areas(self) -> list[Points]:
        """Return a rectangle for each arm, and the widened lanes through the middle."""
        beside = self.width * LANE_WIDTH + SHOULDER
        far = self.mouth + ARM_LENGTH
        corners = ((self.mouth, beside), (self.mouth, -beside), (far, -beside), (far, beside))
        areas = [self._place(angle, corners) for angle in self.angles]
        for lane in self.lanes:
            if lane.joint:
                aside = (LANE_WIDTH / 2 + 1.0) * lane.normals
                right = lane.points - aside
                areas.append(np.concatenate((lane.points + aside, right[::-1])))
        return areas

    def lane_map(self) -> LaneMap:
        """Return the network as a map of three-dimensional polylines at height 0, to the centimetre."""
        lanes = self.lanes
        offset = LANE_WIDTH / 2
        edges = self.crossings()
        areas = self._drivable_areas()
        linked = LaneMap.from_centerlines(
            [lane.points for lane in lanes],
            successors=[lane.successors for lane in lanes],
        )
        return replace(
            linked,
            is_intersection=np.array([lane.joint for lane in lanes]) & (len(self.angles) > 2),
            centerline=_lines([lane.points for lane in lanes]),
            left_boundary=_lines([lane.points + offset * lane.normals for lane in lanes]),
            right_boundary=_lines([lane.points - offset * lane.normals for lane in lanes]),
            left_mark=encode([lane.left_mark for lane in lanes], MARK_TYPES, "left_mark"),
            right_mark=encode([lane.right_mark for lane in lanes], MARK_TYPES, "right_mark"),
            left_neighbor=np.array([lane.left for lane in lanes]),
            right_neighbor=np.array([lane.right for lane in lanes]),
            crossing_id=10_000 + np.arange(len(edges)),
            crossing_edge1=_lines([edge[0] for edge in edges]),
            crossing_edge2=_lines([edge[1] for edge in edges]),
            drivable_area_id=20_000 + np.arange(len(areas)),
            drivable_area=_lines(areas),
        )


def _lines(rows: list[Points]) -> Ragged:
    at_zero = [np.column_stack((row.round(2), np.zeros(len(row)))) for row in rows]
    return Ragged.from_rows(at_zero, 3)


@dataclass
class Paths:
    """``R`` lines sampled every :data:`GRID` metres and padded to ``N`` points.

    Attributes:
        point: ``[R, N, 2]`` metres.
        heading: ``[R, N]`` radians.
        speed: ``[R, N]`` m/s to be driven there.
        last: ``[R]`` index of the last point.
    """

    point: Points
    heading: Points
    speed: Points
    last: NDArray[np.int64]

    @classmethod
    def along(cls, lines: list[Points]) -> Paths:
        """Sample lines ``[P, 2]``, and limit the speed in bends."""
        last = np.array([int(arc_length(line)[-1] / GRID) for line in lines])
        at = np.minimum(np.arange(last.max() + 1), last[:, None]) * GRID
        points = [points_along(line, distances) for line, distances in zip(lines, at, strict=True)]
        point = np.stack(points)
        heading = direction(np.diff(point, axis=1, append=point[:, -1:]))
        step = np.minimum(np.arange(at.shape[1]), last[:, None] - 1)
        heading = np.take_along_axis(heading, step, axis=1)
        # Lateral acceleration limits the speed in bends, longitudinal acceleration before and after them.
        bend = np.abs(wrap_angle(np.diff(heading, axis=1, append=heading[:, -1:]))) / GRID
        square = np.minimum(SPEED_LIMIT**2, LATERAL / np.maximum(bend, 1e-6))
        ramp = 2 * LONGITUDINAL * GRID * np.arange(at.shape[1])
        square = np.minimum.accumulate(square - ramp, axis=1) + ramp
        square = np.minimum.accumulate((square + ramp)[:, ::-1], axis=1)[:, ::-1] - ramp
        return cls(point, heading, np.sqrt(square), last)
