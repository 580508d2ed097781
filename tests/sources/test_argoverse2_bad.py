"""Bad files: each gives a DataError that names file and field in one sentence, never another exception."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trajpred.errors import DataError
from trajpred.sources.argoverse2 import MAX_STEPS, read_scenario

Write = Callable[..., Path]
Columns = dict[str, Any]
TEXT = ("track_id", "object_type", "scenario_id", "focal_track_id", "city")
STATE = ("position_x", "position_y", "heading", "velocity_x", "velocity_y")
TIME = ("start_timestamp", "end_timestamp")
WHOLE = ("timestep", "object_category", "num_timestamps")
CONSTANT = ("scenario_id", "focal_track_id", "city", "num_timestamps", *TIME)
POLYLINES = [
    ("lane_segments", "centerline"),
    ("lane_segments", "left_lane_boundary"),
    ("lane_segments", "right_lane_boundary"),
    ("pedestrian_crossings", "edge1"),
    ("pedestrian_crossings", "edge2"),
    ("drivable_areas", "area_boundary"),
]


def refused(read: Callable[[], Any], file: str, field: str | None) -> DataError:
    """The error that ``read`` raises, checked to name both and to be one line of bearable length."""
    with pytest.raises(DataError) as caught:
        read()
    error = caught.value
    assert Path(str(error.file)).match(file), error
    assert error.field == field, error
    assert len(str(error).splitlines()) == 1
    assert 5 < len(error.message) < 300
    return error


def refused_tracks(folder: Path, field: str | None) -> DataError:
    return refused(lambda: read_scenario(folder), "scenario_*.parquet", field)


def refused_map(folder: Path, field: str | None) -> DataError:
    return refused(lambda: read_scenario(folder), "log_map_archive_*.json", field)


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("pattern", ["scenario_*.parquet", "log_map_archive_*.json"])
def test_a_missing_file_is_named(write: Write, columns: Columns, archive: Any, pattern: str) -> None:
    folder = write(columns, archive)
    next(folder.glob(pattern)).unlink()
    assert pattern in refused(lambda: read_scenario(folder), folder.name, None).message


@pytest.mark.parametrize("name", ["scenario_b.parquet", "log_map_archive_b.json"])
def test_two_files_of_a_kind_are_refused(write: Write, columns: Columns, archive: Any, name: str) -> None:
    folder = write(columns, archive)
    (folder / name).touch()
    refused(lambda: read_scenario(folder), folder.name, None)


def test_a_missing_folder(tmp_path: Path) -> None:
    refused(lambda: read_scenario(tmp_path / "absent"), "absent", None)


@pytest.mark.parametrize("pattern", ["scenario_*.parquet", "log_map_archive_*.json"])
def test_a_folder_in_place_of_a_file(write: Write, columns: Columns, archive: Any, pattern: str) -> None:
    folder = write(columns, archive)
    path = next(folder.glob(pattern))
    path.unlink()
    path.mkdir()
    refused(lambda: read_scenario(folder), pattern, None)


@pytest.mark.parametrize("share", [0, 1e-4, 0.01, 0.3, 0.5, 0.9, 0.99, 0.9999])
def test_a_truncated_parquet(write: Write, columns: Columns, archive: Any, share: float) -> None:
    folder = write(columns, archive)
    path = next(folder.glob("*.parquet"))
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    refused_tracks(folder, None)


@pytest.mark.parametrize("content", [b"PAR1" * 20, b'{"a": 1}' * 20, b"PAR1\0\0\0\0PAR1"])
def test_what_is_no_parquet(write: Write, archive: Any, content: bytes) -> None:
    refused_tracks(write(content, archive), None)


@pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.5, 0.9, 0.99, 0.9999])
def test_a_truncated_json(write: Write, columns: Columns, archive: Any, share: float) -> None:
    content = json.dumps(archive).encode()
    refused_map(write(columns, content[: int(share * len(content))]), None)


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\xfa", b'{"a": "\xff"}', b"not json", b"[" * 100_000, b"9" * 10_000, b"{} {}", b"\0" * 9],
    ids=lambda content: repr(content[:8]),
)
def test_what_is_no_json(write: Write, columns: Columns, content: bytes) -> None:
    refused_map(write(columns, content), None)


def test_random_damage_gives_a_scenario_or_a_data_error(write: Write, columns: Columns, archive: Any) -> None:
    folder = write(columns, archive)
    random_ = random.Random(0)
    outcomes = set()
    for path in folder.iterdir():
        content = path.read_bytes()
        for _ in range(150):
            damaged = bytearray(content)
            for _ in range(3):
                damaged[random_.randrange(len(damaged))] = random_.randrange(256)
            path.write_bytes(damaged)
            try:
                read_scenario(folder).validate()
                outcomes.add((path.suffix, "read"))
            except DataError as error:
                assert error.file == path
                outcomes.add((path.suffix, "refused"))
        path.write_bytes(content)
    assert outcomes >= {(".parquet", "refused"), (".json", "refused")}


# ---------------------------------------------------------------------------------------------- columns


@pytest.mark.parametrize("name", ["observed", *TEXT, *STATE, *TIME, *WHOLE])
def test_a_missing_column_is_named(write: Write, columns: Columns, archive: Any, name: str) -> None:
    del columns[name]
    assert "missing" in refused_tracks(write(columns, archive), name).message


@pytest.mark.parametrize("name", ["track_id", "heading"])
def test_a_column_that_stands_there_twice(write: Write, columns: Columns, archive: Any, name: str) -> None:
    table = pa.table(columns)
    refused_tracks(write(table.append_column(name, table[name]), archive), name)


def test_a_file_without_columns(write: Write, archive: Any) -> None:
    refused_tracks(write({}, archive), "observed")


def test_a_file_without_rows(write: Write, columns: Columns, archive: Any) -> None:
    assert "no rows" in refused_tracks(write(pa.table(columns).slice(0, 0), archive), "track_id").message


WRONG = {
    "text": lambda rows: ["1"] * rows,
    "whole": lambda rows: np.ones(rows, np.int64),
    "real": lambda rows: np.ones(rows),
    "boolean": lambda rows: np.ones(rows, bool),
    "bytes": lambda rows: [b"1"] * rows,
    "list": lambda rows: [[1.0]] * rows,
    "list of text": lambda rows: [["1"]] * rows,
    "struct": lambda rows: [{"a": "1"}] * rows,
    "decimal": lambda rows: pa.array([1] * rows, pa.decimal128(5)),
    "date": lambda rows: pa.array([1] * rows, pa.timestamp("ns")),
    "null": lambda rows: pa.nulls(rows),
}
RIGHT = {
    "observed": ("boolean",),
    **dict.fromkeys(TEXT, ("text",)),
    **dict.fromkeys(STATE, ("real",)),
    **dict.fromkeys(TIME, ("real", "whole")),
    **dict.fromkeys(WHOLE, ("whole",)),
}


@pytest.mark.parametrize("kind", WRONG)
def test_each_column_of_a_wrong_type_is_named(
    write: Write, columns: Columns, archive: Any, kind: str, tmp_path: Path
) -> None:
    for i, name in enumerate(name for name in columns if kind not in RIGHT[name]):
        wrong = WRONG[kind](len(columns["timestep"]))
        folder = write({**columns, name: wrong}, archive)
        assert "type" in refused_tracks(folder, name).message
        folder.rename(tmp_path / str(i))


@pytest.mark.parametrize("name", ["observed", *TEXT, *STATE, *TIME, *WHOLE])
def test_nulls_are_refused(write: Write, columns: Columns, archive: Any, name: str) -> None:
    values = pa.array(columns[name]).to_pylist()
    columns[name] = pa.array([None, *values[1:]], pa.array(columns[name]).type)
    refused_tracks(write(columns, archive), name)


@pytest.mark.parametrize("name", TEXT)
def test_text_that_is_not_utf8(write: Write, columns: Columns, archive: Any, name: str) -> None:
    rows = len(columns["timestep"])
    raw = pa.array([b"\xff\xfe"] * rows, pa.binary())
    columns[name] = pa.Array.from_buffers(pa.string(), rows, raw.buffers())
    refused_tracks(write(columns, archive), name)


# ----------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", [*STATE, *TIME])
def test_numbers_that_are_not_finite(
    write: Write, columns: Columns, archive: Any, name: str, value: float
) -> None:
    columns[name][slice(None) if name in TIME else 5] = value
    refused_tracks(write(columns, archive), name)


@pytest.mark.parametrize("name", CONSTANT)
def test_what_differs_between_rows_of_one_scenario(
    write: Write, columns: Columns, archive: Any, name: str
) -> None:
    columns[name][3] = "7" if name in TEXT else columns[name][3] + 1000
    assert "2 values" in refused_tracks(write(columns, archive), name).message


@pytest.mark.parametrize("number", [0, -1, MAX_STEPS + 1, 10**12, -(2**63)])
def test_absurd_numbers_of_steps(write: Write, columns: Columns, archive: Any, number: int) -> None:
    columns["num_timestamps"][:] = number
    assert str(number) in refused_tracks(write(columns, archive), "num_timestamps").message


@pytest.mark.parametrize("step", [-1, 110, 2**40])
def test_a_step_outside_the_window(write: Write, columns: Columns, archive: Any, step: int) -> None:
    columns["timestep"][-1] = step
    refused_tracks(write(columns, archive), "timestep")


def test_the_same_state_twice(write: Write, columns: Columns, archive: Any) -> None:
    table = pa.table(columns)
    assert (
        "twice"
        in refused_tracks(write(pa.concat_tables([table, table.slice(4, 1)]), archive), "timestep").message
    )


@pytest.mark.parametrize("category", [-1, 4, 2**40])
def test_an_unknown_category(write: Write, columns: Columns, archive: Any, category: int) -> None:
    columns["object_category"][:] = category
    refused_tracks(write(columns, archive), "object_category")


@pytest.mark.parametrize("name", ["tram", "", "Vehicle"])
def test_an_unknown_object_type(write: Write, columns: Columns, archive: Any, name: str) -> None:
    columns["object_type"] = [name] * len(columns["timestep"])
    assert repr(name) in refused_tracks(write(columns, archive), "object_type").message


@pytest.mark.parametrize(("name", "value"), [("object_type", "bus"), ("object_category", 2)])
def test_what_changes_within_a_track(
    write: Write, columns: Columns, archive: Any, name: str, value: Any
) -> None:
    columns[name][-1] = value
    assert "changes" in refused_tracks(write(columns, archive), name).message


def test_nothing_observed(write: Write, columns: Columns, archive: Any) -> None:
    columns["observed"][:] = False
    refused_tracks(write(columns, archive), "observed")


@pytest.mark.parametrize("row", [3, 109])
def test_observed_steps_that_are_no_beginning(write: Write, columns: Columns, archive: Any, row: int) -> None:
    columns["observed"][row] ^= True
    refused_tracks(write(columns, archive), "observed")


def test_a_focal_track_that_is_not_there(write: Write, columns: Columns, archive: Any) -> None:
    columns["focal_track_id"] = ["nobody"] * len(columns["timestep"])
    assert "nobody" in refused_tracks(write(columns, archive), "focal_id").message


def test_a_focal_track_that_is_never_observed(write: Write, columns: Columns, archive: Any) -> None:
    focal = np.array(columns["track_id"]) == "9"
    refused_tracks(write(pa.table(columns).filter(~(focal & columns["observed"])), archive), "focal_id")


@pytest.mark.parametrize(
    ("field", "start", "end"),
    [
        ("start_timestamp", 2e9, 1e9),
        ("start_timestamp", -1.0, 1e9),
        ("end_timestamp", 0.0, 1e300),
        ("end_timestamp", -2e9, -1e9),
        ("timestamps_ns", 1e9, 1e9),
        ("timestamps_ns", 1e9, 1e9 + 7),
    ],
)
def test_times_that_do_not_increase(
    write: Write, columns: Columns, archive: Any, field: str, start: float, end: float
) -> None:
    columns["start_timestamp"][:], columns["end_timestamp"][:] = start, end
    refused_tracks(write(columns, archive), field)


# ------------------------------------------------------------------------------------------------- maps


@pytest.mark.parametrize("content", [[], None, 3, "map", True, [{}]])
def test_json_of_another_shape(write: Write, columns: Columns, content: Any) -> None:
    refused_map(write(columns, content), "lane_segments")


@pytest.mark.parametrize("group", ["lane_segments", "pedestrian_crossings", "drivable_areas"])
@pytest.mark.parametrize("value", ["absent", None, [], 3, "lanes", True])
def test_a_group_that_is_missing_or_of_another_shape(
    write: Write, columns: Columns, archive: Any, group: str, value: Any
) -> None:
    archive[group] = value
    if value == "absent":
        del archive[group]
    refused_map(write(columns, archive), group)


@pytest.mark.parametrize("record", [None, 3, "lane", [], True])
@pytest.mark.parametrize("group", ["lane_segments", "pedestrian_crossings", "drivable_areas"])
def test_a_record_of_another_shape(
    write: Write, columns: Columns, archive: Any, group: str, record: Any
) -> None:
    archive[group]["1"] = record
    refused_map(write(columns, archive), f"{group}.id")


def test_each_missing_key_of_a_record_is_named(
    write: Write, columns: Columns, archive: Any, tmp_path: Path
) -> None:
    keys = [(group, key) for group, records in archive.items() for key in next(iter(records.values()))]
    assert len(keys) == 12 + 3 + 2
    for i, (group, key) in enumerate(keys):
        broken = json.loads(json.dumps(archive))
        del next(iter(broken[group].values()))[key]
        folder = write(columns, broken)
        assert "missing" in refused_map(folder, f"{group}.{key}").message
        folder.rename(tmp_path / str(i))


def place(archive: Any, group: str, key: str, value: Any) -> Any:
    """``archive`` with ``value`` under ``key`` of the first record of ``group``."""
    next(iter(archive[group].values()))[key] = value
    return archive


@pytest.mark.parametrize(("group", "key"), POLYLINES)
@pytest.mark.parametrize(
    "coordinate",
    ["1.5", "x", None, True, float("nan"), float("inf"), [1.0], {}, 10**400],
    ids=lambda c: str(c)[:9],
)
def test_a_coordinate_that_is_no_number(
    write: Write, columns: Columns, archive: Any, group: str, key: str, coordinate: Any
) -> None:
    next(iter(archive[group].values()))[key][1]["y"] = coordinate
    refused_map(write(columns, archive), f"{group}.{key}")


@pytest.mark.parametrize(("group", "key"), POLYLINES)
@pytest.mark.parametrize(
    "line",
    [None, 3, "", "xyz", {}, {"x": 1}, [1, 2], [[1, 2, 3]] * 3, [{"x": 1, "y": 2}] * 3, [None], ["xyz"]],
    ids=str,
)
def test_a_line_that_is_no_list_of_points(
    write: Write, columns: Columns, archive: Any, group: str, key: str, line: Any
) -> None:
    refused_map(write(columns, place(archive, group, key, line)), f"{group}.{key}")


@pytest.mark.parametrize(
    ("group", "key", "points", "field"),
    [
        ("lane_segments", "centerline", 1, "centerline"),
        ("lane_segments", "centerline", 0, "centerline"),
        ("pedestrian_crossings", "edge1", 1, "crossing_edge1"),
        ("pedestrian_crossings", "edge2", 0, "crossing_edge2"),
        ("drivable_areas", "area_boundary", 2, "drivable_area"),
    ],
)
def test_a_line_with_too_few_points(
    write: Write, columns: Columns, archive: Any, group: str, key: str, points: int, field: str
) -> None:
    line = [{"x": float(i), "y": 0.0, "z": 0.0} for i in range(points)]
    refused_map(write(columns, place(archive, group, key, line)), field)


NO_ID = ["12", 1.0, 1.5, True, 2**63, -(2**70), [], {}]


@pytest.mark.parametrize("value", [*NO_ID, None], ids=str)
@pytest.mark.parametrize("group", ["lane_segments", "pedestrian_crossings", "drivable_areas"])
def test_an_id_that_is_no_whole_number_of_64_bits(
    write: Write, columns: Columns, archive: Any, group: str, value: Any
) -> None:
    refused_map(write(columns, place(archive, group, "id", value)), f"{group}.id")


@pytest.mark.parametrize("value", NO_ID, ids=str)
@pytest.mark.parametrize("key", ["left_neighbor_id", "right_neighbor_id"])
def test_a_neighbor_that_is_no_id(write: Write, columns: Columns, archive: Any, key: str, value: Any) -> None:
    refused_map(write(columns, place(archive, "lane_segments", key, value)), f"lane_segments.{key}")


@pytest.mark.parametrize("value", [None, 3, "", "12", {}, {"1": 2}, *([item] for item in NO_ID)], ids=str)
@pytest.mark.parametrize("key", ["predecessors", "successors"])
def test_links_that_are_no_lists_of_ids(
    write: Write, columns: Columns, archive: Any, key: str, value: Any
) -> None:
    refused_map(write(columns, place(archive, "lane_segments", key, value)), f"lane_segments.{key}")


@pytest.mark.parametrize("key", ["lane_type", "left_lane_mark_type", "right_lane_mark_type"])
@pytest.mark.parametrize("value", ["TRAM", "vehicle", "", None, 3, True, [], {}], ids=str)
def test_an_unknown_lane_or_mark_type(
    write: Write, columns: Columns, archive: Any, key: str, value: Any
) -> None:
    message = refused_map(
        write(columns, place(archive, "lane_segments", key, value)), f"lane_segments.{key}"
    ).message
    assert repr(value) in message


@pytest.mark.parametrize("value", [None, 0, 1, "true", [], {}], ids=str)
def test_an_intersection_flag_that_is_no_boolean(
    write: Write, columns: Columns, archive: Any, value: Any
) -> None:
    refused_map(
        write(columns, place(archive, "lane_segments", "is_intersection", value)),
        "lane_segments.is_intersection",
    )


def test_the_same_lane_twice(write: Write, columns: Columns, archive: Any) -> None:
    refused_map(write(columns, place(archive, "lane_segments", "id", 12)), "lane_id")
