"""Read ASAM OpenDRIVE 1.4 to 1.8: driving lanes, their links through roads and junctions, crossings."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import product
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from trajpred.data.geometry import Pose, norm, rotate, unit_vector
from trajpred.errors import DataError, quoted, require
from trajpred.integrations.maps.road import END, NARROW_M, START, Place, Road, RoadLine, lanes_of
from trajpred.integrations.maps.segments import CONNECTED_M, Lane, Line, MapParts
from trajpred.sources.reading import MapProblems, integer, number

#: How near (m) two lane ends must be to be linked when the file names others.
TOUCHING_M = 1.0


class LaneEnd(NamedTuple):
    """A lane, and one of its ends along the reference line of its road."""

    place: Place
    end: bool


def link_lanes(root: Element, roads: dict[str, Road], parts: MapParts) -> None:
    """Link the lanes of ``parts`` as in the file, and leave out and record what cannot be linked.

    If the file contradicts the positions, these decide which end of the other road a lane leads to.
    """
    for road in roads.values():
        for sections in road.sides.values():
            for index, section in enumerate(sections):
                for lane, element in section.lanes.items():
                    place = (road.name, index, lane)
                    if _is_driven(parts.lanes, place):
                        _link_lane(road, place, element, roads, parts)
    for junction in root.iterfind("junction"):
        for connection in junction.iterfind("connection"):
            _link_connection(junction, connection, roads, parts)


def _link_lane(road: Road, place: Place, element: Element, roads: dict[str, Road], parts: MapParts) -> None:
    """Link a lane to its predecessors and successors, in the sections or roads before and after it."""
    for end, tag in ((START, "predecessor"), (END, "successor")):
        for link in element.iterfind(f"link/{tag}"):
            name = f"{tag} of lane {place[2]} of road {road.name}"
            with parts.problems.leaving_out("link", name):
                other = integer(link.get("id"), f"lane.{tag}.id")
                lane_end = LaneEnd(place, end)
                ends_beyond = _ends_beyond(road, lane_end, other, roads, parts)
                _connect(parts.lanes, [lane_end], ends_beyond)


def _ends_beyond(
    road: Road, at: LaneEnd, other: int, roads: dict[str, Road], parts: MapParts
) -> list[LaneEnd]:
    """Return the ends of lane ``other`` that may lie beyond an end of a lane of ``road``, named one first.

    Returns none if a junction follows. Raises: DataError if there is no such lane or road.
    """
    step = 1 if at.end == END else -1
    section = at.place[1] + step
    sections = road.sections(at.place[2])
    if 0 <= section < len(sections):
        has_lane = other in sections[section].lanes
        require(has_lane, "lane.link", f"section {section} of road {road.name} has no lane {other}")
        return [LaneEnd((road.name, section, other), not at.end)]
    tag = "successor" if at.end == END else "predecessor"
    link = road.element.find(f"link/{tag}")
    if link is None:
        raise DataError(f"road {road.name} has no {tag}", field=f"road.{tag}")
    if link.get("elementType") == "junction":
        return []  # junction connections link the lanes
    within = link.get("elementS") is not None
    require(not within, "road.link", f"meets road {link.get('elementId', '')} between its ends")
    beyond = _road(link.get("elementId", ""), roads, parts)
    if beyond is None:
        return []
    return _ends_of(beyond, other, link.get("contactPoint") == "end")


def _road(name: str, roads: dict[str, Road], parts: MapParts) -> Road | None:
    """Return a road, None if it was left out. Raises: DataError if the file has no such road."""
    if parts.problems.has("road", name):
        return None
    require(name in roads, "road.link", f"road {quoted(name)} is not in the file")
    return roads[name]


def _ends_of(road: Road, lane: int, contact: bool) -> list[LaneEnd]:
    """Return a lane's ends at both ends of its road, the one at ``contact`` first.

    Raises: DataError if the road has no such lane.
    """
    has_lane = road.has_lane(contact, lane) or road.has_lane(not contact, lane)
    require(has_lane, "lane.link", f"road {road.name} has no lane {lane} at its ends")
    at_contact = LaneEnd(road.place(contact, lane), contact)
    at_other_end = LaneEnd(road.place(not contact, lane), not contact)
    return [at_contact, at_other_end]


def _link_connection(junction: Element, connection: Element, roads: dict[str, Road], parts: MapParts) -> None:
    """Link the lanes of one connection of a junction, ordinary or direct."""
    incoming_name = connection.get("incomingRoad")
    onward_name = connection.get("connectingRoad", connection.get("linkedRoad"))
    if incoming_name is None or onward_name is None:
        return  # virtual junction
    name = f"connection {connection.get('id', '')} of junction {junction.get('id', '')}"
    with parts.problems.leaving_out("link", name):
        within = junction.get("type") == "virtual" and incoming_name == junction.get("mainRoad")
        require(not within, "connection", f"leaves road {incoming_name} between its ends")
        incoming = _road(incoming_name, roads, parts)
        onward = _road(onward_name, roads, parts)
        if incoming is None or onward is None:
            return
        onward_at_end = connection.get("contactPoint") == "end"
        meeting = onward.line.xy[-1] if onward_at_end else onward.line.xy[0]
        gap_m = norm(incoming.line.xy[[0, -1]] - meeting)
        incoming_at_end = bool(gap_m[1] < gap_m[0])
        for link in connection.iterfind("laneLink"):
            lane_link = f"lane {link.get('from')} to {link.get('to')} of {name}"
            with parts.problems.leaving_out("link", lane_link):
                incoming_lane = integer(link.get("from"), "laneLink.from")
                onward_lane = integer(link.get("to"), "laneLink.to")
                incoming_ends = _ends_of(incoming, incoming_lane, incoming_at_end)
                onward_ends = _ends_of(onward, onward_lane, onward_at_end)
                _connect(parts.lanes, incoming_ends, onward_ends)


def _connect(lanes: dict[Hashable, Lane], ends: list[LaneEnd], others: list[LaneEnd]) -> None:
    """Link the two ends that meet, among those between which traffic can flow; named ends come first.

    Raises: DataError if traffic cannot flow between the named ends, and no others touch.
    """
    pairs: list[tuple[LaneEnd, LaneEnd]] = []
    gaps: list[float] = []
    for end, other in product(ends, others):
        if _flows(lanes, end, other) or _flows(lanes, other, end):
            pairs.append((end, other))
            gaps.append(float(norm(_point(lanes, end) - _point(lanes, other))))
    if not pairs:
        are_driven = any(_is_driven(lanes, end.place) for end in ends)
        are_driven &= any(_is_driven(lanes, other.place) for other in others)
        require(not are_driven, "lane.link", "the lanes lead against each other")
        return
    shortest = min(gaps)
    end, other = pairs[gaps.index(shortest)]
    if shortest > CONNECTED_M and pairs[0] == (ends[0], others[0]):
        end, other = pairs[0]
    elif (end, other) != (ends[0], others[0]):
        apart = f"the lanes lead against each other, and their other ends are {shortest:.1f} m apart"
        require(shortest <= TOUCHING_M, "contactPoint", apart)
    for before, after in ((end, other), (other, end)):
        if _flows(lanes, before, after):
            lanes[before.place, before.end].successors.append((after.place, not after.end))


def _flows(lanes: dict[Hashable, Lane], before: LaneEnd, after: LaneEnd) -> bool:
    """Return whether traffic leaves one lane at its end and enters the other there."""
    # Along the reference line (True) a lane ends at END and begins at START, against it the other way round.
    return (before.place, before.end) in lanes and (after.place, not after.end) in lanes


def _is_driven(lanes: dict[Hashable, Lane], place: Place) -> bool:
    return (place, True) in lanes or (place, False) in lanes


def _point(lanes: dict[Hashable, Lane], at: LaneEnd) -> Line:
    """Return the point ``[2]`` (metres) of the centreline at an end of a driven lane."""
    lane = lanes.get((at.place, at.end))
    if lane is not None:
        return lane.centerline[-1]
    return lanes[at.place, not at.end].centerline[0]


#: Maximum number of points of a map.
MAX_POINTS = 2**22


def read(root: Element) -> MapParts:
    """Return the lanes and crossings of a map, in the file's coordinates moved by its header's offset.

    Broken roads, lanes, links and crossings are left out. Raises: DataError if the map is too large.
    """
    offset = root.find("header/offset")
    parts = MapParts(frame="the file's own")
    frame = Pose(np.zeros(2), np.array(0.0))
    if offset is not None:
        parts = MapParts(frame="the file's own, moved by its offset")
        position = np.array([number(offset, "x", 0.0), number(offset, "y", 0.0)])
        frame = Pose(position, np.array(number(offset, "hdg", 0.0)))
    roads: dict[str, Road] = {}
    points = 0
    for element in root.iterfind("road"):
        road = _read_road(element, frame, roads, parts.problems)
        if road is None:
            continue
        points += len(road.line.s) * road.most_lanes
        require(points <= MAX_POINTS, "road", f"the map has more than {MAX_POINTS} points")
        with parts.problems.leaving_out("road", road.name):
            parts.lanes |= dict(lanes_of(road, parts.problems))
            roads[road.name] = road
            _add_crossings(road, parts)
    link_lanes(root, roads, parts)
    return parts


def _read_road(
    element: Element, frame: Pose[np.ndarray], roads: dict[str, Road], problems: MapProblems
) -> Road | None:
    """Read a road; None if it is left out."""
    name = element.get("id", "")
    if name in roads:
        problems.add("road", f"second {name}", "its id occurs twice")
        return None
    with problems.leaving_out("road", name):
        return Road.of(element, frame)
    return None


def _add_crossings(road: Road, parts: MapParts) -> None:
    """Add each crosswalk's rectangle, by its two sides that lead across the road."""
    for element in road.element.iterfind("objects/object[@type='crosswalk']"):
        name = f"{element.get('id', '')} of road {road.name}"
        with parts.problems.leaving_out("crossing", name):
            parts.add_crossing(*_crossing_edges(road.line, element))


