"""Lanelet2 maps (``.osm``): nodes, ways that bound lanelets, and the relations of type ``lanelet``.

Tags as the `specification <https://github.com/fzi-forschungszentrum-informatik/Lanelet2>`_ and Autoware
define them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError, as_array, require, require_finite
from trajpred.geometry import norm
from trajpred.lane_map import TURN_DIRECTIONS
from trajpred.sources.maps.lanes import Lane, Line, mark_name, swapped
from trajpred.sources.maps.xml_file import integer

#: The lane type of each subtype of lanelets that road users drive on; others are left out.
LANE_TYPE = {
    **dict.fromkeys(("road", "highway", "play_street", "exit"), "VEHICLE"),
    "bicycle_lane": "BIKE",
    "bus_lane": "BUS",
}
CROSSING = "crosswalk"
#: The pattern of each subtype of lines that are painted along lanes; other types of ways are not marks.
_PAINTED = ("line_thin", "line_thick")
_PATTERN = {
    "solid": "SOLID",
    "dashed": "DASHED",
    "solid_solid": "DOUBLE_SOLID",
    "dashed_dashed": "DOUBLE_DASH",
    "solid_dashed": "SOLID_DASH",
    "dashed_solid": "DASH_SOLID",
}
_YES, _NO = ("yes", "true", "1"), ("no", "false", "0")
Tags = dict[str, str]


def read(
    root: Element, *, origin: tuple[float, float] | None = None, crs: str | None = None
) -> tuple[dict[Hashable, Lane], list[tuple[Line, Line]]]:
    """Return the lanes and crossings of a map; for ``origin`` and ``crs`` see :func:`project`.

    Raises: DataError naming the element at fault.
    """
    ways = {one.get("id"): one for one in _elements(root, "way")}
    relations = [(one, _tags(one)) for one in _elements(root, "relation")]
    lanelets = [_Lanelet.of(one, tags, ways) for one, tags in relations if tags.get("type") == "lanelet"]
    points = _Points(root, origin, crs)
    lanes: dict[Hashable, Lane] = {}
    crossings, bounds = [], {}
    for one in lanelets:
        if one.is_crossing:
            crossings.append((points.line(one.left), points.line(one.right)))
        elif one.lane_type is not None:
            for forward in (True, False) if one.both_ways else (True,):
                key = (one.lanelet_id, forward)
                require(key not in lanes, "relation.id", f"{one.lanelet_id} occurs twice")
                lanes[key], bounds[key] = one.lane(points, forward)
    _connect(lanes, bounds)
    return lanes, crossings


@dataclass(frozen=True)
class _Side:
    """A way that bounds a lanelet: its nodes in the order of the way, or against it."""

    way: str
    nodes: tuple[str | None, ...]
    tags: Tags
    forward: bool = True

    @property
    def reverse(self) -> _Side:
        return _Side(self.way, self.nodes[::-1], self.tags, not self.forward)

    def mark(self, is_left: bool) -> str:
        """Return the mark, whose near line is named first; the subtype names the left line first."""
        if self.tags.get("type") not in _PAINTED:
            return "NONE"
        pattern = _PATTERN.get(self.tags.get("subtype", ""), "UNKNOWN")
        return mark_name(swapped(pattern) if is_left == self.forward else pattern, self.tags.get("color"))


class _Points:
    """The positions of the nodes by their ids, in metres."""

    def __init__(self, root: Element, origin: tuple[float, float] | None, crs: str | None) -> None:
        nodes = _elements(root, "node")
        self.row = {node.get("id"): i for i, node in enumerate(nodes)}
        tags = [_tags(node) for node in nodes]
        if nodes and all("local_x" in one and "local_y" in one for one in tags):
            values = [[one["local_x"], one["local_y"]] for one in tags]
            self.xy = as_array(values, np.float64, "node.local_x", (len(nodes), 2))
        else:
            values = [[node.get(name) or "nan" for name in ("lat", "lon")] for node in nodes]
            degrees = as_array(values, np.float64, "node.lat", (len(nodes), 2) if nodes else None)
            self.xy = project(degrees.reshape(-1, 2), origin, crs)

    def line(self, side: _Side) -> Line:
        """Return the points ``[P, 2]`` of a way. Raises: DataError if a node is missing or has no position."""
        try:
            xy: Line = self.xy[[self.row[node] for node in side.nodes]]
        except KeyError as error:
            raise DataError(f"way {side.way} refers to the missing node {error}", field="way.nd") from None
        require_finite(xy, "node")
        return xy


@dataclass(frozen=True)
class _Lanelet:
    lanelet_id: int
    left: _Side
    right: _Side
    center: _Side | None
    tags: Tags

    @classmethod
    def of(cls, relation: Element, tags: Tags, ways: dict[str | None, Element]) -> _Lanelet:
        sides: dict[str | None, list[_Side]] = {}
        lanelet = integer(relation.get("id"), "relation.id")
        for member in relation.iter("member"):
            role, ref = member.get("role"), member.get("ref")
            if role in ("left", "right", "centerline") and member.get("type") == "way":
                missing = f"lanelet {lanelet} refers to the missing way {ref!r}"
                require(ref in ways, "member.ref", missing)
                nodes = tuple(nd.get("ref") for nd in ways[ref].iter("nd"))
                require(len(nodes) >= 2, "way.nd", f"way {ref!r} of lanelet {lanelet} has fewer than 2 nodes")
                sides.setdefault(role, []).append(_Side(str(ref), nodes, _tags(ways[ref])))
        for role in ("left", "right"):
            count = len(sides.get(role, []))
            require(count == 1, "member", f"lanelet {lanelet} has {count} {role} bounds, expected one")
        center = sides.get("centerline", [None])[0]
        return cls(lanelet, sides["left"][0], sides["right"][0], center, tags)

    @property
    def is_crossing(self) -> bool:
        return self.tags.get("subtype") == CROSSING

    @property
    def lane_type(self) -> str | None:
        """The type of the lane; None if neither vehicles nor cyclists may use it.

        Participants that are named override those of the subtype, which is ``road`` by default.
        """
        kind = LANE_TYPE.get(self.tags.get("subtype", "road"))
        named = {key: value for key, value in self.tags.items() if key.startswith("participant:")}
        if not named:
            return kind
        allowed = [key for key, value in named.items() if value.lower() in _YES]
        if any(key.startswith("participant:vehicle") for key in allowed):
            return kind or "VEHICLE"
        return "BIKE" if "participant:bicycle" in allowed else None

    @property
    def both_ways(self) -> bool:
        return self.tags.get("one_way", "yes").lower() in _NO

    def lane(self, points: _Points, forward: bool) -> tuple[Lane, tuple[_Side, _Side]]:
        """Return the lane, and its sides in driving direction: ways may run either way."""
        left, right = self.left, self.right
        one, other = points.line(left), points.line(right)
        if norm(one[0] - other[0]) + norm(one[-1] - other[-1]) > norm(one[0] - other[-1]) + norm(
            one[-1] - other[0]
        ):
            right, other = right.reverse, other[::-1]
        if _area(np.concatenate((other, one[::-1]))) < 0:
            left, right = left.reverse, right.reverse
        if not forward:
            left, right = right.reverse, left.reverse
        turn = self.tags.get("turn_direction", "").upper()
        lane = Lane(
            left=points.line(left),
            right=points.line(right),
            centerline=points.line(self.center) if self.center is not None and not self.both_ways else None,
            lane_type=self.lane_type or "VEHICLE",
            left_mark=left.mark(True),
            right_mark=right.mark(False),
            # Autoware gives a turn direction to the lanelets of intersections alone.
            is_intersection=True if turn else None,
            turn_direction=(turn if turn in TURN_DIRECTIONS else "NONE") if turn else None,
            lane_id=self.lanelet_id if forward else None,
        )
        return lane, (left, right)


def _connect(lanes: dict[Hashable, Lane], bounds: dict[Hashable, tuple[_Side, _Side]]) -> None:
    """Link lanes that share a way, and those that begin at the nodes at which others end."""
    starts: dict[tuple[Any, ...], list[Hashable]] = {}
    by_side: dict[tuple[bool, str, bool], Hashable] = {}
    for key, (left, right) in bounds.items():
        starts.setdefault((left.nodes[0], right.nodes[0]), []).append(key)
        by_side[True, left.way, left.forward] = by_side[False, right.way, right.forward] = key
    for key, (left, right) in bounds.items():
        lanes[key].successors = starts.get((left.nodes[-1], right.nodes[-1]), [])
        lanes[key].left_neighbor = by_side.get((False, left.way, left.forward))
        lanes[key].right_neighbor = by_side.get((True, right.way, right.forward))


def project(
    degrees: NDArray[np.float64], origin: tuple[float, float] | None = None, crs: str | None = None
) -> NDArray[np.float64]:
    """Convert latitudes and longitudes ``[N, 2]`` (WGS 84, degrees) to metres ``[N, 2]``, x east, y north.

    Args:
        origin: latitude and longitude of the frame's origin; by default the middle of the points' extent.
        crs: the projection, as pyproj understands it (``EPSG:32632``, ``+proj=tmerc …``); by default UTM in
            the zone of the origin. Lanelet2's ``UtmProjector`` gives the same positions.

    Raises: DataError without pyproj, on an unknown projection, and on an origin outside it.
    """
    try:
        from pyproj import Transformer
        from pyproj.exceptions import ProjError
    except ImportError:
        from trajpred.packages import install_command

        needed = f"latitudes and longitudes need pyproj, which is not installed: {install_command('maps')}"
        raise DataError(needed, field="node.lat") from None
    finite = degrees[np.isfinite(degrees).all(-1)]
    if not len(finite):
        return degrees
    middle = (finite.min(axis=0) + finite.max(axis=0)) / 2
    lat, lon = as_array(middle if origin is None else origin, np.float64, "origin", (2,)).tolist()
    require(
        abs(lat) <= 84 and abs(lon) <= 180, "origin", f"must be a latitude and longitude, is {lat}, {lon}"
    )
    zone = min(int((lon + 180) // 6) + 1, 60)
    try:
        utm = f"+proj=utm +zone={zone} +datum=WGS84{' +south' * (lat < 0)}"
        transform = Transformer.from_crs("EPSG:4326", crs or utm, always_xy=True).transform
        xy = np.stack(transform(degrees[:, 1], degrees[:, 0]), -1)
        at = np.array(transform(lon, lat))
    except ProjError as error:
        raise DataError(f"cannot be used ({error})", field="crs") from None
    require_finite(at, "origin")
    return xy - at


def _elements(root: Element, kind: str) -> list[Element]:
    """Return the elements of a kind, except those that were deleted in an editor but not yet removed."""
    return [one for one in root.iterfind(kind) if one.get("action") != "delete"]


def _tags(element: Element) -> Tags:
    return {tag.get("k", ""): tag.get("v", "") for tag in element.iterfind("tag")}


def _area(polygon: Line) -> float:
    """Return twice the signed area of a polygon, positive if it runs counter-clockwise."""
    (x, y), (x1, y1) = (polygon - polygon[0]).T, (np.roll(polygon, -1, axis=0) - polygon[0]).T
    return float((x * y1 - y * x1).sum())
