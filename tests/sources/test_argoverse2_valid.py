"""Unusual but valid files: all of them say the same scenario, or what they say is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trajpred.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE
from trajpred.scenario import OBJECT_TYPES, equal
from trajpred.sources.argoverse2 import read_scenario

Write = Callable[..., Path]
Columns = dict[str, Any]
TEXT = ("track_id", "object_type", "scenario_id", "focal_track_id", "city")
NUMBERS = ("position_x", "position_y", "heading", "velocity_x", "velocity_y")
WHOLE = ("timestep", "object_category", "num_timestamps")


def cast(table: pa.Table, names: tuple[str, ...], kind: pa.DataType) -> pa.Table:
    for name in names:
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(kind, safe=False))
    return table


def with_unused_texts(table: pa.Table) -> pa.Table:
    """Dictionary-encoded text whose dictionaries hold more than the rows use, as filtering leaves them."""
    for name in TEXT:
        codes = table[name].combine_chunks().dictionary_encode()
        more = pa.concat_arrays([pa.array(["unused"]), codes.dictionary])
        column = pa.DictionaryArray.from_arrays(pa.compute.add(codes.indices, 1), more)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


SAME = {
    "large_string": lambda table: cast(table, TEXT, pa.large_string()),
    "string_view": lambda table: cast(table, TEXT, pa.string_view()),
    "dictionary": lambda table: cast(table, TEXT, pa.dictionary(pa.int32(), pa.string())),
    "small dictionary": lambda table: cast(table, TEXT, pa.dictionary(pa.int8(), pa.string())),
    "large dictionary": lambda table: cast(table, TEXT, pa.dictionary(pa.int32(), pa.large_string())),
    "dictionary with unused texts": with_unused_texts,
    "int32": lambda table: cast(table, WHOLE, pa.int32()),
    "uint8": lambda table: cast(table, WHOLE, pa.uint8()),
    "uint64": lambda table: cast(table, WHOLE, pa.uint64()),
    "whole timestamps": lambda table: cast(table, ("start_timestamp", "end_timestamp"), pa.int64()),
    "shuffled rows": lambda table: table.take(np.random.default_rng(0).permutation(table.num_rows)),
    "reversed rows": lambda table: table.take(np.arange(table.num_rows)[::-1]),
    "other order of columns": lambda table: table.select(table.column_names[::-1]),
    "extra columns": lambda table: table.append_column("map_id", pa.array([[1]] * table.num_rows)),
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME.keys())
@pytest.mark.parametrize("options", [{}, {"row_group_size": 37}], ids=["one group", "row groups"])
def test_the_same_scenario_in_other_types_and_orders(
    write: Write,
    columns: Columns,
    archive: Any,
    tmp_path: Path,
    change: Callable[[pa.Table], pa.Table],
    options: Any,
) -> None:
    plain = read_scenario(write(columns, archive))
    (tmp_path / plain.scenario_id).rename(tmp_path / "plain")
    assert equal(read_scenario(write(change(pa.table(columns)), archive, **options)), plain)


@pytest.mark.parametrize(
    "options",
    [{"use_dictionary": False}, {"compression": "zstd"}, {"data_page_size": 64}, {"version": "1.0"}],
)
def test_other_parquet_encodings(write: Write, columns: Columns, archive: Any, options: Any) -> None:
    tracks = read_scenario(write(columns, archive, **options)).tracks
    assert tracks.track_id.tolist() == ["7", "9", "AV"]
    np.testing.assert_array_equal(tracks.position[1, :, 0], columns["position_x"][-110:])


@pytest.mark.parametrize(("kind", "tolerance"), [(pa.float32(), 1e-4), (pa.float16(), 1.0)])
def test_narrower_floats(
    write: Write, columns: Columns, archive: Any, kind: pa.DataType, tolerance: float
) -> None:
    tracks = read_scenario(write(cast(pa.table(columns), NUMBERS, kind), archive)).tracks
    assert tracks.position.dtype == tracks.heading.dtype == tracks.velocity.dtype == np.float64
    np.testing.assert_allclose(tracks.position[1, :, 0], columns["position_x"][-110:], atol=tolerance)


@pytest.mark.parametrize("name", OBJECT_TYPES)
def test_each_object_type(write: Write, columns: Columns, archive: Any, name: str) -> None:
    columns["object_type"] = [name] * len(columns["timestep"])
    assert (
        read_scenario(write(columns, archive)).tracks.object_type.tolist() == [OBJECT_TYPES.index(name)] * 3
    )


@pytest.mark.parametrize("category", range(4))
def test_each_category(write: Write, columns: Columns, archive: Any, category: int) -> None:
    columns["object_category"][:] = category
    assert read_scenario(write(columns, archive)).tracks.category.tolist() == [category] * 3


def test_a_track_that_comes_late_and_leaves_early(write: Write, columns: Columns, archive: Any) -> None:
    tracks = read_scenario(write(columns, archive)).tracks
    assert np.flatnonzero(tracks.valid[0]).tolist() == list(range(20, 80))


def test_a_track_seen_only_in_the_future(write: Write, columns: Columns, archive: Any) -> None:
    table = pa.table(columns)
    table = table.filter(~((np.array(columns["track_id"]) == "7") & columns["observed"]))
    tracks = read_scenario(write(table, archive)).tracks
    assert np.flatnonzero(tracks.valid[0]).tolist() == list(range(50, 80))


def test_without_futures(write: Write, columns: Columns, archive: Any) -> None:
    scenario = read_scenario(write(pa.table(columns).filter(columns["observed"]), archive))
    assert (scenario.num_observed, scenario.num_steps, scenario.has_future) == (50, 110, False)


def test_a_single_state(write: Write, columns: Columns, archive: Any) -> None:
    last = {name: values[-61:-60] for name, values in columns.items()}
    scenario = read_scenario(write(last, archive))
    assert (len(scenario.tracks), int(scenario.tracks.valid.sum())) == (1, 1)


@pytest.mark.parametrize("name", ["ÄÖ 東京", "", " ", "a\nb"])
def test_any_text_is_a_name(write: Write, columns: Columns, archive: Any, name: str) -> None:
    columns["track_id"] = [name if track == "9" else track for track in columns["track_id"]]
    columns["focal_track_id"] = [name] * len(columns["timestep"])
    scenario = read_scenario(write(columns, archive))
    assert scenario.focal_id == name
    assert int(scenario.tracks.valid[scenario.focal].sum()) == 110


@pytest.mark.parametrize("groups", [["lane_segments"], ["pedestrian_crossings", "drivable_areas"], None])
def test_a_map_without_elements(
    write: Write, columns: Columns, archive: Any, groups: list[str] | None
) -> None:
    for group in groups or list(archive):
        archive[group] = {}
    lanes = read_scenario(write(columns, archive)).map
    assert len(lanes) == 2 * bool(archive["lane_segments"])
    assert len(lanes.crossing_id) == bool(archive["pedestrian_crossings"])
    assert len(lanes.drivable_area_id) == bool(archive["drivable_areas"])


@pytest.mark.parametrize("mark", MARK_TYPES)
def test_each_mark_type(write: Write, columns: Columns, archive: Any, mark: str) -> None:
    archive["lane_segments"]["11"]["left_lane_mark_type"] = mark
    assert read_scenario(write(columns, archive)).map.left_mark[0] == MARK_TYPES.index(mark)


@pytest.mark.parametrize("kind", LANE_TYPES)
def test_each_lane_type(write: Write, columns: Columns, archive: Any, kind: str) -> None:
    archive["lane_segments"]["12"]["lane_type"] = kind
    assert read_scenario(write(columns, archive)).map.lane_type[1] == LANE_TYPES.index(kind)


def test_map_values_of_the_small_archive(write: Write, columns: Columns, archive: Any) -> None:
    lanes = read_scenario(write(columns, archive)).map
    assert lanes.lane_id.tolist() == [11, 12]
    assert lanes.left_neighbor.tolist() == [12, NO_LANE]
    assert lanes.right_neighbor.tolist() == [NO_LANE, 11]
    assert [row.tolist() for row in lanes.successors] == [[99], []]
    assert lanes.left_boundary[0].tolist() == [[0, 2, 1], [5, 2, 1.5], [9.5, 2, 1]]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_json_in_other_unicode_encodings(write: Write, columns: Columns, archive: Any, encoding: str) -> None:
    assert len(read_scenario(write(columns, json.dumps(archive).encode(encoding))).map) == 2


def test_unknown_keys_of_the_map_are_ignored(write: Write, columns: Columns, archive: Any) -> None:
    archive["traffic_lights"] = archive["lane_segments"]["11"]["speed_limit"] = None
    assert len(read_scenario(write(columns, archive)).map) == 2
