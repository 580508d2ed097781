"""The maps of ScenarioNet's scenes: lanes with links, neighbours, boundaries and marks, and crossings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray

from trajpred.data.checks import as_array
from trajpred.data.geometry import arc_length, cut_line, norm, points_along
from trajpred.data.lane_map import MAX_ID, REACH_M, num_segments
from trajpred.errors import DataError, require
from trajpred.integrations.maps.segments import CONNECTED_M, MIN_LANE_M, Lane, Line, MapParts, require_line

#: Lane type by feature type, for features that are lanes.
LANE_TYPE = {
    "LANE_SURFACE_STREET": "VEHICLE",
    "LANE_SURFACE_UNSTRUCTURE": "VEHICLE",
    "LANE_FREEWAY": "VEHICLE",
    "LANE_UNKNOWN": "VEHICLE",
    "LANE_BIKE_LANE": "BIKE",
}
#: The type of lanes in intersections, in files that distinguish them.
INTERSECTION = "LANE_SURFACE_UNSTRUCTURE"
CROSSINGS = ("CROSSWALK", "CROSS_WALK")
#: Mark by boundary type; others are unknown, as is the side on which passing is allowed.
MARK_TYPE = {
    "ROAD_LINE_BROKEN_SINGLE_WHITE": "DASHED_WHITE",
    "ROAD_LINE_SOLID_SINGLE_WHITE": "SOLID_WHITE",
    "ROAD_LINE_SOLID_DOUBLE_WHITE": "DOUBLE_SOLID_WHITE",
    "ROAD_LINE_BROKEN_SINGLE_YELLOW": "DASHED_YELLOW",
    "ROAD_LINE_BROKEN_DOUBLE_YELLOW": "DOUBLE_DASH_YELLOW",
    "ROAD_LINE_SOLID_SINGLE_YELLOW": "SOLID_YELLOW",
    "ROAD_LINE_SOLID_DOUBLE_YELLOW": "DOUBLE_SOLID_YELLOW",
    "ROAD_EDGE_BOUNDARY": "NONE",
    "ROAD_EDGE_MEDIAN": "NONE",
}
#: Least and greatest distance (metres) of a boundary from the centreline.
BOUNDARY_M = (0.5, 10.0)
#: Metres between the points of a boundary.
STATION_M = 2.0
#: Least and greatest distance (metres) between the centrelines of neighbours.
BESIDE_M = (1.5, 6.0)
#: Maximum distance (metres) of a neighbour's nearest point ahead or behind.
AHEAD_M = 1.0
#: Cosine of the greatest angle between neighbours.
PARALLEL = np.cos(np.pi / 6)
#: Grid (metres) to which positions of road users are rounded.
GRID_M = 5.0


def read(features: Any, seen: NDArray[np.float64]) -> MapParts:
    """Return the lanes near road users, cut into segments, and the crossings.

    Args:
        features: the map features of a scene.
        seen: ``[N, 2]`` metres, the positions of road users.

    Broken features are left out. Raises: DataError if the features are not a dict.
    """
    require(type(features) is dict, "map_features", "must be a dict")
    parts = MapParts(frame="the file's own")
    named: dict[str, Any] = {}
    lanes: dict[str, _SourceLane] = {}
    places = np.unique(np.round(seen / GRID_M), axis=0) * GRID_M
    road_users = shapely.STRtree(shapely.points(places))
    for key, feature in features.items():
        name = str(key)
        named[name] = feature
        with parts.problems.leaving_out("map feature", name):
            kind = _kind(feature)
            if kind in CROSSINGS:
                sides = _long_sides(_points(feature, "polygon" if "polygon" in feature else "polyline"))
                if _are_near(road_users, list(sides)).any():
                    parts.add_crossing(*sides)
            elif kind in LANE_TYPE:
                lane = _SourceLane.of(name, kind, feature)
                if lane is not None:
                    lanes[name] = lane
    segments: list[_Segment] = []
    for lane in lanes.values():
        segments += lane.segments()
    is_near = _are_near(road_users, [segment.line for segment in segments])
    segments = [segments[row] for row in np.flatnonzero(is_near)]
    onward = _onward(lanes)
    beside = _neighbors(segments, lanes)
    parts.numbers = {lane.number for lane in lanes.values() if lane.number is not None}
    for segment in segments:
        with parts.problems.leaving_out("lane", segment.lane.name):
            parts.lanes[segment.key] = _lane(segment, named, onward, beside.get(segment.key, {}))
    return parts


def _kind(feature: Any) -> str:
    require(type(feature) is dict, "map_features", "must be dicts")
    kind = feature.get("type")
    require(isinstance(kind, str), "type", "of a map feature must be text")
    return str(kind)


def _points(feature: Mapping[str, Any], name: str) -> Line:
    """Return the points ``[P, 2]`` of a line or polygon. Raises: DataError if they are invalid."""
    require(name in feature, name, "is missing")
    points = as_array(feature[name], np.float64, name)
    is_line = points.ndim == 2 and points.shape[1] in (2, 3)
    require(is_line, name, f"must be [points, 2 or 3], has shape {points.shape}")
    return points[:, :2]


def _are_near(road_users: shapely.STRtree, lines: list[Line]) -> NDArray[np.bool_]:
    """Return which lines are within :data:`~trajpred.data.lane_map.REACH_M` of road users."""
    shapes = np.array([shapely.LineString(line) for line in lines], object)
    line, _ = road_users.query(shapes, predicate="dwithin", distance=REACH_M + GRID_M)
    return np.isin(np.arange(len(lines)), line)


class _Segment(NamedTuple):
    """A segment of a lane: its number, its centreline, and where it begins and ends along the lane."""

    lane: _SourceLane
    part: int
    parts: int
    line: Line
    start: float
    end: float

    @property
    def key(self) -> tuple[str, int]:
        return self.lane.name, self.part

    @property
    def middle(self) -> float:
        return (self.start + self.end) / 2


@dataclass
class _SourceLane:
    """A lane of a file.

    Attributes:
        line: ``[P, 2]`` metres, the centreline without repeated points.
        index: ``[P]`` indices of these points in the file.
    """

    name: str
    kind: str
    feature: Mapping[str, Any]
    line: Line
    index: NDArray[np.int64]

    @classmethod
    def of(cls, name: str, kind: str, feature: Mapping[str, Any]) -> _SourceLane | None:
        """Read a lane; None for one without length, as at the edge of a map. Raises: DataError."""
        points = _points(feature, "polyline")
        differs = np.ones(len(points), np.bool_)
        differs[1:] = norm(np.diff(points, axis=0)) > MIN_LANE_M
        if differs.sum() < 2:
            return None
        require_line(points, "polyline")
        return cls(name, kind, feature, points[differs], np.flatnonzero(differs))

    @property
    def number(self) -> int | None:
        """The name as a number, if it is one."""
        is_number = self.name.isdecimal() and int(self.name) < MAX_ID
        return int(self.name) if is_number else None

    @cached_property
    def arc(self) -> NDArray[np.float64]:
        return arc_length(self.line)

    def segments(self) -> Iterator[_Segment]:
        """Cut the lane as maps are cut."""
        [parts] = num_segments([self.line], "polyline")
        ends = np.linspace(0, self.arc[-1], parts + 1).tolist()
        for part, line in enumerate(cut_line(self.line, parts)):
            yield _Segment(self, part, parts, line, ends[part], ends[part + 1])

    def file_index(self, distance: Any) -> Any:
        """Return the fractional indices of the file's points at distances along the lane."""
        return np.interp(distance, self.arc, self.index)

    def names(self, field: str) -> list[str]:
        """Return the names of other lanes."""
        return [str(name) for name in self.items(field)]

    def items(self, field: str) -> list[Any]:
        """Return the items of a field, which may be missing. Raises: DataError if it is not a list."""
        items = self.feature.get(field)
        if items is None:
            return []
        is_list = isinstance(items, (list, tuple, np.ndarray))
        require(is_list, field, "must be a list")
        return list(items)

    def beside(self, side: str) -> list[_Beside]:
        """Return the lanes that the file lists beside this one."""
        return [_Beside.of(item, "feature_id", "self") for item in self.items(f"{side}_neighbor")]


