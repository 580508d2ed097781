"""CommonRoad's road networks (``.xml``, versions 2018b and 2020a): lanelets and intersections."""

from __future__ import annotations

from collections.abc import Hashable
from xml.etree.ElementTree import Element

import numpy as np

from trajpred.errors import require
from trajpred.sources.maps.lanes import Lane, Line, mark_name, swapped
from trajpred.sources.maps.xml_file import as_number, integer

#: The lane type of lanelets with these types, in this order; others are lanes of vehicles.
LANE_TYPE = {"bicycleLane": "BIKE", "busLane": "BUS"}
CROSSING = "crosswalk"
#: Types of lanelets that road users do not drive on.
LEFT_OUT = {"sidewalk", "shoulder", "border", "parking", "restricted", "busStop", CROSSING}
_PATTERN = {
    **dict.fromkeys(("solid", "broad_solid"), "SOLID"),
    **dict.fromkeys(("dashed", "broad_dashed"), "DASHED"),
    **dict.fromkeys(("no_marking", "curb", "lowered_curb"), "NONE"),
    "solid_solid": "DOUBLE_SOLID",
    "dashed_dashed": "DOUBLE_DASH",
    "solid_dashed": "SOLID_DASH",
    "dashed_solid": "DASH_SOLID",
}
#: Users of a lanelet that make it a lane of vehicles in both directions.
_VEHICLES = {"vehicle", "car", "truck", "bus", "taxi"}
_TURN = {"successorsLeft": "LEFT", "successorsStraight": "NONE", "successorsRight": "RIGHT"}


def read(root: Element) -> tuple[dict[Hashable, Lane], list[tuple[Line, Line]]]:
    """Return the lanes and crossings of a scenario's road network. Raises: DataError naming the element."""
    lanes: dict[Hashable, Lane] = {}
    crossings = []
    for one in root.iterfind("lanelet"):
        lanelet = integer(one.get("id"), "lanelet.id")
        types = {kind.text for kind in one.iterfind("laneletType")}
        left, right = _line(one, "leftBound"), _line(one, "rightBound")
        if CROSSING in types:
            crossings.append((left, right))
        if types & LEFT_OUT:
            continue
        kind = next((LANE_TYPE[name] for name in LANE_TYPE if name in types), "VEHICLE")
        both = _VEHICLES & {user.text for user in one.iterfind("userBidirectional")}
        for forward in (True, False) if both else (True,):
            require((lanelet, forward) not in lanes, "lanelet.id", f"{lanelet} occurs twice")
            lanes[lanelet, forward] = _lane(one, lanelet, forward, left, right, kind)
            lanes[lanelet, forward].is_intersection = True if "intersection" in types else None
    _mark_intersections(root, lanes)
    return lanes, crossings


def _lane(one: Element, lanelet: int, forward: bool, left: Line, right: Line, kind: str) -> Lane:
    marks = [_mark(one, "leftBound", forward), _mark(one, "rightBound", not forward)]
    refs = [_refs(one, "adjacentLeft", same=True), _refs(one, "adjacentRight", same=True)]
    onward = _refs(one, "successor" if forward else "predecessor")
    if not forward:
        left, right, marks, refs = right[::-1], left[::-1], marks[::-1], refs[::-1]
    beside = [next(((other, forward) for other in row), None) for row in refs]
    # The points of both bounds belong together, where there are as many.
    return Lane(
        left=left, right=right, centerline=(left + right) / 2 if len(left) == len(right) else None, lane_type=kind, left_mark=marks[0], right_mark=marks[1],
        left_neighbor=beside[0], right_neighbor=beside[1],
        successors=[(other, forward) for other in onward], lane_id=lanelet if forward else None,
    )  # fmt: skip


def _line(lanelet: Element, side: str) -> Line:
    points = lanelet.findall(f"{side}/point")
    require(len(points) >= 2, f"lanelet.{side}", f"of {lanelet.get('id')} has fewer than 2 points")
    return np.array([[as_number(point.findtext(axis), f"point.{axis}") for axis in "xy"] for point in points])


def _mark(lanelet: Element, side: str, is_left: bool) -> str:
    """Return the mark, whose near line is named first; the file names the left line first."""
    pattern = _PATTERN.get(lanelet.findtext(f"{side}/lineMarking", "").strip(), "UNKNOWN")
    return mark_name(swapped(pattern) if is_left else pattern)


def _refs(element: Element, tag: str, same: bool = False) -> list[int]:
    """Return the ids that elements refer to; with ``same``, those with the same driving direction."""
    found = [one for one in element.iterfind(tag) if not same or one.get("drivingDir") == "same"]
    return [integer(one.get("ref"), f"{tag}.ref") for one in found]


def _mark_intersections(root: Element, lanes: dict[Hashable, Lane]) -> None:
    """Mark the lanelets that lead through intersections, where the file lists any."""
    for incoming in root.iterfind("intersection/incoming"):
        for tag, turn in _TURN.items():
            for lanelet in _refs(incoming, tag):
                lane = lanes.get((lanelet, True))
                if lane is not None:
                    lane.is_intersection, lane.turn_direction = True, turn
