"""Cut lanes of any map format into segments of a LaneMap, with links between them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.data.checks import row_of
from trajpred.data.geometry import arc_length, cut_line, norm
from trajpred.data.lane_map import LANE_TYPES, MARK_TYPES, MAX_ID, NO_LANE, LaneMap, free_ids, num_segments
from trajpred.data.ragged import Ragged
from trajpred.errors import require, require_finite, shortened
from trajpred.sources.argoverse2 import midline
from trajpred.sources.reading import MapProblems, integer, require_lanes

#: Longest lane (metres).
MAX_LANE_M = 1e5
#: Lines shorter than this (metres) are points.
MIN_LANE_M = 1e-6
#: Lane ends within this distance (metres) are connected.
CONNECTED_M = 0.1
#: Mark types without colour, by the names used in the formats.
_MARKS = {
    "solid": "SOLID", "dashed": "DASHED", "botts_dots": "DASHED", "solid_solid": "DOUBLE_SOLID",
    "dashed_dashed": "DOUBLE_DASH", "solid_dashed": "SOLID_DASH", "dashed_solid": "DASH_SOLID",
}  # fmt: skip
#: Names of two lines, listed from the other side.
_FAR_FIRST = {"SOLID_DASH": "DASH_SOLID", "DASH_SOLID": "SOLID_DASH"}
_NO_MARKS = ("none", "no_marking", "curb", "lowered_curb", "grass", "edge")

Line = NDArray[np.float64]


@dataclass
class Lane:
    """A lane in driving direction; its neighbours and successors are given by the keys of other lanes.

    Attributes:
        left: ``[P, 2]`` metres, the left boundary; without points if unknown.
        right: ``[P, 2]`` metres, the right boundary; without points if unknown.
        center: ``[P, 2]``; by default halfway between the boundaries, which must then be known.
        lane_type: one of ``LANE_TYPES``.
        left_mark: one of ``MARK_TYPES``.
        right_mark: one of ``MARK_TYPES``.
        is_intersection: None if the file does not say; if it never does, True for lanes that cross others.
        lane_id: the file's id; by default the next free one.

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
    lane_id: int | None = None

    def __post_init__(self) -> None:
        if self.center is None or len(self.left):
            require_line(self.left, "left bound")
        if self.center is None or len(self.right):
            require_line(self.right, "right bound")
        if len(self.left) and len(self.right):
            require_length(self.left, self.right, "bounds")
        require_length(self.centerline, self.centerline, "centerline")

    @cached_property
    def centerline(self) -> Line:
        """``[P, 2]`` metres."""
        if self.center is not None:
            return self.center
        return midline(self.left, self.right)

    def backward(self) -> Lane:
        """Return the lane in the opposite direction, without id and successors."""
        return replace(
            self,
            left=self.right[::-1],
            right=self.left[::-1],
            center=self.centerline[::-1],
            left_mark=self.right_mark,
            right_mark=self.left_mark,
            left_neighbor=self.right_neighbor,
            right_neighbor=self.left_neighbor,
            successors=[],
            lane_id=None,
        )


@dataclass
class MapParts:
    """The content of a file, found by the reader of its format.

    Attributes:
        frame: the file's coordinates, or their projection, that the lanes are in.
        lanes: lanes by the format's keys.
        crossings: the two long sides ``[P, 2]`` (metres) of each crossing.
        numbers: ids of the file's elements, including those that are not lanes: no other lane gets them.
        problems: what was left out.
    """

    frame: str
    lanes: dict[Hashable, Lane] = field(default_factory=dict)
    crossings: list[tuple[Line, Line]] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)
    problems: MapProblems = field(default_factory=MapProblems)

    def element_id(self, text: str | None, name: str) -> int:
        """Return and record the id of an element.

        Raises: DataError about the field ``name`` if it is not an integer or too large.
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
    """Return the mark type for a format's ``name``, such as ``solid_dashed``; white by default.

    Args:
        near_first: whether ``name`` begins with the line next to the lane, like the names of types.
    """
    if name in _NO_MARKS:
        return "NONE"
    if name not in _MARKS:
        return "UNKNOWN"
    pattern = _MARKS[name]
    if not near_first:
        pattern = _FAR_FIRST.get(pattern, pattern)
    colored = f"{pattern}_{(color or '').upper()}"
    if colored in MARK_TYPES:
        return colored
    return f"{pattern}_WHITE"


def lane_map_of(parts: MapParts) -> LaneMap:
    """Build a map; lanes are cut as in :meth:`LaneMap.from_centerlines`.

    The first segment of a lane has the file's id, the others ids after the largest. Links to lanes missing in
    the file are omitted; predecessors follow from successors.

    Raises: DataError naming the field at fault, also if there is no lane.
    """
    lanes = list(parts.lanes.values())
    require_lanes(len(lanes), parts.problems)
    center = [lane.centerline for lane in lanes]
    sizes = num_segments(center, "lanes")
    ids = dict(zip(parts.lanes, _ids(lanes, sizes, parts.numbers), strict=True))
    lane_id: list[int] = []
    successors: list[list[int]] = []
    for key, lane in parts.lanes.items():
        lane_id += ids[key]
        successors += _onward(ids, ids[key], lane.successors)

    def values(attribute: str) -> list[Any]:
        return [getattr(lane, attribute) for lane in lanes]

    flags = values("is_intersection")
    has_flags = flags.count(None) < len(flags)
    inside = np.array(flags, np.bool_) if has_flags else _crossed(center)
    edge1: list[Line] = []
    edge2: list[Line] = []
    for first, second in parts.crossings:
        edge1.append(first)
        edge2.append(second)
    segments = _cut(center, sizes)
    lane_map = replace(
        LaneMap.from_centerlines(list(segments), lane_id=lane_id, successors=successors),
        lane_type=_codes(values("lane_type"), LANE_TYPES, sizes),
        is_intersection=np.repeat(inside, sizes),
        left_boundary=_cut(values("left"), sizes),
        right_boundary=_cut(values("right"), sizes),
        left_mark=_codes(values("left_mark"), MARK_TYPES, sizes),
        right_mark=_codes(values("right_mark"), MARK_TYPES, sizes),
        left_neighbor=_beside(ids, values("left_neighbor")),
        right_neighbor=_beside(ids, values("right_neighbor")),
        crossing_id=np.arange(len(parts.crossings)),
        crossing_edge1=Ragged.from_rows(edge1, 2, name="crossing"),
        crossing_edge2=Ragged.from_rows(edge2, 2, name="crossing"),
    )
    lane_map.validate()
    return lane_map


def _codes(names: list[str], types: tuple[str, ...], sizes: list[int]) -> NDArray[np.int8]:
    """Return the index in ``types`` of each lane's name, for each of its segments."""
    codes = np.array([types.index(name) for name in names], np.int8)
    return np.repeat(codes, sizes)


