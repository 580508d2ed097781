"""A road of OpenDRIVE: its reference line and the lanes beside it, as points in metres."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from trajpred.data.batch import concatenate
from trajpred.data.geometry import Pose, arc_length, direction, to_global, unit_vector
from trajpred.errors import DataError, require
from trajpred.integrations.maps.segments import Lane, mark_type
from trajpred.sources.reading import MapProblems, integer, number

#: Largest distance (metres) between a curve and its chords.
TOLERANCE_M = 0.01
#: Shortest chord (metres).
MIN_STEP_M = 0.1
#: Longest chord (metres).
MAX_STEP_M = 1.0
#: Length of the chords of polynomials (metres).
POLYNOMIAL_STEP_M = 0.25
#: Longest road (metres).
MAX_ROAD_M = 1e5
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Cubics:
    """Cubic polynomials a + b ds + c ds² + d ds³, one after another; ds counts from each start.

    Attributes:
        start: ``[N]`` metres, ascending.
        factors: ``[N, 4]``: a, b, c, d.
    """

    start: Values
    factors: Values

    @classmethod
    def of(cls, elements: Sequence[Element], start: str) -> Cubics:
        """Read elements whose attribute ``start`` is the start. Raises: DataError naming the attribute."""
        rows = []
        for element in elements:
            factors = _numbers(element, "abcd")
            rows.append([number(element, start, 0.0), *factors])
        table = np.array(sorted(rows) or [[0.0] * 5])
        return cls(table[:, 0], table[:, 1:])

    def __call__(self, s: Values) -> Values:
        """Evaluate at ``s`` ``[S]``, 0 without polynomials."""
        row = (np.searchsorted(self.start, s + 1e-9, side="right") - 1).clip(0)
        a, b, c, d = self.factors[row].T
        ds = s - self.start[row]
        return a + ds * (b + ds * (c + ds * d))


@dataclass(frozen=True)
class RoadLine:
    """The reference line of a road at ``S`` stations.

    Attributes:
        s: ``[S]`` metres along the road, ascending.
        xy: ``[S, 2]`` metres.
        heading: ``[S]`` radians.
    """

    s: Values
    xy: Values
    heading: Values

    @classmethod
    def of(cls, road: Element, stations: Sequence[float], frame: Pose[np.ndarray]) -> RoadLine:
        """Sample the line of ``road``, with coordinates in ``frame``, also at ``stations`` (metres).

        Raises: DataError naming the element at fault.
        """
        length = number(road, "length")
        wrong = f"must be above 0 and at most {MAX_ROAD_M:g} m, is {length}"
        require(0 < length <= MAX_ROAD_M, "road.length", wrong)
        records = sorted(road.iterfind("planView/geometry"), key=_start)
        require(len(records) > 0, "planView.geometry", f"is missing in road {road.get('id')!r}")
        starts = [min(max(_start(record), 0.0), length) for record in records[1:]]
        bounds = [0.0, *starts, length]
        pieces: list[RoadLine] = []
        for record, (start, end) in zip(records, pairwise(bounds), strict=True):
            grid = np.linspace(start, end, math.ceil((end - start) / _step(record)) + 1)
            inner = [station for station in stations if start < station < end]
            s = np.union1d(grid, inner)
            xy, heading = _curve(record, s - start)
            origin = np.array([number(record, "x"), number(record, "y")])
            origin_heading = np.array(number(record, "hdg"))
            xy = to_global(xy, origin, origin_heading)
            xy = to_global(xy, frame.position, frame.heading)
            pieces.append(cls(s, xy, heading + origin_heading + frame.heading))
        line = concatenate(pieces)
        first = np.unique(line.s, return_index=True)[1]  # the ends of records are the starts of the next
        return cls(line.s[first], line.xy[first], np.unwrap(line.heading[first]))

    def between(self, start: float, end: float) -> RoadLine:
        """Select the stations from ``start`` to ``end``."""
        inside = (self.s >= start) & (self.s <= end)
        return RoadLine(self.s[inside], self.xy[inside], self.heading[inside])

    def aside(self, t: Values) -> Values:
        """Return the points ``[S, 2]`` at ``t`` ``[S]`` metres to the left of the line."""
        return self.xy + t[:, None] * unit_vector(self.heading + np.pi / 2)

    def at(self, s: Values, t: Values) -> Values:
        """Return the points ``[M, 2]`` at the stations ``s`` ``[M]``, ``t`` ``[M]`` metres to the left."""
        x = np.interp(s, self.s, self.xy[:, 0])
        y = np.interp(s, self.s, self.xy[:, 1])
        heading = np.interp(s, self.s, self.heading)
        return RoadLine(s, np.stack((x, y), -1), heading).aside(t)


def _curvature(record: Element) -> tuple[float, float] | None:
    """Return the curvature (1/m) of a line, arc or spiral at its start and its end; None for polynomials."""
    spiral = record.find("spiral")
    if spiral is not None:
        return number(spiral, "curvStart"), number(spiral, "curvEnd")
    arc = record.find("arc")
    if arc is not None:
        curvature = number(arc, "curvature")
        return curvature, curvature
    if record.find("line") is not None:
        return 0.0, 0.0
    return None


def _start(record: Element) -> float:
    """Return the station (metres) at which a record starts."""
    return number(record, "s")


def _step(record: Element) -> float:
    ends = _curvature(record)
    if ends is None:
        return POLYNOMIAL_STEP_M
    sharpest = max(abs(ends[0]), abs(ends[1]), 1e-9)
    step = math.sqrt(8 * TOLERANCE_M / sharpest)
    return min(max(step, MIN_STEP_M), MAX_STEP_M)


def _curve(record: Element, ds: Values) -> tuple[Values, Values]:
    """Return points ``[S, 2]`` and headings ``[S]`` at ``ds`` ``[S]`` metres from the start, in its frame."""
    ends = _curvature(record)
    if ends is None:
        return _polynomial(record, ds)
    # The curvature is linear: integrate the direction from point to point (Gauss-Legendre).
    curvature = ends[0]
    slope = (ends[1] - curvature) / max(number(record, "length"), 1e-9)
    half = np.diff(ds, prepend=0.0)[:, None] / 2
    s = ds[:, None] + half * (_NODES - 1)
    directions = unit_vector(s * (curvature + s * slope / 2))
    weights = half * _WEIGHTS
    steps = (directions * weights[..., None]).sum(axis=1)
    heading = ds * (curvature + ds * slope / 2)
    return np.cumsum(steps, axis=0), heading


def _numbers(element: Element, names: Iterable[str]) -> list[float]:
    """Read several attributes of an element. Raises: DataError naming the attribute."""
    return [number(element, name) for name in names]


def _polynomial(record: Element, ds: Values) -> tuple[Values, Values]:
    """Return points and headings ``ds`` metres along a polynomial.

    A paramPoly3 gives u(p) and v(p), with p in metres or, normalised, from 0 to 1. A poly3 gives v(u): the u
    at ``ds`` is found by arc length.
    """
    cubic = record.find("poly3")
    pair = record.find("paramPoly3")
    if pair is not None:
        u_factors = _numbers(pair, ("aU", "bU", "cU", "dU"))
        v_factors = _numbers(pair, ("aV", "bV", "cV", "dV"))
        factors = np.array([u_factors, v_factors])
        p = ds
        if pair.get("pRange", "normalized") == "normalized":
            p = ds / max(number(record, "length"), 1e-9)
    elif cubic is not None:
        v_factors = _numbers(cubic, "abcd")
        factors = np.array([[0, 1, 0, 0], v_factors])
        u = np.linspace(0, ds[-1], 8 * len(ds))  # dense enough to invert the arc length
        length = arc_length(_points(factors, u))
        p = np.interp(ds, length, u)
    else:
        raise DataError("is not a line, spiral, arc, poly3 or paramPoly3", field="planView.geometry")
    derivative = (factors @ np.stack((0 * p, p**0, 2 * p, 3 * p**2))).T
    return _points(factors, p), direction(derivative)


def _points(factors: Values, p: Values) -> Values:
    """Evaluate two cubic polynomials ``[2, 4]`` at ``p`` ``[S]``: ``[S, 2]``."""
    return (factors @ np.stack((p**0, p, p**2, p**3))).T


#: Lane type for each type of drivable lane; others are left out.
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
#: Lanes and crosswalks that are nowhere wider than this (metres) are left out.
NARROW_M = 0.1
#: The first end of a road along its reference line.
START = False
#: The last end of a road along its reference line.
END = True
#: Elements with the lanes on the left of a road, whose numbers are positive, and on the right.
SIDES = {1: "left", -1: "right"}
#: Identifies a lane: road, section on its side of the road, number.
Place = tuple[str, int, int]


@dataclass(frozen=True)
class Section:
    """One side of a lane section.

    Attributes:
        start: metres along the road.
        end: metres along the road.
        lanes: the elements of its lanes by their numbers, 0 for the centre.
    """

    start: float
    end: float
    lanes: dict[int, Element]

    @classmethod
    def of(cls, element: Element, side: int, start: float, end: float) -> Section:
        """Read the lanes of a section at a side of the road.

        Raises: DataError for a lane without a number, or with a number of the other side.
        """
        lanes = {}
        for lane in element.iterfind("center/lane"):
            lanes[0] = lane
        for lane in element.iterfind(f"{SIDES[side]}/lane"):
            number = integer(lane.get("id"), "lane.id")
            sign = "above" if side > 0 else "below"
            problem = f"must be {sign} 0 on the {SIDES[side]} of a road, is {number}"
            require(side * number > 0, "lane.id", problem)
            lanes[number] = lane
        return cls(start, end, lanes)

    @property
    def outward(self) -> list[int]:
        """The numbers of the lanes, the innermost first."""
        return sorted((lane for lane in self.lanes if lane != 0), key=abs)

    def borders(self, s: Values, center: Values) -> dict[int, Values]:
        """Return each lane's outer border ``[S]``, in metres to the left of the line; 0: ``center``."""
        borders = {0: center}
        inner = center
        for lane in self.outward:
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
        # Some files have unsigned borders: on one side they would lie inside inner borders.
        outward = side * (center + offset - inner).mean()
        outward_mirrored = side * (center - offset - inner).mean()
        is_unsigned = outward < -NARROW_M and outward_mirrored > NARROW_M
        if is_unsigned:
            return center - offset
        return center + offset


