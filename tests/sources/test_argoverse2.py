"""The Argoverse 2 reader: equal to av2's, indifferent to encodings, and exact about invalid files."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from itertools import islice
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
from tests.sources.argoverse2_files import scenario_table, short_scene
from trajpred.data.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE, LaneMap
from trajpred.data.scenario import Scenario
from trajpred.data.splits import SPLITS
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.errors import DataError
from trajpred.sources import SOURCES, RawScenario
from trajpred.sources.argoverse2 import archive_of, map_from, read_archive, read_scenario
from trajpred.sources.reading import MAX_STEPS, MapProblems

TEXT = ("track_id", "object_type", "scenario_id", "focal_track_id", "city")
STATE = ("position_x", "position_y", "heading", "velocity_x", "velocity_y")
TIME = ("start_timestamp", "end_timestamp")
INTEGER = ("timestep", "object_category", "num_timestamps")
COLUMNS = ("observed", *TEXT, *STATE, *TIME, *INTEGER)
SMALL = short_scene(steps=8)
TABLE = scenario_table(SMALL)
#: The first three records of each group of the map.
ARCHIVE = {}
for _group, _records in archive_of(SMALL.map, digits=None).items():
    ARCHIVE[_group] = dict(islice(_records.items(), 3))


def read(folder: Path, tracks: pa.Table = TABLE, archive: Any = ARCHIVE, **options: Any) -> Scenario:
    """Write both files of a scenario, bytes of a map as they are, and read them."""
    folder.mkdir(exist_ok=True)
    pq.write_table(tracks, folder / "scenario_0.parquet", **options)
    content = archive if isinstance(archive, bytes) else json.dumps(archive).encode()
    (folder / "log_map_archive_0.json").write_bytes(content)
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


def check_tracks(scenario: Scenario, path: Path) -> None:
    expected = load_argoverse_scenario_parquet(path)
    assert scenario.scenario_id == expected.scenario_id
    assert (scenario.city, scenario.focal_id) == (expected.city_name, expected.focal_track_id)
    # av2 keeps its interpolated timestamps as floats, with a resolution of 64 ns.
    stamps = np.round(expected.timestamps_ns).astype(np.int64)
    np.testing.assert_array_equal(scenario.timestamps_ns, stamps)
    tracks = scenario.tracks
    assert tracks.track_id.tolist() == [track.track_id for track in expected.tracks]
    for row, track in enumerate(expected.tracks):
        states = track.object_states
        steps = [state.timestep for state in states]
        assert OBJECT_TYPES[tracks.object_type[row]] == track.object_type.value
        assert tracks.category[row] == track.category.value
        assert np.flatnonzero(tracks.valid[row]).tolist() == sorted(steps)
        assert all(state.observed == (state.timestep < scenario.num_observed) for state in states)
        for name in ("position", "heading", "velocity"):
            values = getattr(tracks, name)[row]
            theirs = [getattr(state, name) for state in states]
            np.testing.assert_array_equal(values[steps], theirs)
            assert not values[~tracks.valid[row]].any()


def check_map(lanes: LaneMap, path: Path) -> None:
    expected = ArgoverseStaticMap.from_json(path)
    archive = json.loads(path.read_text())
    records = archive["lane_segments"].values()
    centerline = {record["id"]: record["centerline"] for record in records}
    assert sorted(lanes.lane_id.tolist()) == sorted(expected.vector_lane_segments)
    for row, lane_id in enumerate(lanes.lane_id.tolist()):
        lane = expected.vector_lane_segments[lane_id]
        assert LANE_TYPES[lanes.lane_type[row]] == lane.lane_type.value
        assert MARK_TYPES[lanes.left_mark[row]] == lane.left_mark_type.value
        assert MARK_TYPES[lanes.right_mark[row]] == lane.right_mark_type.value
        assert bool(lanes.is_intersection[row]) == lane.is_intersection
        assert lanes.left_neighbor[row] == id_or_none(lane.left_neighbor_id)
        assert lanes.right_neighbor[row] == id_or_none(lane.right_neighbor_id)
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


def id_or_none(lane_id: int | None) -> int:
    return NO_LANE if lane_id is None else lane_id


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
    splits = source.scenarios(SAMPLE)
    assert sorted(splits) == sorted(SPLITS)
    for split, listed in splits.items():
        paths = [raw.path for raw in listed]
        assert paths == sorted((SAMPLE / split).iterdir())
        assert all(raw.name == raw.path.name for raw in listed)
    for _ in range(2):
        with pytest.raises(DataError, match="train,val,test"):
            source.scenarios(tmp_path)
        (tmp_path / "val").mkdir(exist_ok=True)
    (tmp_path / "val" / "a").mkdir()
    (tmp_path / "val" / "list.txt").touch()
    assert source.scenarios(tmp_path) == {"val": [RawScenario("a", tmp_path / "val" / "a")]}


def cast(names: tuple[str, ...], dtype: pa.DataType) -> pa.Table:
    table = TABLE
    for name in names:
        table = with_column(table, name, table[name].cast(dtype, safe=False))
    return table


def with_unused_texts() -> pa.Table:
    """Return text columns whose dictionaries contain more than the rows use, as filtering leaves them."""
    table = TABLE
    for name in TEXT:
        codes = table[name].combine_chunks().dictionary_encode()
        texts = pa.concat_arrays([pa.array(["unused"]), codes.dictionary])
        column = pa.DictionaryArray.from_arrays(pc.add(codes.indices, 1), texts)
        table = with_column(table, name, column)
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
    "reversed columns": lambda: TABLE.select(TABLE.column_names[::-1]),
    "another column": lambda: TABLE.append_column("map_id", [[[1]] * len(TABLE)]),
}


def test_types_order_and_encoding_do_not_matter(tmp_path: Path) -> None:
    plain = read(tmp_path / "plain")
    assert equal(plain, read(tmp_path / "again"))
    for name, change in VARIANTS.items():
        scenario = read(tmp_path / name, change(), row_group_size=37)
        tolerance = 1e-3 if name == "float32" else 0
        assert equal(scenario, plain, tolerance), name
        assert scenario.tracks.position.dtype == np.float64
    more = json.dumps(ARCHIVE | {"traffic_lights": None})
    for encoding in ("utf-8-sig", "utf-16"):
        scenario = read(tmp_path / encoding, TABLE, more.encode(encoding))
        assert equal(scenario, plain)


def test_every_type_category_and_mark_of_av2_is_known() -> None:
    kinds = ((OBJECT_TYPES, ObjectType), (LANE_TYPES, LaneType), (MARK_TYPES, LaneMarkType))
    for names, theirs in kinds:
        assert theirs(names[0])
        assert {*names} == {kind.value for kind in theirs}


def test_tracks_without_observed_or_future_states_are_kept(tmp_path: Path) -> None:
    observed = TABLE["observed"]
    other = pc.equal(TABLE["track_id"], "AV")
    late = pc.invert(pc.and_(other, observed))
    scenario = read(tmp_path / "late", TABLE.filter(late))
    assert scenario.last_seen[scenario.tracks.index("AV")] == -1
    scenario = read(tmp_path / "past", TABLE.filter(observed))
    assert (scenario.num_observed, scenario.num_steps, scenario.has_future) == (5, 8, False)
    focal = TABLE.filter(pc.and_(observed, pc.equal(TABLE["track_id"], SMALL.focal_id)))
    last = focal.slice(len(focal) - 1)
    no_map = {group: {} for group in ARCHIVE}
    scenario = read(tmp_path / "one", last, no_map)
    assert scenario.tracks.valid.sum() == 1


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


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@pytest.mark.parametrize(
    ("seconds", "convert", "problem"),
    [
        (1, lambda ns: ns // 10**9, "nanoseconds"),
        (1, lambda ns: ns // 10**6, "nanoseconds"),
        (1, lambda ns: ns // 10**3, "nanoseconds"),
        (1, lambda ns: ns // 10**2, "nanoseconds"),
        (34, lambda ns: ns.astype(np.float32), "float32"),
    ],
)
def test_timestamps_of_another_unit_or_rounded_are_named(
    tmp_path: Path, seconds: int, convert: Callable[[np.ndarray], np.ndarray], problem: str, dtype: type
) -> None:
    table = TABLE
    start = 315_973_159_595_020_000
    for name, exact in zip(TIME, (start, start + seconds * 10**9), strict=True):
        times = convert(np.full(ROWS, exact)).astype(dtype)
        table = with_column(table, name, pa.array(times))
    assert problem in rejects(FILE, "start_timestamp", tmp_path, table)


@pytest.mark.parametrize(
    ("steps", "observed", "hidden"),
    [(110, 50, range(45, 50)), (110, 50, range(50, 53)), (110, 50, range(40, 110)), (22, 10, range(9, 11))],
)
def test_the_boundary_is_that_of_argoverse_2_where_no_row_shows_it(
    tmp_path: Path, steps: int, observed: int, hidden: range
) -> None:
    """The focal track alone, unseen around its last observed step; at 10 Hz and at 2 Hz."""
    table = scenario_table(short_scene(0, steps, observed))
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


def placed(group: str, key: str, value: Any) -> Any:
    """Return the archive with another value under ``key`` of the last record of ``group``."""
    archive = copy.deepcopy(ARCHIVE)
    list(archive[group].values())[-1][key] = value
    return archive


def without_last(group: str) -> LaneMap:
    """Return the map without the last record of ``group``."""
    records = dict(list(ARCHIVE[group].items())[:-1])
    problems = MapProblems()
    lane_map = map_from(ARCHIVE | {group: records}, problems)
    assert not problems.left_out
    return lane_map


NOT_AN_ID = ("12", 1.5, True, 2**63)
NOT_A_NUMBER = ("1.5", None, True, float("nan"), 10**400)
NOT_A_LINE = (None, "xyz", {"x": 1}, [[1, 2, 3]] * 3, [{"x": 1, "y": 2}] * 3)
LANE = "lane_segments"


def cases(group: str, key: str, values: Iterable[Any]) -> list[tuple[str, str, str, Any]]:
    return [(f"{group}.{key}", group, key, value) for value in values]


#: Lines of three equal points, with a value that is no number.
NOT_POINTS = [[{"x": 0, "y": value, "z": 0}] * 3 for value in NOT_A_NUMBER]
NOT_IDS = [[value] for value in NOT_AN_ID]
INVALID_MAPS = [
    *cases(LANE, "centerline", [*NOT_A_LINE, *NOT_POINTS]),
    *cases("drivable_areas", "id", [*NOT_AN_ID, None]),
    *cases(LANE, "left_neighbor_id", NOT_AN_ID),
    *cases(LANE, "successors", [*NOT_IDS, None, "12"]),
    *cases(LANE, "lane_type", ("TRAM", None, 3, [])),
    *cases(LANE, "is_intersection", (None, 0, "true")),
    (f"{LANE}.id", LANE, "id", next(iter(ARCHIVE[LANE].values()))["id"]),
    ("crossing_edge1", "pedestrian_crossings", "edge1", []),
]


def read_without(path: Path, archive: Any, problem: str) -> LaneMap:
    """Read a map of which one part is left out."""
    path.write_text(json.dumps(archive))
    with pytest.warns(UserWarning, match=f"1 .* left out: .*{problem}") as caught:
        lane_map = read_archive(path)
    assert str(path) in str(caught[0].message)
    return lane_map


def test_records_with_invalid_values_or_without_a_key_are_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "log_map_archive_0.json"
    for field, group, key, value in INVALID_MAPS:
        lane_map = read_without(path, placed(group, key, value), field)
        assert equal(lane_map, without_last(group)), (field, value)
    for group, records in ARCHIVE.items():
        no_record = ARCHIVE | {group: records | {"x": 3}}
        lane_map = read_without(path, no_record, f"number 4 .*{group}.id.* missing")
        assert equal(lane_map, map_from(ARCHIVE, MapProblems()))
        for key in next(iter(records.values())):
            archive = copy.deepcopy(ARCHIVE)
            del list(archive[group].values())[-1][key]
            lane_map = read_without(path, archive, f"{group}.{key}.* missing")
            assert equal(lane_map, without_last(group)), key


def test_maps_without_a_group_or_with_broken_lanes_alone_are_refused(tmp_path: Path) -> None:
    file = "log_map_archive_*.json"
    rejects(file, "lane_segments", tmp_path, TABLE, [])
    for group in ARCHIVE:
        without_group = dict(ARCHIVE)
        del without_group[group]
        rejects(file, group, tmp_path, TABLE, without_group)
        rejects(file, group, tmp_path, TABLE, ARCHIVE | {group: []})
    archive = copy.deepcopy(ARCHIVE)
    for lane in archive[LANE].values():
        lane["lane_type"] = "TRAM"
    message = rejects(file, "lanes", tmp_path, TABLE, archive)
    assert "3 lane segments left out" in message


#: Boundaries of which no centreline can be computed.
NO_SIDE: list[list[dict[str, float]]] = [[], [{"x": 0, "y": 0, "z": 0}, {"x": 1e308, "y": 0, "z": 0}]]


@pytest.mark.parametrize("boundary", NO_SIDE)
@pytest.mark.parametrize("side", ["left_lane_boundary", "right_lane_boundary"])
def test_lanes_without_centreline_and_boundary_are_left_out(
    tmp_path: Path, side: str, boundary: list[dict[str, float]]
) -> None:
    """Maps of Sensor logs have no centrelines: they follow from the boundaries."""
    archive = placed(LANE, side, boundary)
    for lane in archive[LANE].values():
        del lane["centerline"]
    lane_map = read_without(tmp_path / "log_map_archive_0.json", archive, "lane_segments")
    assert len(lane_map) == len(ARCHIVE[LANE]) - 1
