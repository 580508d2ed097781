"""Lanelet2 maps (``.osm``): ways of nodes, and the relations of type ``lanelet`` that they bound."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from trajpred.data.checks import as_array, row_of
from trajpred.data.environment import install_command
from trajpred.data.geometry import norm
from trajpred.errors import DataError, require, require_finite
from trajpred.integrations.maps.segments import Lane, Line, MapParts, is_simple, mark_type, require_length
from trajpred.sources.reading import integer

#: Lane type for each subtype of drivable lanelet; others are left out.
LANE_TYPE = {
    "road": "VEHICLE",
    "highway": "VEHICLE",
    "play_street": "VEHICLE",
    "exit": "VEHICLE",
    "bicycle_lane": "BIKE",
    "bus_lane": "BUS",
}
#: The frame of maps in metres.
LOCAL = "local_x and local_y"
_YES = ("yes", "true", "1")
_NO = ("no", "false", "0")


def read(root: Element, origin: tuple[float, float] | None = None, crs: str | None = None) -> MapParts:
    """Return the lanes and crossings of a map; broken lanelets are left out.

    For ``origin`` and ``crs`` see :func:`project`. Raises: DataError if no node has coordinates.
    """
    parts = MapParts(frame="")
    relations = _lanelets(root, parts)
    if not relations:
        return parts
    ways, parts.frame = _ways(root, origin, crs)
    lanelets = []
    for relation in relations:
        with parts.problems.leaving_out("lanelet", relation.get("id", "")):
            number = integer(relation.get("id"), "relation.id")
            left = _member(relation, ways, "left")
            right = _member(relation, ways, "right")
            lanelets.append(Lanelet(number, _tags(relation), left, right))
    bounds: dict[Hashable, Bounds] = {}
    for lanelet in oriented(lanelets):
        kind = "crossing" if lanelet.is_crossing else "lanelet"
        with parts.problems.leaving_out(kind, str(lanelet.number)):
            _add(parts, lanelet, bounds)
    _connect(parts.lanes, bounds)
    return parts


def _lanelets(root: Element, parts: MapParts) -> list[Element]:
    """Return the relations that are lanes or crossings, and record all lanelets' ids."""
    relations = []
    for relation in _elements(root, "relation"):
        tags = _tags(relation)
        if tags.get("type") != "lanelet":
            continue
        is_used = _lane_type(tags) is not None or tags.get("subtype") == "crosswalk"
        try:
            parts.element_id(relation.get("id"), "relation.id")
        except DataError as error:
            if is_used:
                parts.problems.add("lanelet", relation.get("id", ""), str(error))
            continue
        if is_used:
            relations.append(relation)
    return relations


def _add(parts: MapParts, lanelet: Lanelet, bounds: dict[Hashable, Bounds]) -> None:
    """Add a lanelet to the lanes (in both directions if used so) or to the crossings."""
    left = lanelet.left
    right = lanelet.right
    if lanelet.is_crossing:
        parts.add_crossing(left.line, right.line)
        return
    number = lanelet.number
    tags = lanelet.tags
    require((number, True) not in parts.lanes, "relation.id", f"{number} occurs twice")
    lane = Lane(
        left.line,
        right.line,
        lane_type=_lane_type(tags) or "VEHICLE",
        left_mark=left.mark(True),
        right_mark=right.mark(False),
        # Autoware sets turn directions only for lanelets in intersections.
        is_intersection=True if tags.get("turn_direction") else None,
        lane_id=number,
    )
    parts.lanes[number, True] = lane
    bounds[number, True] = (left, right)
    if tags.get("one_way", "yes").lower() in _NO:
        parts.lanes[number, False] = lane.backward()
        bounds[number, False] = (right.reverse, left.reverse)


def _ways(root: Element, origin: tuple[float, float] | None, crs: str | None) -> tuple[dict[str, Way], str]:
    """Return the ways of two or more nodes, all in the file, by id; and their frame.

    Nodes without coordinates in that frame are NaN. Ways are left out if their id occurs twice with
    different nodes, or a node's id at different places.
    """
    nodes = _elements(root, "node")
    row = row_of(node.get("id", "") for node in nodes)
    elements = _elements(root, "way")
    unclear_nodes = _contradictory_ids(nodes)
    unclear_ways = _contradictory_ids(elements)
    refs: dict[str, list[str]] = {}
    tags: dict[str, Tags] = {}
    for way in elements:
        way_id = way.get("id", "")
        names = [nd.get("ref", "") for nd in way.iterfind("nd")]
        if len(names) < 2 or not row.keys() >= {*names}:  # from extracts; may bound no lanelet
            continue
        if way_id not in unclear_ways and unclear_nodes.isdisjoint(names):
            refs[way_id] = names
            tags[way_id] = _tags(way)
    is_used = np.zeros(len(nodes), np.bool_)
    rows: dict[str, list[int]] = {}
    for way_id, names in refs.items():
        rows[way_id] = [row[name] for name in names]
        is_used[rows[way_id]] = True
    xy, frame, keys = _positions(nodes, is_used, origin, crs)
    ways: dict[str, Way] = {}
    for way_id, names in refs.items():
        ways[way_id] = Way(way_id, names, xy[rows[way_id]], tags[way_id], keys)
    return ways, frame


