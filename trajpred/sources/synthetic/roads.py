"""Lanes, arms and their joints: the bricks of a synthetic road network. Metres; traffic keeps right."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import direction, norm, rotate, unit_vector

Points = NDArray[np.float64]
LANE_WIDTH = 3.5
#: Beside the outermost lane: where cars are parked.
SHOULDER = 2.6
#: Beside the shoulder: how far from it people walk.
SIDEWALK = 1.5
#: Length of an arm, of one lane segment of it, and the distance between points.
ARM_LENGTH, SEGMENT_LENGTH, SPACING = 100.0, 25.0, 2.5


@dataclass
class Lane:
    """One lane segment; other lanes are named by their index in :attr:`Roads.lanes`.

    Attributes:
        centerline, left, right: ``[P, 2]`` in driving direction.
        left_mark, right_mark: of :data:`trajpred.lane_map.MARK_TYPES`.
        joint: lies inside a junction, where paths of different origin meet.
        yields: who enters it must let conflicting traffic pass first.
        priority: seconds by which its traffic counts as arriving earlier than it does.
        stop_m: distance before its start at which those who yield stop.
        speed: limit, m/s.
        turn: relative probability to be chosen among the successors of its predecessor.
    """

    centerline: Points
    left: Points
    right: Points
    left_mark: str = "NONE"
    right_mark: str = "NONE"
    is_intersection: bool = False
    joint: bool = False
    yields: bool = False
    priority: float = 0.0
    stop_m: float = 1.5
    speed: float = 12.0
    turn: float = 1.0
    left_neighbor: int | None = None
    right_neighbor: int | None = None
    successors: list[int] = field(default_factory=list)
    predecessors: list[int] = field(default_factory=list)


@dataclass
class Walk:
    """A path ``[P, 2]`` of pedestrians, and the crossing it leads over between two lengths along it."""

    path: Points
    crossing: int = -1
    enter_m: float = np.inf
    leave_m: float = np.inf


@dataclass
class Arm:
    """A road that leaves a junction: mouth positions and lanes by direction, innermost first."""

    angle: float
    reference: Points
    lanes_in: list[int]
    lanes_out: list[int]
    edge_in: float
    edge_out: float
    crossing: int = -1


@dataclass
class Roads:
    """A road network around the origin.

    Attributes:
        crossings: ``(edge1, edge2)``, each ``[2, 2]``.
        areas: drivable polygons ``[P, 2]``.
        parking: ``(x, y, heading)`` of places at the kerb.
        crossing_lanes: for each crossing its lanes and the distance of its centre from their start.
    """

    kind: str
    speed: float
    lanes: list[Lane] = field(default_factory=list)
    crossings: list[tuple[Points, Points]] = field(default_factory=list)
    areas: list[Points] = field(default_factory=list)
    walks: list[Walk] = field(default_factory=list)
    parking: list[tuple[float, float, float]] = field(default_factory=list)
    crossing_lanes: list[dict[int, float]] = field(default_factory=list)

    def add(self, lane: Lane) -> int:
        self.lanes.append(lane)
        return len(self.lanes) - 1

    def link(self, first: int, second: int) -> None:
        self.lanes[first].successors.append(second)
        self.lanes[second].predecessors.append(first)


def offset(line: Points, distance: float) -> Points:
    """``line`` moved to its left by ``distance``."""
    heading = direction(np.gradient(line, axis=0))
    return line + distance * unit_vector(heading + np.pi / 2)


def along(line: Points) -> NDArray[np.float64]:
    """Length ``[P]`` along ``line`` at each of its points."""
    return np.concatenate(([0.0], np.cumsum(norm(np.diff(line, axis=0)))))


def resample(line: Points, spacing: float) -> Points:
    """Points of ``line`` at equal distances close to ``spacing``, its ends among them."""
    length = along(line)
    at = np.linspace(0, length[-1], max(2, round(length[-1] / spacing) + 1))
    return np.stack([np.interp(at, length, line[:, i]) for i in range(2)], -1)


def arc(start: Points, heading: float, curvature: float, length: float) -> Points:
    """A line that leaves ``start`` ``[2]`` towards ``heading`` and bends by ``curvature`` (1/m, left > 0)."""
    distance = np.linspace(0, length, round(length / SPACING) + 1)
    half = curvature * distance / 2
    chord = distance * np.sinc(half / np.pi)
    return start + chord[:, None] * unit_vector(heading + half)


def joint_curve(start: Points, heading: float, end: Points, end_heading: float) -> Points:
    """A smooth curve between two poses: a cubic whose handles make it nearly a circle's arc."""
    turn = abs(np.arctan2(np.sin(end_heading - heading), np.cos(end_heading - heading)))
    chord = float(norm(end - start))
    handle = chord / 3 if turn < 1e-3 else chord / (2 * np.sin(turn / 2)) * np.tan(turn / 4) * 4 / 3
    t = np.linspace(0, 1, max(6, round(chord)))
    weight = np.stack(((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3), -1)
    leave, arrive = unit_vector(np.array([heading, end_heading])) * handle
    return resample(weight @ np.stack((start, start + leave, end - arrive, end)), SPACING)


def joint_lane(center: Points, **properties: object) -> Lane:
    """A lane of full width around ``center``."""
    half = LANE_WIDTH / 2
    return Lane(center, offset(center, half), offset(center, -half), **properties)  # type: ignore[arg-type]


def end_pose(line: Points, last: bool) -> tuple[Points, float]:
    """Position and heading at the last (or first) point of ``line``."""
    step = line[-1] - line[-2] if last else line[1] - line[0]
    return line[-1 if last else 0], float(direction(step))


def add_arm(
    roads: Roads,
    angle: float,
    mouth: float,
    curvature: float = 0.0,
    lanes_in: int = 1,
    lanes_out: int = 1,
    center_mark: str = "DOUBLE_SOLID_YELLOW",
) -> Arm:
    """A road that begins ``mouth`` metres from the origin and leaves it towards ``angle``, with sidewalks."""
    reference = arc(mouth * unit_vector(np.array(angle)), angle, curvature, ARM_LENGTH)
    count = round(ARM_LENGTH / SEGMENT_LENGTH)
    cuts = np.linspace(0, len(reference) - 1, count + 1).round().astype(int)
    pieces = list(zip(cuts[:-1], cuts[1:] + 1, strict=True))
    arm = Arm(angle, reference, [], [], lanes_in * LANE_WIDTH, lanes_out * LANE_WIDTH)
    for lanes, side, near in ((lanes_in, 1, arm.lanes_in), (lanes_out, -1, arm.lanes_out)):
        # Inbound lanes lie left of the outward reference line and run against it.
        flow = pieces[::-1] if side == 1 else pieces
        rows = [[_arm_lane(roads, reference, piece, side, k, lanes, center_mark) for piece in flow]
                for k in range(lanes)]  # fmt: skip
        for k, row in enumerate(rows):
            for first, second in pairwise(row):
                roads.link(first, second)
            for j, lane in enumerate(row):
                roads.lanes[lane].left_neighbor = rows[k - 1][j] if k else None
                roads.lanes[lane].right_neighbor = rows[k + 1][j] if k + 1 < lanes else None
            near.append(row[-1] if side == 1 else row[0])
    wide_in, wide_out = arm.edge_in + SHOULDER, arm.edge_out + SHOULDER
    roads.areas.append(np.concatenate((offset(reference, wide_in), offset(reference, -wide_out)[::-1])))
    for side, edge, lanes in ((1, arm.edge_in, lanes_in), (-1, arm.edge_out, lanes_out)):
        kerb = offset(reference, side * (edge + 1.3))
        heading = direction(np.gradient(reference, axis=0)) + (np.pi if side == 1 else 0)
        places = range(8, len(kerb) - 1, 3) if lanes else ()
        roads.parking += [(*kerb[i], float(heading[i])) for i in places]
        sidewalk = offset(reference, side * (edge + SHOULDER + SIDEWALK))
        roads.walks += [Walk(sidewalk), Walk(sidewalk[::-1])]
    return arm


def _arm_lane(
    roads: Roads, reference: Points, piece: tuple[int, int], side: int, k: int, lanes: int, center_mark: str
) -> int:
    def line(lateral: float) -> Points:
        points = offset(reference, side * lateral * LANE_WIDTH)[slice(*piece)]
        return points[::-1] if side == 1 else points

    return roads.add(
        Lane(
            line(k + 0.5),
            line(k),
            line(k + 1),
            left_mark=center_mark if k == 0 else "DASHED_WHITE",
            right_mark="SOLID_WHITE" if k == lanes - 1 else "DASHED_WHITE",
            speed=roads.speed,
        )
    )


def add_crossing(roads: Roads, arm: Arm) -> None:
    """A crossing over ``arm`` just outside its mouth, and the walks that lead over it."""
    out = float(direction(arm.reference[1] - arm.reference[0]))
    frame = np.array([1.0, 4.0])  # metres outside the mouth
    left, right = arm.edge_in + SHOULDER, -(arm.edge_out + SHOULDER)
    edges = [arm.reference[0] + rotate(np.array([[x, left], [x, right]]), np.array(out)) for x in frame]
    arm.crossing = len(roads.crossings)
    roads.crossings.append((edges[0], edges[1]))
    roads.crossing_lanes.append({})
    for lane in arm.lanes_in:
        roads.crossing_lanes[-1][lane] = float(along(roads.lanes[lane].centerline)[-1]) - frame.mean()
    for lane in arm.lanes_out:
        roads.crossing_lanes[-1][lane] = frame.mean()
    across = (edges[0] + edges[1]) / 2
    sides = [offset(arm.reference, edge)[2:12] for edge in (left + SIDEWALK, right - SIDEWALK)]
    for path in (sides[0][::-1], across, sides[1]), (sides[1][::-1], across[::-1], sides[0]):
        before = along(np.concatenate(path[:2]))[-2:]
        roads.walks.append(Walk(np.concatenate(path), arm.crossing, *before.tolist()))