@dataclass(frozen=True)
class Road:
    """A road.

    Attributes:
        name: its id.
        element: its element in the file.
        line: its reference line.
        sides: the sections along it, on the left (1) and on the right (-1). Sections that are valid for one
            side cut only that side.
    """

    name: str
    element: Element
    line: RoadLine
    sides: dict[int, list[Section]]

    @classmethod
    def of(cls, element: Element, frame: Pose[np.ndarray]) -> Road:
        """Read a road with coordinates in ``frame``. Raises: DataError naming the element at fault."""
        name = element.get("id", "")
        length = number(element, "length")
        elements = sorted(element.iterfind("lanes/laneSection"), key=lambda section: number(section, "s"))
        require(len(elements) > 0, "laneSection", f"is missing in road {name!r}")
        sides = {}
        stations = {0.0, length}
        for side in SIDES:
            valid: list[Element] = []
            for section in elements:
                is_one_sided = section.get("singleSide") == "true"
                if not is_one_sided or section.find(f"{SIDES[side]}/lane") is not None:
                    valid.append(section)
            starts = [*(number(section, "s") for section in valid), length]
            if valid and valid[0] is elements[0]:
                starts[0] = 0.0
            stations.update(starts)
            sections = []
            for section, (start, end) in zip(valid, pairwise(starts), strict=False):
                sections.append(Section.of(section, side, start, end))
            sides[side] = sections
        return cls(name, element, RoadLine.of(element, sorted(stations), frame), sides)

    def offset(self, s: Values) -> Values:
        """Return the offset of the lanes' centre at ``s`` ``[S]``, in metres to the left of the line."""
        offset = Cubics.of(self.element.findall("lanes/laneOffset"), "s")
        return np.where(s < offset.start[0] - 1e-9, 0.0, offset(s))

    def sections(self, lane: int) -> list[Section]:
        """Return the sections on the side of lanes with this number."""
        return self.sides[1 if lane > 0 else -1]

    @property
    def most_lanes(self) -> int:
        """The largest number of lanes on both sides together."""
        total = 0
        for sections in self.sides.values():
            total += max((len(section.lanes) for section in sections), default=0)
        return total

    def place(self, end: bool, lane: int) -> Place:
        """Return the place that a lane with this number would have at an end of the road."""
        section = len(self.sections(lane)) - 1 if end == END else 0
        return self.name, section, lane

    def has_lane(self, end: bool, lane: int) -> bool:
        """Return whether the road has a lane with this number at one of its ends."""
        sections = self.sections(lane)
        return bool(sections) and lane in sections[-1 if end == END else 0].lanes

    def beside(self, place: Place, forward: bool) -> tuple[Place | None, Place | None]:
        """Return the lanes to the left and right of a lane, in its direction of traffic."""
        name, index, lane = place
        section = self.sections(lane)[index]
        lanes = section.outward
        row = lanes.index(lane)
        inner = (name, index, lanes[row - 1]) if row > 0 else self._across(lane, section)
        outer = (name, index, lanes[row + 1]) if row + 1 < len(lanes) else None
        is_outward_left = (lane > 0) == forward
        return (outer, inner) if is_outward_left else (inner, outer)

    def _across(self, lane: int, section: Section) -> Place | None:
        """Return the innermost lane on the other side of the centre of the road."""
        middle = (section.start + section.end) / 2
        for index, other in enumerate(self.sections(-lane)):
            if other.start <= middle < other.end and other.outward:
                return self.name, index, other.outward[0]
        return None

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
    for sections in road.sides.values():
        for index, section in enumerate(sections):
            yield from _lanes_of_section(road, index, section, problems)


