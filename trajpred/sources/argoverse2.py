"""Argoverse 2 motion forecasting: ``<split>/<id>/scenario_<id>.parquet`` and ``log_map_archive_<id>.json``.

The parquet columns are read with pyarrow and laid out with NumPy; av2's own loader makes one Python
object per state and takes some ten times as long.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.errors import DataError, as_strings, encode, require
from trajpred.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE, LaneMap, Ragged
from trajpred.scenario import OBJECT_TYPES, Scenario, Tracks
from trajpred.splits import SPLITS

#: Limits that a damaged or hostile file must not exceed, checked before memory is allocated: steps of a
#: window (1000 s at 10 Hz); tracks times steps, and rows of a table (100 times the largest scenario of
#: Argoverse 2); decompressed bytes of a row group.
MAX_STEPS, MAX_STATES, MAX_GROUP_BYTES = 10_000, 2**22, 2**28


def _is_text(kind: pa.DataType) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind)


_TEXT = ("track_id", "object_type", "scenario_id", "focal_track_id", "city")
_STATE = ("position_x", "position_y", "heading", "velocity_x", "velocity_y")
#: The columns that are read, and what tells whether one has the right type.
_COLUMNS: dict[str, Callable[[pa.DataType], bool]] = {
    "observed": pa.types.is_boolean,
    **dict.fromkeys(_TEXT, _is_text),
    **dict.fromkeys(_STATE, pa.types.is_floating),
    **dict.fromkeys(("start_timestamp", "end_timestamp"), _is_time),
    **dict.fromkeys(("object_category", "timestep", "num_timestamps"), pa.types.is_integer),
}


def discover(raw: Path) -> dict[str, list[Path]]:
    """Scenario folders of each split below ``raw``, sorted by id. Raises: DataError where there are none."""
    found = {
        split: sorted(path for path in (raw / split).iterdir() if path.is_dir())
        for split in SPLITS
        if (raw / split).is_dir()
    }
    if not any(found.values()):
        raise DataError(f"no scenario folders; expected {raw}/{{train,val,test}}/<id>/", file=raw)
    return found


def read_scenario(folder: Path) -> Scenario:
    """Read one scenario folder. Raises: DataError naming the file and the field at fault."""
    tracks_file = _only_file(folder, "scenario_*.parquet")
    map_file = _only_file(folder, "log_map_archive_*.json")
    lane_map = read_map(map_file)
    try:
        return _scenario(_read_table(tracks_file), lane_map)
    except DataError as error:
        raise error.located(tracks_file) from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"is no readable parquet file ({error})", file=tracks_file) from None


def read_map(path: Path) -> LaneMap:
    """Read a ``log_map_archive_<id>.json``. Raises: DataError naming the file and the field at fault."""
    try:
        archive = json.loads(path.read_bytes())
        lane_map = _lane_map(archive)
        lane_map.validate()
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise error.located(path) from None
        raise DataError(f"is no readable JSON ({error})", file=path) from None
    return lane_map


def _only_file(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        problem = "is missing" if not found else "stands there more than once"
        raise DataError(f"{pattern} {problem}", file=folder)
    return found[0]


# ---------------------------------------------------------------------------------------------- tracks


def _read_table(path: Path) -> pa.Table:
    metadata = pq.read_metadata(path)
    require_small_groups(metadata)
    require(metadata.num_rows <= MAX_STATES, "rows", f"declares {metadata.num_rows} rows")
    schema = metadata.schema.to_arrow_schema()
    for name, is_type in _COLUMNS.items():
        found = schema.get_all_field_indices(name)
        require(len(found) == 1, name, "column stands there twice" if found else "column is missing")
        kind = schema.field(name).type
        require(is_type(kind), name, f"has the wrong type {kind}")
    # Text is read as codes into its distinct values: five strings per state would cost far more.
    file = pq.ParquetFile(path, metadata=metadata, read_dictionary=list(_TEXT))
    return file.read(columns=list(_COLUMNS), use_threads=False)


def _scenario(table: pa.Table, lane_map: LaneMap) -> Scenario:
    require(table.num_rows > 0, "track_id", "the file holds no rows")
    for name in _COLUMNS:
        require(table[name].null_count == 0, name, "holds nulls")
    T = int(_constant(table, "num_timestamps"))
    require(1 <= T <= MAX_STEPS, "num_timestamps", f"must be 1 to {MAX_STEPS}, is {T}")
    tracks, num_observed = _tracks(table, T)
    start, end = float(_constant(table, "start_timestamp")), float(_constant(table, "end_timestamp"))
    require(0 <= end < 2**63, "end_timestamp", f"must be nanoseconds, is {end}")
    require(0 <= start <= end, "start_timestamp", f"must be nanoseconds up to end_timestamp, is {start}")
    return Scenario(
        scenario_id=_constant(table, "scenario_id"),
        city=_constant(table, "city"),
        timestamps_ns=np.linspace(start, end, T).round().astype(np.int64),
        num_observed=num_observed,
        focal_id=_constant(table, "focal_track_id"),
        tracks=tracks,
        map=lane_map,
    ).validate()


def _tracks(table: pa.Table, T: int) -> tuple[Tracks, int]:
    """All tracks, sorted by id, and the number of observed steps."""
    step = table["timestep"].to_numpy()
    require(bool(((step >= 0) & (step < T)).all()), "timestep", f"must be 0 to {T - 1}")
    observed = table["observed"].to_numpy()
    require(bool(observed.any()), "observed", "no state is observed")
    num_observed = int(step[observed].max()) + 1
    split = bool((observed == (step < num_observed)).all())
    require(split, "observed", "must be True up to one step and False after it")

    row, ids = _codes(table, "track_id")
    require_few_states(len(ids), T)
    first = np.full(len(ids), -1)
    first[row[::-1]] = np.arange(len(row))[::-1]
    valid = np.zeros((len(ids), T), np.bool_)
    valid[row, step] = True
    require(int(valid.sum()) == len(row), "timestep", "a track has the same step twice")

    type_code, type_names = _codes(table, "object_type")
    object_type = encode(type_names, OBJECT_TYPES, "object_type")[type_code]
    category = table["object_category"].to_numpy()
    for name, values in (("object_type", object_type), ("object_category", category)):
        require(bool((values == values[first][row]).all()), name, "changes within a track")
    require(bool(((category >= 0) & (category <= 3)).all()), "object_category", "must be 0 to 3")

    def states(*names: str) -> NDArray[np.float64]:
        dense = np.zeros((len(ids), T, len(names)))
        for i, name in enumerate(names):
            values = table[name].to_numpy()
            require(bool(np.isfinite(values).all()), name, "has a value that is not finite")
            dense[row, step, i] = values
        return dense

    tracks = Tracks(
        track_id=as_strings(ids, "track_id"),
        object_type=object_type[first],
        category=category[first].astype(np.int8),
        valid=valid,
        position=states("position_x", "position_y"),
        heading=states("heading")[..., 0],
        velocity=states("velocity_x", "velocity_y"),
    )
    return tracks, num_observed


def _codes(table: pa.Table, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """For each row the index of its text among the column's sorted distinct texts, and these texts."""
    column = table[name].unify_dictionaries().combine_chunks()
    # A table filtered by its writer may carry texts that no row uses any more.
    used, code = np.unique(column.indices.to_numpy(), return_inverse=True)
    try:
        texts: list[str] = column.dictionary.take(used).to_pylist()
    except UnicodeDecodeError:
        raise DataError("holds text that is not UTF-8", field=name) from None
    ordered = sorted(set(texts))
    rank = {text: i for i, text in enumerate(ordered)}
    return np.array([rank[text] for text in texts], np.int64)[code], ordered


