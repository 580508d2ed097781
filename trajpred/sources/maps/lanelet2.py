"""Lanelet2 maps (``.osm``): ways of nodes, and the relations of type ``lanelet`` that they bound.

Tags: `Lanelet2 <https://github.com/fzi-forschungszentrum-informatik/Lanelet2>`_ and Autoware.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from trajpred.environment import install_command
from trajpred.errors import DataError, as_array, require, require_finite
from trajpred.geometry import norm
from trajpred.lane_map import TURN_DIRECTIONS
from trajpred.sources.maps.lanes import Lane, Line, mark_type
from trajpred.sources.reading import integer

#: The lane type of each subtype of lanelets that road users drive on; others are left out.
LANE_TYPE = {
    **dict.fromkeys(("road", "highway", "play_street", "exit"), "VEHICLE"),
    "bicycle_lane": "BIKE",
    "bus_lane": "BUS",
}
_YES, _NO = ("yes", "true", "1"), ("no", "false", "0")
Tags = dict[str, str]


def read(
    root: Element, origin: tuple[float, float] | None = None, crs: str | None = None
) -> tuple[dict[Hashable, Lane], list[tuple[Line, Line]]]:
    """Return the lanes and crossings of a map; for ``origin`` and ``crs`` see :func:`project`.

    Raises: DataError naming the element at fault.
    """
    ways = _ways(root, origin, crs)
    lanes: dict[Hashable, Lane] = {}
    crossings: list[tuple[Line, Line]] = []
    bounds: dict[Hashable, tuple[_Way, _Way]] = {}
    for relation in _elements(root, "relation"):
        tags = _tags(relation)
        kind, is_crossing = _lane_type(tags), tags.get("subtype") == "crosswalk"
        if tags.get("type") != "lanelet" or not (kind or is_crossing):
            continue
        lanelet = integer(relation.get("id"), "relation.id")
        left, right = _aligned(*(_member(relation, ways, role) for role in ("left", "right")))
        if is_crossing:
            crossings.append((left.line, right.line))
            continue
        require((lanelet, True) not in lanes, "relation.id", f"{lanelet} occurs twice")
        # Autoware gives a turn direction to the lanelets of intersections alone.
        turn = tags.get("turn_direction", "").upper()
        lane = Lane(
            left.line, right.line, lane_type=kind or "VEHICLE", left_mark=left.mark(True),
            right_mark=right.mark(False), is_intersection=True if turn else None, lane_id=lanelet,
            turn_direction="NONE" if turn == "STRAIGHT" else turn if turn in TURN_DIRECTIONS else None,
        )  # fmt: skip
        lanes[lanelet, True], bounds[lanelet, True] = lane, (left, right)
        if tags.get("one_way", "yes").lower() in _NO:
            lanes[lanelet, False], bounds[lanelet, False] = lane.backward(), (right.reverse, left.reverse)
    _connect(lanes, bounds)
    return lanes, crossings


@dataclass(frozen=True)
class _Way:
    """A way in its own direction or against it: its nodes, their positions ``[P, 2]``, and its tags."""

    name: str
    nodes: list[str]
    line: Line
    tags: Tags
    forward: bool = True

    @property
    def reverse(self) -> _Way:
        return replace(self, nodes=self.nodes[::-1], line=self.line[::-1], forward=not self.forward)

    def mark(self, is_left: bool) -> str:
        """Return the mark on one side of a lane; subtypes name the left one of two lines first."""
        if self.tags.get("type") not in ("line_thin", "line_thick"):
            return "NONE"
        name, color = self.tags.get("subtype", ""), self.tags.get("color")
        return mark_type(name, color, near_first=is_left != self.forward)


def _ways(root: Element, origin: tuple[float, float] | None, crs: str | None) -> dict[str, _Way]:
    """Return the ways of two or more nodes, all of which are in the file, by their ids."""
    nodes = _elements(root, "node")
    row, tags = {node.get("id", ""): i for i, node in enumerate(nodes)}, [_tags(node) for node in nodes]
    if all("local_x" in one and "local_y" in one for one in tags):
        local = [[one["local_x"], one["local_y"]] for one in tags]
        xy = as_array(local, np.float64, "node.local_x").reshape(-1, 2)
    else:
        degrees = [[node.get(name) or "nan" for name in ("lat", "lon")] for node in nodes]
        xy = project(as_array(degrees, np.float64, "node.lat"), origin, crs)
    ways = {}
    for way in _elements(root, "way"):
        name, refs = way.get("id", ""), [nd.get("ref", "") for nd in way.iterfind("nd")]
        if len(refs) > 1 and row.keys() >= {*refs}:  # others, of extracts, may bound no lanelet
            ways[name] = _Way(name, refs, xy[[row[ref] for ref in refs]], _tags(way))
    return ways


def _member(relation: Element, ways: dict[str, _Way], role: str) -> _Way:
    """Return the way that bounds a lanelet on one side."""
    name, members = relation.get("id"), relation.findall(f"member[@role='{role}']")
    require(len(members) == 1, "member", f"lanelet {name} has {len(members)} {role} bounds, expected one")
    way = ways.get(members[0].get("ref", ""))
    if way is None:
        problem = f"the {role} bound of lanelet {name} is no way of two or more nodes of the file"
        raise DataError(problem, field="member")
    require_finite(way.line, f"way {way.name}")
    return way


def _aligned(left: _Way, right: _Way) -> tuple[_Way, _Way]:
    """Turn the bounds of a lanelet into its driving direction: the files have them in any direction."""
    one, other = left.line[[0, -1]], right.line[[0, -1]]
    if norm(one - other).sum() > norm(one - other[::-1]).sum():
        right = right.reverse
    around = np.concatenate((right.line, left.line[::-1])) - left.line[0]
    (x, y), (next_x, next_y) = around.T, np.roll(around, -1, axis=0).T
    clockwise = (x * next_y - y * next_x).sum() < 0
    return (left.reverse, right.reverse) if clockwise else (left, right)


def _lane_type(tags: Tags) -> str | None:
    """Return the type of a lane; None if neither vehicles nor cyclists may use it.

    Participants that are named replace those of the subtype, which is ``road`` by default.
    """
    kind = LANE_TYPE.get(tags.get("subtype", "road"))
    named = {key: value.lower() in _YES for key, value in tags.items() if key.startswith("participant:")}
    if not named or any(allowed and key.startswith("participant:vehicle") for key, allowed in named.items()):
        return kind or ("VEHICLE" if named else None)
    return "BIKE" if named.get("participant:bicycle") else None


def _connect(lanes: dict[Hashable, Lane], bounds: dict[Hashable, tuple[_Way, _Way]]) -> None:
    """Link lanes that share a way, and those that begin at the nodes at which others end."""
    starts = defaultdict(list)
    for key, (left, right) in bounds.items():
        starts[left.nodes[0], right.nodes[0]].append(key)
    of_left, of_right = ({(one[i].name, one[i].forward): key for key, one in bounds.items()} for i in (0, 1))
    for key, (left, right) in bounds.items():
        lanes[key].successors = starts[left.nodes[-1], right.nodes[-1]]
        lanes[key].left_neighbor = of_right.get((left.name, left.forward))
        lanes[key].right_neighbor = of_left.get((right.name, right.forward))


def project(
    degrees: NDArray[np.float64], origin: tuple[float, float] | None = None, crs: str | None = None
) -> NDArray[np.float64]:
    """Convert latitudes and longitudes ``[N, 2]`` (WGS 84, degrees) to metres ``[N, 2]``, x east, y north.

    Args:
        origin: latitude and longitude of the frame's origin; by default the middle of the points' extent.
        crs: the projection, as pyproj understands it (``EPSG:32632``, ``+proj=tmerc …``); by default UTM in
            the zone of the origin, as Lanelet2's ``UtmProjector``.

    Raises: DataError without pyproj, on an unknown projection, and on an origin outside it.
    """
    try:
        from pyproj import Transformer
        from pyproj.exceptions import ProjError
    except ImportError:
        needed = f"needs pyproj, which is not installed: {install_command('maps')}"
        raise DataError(needed, field="node.lat") from None
    known = degrees[np.isfinite(degrees).all(-1)]
    require(len(known) > 0, "node.lat", "is missing in all nodes")
    middle = (known.min(axis=0) + known.max(axis=0)) / 2
    lat, lon = as_array(middle if origin is None else origin, np.float64, "origin", (2,)).tolist()
    require(abs(lat) <= 84 and abs(lon) <= 180, "origin", f"must be latitude and longitude, is {lat}, {lon}")
    zone = f"+proj=utm +zone={min(int(lon + 180) // 6 + 1, 60)} +datum=WGS84{' +south' * (lat < 0)}"
    try:
        transform = Transformer.from_crs("EPSG:4326", crs or zone, always_xy=True).transform
    except ProjError as error:
        raise DataError(f"is no projection that pyproj knows ({error})", field="crs") from None
    at = np.array(transform(lon, lat))
    require_finite(at, "origin")
    return np.stack(transform(degrees[:, 1], degrees[:, 0]), -1) - at


def _elements(root: Element, kind: str) -> list[Element]:
    """Return the elements of a kind, except those that an editor has marked as deleted."""
    return [one for one in root.iterfind(kind) if one.get("action") != "delete"]


def _tags(element: Element) -> Tags:
    return {tag.get("k", ""): tag.get("v", "") for tag in element.iterfind("tag")}
