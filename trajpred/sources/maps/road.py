"""A road in OpenDRIVE: its lane sections, and their lanes as lane segments have them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from xml.etree.ElementTree import Element

import numpy as np

from trajpred.errors import DataError, require
from trajpred.geometry import Pose
from trajpred.sources.map_problems import MapProblems
from trajpred.sources.maps.lanes import Lane, mark_type
from trajpred.sources.maps.road_line import Cubics, RoadLine, Values
from trajpred.sources.reading import integer, number

#: The lane type of each type of lanes that road users drive on; others are left out.
LANE_TYPE = {
    "driving": "VEHICLE",
    "entry": "VEHICLE",
    "exit": "VEHICLE",
    "onRamp": "VEHICLE",
    "offRamp": "VEHICLE",
    "connectingRamp": "VEHICLE",
    "slipLane": "VEHICLE",
    "bidirectional": "VEHICLE",
    "HOV": "VEHICLE",
    "taxi": "VEHICLE",
    "mwyEntry": "VEHICLE",
    "mwyExit": "VEHICLE",
    "biking": "BIKE",
    "bus": "BUS",
}
#: Lanes that are nowhere wider (metres) than this are left out, and so are crosswalks.
NARROW_M = 0.1
#: The first end of a road along its reference line.
START = False
#: The last end of a road along its reference line.
END = True
#: A lane: road, section, number.
Place = tuple[str, int, int]


@dataclass(frozen=True)
class Section:
    """A lane section from ``start`` to ``end`` (metres): the elements of its lanes by their numbers."""

    start: float
    end: float
    lanes: dict[int, Element]

    @classmethod
    def of(cls, element: Element, start: float, end: float) -> Section:
        """Read the lanes of a section. Raises: DataError on a lane without a number."""
        lanes = {}
        for side in ("left", "center", "right"):
            for lane in element.iterfind(f"{side}/lane"):
                lanes[integer(lane.get("id"), "lane.id")] = lane
        return cls(start, end, lanes)

    def borders(self, s: Values, center: Values) -> dict[int, Values]:
        """Return how far to the left of the line the outer border ``[S]`` of each lane is; 0: ``center``."""
        borders = {0: center}
        for side in (1, -1):
            inner = center
            lanes = [lane for lane in self.lanes if lane * side > 0]
            for lane in sorted(lanes, key=abs):
                inner = self._border(lane, s, center, inner)
                borders[lane] = inner
        return borders

    def _border(self, lane: int, s: Values, center: Values, inner: Values) -> Values:
        """Return the outer border ``[S]`` of a lane, whose inner border is ``inner`` ``[S]``."""
        side = 1 if lane > 0 else -1
        width = self.lanes[lane].findall("width")
        border = self.lanes[lane].findall("border")
        if width or not border:
            return inner + side * np.maximum(Cubics.of(width, "sOffset")(s - self.start), 0.0)
        offset = Cubics.of(border, "sOffset")(s - self.start)
        # Some files have all borders without a sign: those of one side would lie within its inner ones.
        outward = side * (center + offset - inner).mean()
        outward_mirrored = side * (center - offset - inner).mean()
        is_unsigned = outward < -NARROW_M and outward_mirrored > NARROW_M
        if is_unsigned:
            return center - offset
        return center + offset


@dataclass(frozen=True)
class Road:
    """A road: its name, element, reference line, and sections along it."""

    name: str
    element: Element
    line: RoadLine
    sections: list[Section]

    @classmethod
    def of(cls, element: Element, frame: Pose[np.ndarray]) -> Road:
        """Read a road whose coordinates are in ``frame``. Raises: DataError naming the element at fault."""
        name = element.get("id", "")
        length = number(element, "length")
        elements = sorted(element.iterfind("lanes/laneSection"), key=lambda section: number(section, "s"))
        require(len(elements) > 0, "laneSection", f"is missing in road {name!r}")
        starts = [0.0, *(number(section, "s") for section in elements[1:]), length]
        sections = []
        for section, (start, end) in zip(elements, pairwise(starts), strict=True):
            sections.append(Section.of(section, start, end))
        return cls(name, element, RoadLine.of(element, starts, frame), sections)

    def place(self, end: bool, lane: int) -> Place:
        """Return where a lane of this number would be at an end of the road."""
        section = len(self.sections) - 1 if end == END else 0
        return self.name, section, lane

    def has_lane(self, end: bool, lane: int) -> bool:
        """Return whether the road has a lane of this number at one of its ends."""
        section = self.sections[-1 if end == END else 0]
        return lane in section.lanes

    def directions(self, lane: int, element: Element) -> tuple[bool, ...]:
        """Return whether traffic runs along the reference line (True), against it (False), or both ways."""
        direction = element.get("direction", "standard")
        if direction == "both" or element.get("type") == "bidirectional":
            return (True, False)
        along = (lane < 0) != (self.element.get("rule") == "LHT")
        return (along != (direction == "reversed"),)


def lanes_of(road: Road, problems: MapProblems) -> Iterator[tuple[Hashable, Lane]]:
    """Yield the lanes of all sections of a road, by place and whether they run along the reference line.

    Raises: DataError naming the element at fault. Broken lanes and marks are left out.
    """
    offset = Cubics.of(road.element.findall("lanes/laneOffset"), "s")
    for index, section in enumerate(road.sections):
        line = road.line.between(section.start, section.end)
        if len(line.s) < 2:
            _record_no_length(road, index, problems)
            continue
        # At its end, the offset may jump to that of the next section.
        borders = section.borders(line.s, offset(np.minimum(line.s, section.end - 1e-6)))
        order = sorted(borders, reverse=True)  # from left to right
        for upper, lower in pairwise(order):
            number = upper if upper > 0 else lower
            element = section.lanes[number]
            kind = LANE_TYPE.get(element.get("type", ""))
            width = borders[upper] - borders[lower]
            if kind is None or np.abs(width).max() < NARROW_M:
                continue
            with problems.leaving_out("lane", f"{number} of section {index} of road {road.name}"):
                require(width.max() >= NARROW_M, "lane.border", "is on the inner side of the lane")
                left_line = line.aside(borders[upper])
                right_line = line.aside(borders[lower])
                lane = Lane(
                    left_line,
                    right_line,
                    center=(left_line + right_line) / 2,
                    lane_type=kind,
                    left_mark=_mark(road, section, upper, number, problems),
                    right_mark=_mark(road, section, lower, number, problems),
                )
                lane.is_intersection = road.element.get("junction", "-1") != "-1"
                for forward in road.directions(number, element):
                    turned = lane if forward else lane.backward()
                    left, right = _beside(order, number, forward)
                    turned.left_neighbor = ((road.name, index, left), forward)
                    turned.right_neighbor = ((road.name, index, right), forward)
                    yield ((road.name, index, number), forward), turned


def _record_no_length(road: Road, index: int, problems: MapProblems) -> None:
    """Record a section of no length, if road users drive on a lane of it."""
    kinds = {lane.get("type", "") for lane in road.sections[index].lanes.values()}
    if kinds & LANE_TYPE.keys():
        problems.add("lane section", f"{index} of road {road.name}", "it has no length")


def _beside(order: list[int], lane: int, forward: bool) -> tuple[int | None, int | None]:
    """Return the lanes to the left and right of one, of the lanes ``order`` from left to right."""
    lanes = [number for number in order if number != 0]
    numbers = [None, *lanes, None]
    index = numbers.index(lane)
    left = numbers[index - 1]
    right = numbers[index + 1]
    return (left, right) if forward else (right, left)


def _mark(road: Road, section: Section, border: int, lane: int, problems: MapProblems) -> str:
    """Return the mark of a border in the middle of a section, seen from a lane beside it.

    Files name the inner one of two lines first, and that of the centre the left one.
    """
    element = section.lanes.get(border)
    if element is None:
        return "NONE"
    try:
        mark = _mark_at(element, (section.end - section.start) / 2)
    except DataError as error:
        problems.add("road mark", f"{border} of road {road.name}", str(error))
        return "UNKNOWN"
    if mark is None:
        return "NONE"
    name = mark.get("type", "").replace("broken", "dashed").replace(" ", "_")
    return mark_type(name, mark.get("color"), near_first=border == lane or (border == 0 and lane > 0))


def _mark_at(element: Element, s: float) -> Element | None:
    """Return the last mark of a lane that begins at most ``s`` metres after the start of its section."""
    last = None
    latest = -np.inf
    for mark in element.iterfind("roadMark"):
        start = number(mark, "sOffset", 0.0)
        if latest <= start <= s:
            last = mark
            latest = start
    return last
