"""Argoverse 2: scenarios and map archives of the motion-forecasting data set."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.data.checks import as_names, encode
from trajpred.data.geometry import arc_length, points_along
from trajpred.data.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE, LaneMap
from trajpred.data.motion import given_heading
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.data.splits import SPLITS
from trajpred.data.time import require_nanoseconds
from trajpred.data.tracks import OBJECT_TYPES, Tracks
from trajpred.errors import DataError, require, require_finite, within
from trajpred.sources.reading import (
    MAX_STATES,
    MAX_STEPS,
    MapProblems,
    RawScenario,
    finite,
    folders,
    is_text,
    of_tracks,
    only_file,
    readable,
    require_columns,
    require_lanes,
    require_small_groups,
    require_values,
    text_codes,
    valid_states,
)

#: Largest distance (metres) between the points of a computed centreline.
POINT_M = 2.0
#: Longest boundary (metres) for which a centreline is computed.
LONGEST_M = 1e5
#: Decimals of written positions: a millimetre.
DIGITS = 3

#: Groups of an archive, by kind of record.
_GROUPS = {
    "lane segment": "lane_segments",
    "crossing": "pedestrian_crossings",
    "drivable area": "drivable_areas",
}


def map_from(archive: Any, problems: MapProblems) -> LaneMap:
    """Build the map from the records of an archive's JSON; broken records are left out and recorded.

    Raises: DataError naming a missing group, or if none of the map's lanes is left.
    """
    groups = {group: _records(archive, group) for group in _GROUPS.values()}
    lanes = groups["lane_segments"]
    has_centerline = any(isinstance(lane, dict) and "centerline" in lane for lane in lanes)
    try:
        return _map_of(groups, has_centerline)
    except DataError:
        intact = _without_broken(groups, has_centerline, problems)
    if lanes:
        require_lanes(len(intact["lane_segments"]), problems)
    return _map_of(intact, has_centerline)


def _records(archive: Any, group: str) -> list[Any]:
    require(isinstance(archive, dict), group, "the file must contain an object")
    require(group in archive, group, "is missing")
    require(isinstance(archive[group], dict), group, "must be an object of id -> record")
    return list(archive[group].values())


def _without_broken(
    groups: dict[str, list[Any]], has_centerline: bool, problems: MapProblems
) -> dict[str, list[Any]]:
    """Select the records that can be read individually and whose ids do not occur before."""
    empty: dict[str, list[Any]] = {group: [] for group in groups}
    intact: dict[str, list[Any]] = {}
    for kind, group in _GROUPS.items():
        intact[group] = []
        ids = set()
        for index, record in enumerate(groups[group]):
            record_id = record.get("id") if isinstance(record, dict) else None
            name = f"number {index + 1}" if record_id is None else str(record_id)
            with problems.leaving_out(kind, name):
                _map_of(empty | {group: [record]}, has_centerline)
                require(record_id not in ids, f"{group}.id", "occurs twice")
                ids.add(record_id)
                intact[group].append(record)
    return intact


def _map_of(groups: dict[str, list[Any]], has_centerline: bool) -> LaneMap:
    """Build the map from intact records. Raises: DataError naming the field at fault."""
    lanes = _Records("lane_segments", groups["lane_segments"])
    crossings = _Records("pedestrian_crossings", groups["pedestrian_crossings"])
    areas = _Records("drivable_areas", groups["drivable_areas"])
    lane_id = lanes.integers("id")
    left = lanes.polylines("left_lane_boundary")
    right = lanes.polylines("right_lane_boundary")
    centerline = lanes.polylines("centerline") if has_centerline else midlines(left, right)
    lane_map = LaneMap(
        lane_id=lane_id,
        lane_type=lanes.codes("lane_type", LANE_TYPES),
        is_intersection=lanes.flags("is_intersection"),
        centerline=centerline,
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
    )
    lane_map.validate()
    return lane_map


def archive_of(lane_map: LaneMap, digits: int | None = DIGITS) -> dict[str, Any]:
    """Return a map as the records of a map archive, for JSON: the inverse of :func:`map_from`.

    Positions are rounded to ``digits``, by default to a millimetre; heights that a map lacks are 0.

    Raises: DataError if the map is invalid, or ids of crossings or drivable areas are duplicate.
    """
    lane_map.validate()
    crossings = {}
    for row, crossing_id in enumerate(lane_map.crossing_id.tolist()):
        crossings[str(crossing_id)] = {
            "id": crossing_id,
            "edge1": _points(lane_map.crossing_edge1[row], digits),
            "edge2": _points(lane_map.crossing_edge2[row], digits),
        }
    areas = {}
    for row, area_id in enumerate(lane_map.drivable_area_id.tolist()):
        boundary = _points(lane_map.drivable_area[row], digits)
        areas[str(area_id)] = {"id": area_id, "area_boundary": boundary}
    require(len(crossings) == len(lane_map.crossing_id), "crossing_id", "contains a duplicate")
    require(len(areas) == len(lane_map.drivable_area_id), "drivable_area_id", "contains a duplicate")
    lanes = _lane_records(lane_map, digits)
    return {"lane_segments": lanes, "pedestrian_crossings": crossings, "drivable_areas": areas}


def _lane_records(lane_map: LaneMap, digits: int | None) -> dict[str, Any]:
    records: dict[str, Any] = {}
    for row, lane_id in enumerate(lane_map.lane_id.tolist()):
        records[str(lane_id)] = {
            "id": lane_id,
            "lane_type": LANE_TYPES[lane_map.lane_type[row]],
            "is_intersection": bool(lane_map.is_intersection[row]),
            "centerline": _points(lane_map.centerline[row], digits),
            "left_lane_boundary": _points(lane_map.left_boundary[row], digits),
            "right_lane_boundary": _points(lane_map.right_boundary[row], digits),
            "left_lane_mark_type": MARK_TYPES[lane_map.left_mark[row]],
            "right_lane_mark_type": MARK_TYPES[lane_map.right_mark[row]],
            "left_neighbor_id": _neighbor(lane_map.left_neighbor[row]),
            "right_neighbor_id": _neighbor(lane_map.right_neighbor[row]),
            "predecessors": lane_map.predecessors[row].tolist(),
            "successors": lane_map.successors[row].tolist(),
        }
    return records


def _neighbor(lane_id: np.int64) -> int | None:
    return None if lane_id == NO_LANE else int(lane_id)


def _points(line: NDArray[np.float64], digits: int | None) -> list[dict[str, float]]:
    """Return a polyline ``[P, 2]`` or ``[P, 3]`` as points with heights."""
    rounded = line if digits is None else line.round(digits)
    xyz = np.pad(rounded, ((0, 0), (0, 3 - rounded.shape[1])))
    return [{"x": x, "y": y, "z": z} for x, y, z in xyz.tolist()]


def midlines(left: Ragged, right: Ragged) -> Ragged:
    """Compute centrelines halfway between boundaries, with a point every 2 m or closer, at height 0.

    Point i is the mean of the points i of both boundaries, each divided into equal lengths, as in av2.

    Raises: DataError on a boundary of fewer than two points.
    """
    left.validate("lane_segments.left_lane_boundary", shortest=2)
    right.validate("lane_segments.right_lane_boundary", shortest=2)
    middles = Ragged.from_rows([midline(*sides) for sides in zip(left, right, strict=True)], 2)
    return Ragged(np.pad(middles.values, ((0, 0), (0, 1))), middles.offsets)


def midline(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the centreline ``[P, 2]`` halfway between two boundaries, see :func:`midlines`."""
    left_length = arc_length(left[:, :2])[-1]
    right_length = arc_length(right[:, :2])[-1]
    longest = f"is longer than {LONGEST_M:g} m"
    require(max(left_length, right_length) <= LONGEST_M, "lane_segments", longest)
    points = math.ceil((left_length + right_length) / 2 / POINT_M) + 1
    left_points = points_along(left[:, :2], np.linspace(0, left_length, points))
    right_points = points_along(right[:, :2], np.linspace(0, right_length, points))
    return (left_points + right_points) / 2