def _cut(lines: list[Line], sizes: list[int]) -> Ragged:
    """Cut each line into its lane's number of segments."""
    pieces: list[Line] = []
    for line, size in zip(lines, sizes, strict=True):
        pieces += cut_line(line, size)
    return Ragged.from_rows(pieces, 2)


def _ids(lanes: list[Lane], sizes: list[int], taken: set[int]) -> list[list[int]]:
    """Return the ids of each lane's segments; editors give negative ids to unsaved elements."""
    fresh = free_ids(taken)
    ids = []
    for lane in lanes:
        number = lane.lane_id
        if number is None or number < 0:
            number = next(fresh)
        ids.append([number])
    for row, size in zip(ids, sizes, strict=True):
        row += islice(fresh, size - 1)
    return ids


def _onward(ids: dict[Hashable, list[int]], segments: list[int], keys: list[Hashable]) -> list[list[int]]:
    """Return each segment's successors: the next one and, at the end of the lane, the lanes ``keys``."""
    successors = [[segment] for segment in segments[1:]]
    onward: list[int] = []
    for key in dict.fromkeys(keys):
        if key in ids:
            first_segment = ids[key][0]
            onward.append(first_segment)
    successors.append(onward)
    return successors


def _beside(ids: dict[Hashable, list[int]], keys: list[Hashable]) -> NDArray[np.int64]:
    """Return the id of the segment beside the middle of each segment; ``keys`` are the lanes' neighbours."""
    neighbors: list[int] = []
    for segments, key in zip(ids.values(), keys, strict=True):
        beside = ids.get(key, [NO_LANE])
        for number in range(len(segments)):
            # The middle of a segment is at the fraction (number + 1/2) / len(segments) of its lane.
            index = (2 * number + 1) * len(beside) // (2 * len(segments))
            neighbors.append(beside[index])
    return np.array(neighbors, np.int64)


def _crossed(lines: list[Line]) -> NDArray[np.bool_]:
    """Return whether each line is crossed by another, other than at an end of both."""
    import shapely

    shapes = [shapely.LineString(line) for line in lines]
    crossing = shapely.STRtree(shapes).query(shapes, predicate="crosses")
    return np.isin(np.arange(len(lines)), crossing)


def is_simple(left: Line, right: Line) -> bool:
    """Return whether the outline of a lane with parallel boundaries does not cross itself."""
    import shapely

    outline = np.concatenate((left, right[::-1]))
    return bool(shapely.LinearRing(outline).is_simple)


def faults(lane_map: LaneMap) -> list[str]:
    """Describe each fault in the links and outlines of a map, in a few words."""
    row_of_lane = row_of(lane_map.lane_id.tolist())
    outside = 0
    distances: list[float] = []
    for line, successors in zip(lane_map.centerline, lane_map.successors, strict=True):
        for lane in successors.tolist():
            row = row_of_lane.get(lane)
            if row is None:
                outside += 1
                continue
            gap = lane_map.centerline[row][0] - line[-1]
            distances.append(float(norm(gap[:2])))
    apart = int(np.count_nonzero(np.array(distances) > CONNECTED_M))
    problems: list[str] = []
    if outside:
        problems.append(f"{outside} successors are not in the map")
    if apart:
        farthest = f"up to {max(distances):.1f} m"
        problems.append(f"{apart} successors begin more than {CONNECTED_M} m away, {farthest}")
    crossed: list[str] = []
    for row, name in enumerate(lane_map.lane_id.tolist()):
        left = lane_map.left_boundary[row]
        right = lane_map.right_boundary[row]
        if not is_simple(left[:, :2], right[:, :2]):
            crossed.append(str(name))
    if crossed:
        problems.append(f"{len(crossed)} outlines of lanes cross themselves: {shortened(', '.join(crossed))}")
    return problems