def _contradictory_ids(elements: list[Element]) -> set[str]:
    """Return the ids shared by nodes at different places, or by ways of different nodes."""
    first: dict[str, list[str]] = {}
    contradictory = set()
    for element in elements:
        content = [element.get("lat", ""), element.get("lon", "")]
        content += [nd.get("ref", "") for nd in element.iterfind("nd")]
        tags = _tags(element)
        content += [tags.get("local_x", ""), tags.get("local_y", "")]
        name = element.get("id", "")
        if first.setdefault(name, content) != content:
            contradictory.add(name)
    return contradictory


def _positions(
    nodes: list[Element], used: NDArray[np.bool_], origin: tuple[float, float] | None, crs: str | None
) -> tuple[NDArray[np.float64], str, str]:
    """Return the positions ``[N, 2]`` (metres) of nodes, NaN where unknown, their frame, and the keys.

    Autoware's ``local_x`` and ``local_y`` are used if at least half of the nodes in ways (``used`` ``[N]``)
    have them.
    """
    local = np.full((len(nodes), 2), np.nan)
    degrees = np.full((len(nodes), 2), np.nan)
    for i, node in enumerate(nodes):
        tags = _tags(node)
        local[i] = _coordinate(tags.get("local_x")), _coordinate(tags.get("local_y"))
        degrees[i] = _coordinate(node.get("lat"), 90), _coordinate(node.get("lon"), 180)
    is_local = np.isfinite(local).all(-1)
    if 2 * is_local[used].sum() >= max(used.sum(), 1):
        return local, LOCAL, LOCAL
    if used.any():
        degrees[~used] = np.nan  # a stray node, such as one at 0, 0, must not move the frame
    xy = project(degrees, origin, crs)
    lat, lon = origin_of(degrees, origin)
    frame = f"{crs or utm(lat, lon)}, from latitude {lat:.7g} and longitude {lon:.7g}"
    if is_local.any():
        frame += f"; local_x and local_y, of {is_local.sum()} of {len(nodes)} nodes, are not used"
    return xy, frame, "lat and lon"


def _coordinate(text: str | None, largest: float = np.inf) -> float:
    """Return a coordinate, NaN unless it is a finite number of at most ``largest``."""
    try:
        value = float(text or "nan")
    except ValueError:
        return np.nan
    if math.isfinite(value) and abs(value) <= largest:
        return value
    return np.nan


def _member(relation: Element, ways: dict[str, Way], role: str) -> Way:
    """Return the way that bounds a lanelet on one side."""
    name = relation.get("id")
    members = relation.findall(f"member[@role='{role}']")
    require(len(members) == 1, "member", f"lanelet {name} has {len(members)} {role} bounds, expected one")
    way = ways.get(members[0].get("ref", ""))
    if way is None:
        problem = f"the {role} bound of lanelet {name} is not one way of two or more nodes of the file"
        raise DataError(problem, field="member")
    way.require_positions()
    return way


def _lane_type(tags: Tags) -> str | None:
    """Return the type of a lane; None if neither vehicles nor cyclists may use it.

    Named participants replace those of the subtype, which is ``road`` by default.
    """
    lane_type = LANE_TYPE.get(tags.get("subtype", "road"))
    participants = [key for key in tags if key.startswith("participant:")]
    if not participants:
        return lane_type
    allowed = [key for key in participants if tags[key].lower() in _YES]
    if any(key.startswith("participant:vehicle") for key in allowed):
        return lane_type or "VEHICLE"
    return "BIKE" if "participant:bicycle" in allowed else None


def _connect(lanes: dict[Hashable, Lane], bounds: dict[Hashable, Bounds]) -> None:
    """Link lanes that share a way, and lanes that begin at the nodes where others end."""
    starts = defaultdict(list)
    of_left = {}
    of_right = {}
    for key, (left, right) in bounds.items():
        starts[left.nodes[0], right.nodes[0]].append(key)
        of_left[left.name, left.forward] = key
        of_right[right.name, right.forward] = key
    for key, (left, right) in bounds.items():
        lanes[key].successors = starts[left.nodes[-1], right.nodes[-1]]
        lanes[key].left_neighbor = of_right.get((left.name, left.forward))
        lanes[key].right_neighbor = of_left.get((right.name, right.forward))


