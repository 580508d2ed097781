"""The lanes of a map file, before :mod:`trajpred.sources.maps.segments` cuts them to lane segments."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require, require_finite
from trajpred.geometry import arc_length
from trajpred.lane_map import MARK_TYPES
from trajpred.sources.argoverse2_map import midline
from trajpred.sources.map_problems import MapProblems
from trajpred.sources.reading import integer

#: Longest lane (metres).
MAX_LANE_M = 1e5
#: Shorter lines (metres) are points.
MIN_LANE_M = 1e-6
#: Largest number of an element.
MAX_ID = 2**63 - 1
#: Two ends of lanes are connected within this distance (metres).
CONNECTED_M = 0.1
#: The mark type, without its colour, of each name that formats give to marks.
_MARKS = {
    "solid": "SOLID", "dashed": "DASHED", "botts_dots": "DASHED", "solid_solid": "DOUBLE_SOLID",
    "dashed_dashed": "DOUBLE_DASH", "solid_dashed": "SOLID_DASH", "dashed_solid": "DASH_SOLID",
}  # fmt: skip
#: The same two lines, listed from the other side.
_FAR_FIRST = {"SOLID_DASH": "DASH_SOLID", "DASH_SOLID": "SOLID_DASH"}
_NO_MARKS = ("none", "no_marking", "curb", "lowered_curb", "grass", "edge")

Line = NDArray[np.float64]


@dataclass
class Lane:
    """A lane in driving direction; its neighbours and successors are given by the keys of other lanes.

    Attributes:
        left: ``[P, 2]`` metres, the left boundary.
        right: ``[P, 2]`` metres, the right boundary.
        center: ``[P, 2]``; by default halfway between the boundaries.
        lane_type: of ``LANE_TYPES``.
        left_mark: of ``MARK_TYPES``.
        right_mark: of ``MARK_TYPES``.
        is_intersection: None where the file says nothing; if it never does, lanes that cross others are.
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
    lane_id: int | None = None

    def __post_init__(self) -> None:
        require_line(self.left, "left bound")
        require_line(self.right, "right bound")
        require_length(self.left, self.right, "bounds")
        require_length(self.centerline, self.centerline, "centerline")

    @cached_property
    def centerline(self) -> Line:
        """``[P, 2]`` metres."""
        if self.center is not None:
            return self.center
        return midline(self.left, self.right)

    def backward(self) -> Lane:
        """Return the lane in the other direction, without number and successors."""
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
        near_first: whether ``name`` begins with the line next to the lane, as the names of types do.
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
