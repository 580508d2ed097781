"""ASAM OpenDRIVE maps (``.xodr``, versions 1.4 to 1.8): roads, lane sections, junctions and crosswalks.

The map is the road seen from above: heights, superelevation and lateral profiles are left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from xml.etree.ElementTree import Element

import numpy as np

from trajpred.errors import require
from trajpred.geometry import Pose, norm, rotate
from trajpred.sources.maps.lanes import Lane, Line, mark_type
from trajpred.sources.maps.road_line import Cubics, RoadLine, Values
from trajpred.sources.reading import integer, number

#: The lane type of each type of lanes that road users drive on; others are left out.
LANE_TYPE = {
    **dict.fromkeys(("driving", "entry", "exit", "onRamp", "offRamp", "connectingRamp"), "VEHICLE"),
    **dict.fromkeys(("slipLane", "bidirectional", "HOV", "taxi", "mwyEntry", "mwyExit"), "VEHICLE"),
    "biking": "BIKE",
    "bus": "BUS",
}
#: Lanes that are nowhere wider (metres) than this are left out, and so are crosswalks.
NARROW_M = 0.1
#: Maximum number of points of a map.
MAX_POINTS = 2**22
#: The ends of a road along its reference line.
START, END = False, True
#: A lane: road, section, number.
Place = tuple[str, int, int]


def read(root: Element) -> tuple[dict[Hashable, Lane], list[tuple[Line, Line]]]:
    """Return the lanes and crossings of a map, in its own coordinates moved by the offset of its header.

    Raises: DataError naming the element at fault.
    """
    shift = root.find("header/offset")
    x, y, heading = (0.0 if shift is None else number(shift, name, 0.0) for name in ("x", "y", "hdg"))
    frame = Pose(np.array([x, y]), np.float64(heading))
    roads: dict[str, _Road] = {}
    lanes: dict[Hashable, Lane] = {}
    crossings: list[tuple[Line, Line]] = []
    points = 0
    for one in root.iterfind("road"):
        road = _Road.of(one, frame)
        require(road.name not in roads, "road.id", f"{road.name!r} occurs twice")
        points += len(road.line.s) * max(len(section.lanes) for section in road.sections)
        require(points <= MAX_POINTS, "road", f"the map has more than {MAX_POINTS} points")
        roads[road.name] = road
        lanes |= dict(_lanes_of(road))
        crossings += _crossings_of(road)
    for place, end, other, contact in (*_links(roads), *_junction_links(root, roads)):
        _connect(lanes, place, end, other, contact)
        _connect(lanes, other, contact, place, end)
    return lanes, crossings


@dataclass(frozen=True)
class _Section:
    """A lane section from ``start`` to ``end`` (metres): the elements of its lanes by their numbers."""

    start: float
    end: float
    lanes: dict[int, Element]

    @classmethod
    def of(cls, element: Element, start: float, end: float) -> _Section:
        return cls(start, end, {integer(one.get("id"), "lane.id"): one for one in element.iterfind("*/lane")})

    def borders(self, s: Values, center: Values) -> dict[int, Values]:
        """Return how far to the left of the line the outer border ``[S]`` of each lane is; 0: ``center``."""
        found = {0: center}
        for side in (1, -1):
            t = center
            for lane in sorted((lane for lane in self.lanes if lane * side > 0), key=abs):
                width, border = (self.lanes[lane].findall(name) for name in ("width", "border"))
                polynomials = Cubics.of(width or border, "sOffset")(s - self.start)
                t = t + side * np.maximum(polynomials, 0.0) if width or not border else center + polynomials
                found[lane] = t
        return found


@dataclass(frozen=True)
class _Road:
    name: str
    element: Element
    line: RoadLine
    sections: list[_Section]

    @classmethod
    def of(cls, element: Element, frame: Pose[np.ndarray]) -> _Road:
        name, length = element.get("id", ""), number(element, "length")
        found = sorted(element.iterfind("lanes/laneSection"), key=lambda one: number(one, "s"))
        require(len(found) > 0, "laneSection", f"is missing in road {name!r}")
        starts = [0.0, *(number(one, "s") for one in found[1:]), length]
        return cls(
            name, element, RoadLine.of(element, starts, frame),
            [_Section.of(one, *span) for one, span in zip(found, pairwise(starts), strict=True)],
        )  # fmt: skip

    def places(self, end: bool) -> dict[int, Place]:
        """Return the lanes at an end of the road by their numbers."""
        section = len(self.sections) - 1 if end == END else 0
        return {lane: (self.name, section, lane) for lane in self.sections[section].lanes}

    def directions(self, lane: int, element: Element) -> tuple[bool, ...]:
        """Return whether traffic runs along the reference line (True), against it (False), or both ways."""
        along = (lane < 0) != (self.element.get("rule") == "LHT")
        reverse = element.get("direction") == "reversed"
        return (True, False) if element.get("type") == "bidirectional" else (along != reverse,)


def _lanes_of(road: _Road) -> Iterator[tuple[Hashable, Lane]]:
    """Yield the lanes of all sections of a road, by place and whether they run along the reference line."""
    offset = Cubics.of(road.element.findall("lanes/laneOffset"), "s")
    for index, section in enumerate(road.sections):
        line = road.line.between(section.start, section.end)
        # At its end, the offset may jump to that of the next section.
        borders = section.borders(line.s, offset(np.minimum(line.s, section.end - 1e-6)))
        order = sorted(borders, reverse=True)  # from left to right
        numbers = [None, *(lane for lane in order if lane), None]
        for upper, lower in pairwise(order):
            lane = upper if upper > 0 else lower
            element = section.lanes[lane]
            kind = LANE_TYPE.get(element.get("type", ""))
            # Sections of no length have a single point.
            if kind is None or len(line.s) < 2 or (borders[upper] - borders[lower]).max() < NARROW_M:
                continue
            left, right = line.aside(borders[upper]), line.aside(borders[lower])
            marks = _mark(section, upper, lane), _mark(section, lower, lane)
            one = Lane(left, right, (left + right) / 2, kind, marks[0], marks[1])
            one.is_intersection = road.element.get("junction", "-1") != "-1"
            at = numbers.index(lane)
            beside = [numbers[at - 1], numbers[at + 1]]
            for forward in road.directions(lane, element):
                turned = one if forward else one.backward()
                keys = [((road.name, index, other), forward) for other in beside[:: 1 if forward else -1]]
                turned.left_neighbor, turned.right_neighbor = keys
                yield ((road.name, index, lane), forward), turned


def _mark(section: _Section, border: int, lane: int) -> str:
    """Return the mark of a border in the middle of a section, seen from a lane beside it.

    Files name the inner one of two lines first, and that of the centre the left one.
    """
    element, middle = section.lanes.get(border), (section.end - section.start) / 2
    marks = [] if element is None else element.findall("roadMark")
    starts = [number(one, "sOffset", 0.0) for one in marks]
    before = [(start, i) for i, start in enumerate(starts) if start <= middle]
    if not before:
        return "NONE"
    mark = marks[max(before)[1]]
    name = mark.get("type", "").replace("broken", "dashed").replace(" ", "_")
    return mark_type(name, mark.get("color"), near_first=border == lane or (border == 0 and lane > 0))


def _links(roads: dict[str, _Road]) -> Iterator[tuple[Place, bool, Place, bool]]:
    """Yield lanes, their ends, and the lanes and ends that these are linked to, in and between roads."""
    for road in roads.values():
        for index, section in enumerate(road.sections):
            for end, tag in ((START, "predecessor"), (END, "successor")):
                beyond, contact = index + (1 if end == END else -1), not end
                if 0 <= beyond < len(road.sections):
                    others = {lane: (road.name, beyond, lane) for lane in road.sections[beyond].lanes}
                else:
                    link = road.element.find(f"link/{tag}[@elementType='road']")
                    other = None if link is None else roads.get(link.get("elementId", ""))
                    contact = link is not None and link.get("contactPoint") == "end"
                    others = other.places(contact) if other is not None else {}
                for lane, element in section.lanes.items():
                    for one in element.iterfind(f"link/{tag}"):
                        place = others.get(integer(one.get("id"), "lane.link"))
                        if place is not None:
                            yield (road.name, index, lane), end, place, contact


def _junction_links(root: Element, roads: dict[str, _Road]) -> Iterator[tuple[Place, bool, Place, bool]]:
    """Yield what the connections of junctions link, also of direct junctions, likewise."""
    for one in root.iterfind("junction/connection"):
        incoming = roads.get(one.get("incomingRoad", ""))
        onward = roads.get(one.get("connectingRoad", one.get("linkedRoad", "")))
        if incoming is None or onward is None:
            continue
        contact = one.get("contactPoint") == "end"
        gap = norm(incoming.line.xy[[0, -1]] - onward.line.xy[-1 if contact else 0])
        end = bool(gap[1] < gap[0])
        for link in one.iterfind("laneLink"):
            first, last = (integer(link.get(name), f"laneLink.{name}") for name in ("from", "to"))
            if first in incoming.places(end) and last in onward.places(contact):
                yield incoming.places(end)[first], end, onward.places(contact)[last], contact


def _connect(lanes: dict[Hashable, Lane], place: Place, end: bool, other: Place, contact: bool) -> None:
    """Link a lane that ends at ``end`` to one that begins at ``contact``."""
    # Along the reference line (True) a lane ends at END and begins at START, against it the other way round.
    if (place, end) in lanes and (other, not contact) in lanes:
        lanes[place, end].successors.append((other, not contact))


def _crossings_of(road: _Road) -> list[tuple[Line, Line]]:
    """Return the two long sides of the rectangle around each crosswalk."""
    import shapely

    sides = []
    for one in road.element.iterfind("objects/object[@type='crosswalk']"):
        box = shapely.oriented_envelope(shapely.MultiPoint(_corners(road.line, one)))
        if box.area > NARROW_M**2:
            corners = np.array(box.exterior.coords)[:4]
            first = 0 if norm(corners[1] - corners[0]) > norm(corners[2] - corners[1]) else 1
            a, b, c, d = np.roll(corners, -first, axis=0)
            sides.append((np.stack((a, b)), np.stack((d, c))))
    return sides


def _corners(line: RoadLine, one: Element) -> Line:
    """Return the corners ``[C, 2]`` of the outline of an object, by default of its length and width."""
    on_road = [[number(corner, name) for name in "st"] for corner in one.iter("cornerRoad")]
    if on_road:
        return line.at(*np.array(on_road).T)
    local = [[number(corner, name) for name in "uv"] for corner in one.iter("cornerLocal")]
    u, v = number(one, "length", 0.0) / 2, number(one, "width", 0.0) / 2
    s, t = (np.array([number(one, name)]) for name in "st")
    heading = np.interp(s, line.s, line.heading) + number(one, "hdg", 0.0)
    return line.at(s, t) + rotate(np.array(local or [[u, v], [-u, v], [-u, -v], [u, -v]]), heading)