def _elements(root: Element, kind: str) -> list[Element]:
    """Return the elements of a kind, except those marked as deleted by an editor."""
    return [element for element in root.iterfind(kind) if element.get("action") != "delete"]


def _tags(element: Element) -> Tags:
    return {tag.get("k", ""): tag.get("v", "") for tag in element.iterfind("tag")}


Tags = dict[str, str]
#: The two nodes at an end of a lanelet.
Ends = frozenset[str]


@dataclass(frozen=True)
class Way:
    """A way in its own direction or against it: its nodes, their positions ``[P, 2]``, and its tags.

    ``coordinates`` names the node coordinates that the positions come from.
    """

    name: str
    nodes: list[str]
    line: Line
    tags: Tags
    coordinates: str
    forward: bool = True

    def require_positions(self) -> None:
        """Raise DataError naming the first node without a position, and the ``coordinates`` it lacks."""
        unknown = np.flatnonzero(~np.isfinite(self.line).all(-1))
        if len(unknown):
            node = self.nodes[unknown[0]]
            problem = f"node {node} of way {self.name} has no valid {self.coordinates}"
            raise DataError(problem, field="node")

    @property
    def reverse(self) -> Way:
        return replace(self, nodes=self.nodes[::-1], line=self.line[::-1], forward=not self.forward)

    def mark(self, is_left: bool) -> str:
        """Return the mark on one side of a lane; subtypes name the left of two lines first."""
        if self.tags.get("type") not in ("line_thin", "line_thick"):
            return "NONE"
        name = self.tags.get("subtype", "")
        return mark_type(name, self.tags.get("color"), near_first=is_left != self.forward)


Bounds = tuple[Way, Way]


@dataclass(frozen=True)
class Lanelet:
    """A lanelet: its id, tags and bounds, which may run in any direction until :func:`oriented`.

    Raises: DataError if both bounds have no length.
    """

    number: int
    tags: Tags
    left: Way
    right: Way

    def __post_init__(self) -> None:
        require_length(self.left.line, self.right.line, "bounds")

    @property
    def is_crossing(self) -> bool:
        return self.tags.get("subtype") == "crosswalk"

    @property
    def parallel_ends(self) -> set[Ends]:
        """The pairs of nodes at both ends, if the bounds run in the same direction."""
        return self._ends(self.right.nodes)

    @property
    def opposite_ends(self) -> set[Ends]:
        """The pairs of nodes at both ends, if the bounds run in opposite directions."""
        return self._ends(self.right.nodes[::-1])

    @cached_property
    def simple(self) -> tuple[bool, bool]:
        """Whether neither outline, with bounds in the same and in opposite directions, crosses itself."""
        left = self.left.line
        right = self.right.line
        return is_simple(left, right), is_simple(left, right[::-1])

    @property
    def possible_ends(self) -> set[Ends]:
        """The pairs of nodes at both ends, for each direction unless only its outline crosses itself.

        Two lanelets that cross on four shared nodes would confirm each other's diagonals.
        """
        parallel, opposite = self.simple
        ends: set[Ends] = set()
        if parallel or not opposite:
            ends |= self.parallel_ends
        if opposite or not parallel:
            ends |= self.opposite_ends
        return ends

    def _ends(self, right: list[str]) -> set[Ends]:
        left = self.left.nodes
        return {frozenset((left[0], right[0])), frozenset((left[-1], right[-1]))}


def oriented(lanelets: list[Lanelet]) -> list[Lanelet]:
    """Turn each lanelet's bounds into its driving direction: files have them in any direction."""
    ends: Counter[Ends] = Counter()
    for lanelet in lanelets:
        ends.update(lanelet.possible_ends)
    oriented = []
    for lanelet in lanelets:
        left = lanelet.left
        right = lanelet.right if _is_parallel(lanelet, ends) else lanelet.right.reverse
        if _is_clockwise(left, right):
            left = left.reverse
            right = right.reverse
        oriented.append(replace(lanelet, left=left, right=right))
    return oriented


def _is_parallel(lanelet: Lanelet, ends: Counter[Ends]) -> bool:
    """Return whether the bounds of a lanelet run in the same direction.

    An outline that does not cross itself decides, unless lanelets before and after share both ends of the
    crossed outline and none of the other. If neither crosses itself, more shared ends decide, then nearer
    ends (ends of a sharp turn may be nearest crosswise).
    """
    own_ends = lanelet.possible_ends
    shared_parallel = sum(ends[pair] - (pair in own_ends) for pair in lanelet.parallel_ends)
    shared_opposite = sum(ends[pair] - (pair in own_ends) for pair in lanelet.opposite_ends)
    parallel, opposite = lanelet.simple
    if parallel and not opposite:
        return shared_parallel > 0 or shared_opposite < 2
    if opposite and not parallel:
        return shared_opposite == 0 and shared_parallel >= 2
    if shared_parallel != shared_opposite:
        return shared_parallel > shared_opposite
    left = lanelet.left.line[[0, -1]]
    right = lanelet.right.line[[0, -1]]
    return bool(norm(left - right).sum() <= norm(left - right[::-1]).sum())