def _constant(table: pa.Table, name: str) -> Any:
    """The one value that all rows of a column share."""
    values = _codes(table, name)[1] if name in _TEXT else np.unique(table[name].to_numpy()).tolist()
    require(len(values) == 1, name, f"must be the same in all rows, has {len(values)} values")
    return values[0]


def require_few_states(tracks: int, steps: int) -> None:
    """Raise DataError if tracks times steps exceed :data:`MAX_STATES`."""
    message = f"{tracks} tracks of {steps} steps exceed {MAX_STATES} states"
    require(tracks * steps <= MAX_STATES, "track_id", message)


def require_small_groups(metadata: pq.FileMetaData) -> None:
    """Raise DataError if a row group of a parquet file declares more rows or bytes than the limits.

    Does not touch the metadata of single columns: damaged statistics there crash Arrow.
    """
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        rows, size = group.num_rows, group.total_byte_size
        require(rows <= MAX_STATES, "rows", f"a row group declares {rows} rows, more than {MAX_STATES}")
        require(size <= MAX_GROUP_BYTES, "rows", f"a row group declares {size} bytes")


# ------------------------------------------------------------------------------------------------- map


def _lane_map(archive: Any) -> LaneMap:
    lanes = _records(archive, "lane_segments")
    crossings = _records(archive, "pedestrian_crossings")
    areas = _records(archive, "drivable_areas")

    def lane(key: str) -> list[Any]:
        return _column(lanes, "lane_segments", key)

    def polylines(records: list[Any], group: str, key: str) -> Ragged:
        return _polylines(_column(records, group, key), f"{group}.{key}")

    return LaneMap(
        lane_id=_integers(lane("id"), "lane_segments.id"),
        lane_type=encode(lane("lane_type"), LANE_TYPES, "lane_segments.lane_type"),
        is_intersection=_flags(lane("is_intersection"), "lane_segments.is_intersection"),
        centerline=polylines(lanes, "lane_segments", "centerline"),
        left_boundary=polylines(lanes, "lane_segments", "left_lane_boundary"),
        right_boundary=polylines(lanes, "lane_segments", "right_lane_boundary"),
        left_mark=encode(lane("left_lane_mark_type"), MARK_TYPES, "lane_segments.left_lane_mark_type"),
        right_mark=encode(lane("right_lane_mark_type"), MARK_TYPES, "lane_segments.right_lane_mark_type"),
        left_neighbor=_neighbors(lane("left_neighbor_id"), "lane_segments.left_neighbor_id"),
        right_neighbor=_neighbors(lane("right_neighbor_id"), "lane_segments.right_neighbor_id"),
        predecessors=_id_lists(lane("predecessors"), "lane_segments.predecessors"),
        successors=_id_lists(lane("successors"), "lane_segments.successors"),
        crossing_id=_integers(_column(crossings, "pedestrian_crossings", "id"), "pedestrian_crossings.id"),
        crossing_edge1=polylines(crossings, "pedestrian_crossings", "edge1"),
        crossing_edge2=polylines(crossings, "pedestrian_crossings", "edge2"),
        drivable_area_id=_integers(_column(areas, "drivable_areas", "id"), "drivable_areas.id"),
        drivable_area=polylines(areas, "drivable_areas", "area_boundary"),
    )


