"""Invalid and ambiguous tracks of Argoverse 2: file and field are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.conftest import rejected
from tests.sources.argoverse2_files import (
    COLUMNS,
    INTEGER,
    SMALL,
    STATE,
    TABLE,
    TEXT,
    TIME,
    read,
    rejects,
    replaced,
    with_column,
)
from tools.synthesize import make_scenario, scenario_table
from trajpred.sources.argoverse2 import read_scenario
from trajpred.sources.reading import MAX_STEPS

FILE = "scenario_*.parquet"
ROWS = len(TABLE)
#: Values of types that a column may not have.
WRONG = (
    {"observed": 1}
    | dict.fromkeys(TEXT, b"1")
    | dict.fromkeys(STATE, 1)
    | dict.fromkeys(TIME, "1")
    | dict.fromkeys(INTEGER, 1.0)
)


@pytest.mark.parametrize("name", COLUMNS)
def test_missing_duplicate_null_and_mistyped_columns_are_named(tmp_path: Path, name: str) -> None:
    missing = TABLE.drop_columns([name])
    duplicate = TABLE.append_column(name, TABLE[name])
    null = replaced(name, None, row=0)
    mistyped = replaced(name, [WRONG[name]] * ROWS)
    assert "missing" in rejects(FILE, name, tmp_path, missing)
    assert "duplicated" in rejects(FILE, name, tmp_path, duplicate)
    assert "at least one row" in rejects(FILE, name, tmp_path, null)
    assert "type" in rejects(FILE, name, tmp_path, mistyped)
    if name in TEXT:
        letters = pa.array([b"\xff\xfe"] * ROWS, pa.binary()).buffers()
        no_text = pa.Array.from_buffers(pa.string(), ROWS, letters)
        rejects(FILE, name, tmp_path, replaced(name, no_text))


FOCAL_ROW = TABLE["track_id"].to_pylist().index(SMALL.focal_id)
INVALID_TRACKS: list[tuple[str, Callable[[], pa.Table]]] = [
    *((name, lambda name=name: replaced(name, np.nan, row=5)) for name in STATE),
    ("start_timestamp", lambda: replaced("start_timestamp", [np.nan] * ROWS)),
    ("city", lambda: replaced("city", "7", row=3)),
    ("end_timestamp", lambda: replaced("end_timestamp", 9, row=3)),
    *(("num_timestamps", lambda n=n: replaced("num_timestamps", [n] * ROWS)) for n in (0, MAX_STEPS + 1)),
    *(("timestep", lambda n=n: replaced("timestep", n, row=5)) for n in (-1, 8)),
    ("timestep", lambda: pa.concat_tables([TABLE, TABLE.slice(4, 1)])),
    ("observed", lambda: TABLE.slice(0, 0)),
    ("observed", lambda: replaced("observed", [False] * ROWS)),
    ("observed", lambda: replaced("observed", True, row=7)),
    ("object_type", lambda: replaced("object_type", "tram", row=0)),
    ("object_type", lambda: replaced("object_type", "bus", row=FOCAL_ROW)),
    ("object_category", lambda: replaced("object_category", 0, row=FOCAL_ROW)),
    ("object_category", lambda: replaced("object_category", [4] * ROWS)),
    ("focal_id", lambda: replaced("focal_track_id", ["other"] * ROWS)),
    ("start_timestamp", lambda: replaced("start_timestamp", [4e17] * ROWS)),
    ("end_timestamp", lambda: replaced("end_timestamp", [1e300] * ROWS)),
    ("start_timestamp", lambda: replaced("end_timestamp", TABLE["start_timestamp"].to_pylist())),
]


@pytest.mark.parametrize(("field", "table"), INVALID_TRACKS)
def test_invalid_tracks_are_named(tmp_path: Path, field: str, table: Callable[[], pa.Table]) -> None:
    rejects(FILE, field, tmp_path, table())


@pytest.mark.parametrize("per_second", [1, 10**3, 10**6, 10**7])
@pytest.mark.parametrize("dtype", [pa.int64(), pa.float64()])
def test_timestamps_of_another_unit_are_named(tmp_path: Path, per_second: int, dtype: pa.DataType) -> None:
    start = 315_973_159
    end = pa.array([(start + 1) * per_second] * ROWS, dtype)
    table = replaced("start_timestamp", [start * per_second] * ROWS)
    table = with_column(table, "end_timestamp", end)
    assert "nanoseconds" in rejects(FILE, "start_timestamp", tmp_path, table)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_timestamps_that_float32_has_rounded_are_named(tmp_path: Path, dtype: type) -> None:
    table = TABLE
    nanoseconds = {
        "start_timestamp": 315_973_159_595_020_000,
        "end_timestamp": 315_973_193_595_020_000,
    }
    for name, exact in nanoseconds.items():
        rounded = np.full(ROWS, exact).astype(np.float32).astype(dtype)
        table = with_column(table, name, pa.array(rounded))
    assert "float32" in rejects(FILE, "start_timestamp", tmp_path, table)


@pytest.mark.parametrize(
    ("steps", "observed", "hidden"),
    [
        (110, 50, range(45, 50)),
        (110, 50, range(50, 53)),
        (110, 50, range(40, 110)),
        (22, 10, range(9, 11)),
    ],
)
def test_the_boundary_is_that_of_argoverse_2_where_no_row_shows_it(
    tmp_path: Path, steps: int, observed: int, hidden: range
) -> None:
    """The focal track alone, unseen around its last observed step; at 10 Hz and at 2 Hz."""
    table = scenario_table(make_scenario(0, 2, steps=steps, observed=observed))
    alone = pc.equal(table["track_id"], table["focal_track_id"])
    unseen = pc.is_in(table["timestep"], pa.array(hidden))
    table = table.filter(pc.and_(alone, pc.invert(unseen)))
    scenario = read(tmp_path, table)
    assert scenario.num_observed == observed
    assert scenario.num_steps == steps


@pytest.mark.parametrize("pattern", ["scenario_*.parquet", "log_map_archive_*.json"])
def test_missing_ambiguous_and_unreadable_files_are_named(tmp_path: Path, pattern: str) -> None:
    def refused(file: str) -> str:
        return rejected(lambda: read_scenario(tmp_path), file).message

    read(tmp_path)
    path = next(tmp_path.glob(pattern))
    content = path.read_bytes()
    for share in (0, 0.5):
        path.write_bytes(content[: int(share * len(content))])
        refused(pattern)
    for damaged in (b"PAR1" * 20, b"\xff\xfe\xfa", b"[" * 100_000, b"9" * 10_000):
        path.write_bytes(damaged)
        refused(pattern)
    path.with_stem(f"{path.stem}b").touch()
    assert pattern in refused(tmp_path.name)
    path.with_stem(f"{path.stem}b").unlink()
    path.unlink()
    assert pattern in refused(tmp_path.name)
    path.mkdir()
    refused(pattern)