def _is_clockwise(left: Way, right: Way) -> bool:
    """Return whether the outline, along the right bound and back along the left one, runs clockwise."""
    around = np.concatenate((right.line, left.line[::-1])) - left.line[0]
    x, y = around.T
    next_x, next_y = np.roll(around, -1, axis=0).T
    return bool((x * next_y - y * next_x).sum() < 0)


# ------------------------------------------------------------------------------------------ projection

#: Maximum degrees between a map and the origin of its frame: a farther origin belongs to another map, or is
#: swapped.
FARTHEST_DEG = 5.0


def project(
    degrees: NDArray[np.float64], origin: tuple[float, float] | None = None, crs: str | None = None
) -> NDArray[np.float64]:
    """Convert latitudes and longitudes ``[N, 2]`` (WGS 84, degrees) to metres ``[N, 2]``, x east, y north.

    Args:
        origin: latitude and longitude of the frame's origin; by default the middle of the points' extent.
        crs: the projection in pyproj's notation (``EPSG:32632``, ``+proj=tmerc …``), in any unit of length;
            by default UTM in the origin's zone, like Lanelet2's ``UtmProjector``.

    Raises: DataError without pyproj, for an unknown projection or invalid coordinates, and for an origin
        outside the projection.
    """
    pyproj = _pyproj("node.lat")
    lat, lon = origin_of(degrees, origin)
    try:
        projection = pyproj.CRS.from_user_input(crs or utm(lat, lon))
        transform = pyproj.Transformer.from_crs("EPSG:4326", projection, always_xy=True).transform
    except pyproj.exceptions.ProjError as error:
        raise DataError(f"is not a projection that pyproj knows ({error})", field="crs") from None
    require(projection.is_projected, "crs", f"must be a projection to a plane, is {projection.name}")
    at = np.array(transform(lon, lat))
    require_finite(at, "origin")
    unit_m = projection.axis_info[0].unit_conversion_factor
    return unit_m * (np.stack(transform(degrees[:, 1], degrees[:, 0]), -1) - at)


def _pyproj(field: str) -> Any:
    """Import pyproj. Raises: DataError about ``field`` if it is not installed."""
    try:
        import pyproj
    except ImportError:
        needed = f"needs pyproj, which is not installed: {install_command('maps')}"
        raise DataError(needed, field=field) from None
    return pyproj


def origin_of(degrees: NDArray[np.float64], origin: tuple[float, float] | None) -> tuple[float, float]:
    """Return the latitude and longitude of the frame's origin, by default the middle of all points."""
    valid = degrees[np.isfinite(degrees).all(-1)]
    require(len(valid) > 0, "node.lat", "is in no node, with lon, a number of degrees up to 90")
    middle = (valid.min(axis=0) + valid.max(axis=0)) / 2
    point = middle if origin is None else origin
    lat, lon = as_array(point, np.float64, "origin", (2,)).tolist()
    require(abs(lat) <= 84 and abs(lon) <= 180, "origin", f"must be latitude and longitude, is {lat}, {lon}")
    difference = np.median(valid, axis=0) - (lat, lon)
    apart = np.abs((difference + 180) % 360 - 180).max()
    far = f"is {apart:.0f}° from the map: give its latitude, then its longitude"
    require(origin is None or apart <= FARTHEST_DEG, "origin", far)
    return lat, lon


def utm(lat: float, lon: float) -> str:
    """Return the UTM projection for the zone of a point; zones are wider off Norway and in Svalbard."""
    zone = min(int(lon + 180) // 6 + 1, 60)
    if 56 <= lat < 64 and 3 <= lon < 6:
        zone = 32
    if lat >= 72 and 0 <= lon < 42:
        zone = 31 + 2 * int((lon + 3) // 12)
    hemisphere = " +south" if lat < 0 else ""
    return f"+proj=utm +zone={zone} +datum=WGS84{hemisphere}"


def from_utm(east: float, north: float, crs: str) -> tuple[float, float]:
    """Return latitude and longitude of a place in metres of the UTM projection ``crs``.

    Raises: DataError without pyproj.
    """
    transformer = _pyproj("origin").Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
    lon, lat = transformer.transform(east, north)
    return float(lat), float(lon)