class _Beside(NamedTuple):
    """A neighbour or boundary beside a part of a lane, between two of the file's points."""

    name: str
    first: float
    last: float

    @classmethod
    def of(cls, item: Any, name: str, prefix: str) -> _Beside:
        """Read a record of the file, or a name that applies to the whole lane. Raises: DataError."""
        if type(item) is not dict:
            return cls(str(item), 0, np.inf)
        try:
            return cls(str(item[name]), int(item[f"{prefix}_start_index"]), int(item[f"{prefix}_end_index"]))
        except (KeyError, TypeError, ValueError):
            raise DataError(f"has no {name} with first and last point", field=name) from None


# ------------------------------------------------------------------------------------------------ links


def _onward(lanes: dict[str, _SourceLane]) -> dict[str, list[str]]:
    """Return each lane's successors: the file's or, if it has none, lanes that begin at its end."""
    onward: dict[str, list[str]] = defaultdict(list)
    for lane in lanes.values():
        onward[lane.name] += lane.names("exit_lanes")
        for name in lane.names("entry_lanes"):
            onward[name].append(lane.name)
    if any(onward.values()) or not lanes:
        return onward
    names = list(lanes)
    starts = np.array([lane.line[:2] for lane in lanes.values()])
    ends = np.array([lane.line[-2:] for lane in lanes.values()])
    tree = shapely.STRtree(shapely.points(starts[:, 0]))
    before, after = tree.query(shapely.points(ends[:, 1]), predicate="dwithin", distance=CONNECTED_M)
    turn = (np.diff(ends[before], axis=1) * np.diff(starts[after], axis=1)).sum((1, 2))
    for first, second in zip(before[turn > 0].tolist(), after[turn > 0].tolist(), strict=True):
        onward[names[first]].append(names[second])
    return onward


