"""The lanes of a map file, before they have ids and are cut to the length of lane segments."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, pairwise

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require, require_finite
from trajpred.geometry import arc_length, direction, norm, points_along, wrap_angle
from trajpred.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE, TURN_DIRECTIONS, LaneMap, Ragged
from trajpred.sources.argoverse2_map import midline
from trajpred.sources.map_problems import MapProblems, require_lanes
from trajpred.sources.reading import integer

#: Longest lane segment (metres): models select lanes by their midpoints, and Argoverse's are about this long.
MAX_LENGTH_M = 50.0
#: Maximum number of lane segments of a map, and of metres of a lane.
MAX_LANES, MAX_LANE_M = 200_000, 1e5
#: Shorter lines (metres) are points.
MIN_LANE_M = 1e-6
#: Largest number of an element.
MAX_ID = 2**63 - 1
#: A lane of an intersection turns if its direction changes by more than this (radians).
TURN = np.deg2rad(30)
#: Two ends of lanes are connected within this distance (metres).
CONNECTED_M = 0.1
#: The mark type, without its colour, of each name that formats give to marks.
_MARKS = {
    "solid": "SOLID", "dashed": "DASHED", "botts_dots": "DASHED", "solid_solid": "DOUBLE_SOLID",
    "dashed_dashed": "DOUBLE_DASH", "solid_dashed": "SOLID_DASH", "dashed_solid": "DASH_SOLID",
}  # fmt: skip
_NO_MARKS = ("none", "no_marking", "curb", "lowered_curb", "grass", "edge")

Line = NDArray[np.float64]


@dataclass
class Lane:
    """A lane in driving direction; its neighbours and successors are given by the keys of other lanes.

    Attributes:
        left, right: ``[P, 2]`` metres.
        center: ``[P, 2]``; by default halfway between the boundaries.
        lane_type, left_mark, right_mark: of ``LANE_TYPES`` and ``MARK_TYPES``.
        is_intersection: None where the file says nothing; if it never does, lanes that cross others are.
        turn_direction: of ``TURN_DIRECTIONS``; by default from the direction of its ends.
        lane_id: the number of the file; by default the next free one.

    Raises: DataError if a line is damaged or too long, or the lane has no length.
    """

    left: Line
    right: Line
    center: Line | None = None
    lane_type: str = "VEHICLE"
    left_mark: str = "UNKNOWN"
    right_mark: str = "UNKNOWN"
    left_neighbor: Hashable = None
    right_neighbor: Hashable = None
    successors: list[Hashable] = field(default_factory=list)
    is_intersection: bool | None = None
    turn_direction: str | None = None
    lane_id: int | None = None

    def __post_init__(self) -> None:
        require_line(self.left, "left bound")
        require_line(self.right, "right bound")
        require_length(self.left, self.right, "bounds")
        require_length(self.centerline, self.centerline, "centerline")

    @cached_property
    def centerline(self) -> Line:
        """``[P, 2]`` metres."""
        return midline(self.left, self.right) if self.center is None else self.center

    def backward(self) -> Lane:
        """Return the lane in the other direction, without number and successors."""
        return replace(
            self, left=self.right[::-1], right=self.left[::-1], center=self.centerline[::-1], lane_id=None,
            left_mark=self.right_mark, right_mark=self.left_mark, turn_direction=None, successors=[],
            left_neighbor=self.right_neighbor, right_neighbor=self.left_neighbor,
        )  # fmt: skip


@dataclass
class MapParts:
    """What the reader of a format finds in a file.

    Attributes:
        frame: which coordinates of the file, or which projection of them, the lanes are in.
        lanes: by keys of the format.
        crossings: the two long sides ``[P, 2]`` (metres) of each.
        numbers: of the elements of the file, also of those that are no lanes: no other lane gets them.
        problems: what was left out.
    """

    frame: str
    lanes: dict[Hashable, Lane] = field(default_factory=dict)
    crossings: list[tuple[Line, Line]] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)
    problems: MapProblems = field(default_factory=MapProblems)

    def element_id(self, text: str | None, name: str) -> int:
        """Return and keep the number of an element.

        Raises: DataError about the field ``name`` if it is no integer or too large.
        """
        value = integer(text, name)
        require(abs(value) <= MAX_ID, name, f"must be at most {MAX_ID}")
        self.numbers.add(value)
        return value

    def add_crossing(self, edge: Line, other: Line) -> None:
        """Add a crossing by its long sides. Raises: DataError if they are damaged or have no length."""
        require_line(edge, "crossing")
        require_line(other, "crossing")
        require_length(edge, other, "crossing")
        self.crossings.append((edge, other))


def require_line(line: Line, name: str) -> None:
    """Raise DataError about ``name`` unless ``line`` has two or more finite points and a possible extent."""
    require(len(line) >= 2, name, "has fewer than 2 points")
    require_finite(line, name)
    extent = float(np.ptp(line, axis=0).max())
    require(extent <= MAX_LANE_M, name, f"is a line of {extent:.3g} m")


def require_length(line: Line, other: Line, name: str) -> None:
    """Raise DataError about ``name`` if both lines have no length."""
    longest = max(arc_length(line)[-1], arc_length(other)[-1])
    require(longest > MIN_LANE_M, name, "has no length")


def mark_type(name: str, color: str | None = None, near_first: bool = True) -> str:
    """Return the type of a mark that a format calls ``name``, such as ``solid_dashed``; white by default.

    Args:
        near_first: whether ``name`` begins with the line next to the lane, as types do.
    """
    if name in _NO_MARKS:
        return "NONE"
    lines = name.split("_") if near_first or name not in _MARKS else name.split("_")[::-1]
    pattern = _MARKS.get("_".join(lines))
    colored = f"{pattern}_{(color or '').upper()}"
    return "UNKNOWN" if pattern is None else colored if colored in MARK_TYPES else f"{pattern}_WHITE"


def lane_map_of(parts: MapParts) -> LaneMap:
    """Build a map: lanes longer than :data:`MAX_LENGTH_M` become segments of equal length.

    The first segment of a lane has the number of the file, the others the numbers after the largest.
    Links to lanes that are not in the file are omitted; predecessors follow from successors.

    Raises: DataError naming the field at fault, also if there is no lane.
    """
    lanes = list(parts.lanes.values())
    require_lanes(len(lanes), parts.problems)
    center = [lane.centerline for lane in lanes]
    sizes = [max(1, math.ceil(arc_length(line)[-1] / MAX_LENGTH_M - 1e-9)) for line in center]
    require(sum(sizes) <= MAX_LANES, "lanes", f"must be at most {MAX_LANES} segments, are {sum(sizes)}")
    ids = dict(zip(parts.lanes, _ids(lanes, sizes, parts.numbers), strict=True))
    lane_id: list[int] = []
    successors: list[list[int]] = []
    for key, lane in parts.lanes.items():
        lane_id += ids[key]
        successors += _onward(ids, ids[key], lane.successors)
    unknown = all(lane.is_intersection is None for lane in lanes)
    inside = _crossed(center) if unknown else np.array([bool(lane.is_intersection) for lane in lanes])
    turns = [_turn(lane, is_inside) for lane, is_inside in zip(lanes, inside.tolist(), strict=True)]
    segments = _cut(center, sizes)
    lane_map = replace(
        LaneMap.from_centerlines(list(segments), lane_id=lane_id, successors=successors),
        lane_type=_codes([lane.lane_type for lane in lanes], LANE_TYPES, sizes),
        is_intersection=np.repeat(inside, sizes),
        left_boundary=_cut([lane.left for lane in lanes], sizes),
        right_boundary=_cut([lane.right for lane in lanes], sizes),
        left_mark=_codes([lane.left_mark for lane in lanes], MARK_TYPES, sizes),
        right_mark=_codes([lane.right_mark for lane in lanes], MARK_TYPES, sizes),
        left_neighbor=_beside(ids, [lane.left_neighbor for lane in lanes]),
        right_neighbor=_beside(ids, [lane.right_neighbor for lane in lanes]),
        turn_direction=_codes(turns, TURN_DIRECTIONS, sizes),
        crossing_id=np.arange(len(parts.crossings)),
        crossing_edge1=Ragged.from_rows([edge for edge, _ in parts.crossings], 2, name="crossing"),
        crossing_edge2=Ragged.from_rows([other for _, other in parts.crossings], 2, name="crossing"),
    )
    lane_map.validate()
    return lane_map


def _codes(names: list[str], known: tuple[str, ...], sizes: list[int]) -> NDArray[np.int8]:
    """Return the index in ``known`` of the name of each lane, for each of its segments."""
    codes = np.array([known.index(name) for name in names], np.int8)
    return np.repeat(codes, sizes)


def _cut(lines: list[Line], sizes: list[int]) -> Ragged:
    """Cut each line into as many pieces as its lane has segments."""
    pieces: list[Line] = []
    for line, size in zip(lines, sizes, strict=True):
        pieces += _pieces(line, size)
    return Ragged.from_rows(pieces, 2)


def _ids(lanes: list[Lane], sizes: list[int], taken: set[int]) -> list[list[int]]:
    """Return the ids of the segments of each lane; editors give negative numbers to unsaved elements."""
    fresh = _free_numbers(taken)
    ids = []
    for lane in lanes:
        number = lane.lane_id
        if number is None or number < 0:
            number = next(fresh)
        ids.append([number])
    for row, size in zip(ids, sizes, strict=True):
        row += [next(fresh) for _ in range(size - 1)]
    return ids


def _free_numbers(taken: set[int]) -> Iterator[int]:
    """Yield the numbers after the largest one that is taken, or between those if there are too few."""
    after = max(taken, default=-1) + 1
    start = after if 0 <= after <= MAX_ID - MAX_LANES else 0
    return (number for number in count(start) if number not in taken)


def _onward(ids: dict[Hashable, list[int]], own: list[int], keys: list[Hashable]) -> list[list[int]]:
    """Return the successors of each segment of a lane: the next one, and at its end the lanes ``keys``."""
    return [*([i] for i in own[1:]), [ids[key][0] for key in dict.fromkeys(keys) if key in ids]]


def _beside(ids: dict[Hashable, list[int]], keys: list[Hashable]) -> NDArray[np.int64]:
    """Return the id of the segment beside the middle of each segment; ``keys`` are the lanes' neighbours."""
    found = []
    for own, key in zip(ids.values(), keys, strict=True):
        other, n = ids.get(key, [NO_LANE]), len(own)
        found += [other[(2 * i + 1) * len(other) // (2 * n)] for i in range(n)]
    return np.array(found, np.int64)


def _pieces(line: Line, parts: int) -> list[Line]:
    """Cut a line into ``parts`` of equal length."""
    arc = arc_length(line)
    at = np.linspace(0, arc[-1], parts + 1)
    inside = [(arc > start + 1e-6) & (arc < end - 1e-6) for start, end in pairwise(at)]
    ends = points_along(line, at)
    pieces = [np.concatenate((ends[[i]], line[kept], ends[[i + 1]])) for i, kept in enumerate(inside)]
    return pieces if parts > 1 else [line]


def _crossed(lines: list[Line]) -> NDArray[np.bool_]:
    """Return for each line whether another one crosses it, other than at an end of both."""
    import shapely

    shapes = [shapely.LineString(line) for line in lines]
    return np.isin(np.arange(len(lines)), shapely.STRtree(shapes).query(shapes, predicate="crosses"))


def _turn(lane: Lane, is_inside: bool) -> str:
    """Return the turn of a lane that the file names, or that its ends have inside an intersection."""
    if lane.turn_direction is not None:
        return lane.turn_direction
    if not is_inside:
        return "NONE"
    line = lane.centerline
    first, last = direction(line[[1, -1]] - line[[0, -2]])
    angle = float(wrap_angle(last - first))
    if abs(angle) < TURN:
        return "NONE"
    return "LEFT" if angle > 0 else "RIGHT"


def faults(lane_map: LaneMap) -> list[str]:
    """Describe what is wrong with the links of a map, in a few words each; empty if nothing is."""
    row = {lane: i for i, lane in enumerate(lane_map.lane_id.tolist())}
    links = [(i, row.get(one)) for i, ids in enumerate(lane_map.successors) for one in ids.tolist()]
    line = lane_map.centerline
    gaps = np.array([norm((line[i][-1] - line[j][0])[:2]) for i, j in links if j is not None])
    apart, outside = int((gaps > CONNECTED_M).sum()), len(links) - len(gaps)
    found = [f"{outside} successors are not in the map"] if outside else []
    if apart:
        found.append(f"{apart} successors begin more than {CONNECTED_M} m away, up to {gaps.max():.1f} m")
    return found
