"""CommonRoad's road networks (``.xml``, versions 2018b and 2020a): lanelets and intersections."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import numpy as np

from trajpred.errors import require
from trajpred.integrations.maps.segments import Lane, Line, MapParts, mark_type
from trajpred.sources.reading import MapProblems, as_number, integer

#: Lanelet types with their own lane type.
LANE_TYPE = {"bicycleLane": "BIKE", "busLane": "BUS"}
#: Types of lanelets without traffic, unless they are also crossings.
LEFT_OUT = {"sidewalk", "shoulder", "border", "parking", "restricted", "restricted_area", "busStop"}
#: Bidirectional users that make a lanelet a lane in both directions.
_VEHICLES = {"vehicle", "car", "truck", "bus", "taxi"}
#: Elements for lanelets that lead through an intersection, in earlier and later versions of the format.
_ONWARD = {
    "successorsLeft",
    "successorsStraight",
    "successorsRight",
    "outgoingLeft",
    "outgoingStraight",
    "outgoingRight",
}


def read(root: Element) -> MapParts:
    """Return the lanes and crossings of a scenario's road network; broken lanelets are left out."""
    parts = MapParts(frame="the file's own")
    crossing = _crossing_lanelets(root, parts.problems)
    elements = {}
    for element in root.iterfind("lanelet"):
        with parts.problems.leaving_out("lanelet", element.get("id", "")):
            lanelet = parts.element_id(element.get("id"), "lanelet.id")
            require(lanelet not in elements, "lanelet.id", f"{lanelet} occurs twice")
            elements[lanelet] = element
            _add_lanelet(parts, element, lanelet, crossing)
    for lanelet, element in elements.items():
        if (lanelet, True) in parts.lanes:
            _link(parts, element, lanelet, set(elements))
    return parts


def _crossing_lanelets(root: Element, problems: MapProblems) -> set[int]:
    """Return the lanelets that lead through an intersection."""
    lanelets: set[int] = set()
    for element in root.iterfind("intersection/incoming/*"):
        if element.tag not in _ONWARD:
            continue
        with problems.leaving_out("link", f"{element.tag} of an intersection"):
            lanelets.add(_ref(element))
    return lanelets


def _add_lanelet(parts: MapParts, element: Element, lanelet: int, crossing: set[int]) -> None:
    """Add a lanelet to the lanes (in both directions if used so) or to the crossings, or skip it."""
    types = {kind.text for kind in element.iterfind("laneletType")}
    is_crossing = "crosswalk" in types
    if types & LEFT_OUT and not is_crossing:
        return
    left = _line(element, "leftBound")
    right = _line(element, "rightBound")
    if is_crossing:
        parts.add_crossing(left, right)
        return
    center = None
    if len(left) == len(right):
        center = (left + right) / 2  # points of both bounds correspond
    lane_type = "VEHICLE"
    for name, lane_kind in LANE_TYPE.items():
        if name in types:
            lane_type = lane_kind
            break
    is_intersection = None
    if lanelet in crossing or "intersection" in types:
        is_intersection = True
    lane = Lane(
        left,
        right,
        center=center,
        lane_type=lane_type,
        # Files name the left one of two lines first.
        left_mark=mark_type(_mark(element, "leftBound"), near_first=False),
        right_mark=mark_type(_mark(element, "rightBound")),
        is_intersection=is_intersection,
        lane_id=lanelet,
    )
    users = {user.text for user in element.iterfind("userBidirectional")}
    parts.lanes[lanelet, True] = lane
    if users & _VEHICLES:
        parts.lanes[lanelet, False] = lane.backward()


def _link(parts: MapParts, element: Element, lanelet: int, lanelets: set[int]) -> None:
    """Set the successors and neighbours of a lanelet, in each direction of use."""

    def refs(path: str) -> list[int]:
        """List the lanelets referred to by elements, without broken references."""
        numbers = []
        for link in element.iterfind(path):
            name = f"{link.tag} {link.get('ref')} of lanelet {lanelet}"
            with parts.problems.leaving_out("link", name):
                other = _ref(link)
                require(other in lanelets, f"{link.tag}.ref", f"lanelet {other} is not in the file")
                numbers.append(other)
        return numbers

    successors = refs("successor")
    predecessors = refs("predecessor")
    left = refs("adjacentLeft[@drivingDir='same']")
    right = refs("adjacentRight[@drivingDir='same']")
    _set_links(parts.lanes[lanelet, True], True, successors, left, right)
    backward = parts.lanes.get((lanelet, False))
    if backward is not None:
        _set_links(backward, False, predecessors, right, left)


def _set_links(lane: Lane, forward: bool, onward: list[int], left: list[int], right: list[int]) -> None:
    """Link a lane to those that follow and to the first on each side, all used in its direction."""
    lane.successors = [(other, forward) for other in onward]
    lane.left_neighbor = (left[0], forward) if left else None
    lane.right_neighbor = (right[0], forward) if right else None


def _line(lanelet: Element, side: str) -> Line:
    points = lanelet.findall(f"{side}/point")
    require(len(points) >= 2, f"lanelet.{side}", f"of {lanelet.get('id')} has fewer than 2 points")
    line = np.zeros((len(points), 2))
    for row, point in enumerate(points):
        line[row, 0] = as_number(point.findtext("x"), "point.x")
        line[row, 1] = as_number(point.findtext("y"), "point.y")
    return line


def _mark(lanelet: Element, side: str) -> str:
    return lanelet.findtext(f"{side}/lineMarking", "").strip().removeprefix("broad_")


def _ref(element: Element) -> int:
    return integer(element.get("ref"), f"{element.tag}.ref")