def _neighbors(
    segments: list[_Segment], lanes: dict[str, _SourceLane]
) -> dict[tuple[str, int], dict[str, tuple[str, int]]]:
    """Return the segments to the left and right of the middle of each segment, by side.

    They are parallel and, if the file lists any neighbours, among these.
    """
    neighbors: dict[tuple[str, int], dict[str, tuple[str, int]]] = defaultdict(dict)
    if not segments:
        return neighbors
    shapes = np.array([shapely.LineString(segment.line) for segment in segments])
    half = shapely.length(shapes) / 2
    place, ahead = _pose(shapes, half)
    points = shapely.points(place)
    row, other = shapely.STRtree(shapes).query(points, predicate="dwithin", distance=BESIDE_M[1])
    nearest, direction = _pose(shapes[other], shapely.line_locate_point(shapes[other], points[row]))
    offset = nearest - place[row]
    forward = (offset * ahead[row]).sum(-1)
    left = ahead[row, 0] * offset[:, 1] - ahead[row, 1] * offset[:, 0]
    parallel = (direction * ahead[row]).sum(-1) >= PARALLEL
    is_beside = (np.abs(left) >= BESIDE_M[0]) & (np.abs(left) <= BESIDE_M[1])
    chosen = np.flatnonzero(parallel & is_beside & (np.abs(forward) <= AHEAD_M))
    listed = any(lane.items("left_neighbor") or lane.items("right_neighbor") for lane in lanes.values())
    for pair in chosen[np.argsort(np.abs(left[chosen]), kind="stable")].tolist():
        segment = segments[row[pair]]
        neighbor = segments[other[pair]]
        side = "left" if left[pair] > 0 else "right"
        if not listed or _is_listed(segment, neighbor.lane.name, side):
            neighbors[segment.key].setdefault(side, neighbor.key)
    return neighbors


