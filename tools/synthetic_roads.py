"""Synthetic road networks: lanes, their map, and the paths that road users follow. Metres, radians."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.geometry import arc_length, direction, norm, points_along, rotate, unit_vector, wrap_angle
from trajpred.lane_map import MARK_TYPES, NO_LANE, LaneMap
from trajpred.ragged import Ragged

LANE_WIDTH, SHOULDER, ARM_LENGTH, SEGMENT_LENGTH = 3.5, 2.6, 100.0, 25.0
#: Spacing of the points of paths; speed limit, m/s; comfortable lateral and longitudinal acceleration, m/s².
GRID, SPEED_LIMIT, LATERAL, LONGITUDINAL = 0.5, 12.0, 2.0, 1.5
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


class Roads:
    """Straight arms around ``origin`` ``[2]``, whose lanes are joined by curves through the middle.

    ``angles`` ``[N]`` are the directions of the arms, outwards, each with ``width`` lanes both ways.
    """

    def __init__(self, angles: Points, origin: Points, width: int) -> None:
        self.angles, self.origin, self.width = angles, origin, width
        self.mouth = 12.0 + LANE_WIDTH * width
        self.lanes: list[Lane] = []
        # First and last segments of each arm's lanes, [arm][lane], counted from the middle of the road.
        inward, outward = (
            [[self._lane_of_arm(angle, k, side) for k in range(width)] for angle in angles]
            for side in (True, False)
        )
        self.entries = [first for arm in inward for first, _ in arm]
        for source, arm in enumerate(inward):
            for target in range(len(angles)):
                if source != target:
                    self._join(arm, outward[target], angles[target] - angles[source] - np.pi)

    def _place(self, angle: float, local: ArrayLike) -> Points:
        """Transform points ``[..., 2]`` (ahead, left) from the frame of an arm, seen outwards."""
        return self.origin + rotate(np.asarray(local, np.float64), np.array(angle))

    def _lane_of_arm(self, angle: float, k: int, inward: bool) -> tuple[int, int]:
        """Add the segments of one lane; return the first and the last."""
        offset = (k + 0.5) * LANE_WIDTH * (1 if inward else -1)
        ends = self.mouth + np.arange(0, ARM_LENGTH + 1, SEGMENT_LENGTH)
        ends = ends[::-1] if inward else ends
        left = unit_vector(np.array(angle + np.pi / 2)) * (-1 if inward else 1)
        first = len(self.lanes)
        for i, (start, stop) in enumerate(pairwise(ends)):
            points = self._place(angle, [(x, offset) for x in np.linspace(start, stop, 6)])
            lane = Lane(points, np.broadcast_to(left, points.shape))
            lane.left_mark = "DASHED_WHITE" if k else "DOUBLE_SOLID_YELLOW"
            lane.right_mark = "DASHED_WHITE" if k < self.width - 1 else "SOLID_WHITE"
            if k:  # the lane beside it was added just before
                lane.left = first + i - len(ends) + 1
                self.lanes[lane.left].right = first + i
            self.lanes.append(lane)
            if i:
                self.lanes[-2].successors.append(first + i)
        return first, len(self.lanes) - 1

    def _join(self, source: list[tuple[int, int]], target: list[tuple[int, int]], turn: float) -> None:
        """Join every lane straight on, the leftmost lane to the left, the rightmost one to the right."""
        turn = float(wrap_angle(np.array(turn)))
        straight = len(self.angles) == 2 or abs(turn) < np.pi / 4
        for k in range(self.width) if straight else [0 if turn > 0 else self.width - 1]:
            start, end = self.lanes[source[k][1]], self.lanes[target[k][0]]
            a, b, t = start.points[-1], end.points[0], np.linspace(0, 1, 13)[:, None]
            # Cubic Bézier curve; its inner control points lie ahead of the start and behind the end.
            reach, right = norm(b - a) * 0.39, np.array(-np.pi / 2)
            p, q = a + reach * rotate(start.normals[-1], right), b - reach * rotate(end.normals[0], right)
            points = (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * p + 3 * (1 - t) * t**2 * q + t**3 * b
            tangent = (1 - t) ** 2 * (p - a) + 2 * (1 - t) * t * (q - p) + t**2 * (b - q)
            lane = Lane(points, unit_vector(direction(tangent) + np.pi / 2), joint=True)
            start.successors.append(len(self.lanes))
            lane.successors.append(target[k][0])
            self.lanes.append(lane)

    def routes(self) -> list[Points]:
        """Return the points ``[P, 2]`` of every way through the network."""
        ways, done = [[entry] for entry in self.entries], []
        while ways:
            way = ways.pop(0)
            following = self.lanes[way[-1]].successors
            ways += [[*way, lane] for lane in following]
            done += [] if following else [way]
        return [np.concatenate([self.lanes[i].points[:-1] for i in way]) for way in done]

    def roadsides(self, left: float) -> list[Points]:
        """Return lines ``left`` metres beside the lanes of each arm, in driving direction on both sides."""
        beside, far = self.width * LANE_WIDTH + left, self.mouth + ARM_LENGTH
        pair = ([(far, beside), (self.mouth, beside)], [(self.mouth, -beside), (far, -beside)])
        return [self._place(angle, line) for angle in self.angles for line in pair]

    def crossings(self) -> list[Points]:
        """Return the two edges ``[2, 2, 2]`` of the crossing of each arm; none on plain roads."""
        beside = self.width * LANE_WIDTH + SHOULDER
        edges = [[(self.mouth + ahead, -beside), (self.mouth + ahead, beside)] for ahead in (2, 5)]
        return [self._place(angle, edges) for angle in self.angles] if len(self.angles) > 2 else []

    def lane_map(self) -> LaneMap:
        """Return the network as a map of three-dimensional polylines at height 0, to the centimetre."""
        lanes, beside, far = self.lanes, self.width * LANE_WIDTH + SHOULDER, self.mouth + ARM_LENGTH
        offset, edges = LANE_WIDTH / 2, self.crossings()
        corners = ((self.mouth, beside), (self.mouth, -beside), (far, -beside), (far, beside))
        areas = [self._place(angle, corners) for angle in self.angles]
        for joint in (lane for lane in lanes if lane.joint):
            sides = [joint.points + side * (offset + 1.0) * joint.normals for side in (1, -1)]
            areas.append(np.concatenate((sides[0], sides[1][::-1])))
        linked = LaneMap.from_centerlines(
            [lane.points for lane in lanes], successors=[lane.successors for lane in lanes]
        )
        return replace(
            linked,
            is_intersection=np.array([lane.joint and len(self.angles) > 2 for lane in lanes]),
            centerline=_lines([lane.points for lane in lanes]),
            left_boundary=_lines([lane.points + offset * lane.normals for lane in lanes]),
            right_boundary=_lines([lane.points - offset * lane.normals for lane in lanes]),
            left_mark=np.array([MARK_TYPES.index(lane.left_mark) for lane in lanes], np.int8),
            right_mark=np.array([MARK_TYPES.index(lane.right_mark) for lane in lanes], np.int8),
            left_neighbor=np.array([lane.left for lane in lanes]),
            right_neighbor=np.array([lane.right for lane in lanes]),
            crossing_id=10_000 + np.arange(len(edges)),
            crossing_edge1=_lines([edge[0] for edge in edges]),
            crossing_edge2=_lines([edge[1] for edge in edges]),
            drivable_area_id=20_000 + np.arange(len(areas)),
            drivable_area=_lines(areas),
        )


def _lines(rows: list[Points]) -> Ragged:
    return Ragged.from_rows([np.column_stack((row.round(2), np.zeros(len(row)))) for row in rows], 3)


@dataclass
class Paths:
    """``R`` lines sampled every :data:`GRID` metres and padded to ``N`` points.

    Attributes:
        point, heading, speed: ``[R, N, 2]`` metres, ``[R, N]`` radians, ``[R, N]`` m/s to be driven there.
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
        point = np.stack([points_along(*row) for row in zip(lines, at, strict=True)])
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
