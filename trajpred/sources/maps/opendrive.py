"""ASAM OpenDRIVE maps (``.xodr``, versions 1.4 to 1.8): roads, lane sections, junctions and crosswalks.

The map is that of the road seen from above: heights, superelevation and cross-falls are left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

import numpy as np

from trajpred.errors import require
from trajpred.geometry import norm, rotate
from trajpred.sources.maps.lanes import Lane, Line, mark_name, swapped
from trajpred.sources.maps.road_line import Cubics, RoadLine, Values
from trajpred.sources.maps.xml_file import integer, number

#: The lane type of each type of lanes that road users drive on; others are left out.
LANE_TYPE = {
    **dict.fromkeys(("driving", "entry", "exit", "onRamp", "offRamp", "connectingRamp"), "VEHICLE"),
    **dict.fromkeys(("slipLane", "bidirectional", "HOV", "taxi", "mwyEntry", "mwyExit"), "VEHICLE"),
    "biking": "BIKE",
    "bus": "BUS",
}
_PATTERN = {
    **dict.fromkeys(("none", "grass", "curb", "edge"), "NONE"),
    "solid": "SOLID",
    **dict.fromkeys(("broken", "botts dots"), "DASHED"),
    "solid solid": "DOUBLE_SOLID",
    "broken broken": "DOUBLE_DASH",
    "solid broken": "SOLID_DASH",
    "broken solid": "DASH_SOLID",
}
#: Lanes that are nowhere wider (metres) than this are left out, and so are shorter sections.
_NARROW_M, _SHORT_M = 0.1, 1e-3
#: Maximum number of points of a map.
MAX_POINTS = 2**22
#: The ends of a road, section or lane along the reference line.
START, END = False, True
#: A lane: road, section, number. An end of it.
Place = tuple[str, int, int]
LaneEnd = tuple[Place, bool]


def read(root: Element) -> tuple[dict[Hashable, Lane], list[tuple[Line, Line]]]:
    """Return the lanes and crossings of a map, in its own coordinates with the header's offset applied.

    Raises: DataError naming the element at fault.
    """
    roads: dict[str, _Road] = {}
    points = 0
    for one in root.iterfind("road"):
        road = _Road.of(one)
        require(road.name not in roads, "road.id", f"{road.name!r} occurs twice")
        roads[road.name] = road
        points += len(road.line.s) * max(len(section.lanes) for section in road.sections)
        require(points <= MAX_POINTS, "road", f"the map has more than {MAX_POINTS} points")
    lanes: dict[Hashable, Lane] = {}
    crossings: list[tuple[Line, Line]] = []
    for road in roads.values():
        lanes |= _lanes_of(road)
        crossings += _crossings_of(road)
    for one_end, other in (*_links(roads), *_junction_links(root, roads)):
        _connect(lanes, one_end, other)
        _connect(lanes, other, one_end)
    return _moved(root.find("header/offset"), lanes, crossings)


@dataclass(frozen=True)
class _Section:
    """A lane section: its lanes by number, descending (from left to right), and the lines between them."""

    start: float
    end: float
    lanes: dict[int, Element]

    @classmethod
    def of(cls, element: Element, start: float, end: float) -> _Section:
        found = {integer(one.get("id"), "lane.id"): one for one in element.iterfind("*/lane")}
        return cls(start, end, {number: found[number] for number in sorted(found, reverse=True)})

    def offsets(self, s: Values, center: Values) -> dict[int, Values]:
        """Return the outer border ``[S]`` of each lane, to the left of the reference line; 0 is the centre."""
        borders = {0: center}
        for side in (1, -1):
            t = center
            for lane in sorted((lane for lane in self.lanes if lane * side > 0), key=abs):
                element, ds = self.lanes[lane], s - self.start
                width, border = element.findall("width"), element.findall("border")
                if width or not border:
                    t = t + side * np.maximum(Cubics.of(width, "sOffset")(ds), 0.0)
                else:
                    t = center + Cubics.of(border, "sOffset")(ds)
                borders[lane] = t
        return borders


@dataclass(frozen=True)
class _Road:
    name: str
    element: Element
    line: RoadLine
    offset: Cubics
    sections: list[_Section]
    keeps_left: bool
    junction: str | None

    @classmethod
    def of(cls, element: Element) -> _Road:
        name, length = element.get("id") or "", number(element, "length")
        found = sorted(element.iterfind("lanes/laneSection"), key=lambda one: number(one, "s"))
        require(len(found) > 0, "laneSection", f"is missing in road {name!r}")
        starts = [0.0, *(number(one, "s") for one in found[1:]), length]
        sections = [_Section.of(*each) for each in zip(found, starts[:-1], starts[1:], strict=True)]
        offset = Cubics.of(element.findall("lanes/laneOffset"), "s")
        widths = [
            section.start + number(width, "sOffset", 0.0)
            for section in sections
            for lane in section.lanes.values()
            for width in lane.iterfind("width")
        ]
        line = RoadLine.of(element, [*starts, *offset.start.tolist(), *widths])
        junction = element.get("junction", "-1")
        keeps_left = element.get("rule") == "LHT"
        return cls(name, element, line, offset, sections, keeps_left, None if junction == "-1" else junction)

    def link(self, end: bool) -> Element | None:
        """Return what the road is linked to at an end."""
        return self.element.find("link/successor" if end == END else "link/predecessor")

    def section(self, end: bool) -> int:
        """Return the number of the section at an end."""
        return len(self.sections) - 1 if end == END else 0

    def places(self, end: bool) -> dict[int, Place]:
        """Return the lanes of the section at an end by their numbers."""
        section = self.section(end)
        return {lane: (self.name, section, lane) for lane in self.sections[section].lanes}


def _lanes_of(road: _Road) -> dict[Hashable, Lane]:
    """Return the lanes of all sections of a road, by place and whether they run along the reference line."""
    lanes: dict[Hashable, Lane] = {}
    for number_of, section in enumerate(road.sections):
        line = road.line.between(section.start, section.end)
        if len(line.s) < 2 or section.end - section.start < _SHORT_M:
            continue
        borders = section.offsets(line.s, road.offset(line.s))
        order = sorted(borders, reverse=True)
        for upper, lower in zip(order, order[1:], strict=False):
            # The lane lies between two lines: to the left of the centre, its own is the upper one.
            lane = upper if upper > 0 else lower
            kind = section.lanes[lane].get("type", "none")
            if kind not in LANE_TYPE or (borders[upper] - borders[lower]).max() < _NARROW_M:
                continue
            sides = [line.aside(borders[upper]), line.aside(borders[lower])]
            marks = [_mark(section, lane, upper), _mark(section, lane, lower)]
            beside = [_beside(section, lane, +1), _beside(section, lane, -1)]
            for forward in _directions(road, section.lanes[lane]):
                turned = 1 if forward else -1
                left, right = (side[::turned] for side in sides[::turned])
                neighbors = [
                    ((road.name, number_of, other), forward)
                    if other is not None and forward in _directions(road, section.lanes[other])
                    else None
                    for other in beside[::turned]
                ]
                lanes[(road.name, number_of, lane), forward] = Lane(
                    left=left, right=right, centerline=(left + right) / 2, lane_type=LANE_TYPE[kind],
                    left_mark=marks[::turned][0], right_mark=marks[::turned][1],
                    left_neighbor=neighbors[0], right_neighbor=neighbors[1],
                    is_intersection=road.junction is not None,
                )  # fmt: skip
    return lanes


def _directions(road: _Road, lane: Element) -> tuple[bool, ...]:
    """Return whether traffic runs along the reference line (True), against it (False), or both ways."""
    if lane.get("type") == "bidirectional":
        return (True, False)
    along = (integer(lane.get("id"), "lane.id") < 0) != road.keeps_left
    return (along != (lane.get("direction") == "reversed"),)


def _beside(section: _Section, lane: int, step: int) -> int | None:
    """Return the number of the next lane to the left (+1) or right (-1), or None."""
    order = [one for one in section.lanes if one != 0]
    row = order.index(lane) - step
    return order[row] if 0 <= row < len(order) else None


def _mark(section: _Section, lane: int, border: int) -> str:
    """Return the mark of a border in the middle of a section, whose line near ``lane`` is named first.

    Files name the inner line first, and that of the centre the left one.
    """
    owner = section.lanes.get(border)
    if owner is None:
        return "NONE"
    middle = (section.end - section.start) / 2
    marks = [one for one in owner.iterfind("roadMark") if number(one, "sOffset", 0.0) <= middle]
    if not marks:
        return "NONE"
    found = max(marks, key=lambda one: number(one, "sOffset", 0.0))
    pattern = _PATTERN.get(found.get("type", ""), "UNKNOWN")
    near_first = border == lane or (border == 0 and lane > 0)
    return mark_name(pattern if near_first else swapped(pattern), found.get("color"))


def _links(roads: dict[str, _Road]) -> Iterator[tuple[LaneEnd, LaneEnd]]:
    """Yield the ends of lanes that are linked to each other, within roads and from road to road."""
    for road in roads.values():
        for i, section in enumerate(road.sections):
            for end in (START, END):
                beyond = i + (1 if end == END else -1)
                if 0 <= beyond < len(road.sections):
                    other, contact = (
                        {one: (road.name, beyond, one) for one in road.sections[beyond].lanes},
                        not end,
                    )
                else:
                    other, contact = _linked_road(roads, road.link(end))
                for lane, element in section.lanes.items():
                    for link in element.iterfind("link/successor" if end == END else "link/predecessor"):
                        place = other.get(integer(link.get("id"), "lane.link"))
                        if place is not None:
                            yield ((road.name, i, lane), end), (place, contact)


def _linked_road(roads: dict[str, _Road], link: Element | None) -> tuple[dict[int, Place], bool]:
    """Return the lanes at the end of the road that ``link`` names, and which end that is."""
    road = roads.get(link.get("elementId", "")) if link is not None else None
    if link is None or road is None or link.get("elementType") != "road":
        return {}, START
    contact = link.get("contactPoint") == "end"
    return road.places(contact), contact


def _junction_links(root: Element, roads: dict[str, _Road]) -> Iterator[tuple[LaneEnd, LaneEnd]]:
    """Yield the ends of lanes that the connections of junctions link."""
    for junction in root.iterfind("junction"):
        for one in junction.iterfind("connection"):
            incoming = roads.get(one.get("incomingRoad", ""))
            connecting = roads.get(one.get("connectingRoad") or one.get("linkedRoad", ""))
            if incoming is None or connecting is None:
                continue
            contact = one.get("contactPoint") == "end"
            ends = [end for end in (START, END) if _leads_to(incoming.link(end), junction, connecting)]
            goal = connecting.line.xy[-1 if contact else 0]
            nearest = sorted(ends, key=lambda end: norm(incoming.line.xy[-1 if end else 0] - goal))
            for link in one.iterfind("laneLink"):
                first, last = (integer(link.get(name), f"laneLink.{name}") for name in ("from", "to"))
                for end in nearest[:1]:
                    from_place, to_place = (
                        incoming.places(end).get(first),
                        connecting.places(contact).get(last),
                    )
                    if from_place is not None and to_place is not None:
                        yield (from_place, end), (to_place, contact)


def _leads_to(link: Element | None, junction: Element, road: _Road) -> bool:
    return link is not None and link.get("elementId") in (junction.get("id"), road.name)


def _connect(lanes: dict[Hashable, Lane], one: LaneEnd, other: LaneEnd) -> None:
    """Link lanes that leave at the end ``one`` to those that begin at ``other``."""
    (place, end), (beyond, begin) = one, other
    # A lane along the reference line leaves at END and begins at START, one against it the other way round.
    if (place, end) in lanes and (beyond, not begin) in lanes:
        lanes[place, end].successors.append((beyond, not begin))


def _crossings_of(road: _Road) -> list[tuple[Line, Line]]:
    """Return the two long sides of the rectangle around each crosswalk."""
    import shapely

    sides = []
    for one in road.element.iterfind("objects/object"):
        if one.get("type") != "crosswalk":
            continue
        box = shapely.oriented_envelope(shapely.MultiPoint(_corners(road, one)))
        if box.geom_type == "Polygon" and box.area > _NARROW_M**2:
            a, b, c, d = np.array(box.exterior.coords)[:4]
            sides.append((np.stack((a, b)), np.stack((d, c))))
            if norm(b - a) < norm(c - b):
                sides[-1] = (np.stack((b, c)), np.stack((a, d)))
    return sides


def _corners(road: _Road, one: Element) -> Line:
    """Return the corners ``[C, 2]`` of the outline of an object, by default of its length and width."""
    corners = one.findall("outline/*") or one.findall("outlines/outline/*")
    s, t = (np.array([number(one, name)]) for name in "st")
    on_road = [corner for corner in corners if corner.tag == "cornerRoad"]
    if on_road:
        return road.line.at(*(np.array([number(corner, name) for corner in on_road]) for name in "st"))
    local = [[number(corner, name) for name in "uv"] for corner in corners if corner.tag == "cornerLocal"]
    if not local:
        u, v = number(one, "length", 0.0) / 2, number(one, "width", 0.0) / 2
        local = [[u, v], [-u, v], [-u, -v], [u, -v]]
    heading = np.interp(s, road.line.s, road.line.heading) + number(one, "hdg", 0.0)
    return road.line.at(s, t) + rotate(np.array(local), heading)


def _moved(
    offset: Element | None, lanes: dict[Hashable, Lane], crossings: list[tuple[Line, Line]]
) -> tuple[dict[Hashable, Lane], list[tuple[Line, Line]]]:
    """Rotate everything by the header's offset, and move it, to the coordinates of the georeference."""
    if offset is None:
        return lanes, crossings
    to, angle = np.array([number(offset, axis, 0.0) for axis in "xy"]), np.float64(number(offset, "hdg", 0.0))
    for lane in lanes.values():
        lane.left, lane.right = rotate(lane.left, angle) + to, rotate(lane.right, angle) + to
        lane.centerline = (lane.left + lane.right) / 2
    return lanes, [(rotate(one, angle) + to, rotate(other, angle) + to) for one, other in crossings]