class _Records:
    """The records of one group of a map archive, read key by key."""

    def __init__(self, group: str, records: list[Any]) -> None:
        self.group = group
        self.records = records

    def column(self, key: str) -> list[Any]:
        try:
            return [record[key] for record in self.records]
        except (KeyError, TypeError):
            raise DataError("is missing in at least one record", field=f"{self.group}.{key}") from None

    def codes(self, key: str, types: tuple[str, ...]) -> NDArray[np.int8]:
        return encode(self.column(key), types, f"{self.group}.{key}")

    def flags(self, key: str) -> NDArray[np.bool_]:
        try:
            return np.array(_only(self.column(key), bool), np.bool_)
        except TypeError:
            raise DataError("must be true or false", field=f"{self.group}.{key}") from None

    def integers(self, key: str, null: int | None = None) -> NDArray[np.int64]:
        values = [null if value is None else value for value in self.column(key)]
        return _integers(values, f"{self.group}.{key}")

    def id_lists(self, key: str) -> Ragged:
        rows = self.column(key)
        name = f"{self.group}.{key}"
        try:
            ids = chain.from_iterable(_only(rows, list))
        except TypeError:
            raise DataError("must be lists of ids", field=name) from None
        return Ragged.from_lengths(_integers(ids, name), [len(row) for row in rows])

    def polylines(self, key: str) -> Ragged:
        """Convert lists of ``{"x", "y", "z"}`` objects to polylines with heights."""
        rows = self.column(key)
        name = f"{self.group}.{key}"
        coordinates = itemgetter("x", "y", "z")
        try:
            points = chain.from_iterable(_only(rows, list))
            flat = chain.from_iterable(map(coordinates, points))
            numbers = _only(flat, int, float)
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
    """Return ``values`` if all have exactly one of ``types``, since NumPy would convert True and "1.5".

    Raises: TypeError.
    """
    listed = list(values)
    if not set(map(type, listed)) <= set(types):
        raise TypeError
    return listed


