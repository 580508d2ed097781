"""Read Argoverse 2 motion forecasting: ``scenario_<id>.parquet`` and ``log_map_archive_<id>.json``.

The parquet columns are read with pyarrow and arranged with NumPy, about ten times as fast as av2's own
loader, which creates one Python object per state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.errors import DataError, as_names, encode, require, require_finite, within
from trajpred.lane_map import LaneMap
from trajpred.scenario import OBJECT_TYPES, Scenario, Tracks
from trajpred.sources.argoverse2_map import map_from
from trajpred.splits import SPLITS

#: Limits that a damaged or hostile file must not exceed, checked before memory is allocated: steps of a
#: window (1000 s at 10 Hz); tracks times steps, and rows of a table (100 times the largest scenario of
#: Argoverse 2); decompressed bytes of a row group.
MAX_STEPS, MAX_STATES, MAX_GROUP_BYTES = 10_000, 2**22, 2**28


def _is_text(dtype: pa.DataType) -> bool:
    value = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    return pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)


def _is_time(dtype: pa.DataType) -> bool:
    return pa.types.is_floating(dtype) or pa.types.is_integer(dtype)


_TEXT = ("track_id", "object_type", "scenario_id", "focal_track_id", "city")
_STATE = ("position_x", "position_y", "heading", "velocity_x", "velocity_y")
#: The columns to read, and the check of their type.
_COLUMNS: dict[str, Callable[[pa.DataType], bool]] = {
    "observed": pa.types.is_boolean,
    **dict.fromkeys(_TEXT, _is_text),
    **dict.fromkeys(_STATE, pa.types.is_floating),
    **dict.fromkeys(("start_timestamp", "end_timestamp"), _is_time),
    **dict.fromkeys(("object_category", "timestep", "num_timestamps"), pa.types.is_integer),
}


def discover(raw: Path) -> dict[str, list[Path]]:
    """Return the scenario folders of each split below ``raw``, by id. Raises: DataError if there are none."""
    folders = {split: raw / split for split in SPLITS if (raw / split).is_dir()}
    found = {split: sorted(p for p in folder.iterdir() if p.is_dir()) for split, folder in folders.items()}
    if not any(found.values()):
        raise DataError(f"no scenario folders; expected {raw}/{{train,val,test}}/<id>/", file=raw)
    return found


def read_scenario(folder: Path) -> Scenario:
    """Read a scenario folder. Raises: DataError naming the file and the field at fault."""
    tracks_file = _only_file(folder, "scenario_*.parquet")
    lane_map = read_map(_only_file(folder, "log_map_archive_*.json"))
    with readable(tracks_file, "parquet file"):
        return scenario_from(_read_table(tracks_file), lane_map)


def read_tracks(path: Path) -> Scenario:
    """Read a ``scenario_<id>.parquet`` alone, without a map. Raises: DataError naming the field at fault."""
    with readable(path, "parquet file"):
        return scenario_from(_read_table(path), LaneMap())


def read_map(path: Path) -> LaneMap:
    """Read a ``log_map_archive_<id>.json``. Raises: DataError naming the file and the field at fault."""
    with readable(path, "JSON file"):
        return map_from(json.loads(path.read_bytes()))


@contextmanager
def readable(path: Path, what: str, field: str | None = None) -> Iterator[None]:
    """Name ``path`` in every DataError; report other errors as "is not a readable ``what``"."""
    try:
        yield
    except DataError as error:
        raise error.located(path) from None
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        raise DataError(f"is not a readable {what} ({error})", file=path, field=field) from None


def _only_file(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise DataError(f"{pattern} is {'ambiguous' if found else 'missing'}", file=folder)
    return found[0]


def _read_table(path: Path) -> pa.Table:
    metadata = pq.read_metadata(path)
    require_small_groups(metadata)
    require(metadata.num_rows <= MAX_STATES, "rows", f"declares {metadata.num_rows} rows")
    schema = metadata.schema.to_arrow_schema()
    for name, is_type in _COLUMNS.items():
        found = schema.get_all_field_indices(name)
        require(len(found) == 1, name, "column is duplicated" if found else "column is missing")
        dtype = schema.field(name).type
        require(is_type(dtype), name, f"has the wrong type {dtype}")
    # Text is read as codes, since five strings per state would be much slower.
    file = pq.ParquetFile(path, metadata=metadata, read_dictionary=list(_TEXT))
    return file.read(columns=list(_COLUMNS), use_threads=False)


def require_small_groups(metadata: pq.FileMetaData) -> None:
    """Raise DataError if a row group of a parquet file declares more rows or bytes than the limits.

    Does not touch the metadata of single columns: damaged statistics there crash Arrow.
    """
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        rows, size = group.num_rows, group.total_byte_size
        require(rows <= MAX_STATES, "rows", f"a row group declares {rows} rows, more than {MAX_STATES}")
        require(size <= MAX_GROUP_BYTES, "rows", f"a row group declares {size} bytes")


def scenario_from(table: pa.Table, lane_map: LaneMap) -> Scenario:
    """Arrange the columns of Argoverse 2's tracks. Raises: DataError naming the column at fault."""
    require(table.num_rows > 0, "track_id", "the file has no rows")
    for name in _COLUMNS:
        require(table[name].null_count == 0, name, "contains nulls")
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
    """Return all tracks, sorted by id, and the number of observed steps."""
    step, observed = table["timestep"].to_numpy(), table["observed"].to_numpy()
    require(within(step, T), "timestep", f"must be 0 to {T - 1}")
    require(bool(observed.any()), "observed", "is False in all rows")
    num_observed = int(step[observed].max()) + 1
    in_order = bool((observed == (step < num_observed)).all())
    require(in_order, "observed", "must be True up to one step and False after it")

    row, ids = text_codes(table, "track_id")
    valid = valid_states(row, step, len(ids), T, "timestep")
    first = np.full(len(ids), -1)
    first[row[::-1]] = np.arange(len(row))[::-1]
    type_code, type_names = text_codes(table, "object_type")
    object_type = encode(type_names, OBJECT_TYPES, "object_type")[type_code]
    category = table["object_category"].to_numpy()
    for name, values in (("object_type", object_type), ("object_category", category)):
        require(bool((values == values[first][row]).all()), name, "changes within a track")
    require(within(category, 4), "object_category", "must be 0 to 3")

    states = np.zeros((len(_STATE), len(ids), T))
    for i, name in enumerate(_STATE):
        values = table[name].to_numpy()
        require_finite(values, name)
        states[i, row, step] = values
    x, y, heading, vx, vy = states

    tracks = Tracks(
        track_id=as_names(ids, "track_id"),
        object_type=object_type[first],
        category=category[first].astype(np.int8),
        valid=valid,
        position=np.stack((x, y), -1),
        heading=heading,
        velocity=np.stack((vx, vy), -1),
    )
    return tracks, num_observed


