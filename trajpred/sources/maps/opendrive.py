"""ASAM OpenDRIVE maps (``.xodr``, versions 1.4 to 1.8): roads, lane sections, junctions and crosswalks.

The map is the road seen from above: heights, superelevation and lateral profiles are left out.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element

import numpy as np

from trajpred.errors import require
from trajpred.geometry import Pose, norm, rotate, unit_vector
from trajpred.sources.map_problems import MapProblems
from trajpred.sources.maps.lanes import Line, MapParts
from trajpred.sources.maps.road import NARROW_M, Road, lanes_of
from trajpred.sources.maps.road_line import RoadLine
from trajpred.sources.maps.road_links import link_lanes
from trajpred.sources.reading import number

#: Maximum number of points of a map.
MAX_POINTS = 2**22


def read(root: Element) -> MapParts:
    """Return the lanes and crossings of a map, in its own coordinates moved by the offset of its header.

    Broken roads, lanes, links and crossings are left out. Raises: DataError if the map is too large.
    """
    offset = root.find("header/offset")
    parts = MapParts(frame="the file's own")
    if offset is not None:
        parts = MapParts(frame="the file's own, moved by its offset")
    frame = _frame(offset)
    roads: dict[str, Road] = {}
    points = 0
    for element in root.iterfind("road"):
        road = _road(element, frame, roads, parts.problems)
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


def _frame(offset: Element | None) -> Pose[np.ndarray]:
    """Return the pose of the file's coordinates in the map."""
    if offset is None:
        return Pose(np.zeros(2), np.float64(0))
    position = np.array([number(offset, "x", 0.0), number(offset, "y", 0.0)])
    return Pose(position, np.float64(number(offset, "hdg", 0.0)))


def _road(
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
    """Add the rectangle around each crosswalk, by its two sides that lead across the road."""
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
    """Return the corners ``[C, 2]`` of the outline of an object, by default of its length and width."""
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