def _is_time(dtype: pa.DataType) -> bool:
    return pa.types.is_floating(dtype) or pa.types.is_integer(dtype)


#: Observed steps of Argoverse 2's windows, and observed and future steps together.
NUM_OBSERVED = 50
NUM_STEPS = 110
#: Columns with text, and columns with states in metres, radians and m/s.
TEXT = ("track_id", "object_type", "scenario_id", "focal_track_id", "city")
STATE = ("position_x", "position_y", "heading", "velocity_x", "velocity_y")
#: The columns to read, and the check of their type.
_COLUMNS: dict[str, Callable[[pa.DataType], bool]] = {
    "observed": pa.types.is_boolean,
    **dict.fromkeys(TEXT, is_text),
    **dict.fromkeys(STATE, pa.types.is_floating),
    **dict.fromkeys(("start_timestamp", "end_timestamp"), _is_time),
    **dict.fromkeys(("object_category", "timestep", "num_timestamps"), pa.types.is_integer),
}


def discover(raw: Path) -> dict[str, list[RawScenario]]:
    """Return the scenario folders of each split below ``raw``, by id."""
    return {split: list(map(RawScenario.of, folders(raw / split))) for split in SPLITS}


def read(raw: RawScenario) -> Scenario:
    """Read a discovered scenario. Raises: DataError naming the file and the field at fault."""
    return read_scenario(raw.path)


def read_scenario(folder: Path) -> Scenario:
    """Read a scenario folder. Raises: DataError naming the file and the field at fault."""
    tracks_file = only_file(folder, "scenario_*.parquet")
    lane_map = read_archive(only_file(folder, "log_map_archive_*.json"))
    with readable(tracks_file, "parquet file"):
        return scenario_from(_read_table(tracks_file), lane_map)


def read_archive(path: Path) -> LaneMap:
    """Read a ``log_map_archive_<id>.json``; broken records are left out with a warning that names them.

    Raises: DataError naming the file and the field at fault.
    """
    problems = MapProblems()
    with readable(path, "JSON file"):
        lane_map = map_from(json.loads(path.read_bytes()), problems)
    problems.warn(path)
    return lane_map