def _crossing_edges(line: RoadLine, element: Element) -> tuple[Line, Line]:
    """Return the two sides of a crosswalk along which it is crossed. Raises: DataError if it has no area."""
    import shapely

    box = shapely.oriented_envelope(shapely.MultiPoint(_corners(line, element)))
    require(box.area > NARROW_M**2, "object", "the crosswalk has no area")
    corners = np.array(box.exterior.coords)[:4]
    nearest = norm(line.xy - corners.mean(axis=0)).argmin()
    road_direction = unit_vector(line.heading[nearest])
    first = corners[1] - corners[0]
    second = corners[2] - corners[1]
    along_first = abs(first @ road_direction) / norm(first)
    along_second = abs(second @ road_direction) / norm(second)
    if along_first > along_second:
        corners = np.roll(corners, -1, axis=0)
    a, b, c, d = corners  # round the box: a to b and d to c lead across the road
    return np.stack((a, b)), np.stack((d, c))


def _corners(line: RoadLine, element: Element) -> Line:
    """Return the corners ``[C, 2]`` of an object's outline, by default from its length and width."""
    on_road = _pairs(element, "cornerRoad", "s", "t")
    if len(on_road):
        return line.at(*on_road.T)
    s = np.array([number(element, "s")])
    t = np.array([number(element, "t")])
    heading = np.interp(s, line.s, line.heading) + number(element, "hdg", 0.0)
    corners = _pairs(element, "cornerLocal", "u", "v")
    if not len(corners):
        u = number(element, "length", 0.0) / 2
        v = number(element, "width", 0.0) / 2
        corners = np.array([[u, v], [-u, v], [-u, -v], [u, -v]])
    return line.at(s, t) + rotate(corners, heading)


def _pairs(element: Element, tag: str, first: str, second: str) -> Line:
    """Return two attributes ``[C, 2]`` of the elements ``tag`` within an object."""
    corners = [(number(corner, first), number(corner, second)) for corner in element.iter(tag)]
    return np.array(corners).reshape(-1, 2)
