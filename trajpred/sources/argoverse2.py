"""Read Argoverse 2 motion forecasting: ``scenario_<id>.parquet`` and ``log_map_archive_<id>.json``.

The parquet columns are read with pyarrow and arranged with NumPy, about ten times as fast as av2's own
loader, which creates one Python object per state.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.clock import require_nanoseconds
from trajpred.errors import require, within
from trajpred.lane_map import LaneMap
from trajpred.motion import given_heading
from trajpred.names import as_names, encode
from trajpred.scenario import Scenario
from trajpred.sources.argoverse2_map import map_from
from trajpred.sources.map_problems import MapProblems
from trajpred.sources.raw_scenario import RawScenario
from trajpred.sources.reading import (
    MAX_STATES,
    MAX_STEPS,
    finite,
    folders,
    is_text,
    of_tracks,
    only_file,
    readable,
    require_columns,
    require_small_groups,
    require_values,
    text_codes,
    valid_states,
)
from trajpred.splits import SPLITS
from trajpred.tracks import OBJECT_TYPES, Tracks


def _is_time(dtype: pa.DataType) -> bool:
    return pa.types.is_floating(dtype) or pa.types.is_integer(dtype)


#: Observed steps of Argoverse 2's windows, and observed and future steps together.
NUM_OBSERVED = 50
NUM_STEPS = 110
#: The columns of text, and those of a state, in metres, radians and m/s.
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
    splits = {}
    for split in SPLITS:
        splits[split] = [RawScenario.of(folder) for folder in folders(raw / split)]
    return splits


def read(raw: RawScenario) -> Scenario:
    """Read one of :func:`discover`. Raises: DataError naming the file and the field at fault."""
    return read_scenario(raw.path)


def read_scenario(folder: Path) -> Scenario:
    """Read a scenario folder. Raises: DataError naming the file and the field at fault."""
    tracks_file = only_file(folder, "scenario_*.parquet")
    lane_map = read_map(only_file(folder, "log_map_archive_*.json"))
    with readable(tracks_file, "parquet file"):
        return scenario_from(_read_table(tracks_file), lane_map)


def read_tracks(path: Path) -> Scenario:
    """Read a ``scenario_<id>.parquet`` alone, without a map. Raises: DataError naming the field at fault."""
    with readable(path, "parquet file"):
        return scenario_from(_read_table(path), LaneMap())


def read_map(path: Path) -> LaneMap:
    """Read a ``log_map_archive_<id>.json``; broken records are left out with a warning that names them.

    Raises: DataError naming the file and the field at fault.
    """
    problems = MapProblems()
    with readable(path, "JSON file"):
        lane_map = map_from(json.loads(path.read_bytes()), problems)
    problems.warn(path)
    return lane_map


def _read_table(path: Path) -> pa.Table:
    metadata = pq.read_metadata(path)
    require_small_groups(metadata)
    require(metadata.num_rows <= MAX_STATES, "rows", f"declares {metadata.num_rows} rows")
    schema = metadata.schema.to_arrow_schema()
    require_columns(schema.names, _COLUMNS)
    for name, is_type in _COLUMNS.items():
        dtype = schema.field(name).type
        require(is_type(dtype), name, f"has the wrong type {dtype}")
    # Text is read as codes, since five strings per state would be much slower.
    file = pq.ParquetFile(path, metadata=metadata, read_dictionary=list(TEXT))
    return file.read(columns=list(_COLUMNS), use_threads=False)


def scenario_from(table: pa.Table, lane_map: LaneMap) -> Scenario:
    """Arrange the columns of Argoverse 2's tracks. Raises: DataError naming the column at fault."""
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
    """Return the number of observed steps, of the rows' steps ``[N]`` and whether they are ``observed``.

    Where no track has a row at the steps around the last observed one, the rows leave it open: it is that of
    Argoverse 2's windows then, or of the same share of a window of another length.
    """
    fewest = int(step[observed].max()) + 1
    most = int(step[~observed].min(initial=T))
    require(fewest <= most, "observed", "must be True up to one step and False after it")
    for usual in (NUM_OBSERVED, round(T * NUM_OBSERVED / NUM_STEPS)):
        if fewest <= usual <= most:
            return usual
    return fewest


def _constant(table: pa.Table, name: str) -> Any:
    """Return the value that all rows of a column share."""
    values = text_codes(table, name)[1] if name in TEXT else np.unique(table[name].to_numpy()).tolist()
    require(len(values) == 1, name, f"must be the same in all rows, has {len(values)} values")
    return values[0]