def _records(archive: Any, group: str) -> list[Any]:
    require(isinstance(archive, dict), group, "the file must hold an object")
    require(group in archive, group, "is missing")
    require(isinstance(archive[group], dict), group, "must be an object of id -> record")
    return list(archive[group].values())


def _column(records: list[Any], group: str, key: str) -> list[Any]:
    try:
        return [record[key] for record in records]
    except (KeyError, TypeError):
        raise DataError("is missing in at least one record", field=f"{group}.{key}") from None


def _polylines(rows: list[Any], name: str) -> Ragged:
    """Lists of ``{"x", "y", "z"}`` objects -> polylines with height."""
    try:
        points = chain.from_iterable(_only(rows, list))
        numbers = _only(chain.from_iterable(map(itemgetter("x", "y", "z"), points)), int, float)
        values = np.array(numbers, np.float64).reshape(-1, 3)
    except (KeyError, TypeError, OverflowError):
        raise DataError('must be lists of points {"x", "y", "z"} of numbers', field=name) from None
    require(bool(np.isfinite(values).all()), name, "has a value that is not finite")
    return Ragged.from_lengths(values, [len(row) for row in rows])


def _integers(values: Iterable[Any], name: str) -> NDArray[np.int64]:
    try:
        return np.array(_only(values, int), np.int64)
    except (TypeError, OverflowError):
        raise DataError("must hold whole numbers of 64 bits", field=name) from None


def _neighbors(values: list[Any], name: str) -> NDArray[np.int64]:
    return _integers((NO_LANE if value is None else value for value in values), name)


def _id_lists(rows: list[Any], name: str) -> Ragged:
    try:
        ids = _integers(chain.from_iterable(_only(rows, list)), name)
    except TypeError:
        raise DataError("must hold lists of ids", field=name) from None
    return Ragged.from_lengths(ids, [len(row) for row in rows])


def _flags(values: list[Any], name: str) -> NDArray[np.bool_]:
    try:
        return np.array(_only(values, bool), np.bool_)
    except TypeError:
        raise DataError("must be true or false", field=name) from None


def _only(values: Iterable[Any], *kinds: type) -> list[Any]:
    """``values``, each of exactly one of ``kinds``: NumPy would take true for 1 and "1.5" for 1.5.

    Raises: TypeError.
    """
    listed = list(values)
    if not set(map(type, listed)) <= set(kinds):
        raise TypeError
    return listed