def valid_states(
    row: NDArray[np.int64], step: NDArray[np.int64], num_tracks: int, num_steps: int, field: str
) -> NDArray[np.bool_]:
    """Return a mask ``[num_tracks, num_steps]`` of the states with these tracks and steps ``[N]``.

    Raises: DataError about ``field`` if a track has two states at one step, and if the mask is too large.
    """
    too_large = f"{num_tracks} tracks of {num_steps} steps exceed {MAX_STATES} states"
    require(num_tracks * num_steps <= MAX_STATES, "track_id", too_large)
    valid = np.zeros((num_tracks, num_steps), np.bool_)
    valid[row, step] = True
    require(int(valid.sum()) == len(row), field, "contains two states of a track at the same step")
    return valid


def text_codes(table: pa.Table, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return for each row its text's index among the sorted distinct texts of the column, and those texts."""
    column = table[name] if pa.types.is_dictionary(table[name].type) else table[name].dictionary_encode()
    codes = column.unify_dictionaries().combine_chunks()
    # The dictionary of a table that was filtered may contain unused texts.
    used, code = np.unique(codes.indices.to_numpy(), return_inverse=True)
    try:
        texts: list[str] = codes.dictionary.take(used).to_pylist()
    except UnicodeDecodeError:
        raise DataError("contains text that is not UTF-8", field=name) from None
    ordered = sorted(set(texts))
    rank = {text: i for i, text in enumerate(ordered)}
    return np.array([rank[text] for text in texts], np.int64)[code], ordered


def _constant(table: pa.Table, name: str) -> Any:
    """Return the value that all rows of a column share."""
    values = text_codes(table, name)[1] if name in _TEXT else np.unique(table[name].to_numpy()).tolist()
    require(len(values) == 1, name, f"must be the same in all rows, has {len(values)} values")
    return values[0]