def _read_table(path: Path) -> pa.Table:
    """Read the states of a scenario. Raises: DataError about a missing column or a wrong type."""
    metadata = pq.read_metadata(path)
    require_small_groups(metadata)
    require(metadata.num_rows <= MAX_STATES, "rows", f"declares {metadata.num_rows} rows")
    schema = metadata.schema.to_arrow_schema()
    require_columns(schema.names, _COLUMNS)
    for name, is_type in _COLUMNS.items():
        dtype = schema.field(name).type
        require(is_type(dtype), name, f"has the wrong type {dtype}")
    # Read text as codes: five strings per state would be much slower.
    file = pq.ParquetFile(path, metadata=metadata, read_dictionary=list(TEXT))
    return file.read(columns=list(_COLUMNS), use_threads=False)


def scenario_from(table: pa.Table, lane_map: LaneMap) -> Scenario:
    """Build a scenario from columns of tracks. Raises: DataError naming the column at fault."""
    require_values(table, _COLUMNS)
    T = int(_constant(table, "num_timestamps"))
    require(1 <= T <= MAX_STEPS, "num_timestamps", f"must be 1 to {MAX_STEPS}, is {T}")
    tracks, num_observed = _tracks(table, T)
    start, end = _times(table, T)
    return Scenario(
        scenario_id=_constant(table, "scenario_id"),
        city=_constant(table, "city"),
        timestamps_ns=np.linspace(start, end, T).round().astype(np.int64),
        num_observed=num_observed,
        focal_id=_constant(table, "focal_track_id"),
        tracks=tracks,
        map=lane_map,
    ).validate()


def _times(table: pa.Table, T: int) -> tuple[float, float]:
    """Return the first and the last of ``T`` times. Raises: DataError unless they are nanoseconds."""
    start = float(_constant(table, "start_timestamp"))
    end = float(_constant(table, "end_timestamp"))
    require(0 <= end < 2**63, "end_timestamp", f"must be nanoseconds, is {end}")
    require(0 <= start <= end, "start_timestamp", f"must be nanoseconds up to end_timestamp, is {start}")
    require_nanoseconds(start, end, T, "start_timestamp")
    return start, end


def _tracks(table: pa.Table, T: int) -> tuple[Tracks, int]:
    """Return all tracks, sorted by id, and the number of observed steps."""
    step = table["timestep"].to_numpy()
    observed = table["observed"].to_numpy()
    require(within(step, T), "timestep", f"must be 0 to {T - 1}")
    require(bool(observed.any()), "observed", "is False in all rows")
    num_observed = _num_observed(step, observed, T)

    row, ids = text_codes(table, "track_id")
    valid = valid_states(row, step, len(ids), T, "timestep")
    type_code, type_names = text_codes(table, "object_type")
    types = encode(type_names, OBJECT_TYPES, "object_type")[type_code]
    category = of_tracks(table["object_category"].to_numpy(), row, len(ids), "object_category")
    require(within(category, 4), "object_category", "must be 0 to 3")
    states = np.zeros((len(STATE), len(ids), T))
    for i, name in enumerate(STATE):
        states[i, row, step] = finite(table, name)
    x, y, heading, vx, vy = states

    tracks = Tracks(
        track_id=as_names(ids, "track_id"),
        object_type=of_tracks(types, row, len(ids), "object_type"),
        category=category.astype(np.int8),
        valid=valid,
        position=np.stack((x, y), -1),
        heading=np.where(valid, given_heading(heading), 0.0),
        velocity=np.stack((vx, vy), -1),
    )
    return tracks, num_observed


def _num_observed(step: NDArray[np.int64], observed: NDArray[np.bool_], T: int) -> int:
    """Return the number of observed steps, from the rows' steps ``[N]`` and ``observed`` flags.

    If no track has a row at the steps around the last observed one, the rows leave it open: then it is as in
    Argoverse 2's windows, or at the same fraction of a window of another length.
    """
    fewest = int(step[observed].max()) + 1
    most = int(step[~observed].min(initial=T))
    require(fewest <= most, "observed", "must be True up to one step and False after it")
    for usual in (NUM_OBSERVED, round(T * NUM_OBSERVED / NUM_STEPS)):
        if fewest <= usual <= most:
            return usual
    return fewest


def _constant(table: pa.Table, name: str) -> Any:
    """Return a column's value, which all rows share."""
    values = text_codes(table, name)[1] if name in TEXT else np.unique(table[name].to_numpy()).tolist()
    require(len(values) == 1, name, f"must be the same in all rows, has {len(values)} values")
    return values[0]
