"""CommonRoad's road networks (``.xml``, versions 2018b and 2020a): lanelets and intersections."""

from __future__ import annotations

from collections.abc import Hashable
from xml.etree.ElementTree import Element

import numpy as np

from trajpred.errors import require
from trajpred.sources.maps.lanes import Lane, Line, mark_type
from trajpred.sources.reading import as_number, integer

#: Types of lanelets that are lanes of their own kind, and those that road users do not drive on.
LANE_TYPE = {"bicycleLane": "BIKE", "busLane": "BUS"}
LEFT_OUT = {"sidewalk", "shoulder", "border", "parking", "restricted", "busStop", "crosswalk"}
#: Users of a lanelet in both directions that make it a lane in both.
_VEHICLES = {"vehicle", "car", "truck", "bus", "taxi"}
_TURN = {"successorsLeft": "LEFT", "successorsStraight": "NONE", "successorsRight": "RIGHT"}


def read(root: Element) -> tuple[dict[Hashable, Lane], list[tuple[Line, Line]]]:
    """Return the lanes and crossings of a scenario's road network. Raises: DataError naming the element."""
    parts = [one for one in root.iterfind("intersection/incoming/*") if one.tag in _TURN]
    turns = dict(zip(_refs(parts), (_TURN[one.tag] for one in parts), strict=True))
    lanes: dict[Hashable, Lane] = {}
    crossings = []
    for one in root.iterfind("lanelet"):
        lanelet = integer(one.get("id"), "lanelet.id")
        types = {kind.text for kind in one.iterfind("laneletType")}
        left, right = _line(one, "leftBound"), _line(one, "rightBound")
        if "crosswalk" in types:
            crossings.append((left, right))
        if types & LEFT_OUT:
            continue
        require((lanelet, True) not in lanes, "lanelet.id", f"{lanelet} occurs twice")
        beside = [one.findall(f"adjacent{side}[@drivingDir='same']") for side in ("Left", "Right")]
        neighbors = [next(iter(_refs(row)), None) for row in beside]
        lane = Lane(
            left, right,
            # The points of both bounds belong together.
            centerline=(left + right) / 2 if len(left) == len(right) else None,
            lane_type=next((kind for name, kind in LANE_TYPE.items() if name in types), "VEHICLE"),
            # Files name the left one of two lines first.
            left_mark=mark_type(_mark(one, "leftBound"), near_first=False),
            right_mark=mark_type(_mark(one, "rightBound")),
            is_intersection=True if lanelet in turns or "intersection" in types else None,
            turn_direction=turns.get(lanelet), lane_id=lanelet,
        )  # fmt: skip
        both = _VEHICLES & {user.text for user in one.iterfind("userBidirectional")}
        for forward, turned in ((True, lane), (False, lane.backward()))[: 2 if both else 1]:
            lanes[lanelet, forward] = turned
            left_id, right_id = neighbors[:: 1 if forward else -1]
            turned.left_neighbor, turned.right_neighbor = (left_id, forward), (right_id, forward)
            onward = _refs(one.findall("successor" if forward else "predecessor"))
            turned.successors = [(i, forward) for i in onward]
    return lanes, crossings


def _line(lanelet: Element, side: str) -> Line:
    points = lanelet.findall(f"{side}/point")
    require(len(points) >= 2, f"lanelet.{side}", f"of {lanelet.get('id')} has fewer than 2 points")
    return np.array([[as_number(point.findtext(axis), f"point.{axis}") for axis in "xy"] for point in points])


def _mark(lanelet: Element, side: str) -> str:
    return lanelet.findtext(f"{side}/lineMarking", "").strip().removeprefix("broad_")


def _refs(elements: list[Element]) -> list[int]:
    return [integer(one.get("ref"), f"{one.tag}.ref") for one in elements]