def _lanes_of_section(
    road: Road, index: int, section: Section, problems: MapProblems
) -> Iterator[tuple[Hashable, Lane]]:
    """Yield the lanes of one section as :func:`lanes_of` does."""
    line = road.line.between(section.start, section.end)
    if len(line.s) < 2:
        _record_no_length(road, index, section, problems)
        return
    # At its end, the offset may jump to that of the next section.
    center = road.offset(np.minimum(line.s, section.end - 1e-6))
    borders = section.borders(line.s, center)
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
            place = (road.name, index, number)
            for forward in road.directions(number, element):
                turned = lane if forward else lane.backward()
                left, right = road.beside(place, forward)
                turned.left_neighbor = (left, forward)
                turned.right_neighbor = (right, forward)
                yield (place, forward), turned


def _record_no_length(road: Road, index: int, section: Section, problems: MapProblems) -> None:
    """Record a section without length if it has a lane for traffic."""
    kinds = {lane.get("type", "") for lane in section.lanes.values()}
    if kinds & LANE_TYPE.keys():
        problems.add("lane section", f"{index} of road {road.name}", "it has no length")


def _mark(road: Road, section: Section, border: int, lane: int, problems: MapProblems) -> str:
    """Return the mark of a border in the middle of a section, seen from a lane beside it.

    Files name the inner of two lines first, and for the centre the left one.
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
