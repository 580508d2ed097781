"""The Argoverse 2 reader: equal to av2's, indifferent to encodings, and exact about invalid files."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from av2.datasets.motion_forecasting.data_schema import ObjectType
from av2.datasets.motion_forecasting.scenario_serialization import load_argoverse_scenario_parquet
from av2.map.lane_segment import LaneMarkType, LaneType
from av2.map.map_api import ArgoverseStaticMap

from tests.conftest import SAMPLE, equal, rejected
from tools.synthesize import make_scenario, scenario_table
from trajpred.errors import DataError
from trajpred.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE, LaneMap
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.sources import SOURCES, RawScenario
from trajpred.sources.argoverse2 import read_map, read_scenario
from trajpred.sources.argoverse2_map import map_from
from trajpred.sources.av2_objects import map_archive
from trajpred.sources.map_problems import MapProblems
from trajpred.sources.reading import MAX_STEPS
from trajpred.splits import SPLITS

TEXT = ("track_id", "object_type", "scenario_id", "focal_track_id", "city")
STATE = ("position_x", "position_y", "heading", "velocity_x", "velocity_y")
TIME = ("start_timestamp", "end_timestamp")
INTEGER = ("timestep", "object_category", "num_timestamps")
COLUMNS = ("observed", *TEXT, *STATE, *TIME, *INTEGER)
SMALL = make_scenario(0, 2, steps=8, observed=5)
TABLE = scenario_table(SMALL)
ARCHIVE = {group: dict(list(records.items())[:3]) for group, records in map_archive(SMALL.map).items()}


def read(folder: Path, tracks: Any = TABLE, archive: Any = ARCHIVE, **options: Any) -> Scenario:
    """Write both files of a scenario, bytes as they are, and read them."""
    folder.mkdir(exist_ok=True)
    parquet, log_map = folder / "scenario_0.parquet", folder / "log_map_archive_0.json"
    if isinstance(tracks, bytes):
        parquet.write_bytes(tracks)
    else:
        pq.write_table(tracks, parquet, **options)
    log_map.write_bytes(archive if isinstance(archive, bytes) else json.dumps(archive).encode())
    return read_scenario(folder)


def replaced(name: str, values: Any, row: int | None = None) -> pa.Table:
    """Return the table with other values in a column, or in one row of it."""
    if row is not None:
        column = TABLE[name].to_pylist()
        column[row] = values
        values = pa.array(column, TABLE[name].type)
    return TABLE.set_column(TABLE.column_names.index(name), name, pa.array(values))


def rejects(file: str, field: str | None, folder: Path, *arguments: Any) -> str:
    """Return the message of the DataError that names ``file`` and ``field``."""
    return rejected(lambda: read(folder, *arguments), file, field).message


def check_tracks(scenario: Scenario, path: Path) -> None:
    expected = load_argoverse_scenario_parquet(path)
    assert scenario.scenario_id == expected.scenario_id
    assert (scenario.city, scenario.focal_id) == (expected.city_name, expected.focal_track_id)
    # av2 keeps its interpolated timestamps as floats, with a resolution of 64 ns.
    np.testing.assert_array_equal(scenario.timestamps_ns, np.round(expected.timestamps_ns).astype(np.int64))
    tracks = scenario.tracks
    assert tracks.track_id.tolist() == [track.track_id for track in expected.tracks]
    for row, track in enumerate(expected.tracks):
        states = track.object_states
        steps = [state.timestep for state in states]
        assert OBJECT_TYPES[tracks.object_type[row]] == track.object_type.value
        assert tracks.category[row] == track.category.value
        assert np.flatnonzero(tracks.valid[row]).tolist() == sorted(steps)
        assert [step < scenario.num_observed for step in steps] == [state.observed for state in states]
        for name in ("position", "heading", "velocity"):
            values = getattr(tracks, name)[row]
            np.testing.assert_array_equal(values[steps], [getattr(state, name) for state in states])
            assert not values[~tracks.valid[row]].any()


def check_map(lanes: LaneMap, path: Path) -> None:
    expected = ArgoverseStaticMap.from_json(path)
    archive = json.loads(path.read_text())
    centerline = {record["id"]: record["centerline"] for record in archive["lane_segments"].values()}
    assert sorted(lanes.lane_id.tolist()) == sorted(expected.vector_lane_segments)
    for row, lane_id in enumerate(lanes.lane_id.tolist()):
        lane = expected.vector_lane_segments[lane_id]
        assert LANE_TYPES[lanes.lane_type[row]] == lane.lane_type.value
        marks = [MARK_TYPES[side[row]] for side in (lanes.left_mark, lanes.right_mark)]
        assert marks == [lane.left_mark_type.value, lane.right_mark_type.value]
        assert bool(lanes.is_intersection[row]) == lane.is_intersection
        neighbors = [NO_LANE if i is None else i for i in (lane.left_neighbor_id, lane.right_neighbor_id)]
        assert [lanes.left_neighbor[row], lanes.right_neighbor[row]] == neighbors
        assert lanes.predecessors[row].tolist() == lane.predecessors
        assert lanes.successors[row].tolist() == lane.successors
        np.testing.assert_array_equal(lanes.left_boundary[row], lane.left_lane_boundary.xyz)
        np.testing.assert_array_equal(lanes.right_boundary[row], lane.right_lane_boundary.xyz)
        points = [[point["x"], point["y"], point["z"]] for point in centerline[lane_id]]
        np.testing.assert_array_equal(lanes.centerline[row], points)
    assert sorted(lanes.crossing_id.tolist()) == sorted(expected.vector_pedestrian_crossings)
    for row, crossing_id in enumerate(lanes.crossing_id.tolist()):
        crossing = expected.vector_pedestrian_crossings[crossing_id]
        np.testing.assert_array_equal(lanes.crossing_edge1[row], crossing.edge1.xyz)
        np.testing.assert_array_equal(lanes.crossing_edge2[row], crossing.edge2.xyz)
    assert sorted(lanes.drivable_area_id.tolist()) == sorted(expected.vector_drivable_areas)
    for row, area_id in enumerate(lanes.drivable_area_id.tolist()):
        area = expected.vector_drivable_areas[area_id].xyz[:-1]  # av2 repeats the first vertex
        np.testing.assert_array_equal(lanes.drivable_area[row], area)


def check(folder: Path) -> None:
    scenario = read_scenario(folder)
    check_tracks(scenario, next(folder.glob("scenario_*.parquet")))
    check_map(scenario.map, next(folder.glob("log_map_archive_*.json")))


def test_values_of_the_sample_equal_av2(sample_folders: list[Path]) -> None:
    for folder in sample_folders[::3]:
        check(folder)


@pytest.mark.slow
def test_every_value_of_all_scenarios_equals_av2(sample_folders: list[Path], shared: Path) -> None:
    for folder in sample_folders:
        check(folder)
    folders = [path.parent for path in shared.glob("data/argoverse2/*/*/*/scenario_*.parquet")]
    if not folders:
        pytest.skip("no scenarios in TRAJPRED_SHARED")
    for folder in folders:
        check(folder)


def test_discover_returns_the_folders_of_each_split(tmp_path: Path) -> None:
    source = SOURCES["argoverse2"]
    found = source.scenarios(SAMPLE)
    assert sorted(found) == sorted(SPLITS)
    for split, listed in found.items():
        assert [one.path for one in listed] == sorted((SAMPLE / split).iterdir())
        assert [one.name for one in listed] == [one.path.name for one in listed]
    for _ in range(2):
        with pytest.raises(DataError, match="train,val,test"):
            source.scenarios(tmp_path)
        (tmp_path / "val").mkdir(exist_ok=True)
    (tmp_path / "val" / "a").mkdir()
    (tmp_path / "val" / "list.txt").touch()
    assert source.scenarios(tmp_path) == {"val": [RawScenario("a", tmp_path / "val" / "a")]}


# ------------------------------------------------------------------------------------- valid variants


def cast(names: tuple[str, ...], dtype: pa.DataType) -> pa.Table:
    table = TABLE
    for name in names:
        table = table.set_column(table.column_names.index(name), name, table[name].cast(dtype, safe=False))
    return table


def with_unused_texts() -> pa.Table:
    """Return text columns whose dictionaries contain more than the rows use, as filtering leaves them."""
    table = TABLE
    for name in TEXT:
        codes = table[name].combine_chunks().dictionary_encode()
        texts = pa.concat_arrays([pa.array(["unused"]), codes.dictionary])
        column = pa.DictionaryArray.from_arrays(pc.add(codes.indices, 1), texts)
        table = table.set_column(table.column_names.index(name), name, column)
    return table


VARIANTS: dict[str, Callable[[], pa.Table]] = {
    "large_string": lambda: cast(TEXT, pa.large_string()),
    "string_view": lambda: cast(TEXT, pa.string_view()),
    "dictionary": lambda: cast(TEXT, pa.dictionary(pa.int8(), pa.string())),
    "unused texts": with_unused_texts,
    "uint8": lambda: cast(INTEGER, pa.uint8()),
    "uint64": lambda: cast(INTEGER, pa.uint64()),
    "float32": lambda: cast(STATE, pa.float32()),
    "integer timestamps": lambda: cast(TIME, pa.int64()),
    "shuffled rows": lambda: TABLE.take(np.random.default_rng(0).permutation(len(TABLE))),
    "other columns": lambda: TABLE.select(TABLE.column_names[::-1]).append_column(
        "map_id", [[[1]] * len(TABLE)]
    ),
}


def test_types_order_and_encoding_do_not_matter(tmp_path: Path) -> None:
    plain = read(tmp_path / "plain")
    assert equal(plain, read(tmp_path / "again"))
    for name, change in VARIANTS.items():
        found = read(tmp_path / name, change(), row_group_size=37)
        assert equal(found, plain, tolerance=1e-3 if name == "float32" else 0), name
        assert found.tracks.position.dtype == np.float64
    for encoding in ("utf-8-sig", "utf-16"):
        more = {**copy.deepcopy(ARCHIVE), "traffic_lights": None}
        assert equal(read(tmp_path / encoding, TABLE, json.dumps(more).encode(encoding)), plain)


def test_every_type_category_and_mark_of_av2_is_known() -> None:
    known = ((OBJECT_TYPES, ObjectType), (LANE_TYPES, LaneType), (MARK_TYPES, LaneMarkType))
    for names, theirs in known:
        assert theirs(names[0]) and {*names} == {one.value for one in theirs}


def test_tracks_without_observed_or_future_states_are_kept(tmp_path: Path) -> None:
    observed, other = TABLE["observed"], pc.equal(TABLE["track_id"], "AV")
    scenario = read(tmp_path / "late", TABLE.filter(pc.invert(pc.and_(other, observed))))
    assert scenario.last_seen[scenario.tracks.index("AV")] == -1
    scenario = read(tmp_path / "past", TABLE.filter(observed))
    assert (scenario.num_observed, scenario.num_steps, scenario.has_future) == (5, 8, False)
    focal = TABLE.filter(pc.and_(observed, pc.equal(TABLE["track_id"], SMALL.focal_id)))
    scenario = read(tmp_path / "one", focal.slice(len(focal) - 1), {group: {} for group in ARCHIVE})
    assert scenario.tracks.valid.sum() == 1


# ------------------------------------------------------------------------------------- invalid tracks

#: Values of types that a column may not have.
WRONG = {"observed": 1, **dict.fromkeys(TEXT, b"1"), **dict.fromkeys(STATE, 1)}
WRONG |= {**dict.fromkeys(TIME, "1"), **dict.fromkeys(INTEGER, 1.0)}


@pytest.mark.parametrize("name", COLUMNS)
def test_missing_duplicate_null_and_mistyped_columns_are_named(tmp_path: Path, name: str) -> None:
    file = "scenario_*.parquet"
    assert "missing" in rejects(file, name, tmp_path, TABLE.drop_columns([name]))
    assert "duplicated" in rejects(file, name, tmp_path, TABLE.append_column(name, TABLE[name]))
    assert "at least one row" in rejects(file, name, tmp_path, replaced(name, None, row=0))
    assert "type" in rejects(file, name, tmp_path, replaced(name, [WRONG[name]] * len(TABLE)))
    if name in TEXT:
        letters = pa.array([b"\xff\xfe"] * len(TABLE), pa.binary()).buffers()
        rejects(file, name, tmp_path, replaced(name, pa.Array.from_buffers(pa.string(), len(TABLE), letters)))


ROWS = len(TABLE)
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
    rejects("scenario_*.parquet", field, tmp_path, table())


@pytest.mark.parametrize("per_second", [1, 10**3, 10**6, 10**7])
@pytest.mark.parametrize("dtype", [pa.int64(), pa.float64()])
def test_timestamps_of_another_unit_are_named(tmp_path: Path, per_second: int, dtype: pa.DataType) -> None:
    start = 315_973_159
    table = replaced("start_timestamp", [start * per_second] * ROWS)
    end = [(start + 1) * per_second] * ROWS
    table = table.set_column(table.column_names.index("end_timestamp"), "end_timestamp", pa.array(end, dtype))
    assert "nanoseconds" in rejects("scenario_*.parquet", "start_timestamp", tmp_path, table)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_timestamps_that_float32_has_rounded_are_named(tmp_path: Path, dtype: type) -> None:
    table = TABLE
    for name, nanoseconds in zip(TIME, (315_973_159_595_020_000, 315_973_193_595_020_000), strict=True):
        values = np.full(ROWS, nanoseconds).astype(np.float32).astype(dtype)
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    assert "float32" in rejects("scenario_*.parquet", "start_timestamp", tmp_path, table)


@pytest.mark.parametrize(
    ("steps", "observed", "hidden"),
    [(110, 50, range(45, 50)), (110, 50, range(50, 53)), (110, 50, range(40, 110)), (22, 10, range(9, 11))],
)
def test_the_boundary_is_that_of_argoverse_2_where_no_row_shows_it(
    tmp_path: Path, steps: int, observed: int, hidden: range
) -> None:
    """The focal track alone, unseen around its last observed step; at 10 Hz and at 2 Hz."""
    table = scenario_table(make_scenario(0, 2, steps=steps, observed=observed))
    alone = pc.equal(table["track_id"], table["focal_track_id"])
    table = table.filter(pc.and_(alone, pc.invert(pc.is_in(table["timestep"], pa.array(hidden)))))
    found = read(tmp_path, table)
    assert (found.num_observed, found.num_steps) == (observed, steps)


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


# --------------------------------------------------------------------------------------- invalid maps


def placed(group: str, key: str, value: Any) -> Any:
    """Return the archive with another value under ``key`` of the last record of ``group``."""
    archive = copy.deepcopy(ARCHIVE)
    list(archive[group].values())[-1][key] = value
    return archive


def without_last(group: str) -> LaneMap:
    """Return the map without the last record of ``group``."""
    records = dict(list(ARCHIVE[group].items())[:-1])
    problems = MapProblems()
    lane_map = map_from({**ARCHIVE, group: records}, problems)
    assert not problems
    return lane_map


NOT_AN_ID, NOT_A_NUMBER = ("12", 1.5, True, 2**63), ("1.5", None, True, float("nan"), 10**400)
NOT_A_LINE = (None, "xyz", {"x": 1}, [[1, 2, 3]] * 3, [{"x": 1, "y": 2}] * 3)
LANE = "lane_segments"


def cases(group: str, key: str, values: Iterable[Any]) -> list[tuple[str, str, str, Any]]:
    return [(f"{group}.{key}", group, key, value) for value in values]


INVALID_MAPS = [
    *cases(LANE, "centerline", [*NOT_A_LINE, *([{"x": 0, "y": x, "z": 0}] * 3 for x in NOT_A_NUMBER)]),
    *cases("drivable_areas", "id", [*NOT_AN_ID, None]),
    *cases(LANE, "left_neighbor_id", NOT_AN_ID),
    *cases(LANE, "successors", [*([x] for x in NOT_AN_ID), None, "12"]),
    *cases(LANE, "lane_type", ("TRAM", None, 3, [])),
    *cases(LANE, "is_intersection", (None, 0, "true")),
    (f"{LANE}.id", LANE, "id", next(iter(ARCHIVE[LANE].values()))["id"]),
    ("crossing_edge1", "pedestrian_crossings", "edge1", []),
]


def test_records_with_invalid_values_are_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "log_map_archive_0.json"
    for field, group, key, value in INVALID_MAPS:
        path.write_text(json.dumps(placed(group, key, value)))
        with pytest.warns(UserWarning, match=f"1 .* left out: .*{field}") as caught:
            lane_map = read_map(path)
        assert str(path) in str(caught[0].message)
        assert equal(lane_map, without_last(group)), (field, value)


def test_records_without_a_key_are_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "log_map_archive_0.json"
    for group, records in ARCHIVE.items():
        path.write_text(json.dumps({**ARCHIVE, group: {**records, "x": 3}}))
        with pytest.warns(UserWarning, match=f"1 .* left out: number 4 .*{group}.id.* missing"):
            assert equal(read_map(path), map_from(ARCHIVE, MapProblems()))
        for key in next(iter(records.values())):
            archive = copy.deepcopy(ARCHIVE)
            del list(archive[group].values())[-1][key]
            path.write_text(json.dumps(archive))
            with pytest.warns(UserWarning, match=f"1 .* left out: .*{group}.{key}.* missing"):
                assert equal(read_map(path), without_last(group)), key


def test_maps_without_a_group_or_with_broken_lanes_alone_are_refused(tmp_path: Path) -> None:
    file = "log_map_archive_*.json"
    rejects(file, "lane_segments", tmp_path, TABLE, [])
    for group in ARCHIVE:
        rejects(file, group, tmp_path, TABLE, {name: x for name, x in ARCHIVE.items() if name != group})
        rejects(file, group, tmp_path, TABLE, {**ARCHIVE, group: []})
    broken = {name: {**lane, "lane_type": "TRAM"} for name, lane in ARCHIVE[LANE].items()}
    assert "3 lane segments left out" in rejects(file, "lanes", tmp_path, TABLE, {**ARCHIVE, LANE: broken})


@pytest.mark.parametrize("side", ["left_lane_boundary", "right_lane_boundary"])
def test_lanes_without_centreline_and_boundary_are_left_out(tmp_path: Path, side: str) -> None:
    """Maps of Sensor logs have no centrelines: they follow from the boundaries."""
    path = tmp_path / "log_map_archive_0.json"
    archive = placed(LANE, side, [])
    for lane in archive[LANE].values():
        del lane["centerline"]
    path.write_text(json.dumps(archive))
    with pytest.warns(UserWarning, match=f"1 lane segment left out: .*{side}"):
        lane_map = read_map(path)
    assert len(lane_map) == len(ARCHIVE[LANE]) - 1