def _pose(
    shapes: NDArray[Any], distance: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points ``[N, 2]`` at distances along lines, and the directions ``[N, 2]`` there."""
    step = np.minimum(shapely.length(shapes) / 4, 0.5)
    inside = distance.clip(step, shapely.length(shapes) - step)
    behind = shapely.get_coordinates(shapely.line_interpolate_point(shapes, inside - step))
    before = shapely.get_coordinates(shapely.line_interpolate_point(shapes, inside + step))
    ahead = before - behind
    place = shapely.get_coordinates(shapely.line_interpolate_point(shapes, distance))
    return place, ahead / np.maximum(norm(ahead), MIN_LANE_M)[:, None]


def _is_listed(segment: _Segment, name: str, side: str) -> bool:
    """Return whether the file lists a lane beside the middle of a segment."""
    index = segment.lane.file_index(segment.middle)
    for other in segment.lane.beside(side):
        if other.name == name and other.first <= index <= other.last:
            return True
    return False


# ------------------------------------------------------------------------------------ lanes, boundaries


def _lane(
    segment: _Segment,
    features: dict[str, Any],
    onward: dict[str, list[str]],
    beside: dict[str, tuple[str, int]],
) -> Lane:
    """Return a segment as a lane of a map. Raises: DataError if it has no length."""
    lane = segment.lane
    successors: list[Hashable] = [(lane.name, segment.part + 1)]
    if segment.part == segment.parts - 1:  # the first segments of the lanes that follow
        successors = [(name, 0) for name in onward[lane.name]]
    left, left_mark = _boundary(segment, "left", features)
    right, right_mark = _boundary(segment, "right", features)
    return Lane(
        left,
        right,
        center=segment.line,
        lane_type=LANE_TYPE[lane.kind],
        left_mark=left_mark,
        right_mark=right_mark,
        left_neighbor=beside.get("left"),
        right_neighbor=beside.get("right"),
        successors=successors,
        is_intersection=True if lane.kind == INTERSECTION else None,
        lane_id=lane.number if segment.part == 0 else None,
    )


def _boundary(segment: _Segment, side: str, features: dict[str, Any]) -> tuple[Line, str]:
    """Return the boundary on one side of a segment, and its mark; no points if the file has none.

    It is where lines across the centreline meet the lane's polygon, or the road lines and edges listed on
    that side. In between, and up to the ends, the distance from the centreline is interpolated.
    """
    lane = segment.lane
    length = segment.end - segment.start
    count = int(np.ceil(length / STATION_M)) + 1
    along = np.linspace(0, length, count)
    station = points_along(segment.line, along)
    shape = np.full(count, shapely.LineString(segment.line))
    _, ahead = _pose(shape, along)
    aside = np.stack((-ahead[:, 1], ahead[:, 0]), -1)
    if side == "right":
        aside = -aside
    distance = np.full(count, np.nan)
    mark = "UNKNOWN"
    index = lane.file_index(segment.start + along)
    for item in lane.items(f"{side}_boundaries"):
        piece = _Beside.of(item, "boundary_feature_id", "lane")
        feature = features.get(piece.name)
        if feature is None:
            continue
        line = _points(feature, "polyline")
        if len(line) < 2:
            continue
        covered = (index >= piece.first - 0.5) & (index <= piece.last + 0.5)
        distance[covered] = _distances(station[covered], aside[covered], line)
        if piece.first <= lane.file_index(segment.middle) <= piece.last:
            mark = MARK_TYPE.get(_kind(feature), "UNKNOWN")
    if "polygon" in lane.feature:
        distance = _distances(station, aside, _points(lane.feature, "polygon"), closed=True)
    has_distance = np.isfinite(distance)
    if not has_distance.any():
        return np.zeros((0, 2)), mark
    distance = np.interp(along, along[has_distance], distance[has_distance])
    return station + distance[:, None] * aside, mark


def _distances(place: Line, aside: Line, line: Line, closed: bool = False) -> NDArray[np.float64]:
    """Return the distance from each point ``[N, 2]`` to a line in a direction; NaN where they do not meet."""
    if closed:
        line = np.concatenate((line, line[:1]))
    require_line(line, "boundary")
    near, far = BOUNDARY_M
    across = shapely.linestrings(np.stack((place + near * aside, place + far * aside), 1))
    meeting = shapely.intersection(across, shapely.LineString(line))
    return shapely.distance(shapely.points(place), meeting)


def _long_sides(polygon: Line) -> tuple[Line, Line]:
    """Return the long sides of a crossing, in the same direction. Raises: DataError if it has no area.

    They are sides between its corners if there are four, otherwise of the narrowest rectangle around it.
    """
    require_line(polygon, "polygon")
    if np.array_equal(polygon[0], polygon[-1]):
        polygon = polygon[:-1]
    if len(polygon) != 4:
        around = shapely.get_coordinates(shapely.minimum_rotated_rectangle(shapely.MultiPoint(polygon)))
        require(len(around) == 5, "polygon", "has no area")
        polygon = around[:4]
    a, b, c, d = polygon
    if norm(b - a) + norm(d - c) >= norm(c - b) + norm(a - d):
        return np.stack((a, b)), np.stack((d, c))
    return np.stack((b, c)), np.stack((a, d))
