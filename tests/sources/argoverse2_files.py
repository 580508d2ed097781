"""A small scenario in Argoverse 2's format, written with changes and read."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conftest import rejected
from tools.synthesize import make_scenario, scenario_table
from trajpred.data.scenario import Scenario
from trajpred.sources.argoverse2 import archive_of, read_scenario

TEXT = ("track_id", "object_type", "scenario_id", "focal_track_id", "city")
STATE = ("position_x", "position_y", "heading", "velocity_x", "velocity_y")
TIME = ("start_timestamp", "end_timestamp")
INTEGER = ("timestep", "object_category", "num_timestamps")
COLUMNS = ("observed", *TEXT, *STATE, *TIME, *INTEGER)
SMALL = make_scenario(0, 2, steps=8, observed=5)
TABLE = scenario_table(SMALL)
#: The first three records of each group of the map.
ARCHIVE = {}
for _group, _records in archive_of(SMALL.map, digits=None).items():
    ARCHIVE[_group] = dict(islice(_records.items(), 3))


def read(folder: Path, tracks: Any = TABLE, archive: Any = ARCHIVE, **options: Any) -> Scenario:
    """Write both files of a scenario, bytes as they are, and read them."""
    folder.mkdir(exist_ok=True)
    parquet = folder / "scenario_0.parquet"
    log_map = folder / "log_map_archive_0.json"
    if isinstance(tracks, bytes):
        parquet.write_bytes(tracks)
    else:
        pq.write_table(tracks, parquet, **options)
    if not isinstance(archive, bytes):
        archive = json.dumps(archive).encode()
    log_map.write_bytes(archive)
    return read_scenario(folder)


def with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    """Return the table with other values in a column."""
    return table.set_column(table.column_names.index(name), name, values)


def replaced(name: str, values: Any, row: int | None = None) -> pa.Table:
    """Return the small table with other values in a column, or in one row of it."""
    if row is None:
        return with_column(TABLE, name, pa.array(values))
    column = TABLE[name].to_pylist()
    column[row] = values
    return with_column(TABLE, name, pa.array(column, TABLE[name].type))


def rejects(file: str, field: str | None, folder: Path, *arguments: Any) -> str:
    """Return the message of the DataError that names ``file`` and ``field``."""
    return rejected(lambda: read(folder, *arguments), file, field).message
