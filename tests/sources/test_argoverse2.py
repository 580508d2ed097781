"""The Argoverse 2 reader: equal to av2's, and indifferent to encodings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from av2.datasets.motion_forecasting.data_schema import ObjectType
from av2.datasets.motion_forecasting.scenario_serialization import load_argoverse_scenario_parquet
from av2.map.lane_segment import LaneMarkType, LaneType
from av2.map.map_api import ArgoverseStaticMap

from tests.conftest import SAMPLE, equal
from tests.sources.argoverse2_files import (
    ARCHIVE,
    INTEGER,
    SMALL,
    STATE,
    TABLE,
    TEXT,
    TIME,
    read,
    with_column,
)
from trajpred.data.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE, LaneMap
from trajpred.data.scenario import Scenario
from trajpred.data.splits import SPLITS
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.errors import DataError
from trajpred.sources import SOURCES, RawScenario
from trajpred.sources.argoverse2 import read_scenario


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


def shuffled() -> pa.Table:
    return TABLE.take(np.random.default_rng(0).permutation(len(TABLE)))


def with_another_column() -> pa.Table:
    reversed_ = TABLE.select(TABLE.column_names[::-1])
    return reversed_.append_column("map_id", [[[1]] * len(TABLE)])


VARIANTS: dict[str, Callable[[], pa.Table]] = {
    "large_string": lambda: cast(TEXT, pa.large_string()),
    "string_view": lambda: cast(TEXT, pa.string_view()),
    "dictionary": lambda: cast(TEXT, pa.dictionary(pa.int8(), pa.string())),
    "unused texts": with_unused_texts,
    "uint8": lambda: cast(INTEGER, pa.uint8()),
    "uint64": lambda: cast(INTEGER, pa.uint64()),
    "float32": lambda: cast(STATE, pa.float32()),
    "integer timestamps": lambda: cast(TIME, pa.int64()),
    "shuffled rows": shuffled,
    "other columns": with_another_column,
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
