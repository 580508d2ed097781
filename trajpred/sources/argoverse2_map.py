"""Argoverse 2's vector maps: the records of ``log_map_archive_<id>.json`` as a lane map, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError, encode, require, require_finite
from trajpred.geometry import arc_length, points_along
from trajpred.lane_map import (
    LANE_TYPES,
    MARK_TYPES,
    NO_LANE,
    TRAFFIC_CONTROL,
    TURN_DIRECTIONS,
    LaneMap,
    Ragged,
)

#: Largest distance (metres) between the points of a computed centreline.
POINT_M = 2.0
#: Digits behind the point of written positions: a millimetre.
DIGITS = 3
#: Attributes that Argoverse 2 lacks: written where a map has them, and known to no other program.
EXTRA = {"turn_direction": TURN_DIRECTIONS, "has_traffic_control": TRAFFIC_CONTROL}


def map_from(archive: Any) -> LaneMap:
    """Arrange the records of a map archive, as JSON. Raises: DataError naming the field at fault."""
    lanes, crossings, areas = (
        _Records(archive, group) for group in ("lane_segments", "pedestrian_crossings", "drivable_areas")
    )
    lane_id = lanes.integers("id")
    left, right = lanes.polylines("left_lane_boundary"), lanes.polylines("right_lane_boundary")
    extra = {name: lanes.codes(name, codes) for name, codes in EXTRA.items() if lanes.has(name)}
    lane_map = LaneMap(
        lane_id=lane_id,
        lane_type=lanes.codes("lane_type", LANE_TYPES),
        is_intersection=lanes.flags("is_intersection"),
        centerline=lanes.polylines("centerline") if lanes.has("centerline") else midlines(left, right),
        left_boundary=left,
        right_boundary=right,
        left_mark=lanes.codes("left_lane_mark_type", MARK_TYPES),
        right_mark=lanes.codes("right_lane_mark_type", MARK_TYPES),
        left_neighbor=lanes.integers("left_neighbor_id", null=NO_LANE),
        right_neighbor=lanes.integers("right_neighbor_id", null=NO_LANE),
        predecessors=lanes.id_lists("predecessors"),
        successors=lanes.id_lists("successors"),
        crossing_id=crossings.integers("id"),
        crossing_edge1=crossings.polylines("edge1"),
        crossing_edge2=crossings.polylines("edge2"),
        drivable_area_id=areas.integers("id"),
        drivable_area=areas.polylines("area_boundary"),
        **extra,
    )
    lane_map.validate()
    return lane_map


def archive_of(lane_map: LaneMap) -> dict[str, Any]:
    """Return a map as the records of a map archive, for JSON: the inverse of :func:`map_from`.

    Positions are rounded to a millimetre; heights that a map lacks are 0. Raises: DataError if the map is
    invalid, or an id of a crossing or drivable area is duplicate.
    """
    lane_map.validate()
    archive = {"lane_segments": _lane_records(lane_map)}
    crossings = {}
    for row, crossing_id in enumerate(lane_map.crossing_id.tolist()):
        crossings[str(crossing_id)] = {
            "id": crossing_id,
            "edge1": _points(lane_map.crossing_edge1[row]),
            "edge2": _points(lane_map.crossing_edge2[row]),
        }
    areas = {}
    for row, area_id in enumerate(lane_map.drivable_area_id.tolist()):
        boundary = _points(lane_map.drivable_area[row])
        areas[str(area_id)] = {"id": area_id, "area_boundary": boundary}
    require(len(crossings) == len(lane_map.crossing_id), "crossing_id", "contains a duplicate")
    require(len(areas) == len(lane_map.drivable_area_id), "drivable_area_id", "contains a duplicate")
    archive["pedestrian_crossings"] = crossings
    archive["drivable_areas"] = areas
    return archive


def _lane_records(lane_map: LaneMap) -> dict[str, Any]:
    extra = [name for name in EXTRA if getattr(lane_map, name).any()]
    records: dict[str, Any] = {}
    for row, lane_id in enumerate(lane_map.lane_id.tolist()):
        record = {
            "id": lane_id,
            "lane_type": LANE_TYPES[lane_map.lane_type[row]],
            "is_intersection": bool(lane_map.is_intersection[row]),
            "centerline": _points(lane_map.centerline[row]),
            "left_lane_boundary": _points(lane_map.left_boundary[row]),
            "right_lane_boundary": _points(lane_map.right_boundary[row]),
            "left_lane_mark_type": MARK_TYPES[lane_map.left_mark[row]],
            "right_lane_mark_type": MARK_TYPES[lane_map.right_mark[row]],
            "left_neighbor_id": _neighbor(lane_map.left_neighbor[row]),
            "right_neighbor_id": _neighbor(lane_map.right_neighbor[row]),
            "predecessors": lane_map.predecessors[row].tolist(),
            "successors": lane_map.successors[row].tolist(),
        }
        for name in extra:
            record[name] = EXTRA[name][getattr(lane_map, name)[row]]
        records[str(lane_id)] = record
    return records


def _neighbor(lane_id: np.int64) -> int | None:
    return None if lane_id == NO_LANE else int(lane_id)


def _points(line: NDArray[np.float64]) -> list[dict[str, float]]:
    """Return a polyline ``[P, 2]`` or ``[P, 3]`` as points with heights."""
    points = []
    for x, y, *height in line.round(DIGITS).tolist():
        points.append({"x": x, "y": y, "z": height[0] if height else 0.0})
    return points


def midlines(left: Ragged, right: Ragged) -> Ragged:
    """Compute centrelines halfway between boundaries, with a point every 2 m or closer, at height 0.

    Point i is the mean of the points i of both boundaries, each divided into equal lengths; so av2 does.
    """
    lines = []
    for sides in zip(left, right, strict=True):
        xy = [side[:, :2] for side in sides]
        lengths = [arc_length(side)[-1] for side in xy]
        points = math.ceil(sum(lengths) / 2 / POINT_M) + 1
        at = [np.linspace(0, length, points) for length in lengths]
        middle = np.mean([points_along(*side) for side in zip(xy, at, strict=True)], axis=0)
        lines.append(np.concatenate((middle, np.zeros((points, 1))), -1))
    return Ragged.from_rows(lines, 3)


class _Records:
    """The records of one group of a map archive, read key by key."""

    def __init__(self, archive: Any, group: str) -> None:
        require(isinstance(archive, dict), group, "the file must contain an object")
        require(group in archive, group, "is missing")
        require(isinstance(archive[group], dict), group, "must be an object of id -> record")
        self.group, self.records = group, list(archive[group].values())

    def has(self, key: str) -> bool:
        """Whether any record has ``key``: the maps of Sensor logs have no centrelines."""
        return any(isinstance(record, dict) and key in record for record in self.records)

    def column(self, key: str) -> list[Any]:
        try:
            return [record[key] for record in self.records]
        except (KeyError, TypeError):
            raise DataError("is missing in at least one record", field=f"{self.group}.{key}") from None

    def codes(self, key: str, known: tuple[str, ...]) -> NDArray[np.int8]:
        return encode(self.column(key), known, f"{self.group}.{key}")

    def flags(self, key: str) -> NDArray[np.bool_]:
        try:
            return np.array(_only(self.column(key), bool), np.bool_)
        except TypeError:
            raise DataError("must be true or false", field=f"{self.group}.{key}") from None

    def integers(self, key: str, null: int | None = None) -> NDArray[np.int64]:
        values = self.column(key)
        values = values if null is None else [null if value is None else value for value in values]
        return _integers(values, f"{self.group}.{key}")

    def id_lists(self, key: str) -> Ragged:
        rows, name = self.column(key), f"{self.group}.{key}"
        try:
            ids = chain.from_iterable(_only(rows, list))
        except TypeError:
            raise DataError("must be lists of ids", field=name) from None
        return Ragged.from_lengths(_integers(ids, name), [len(row) for row in rows])

    def polylines(self, key: str) -> Ragged:
        """Convert lists of ``{"x", "y", "z"}`` objects to polylines with heights."""
        rows, name = self.column(key), f"{self.group}.{key}"
        try:
            points = chain.from_iterable(_only(rows, list))
            numbers = _only(chain.from_iterable(map(itemgetter("x", "y", "z"), points)), int, float)
            values = np.array(numbers, np.float64).reshape(-1, 3)
        except (KeyError, TypeError, OverflowError):
            raise DataError('must be lists of points {"x", "y", "z"} of numbers', field=name) from None
        require_finite(values, name)
        return Ragged.from_lengths(values, [len(row) for row in rows])


def _integers(values: Iterable[Any], name: str) -> NDArray[np.int64]:
    try:
        return np.array(_only(values, int), np.int64)
    except (TypeError, OverflowError):
        raise DataError("must be 64-bit integers", field=name) from None


def _only(values: Iterable[Any], *types: type) -> list[Any]:
    """Return ``values`` if all have one of ``types`` exactly, since NumPy would convert True and "1.5".

    Raises: TypeError.
    """
    listed = list(values)
    if not set(map(type, listed)) <= set(types):
        raise TypeError
    return listed
