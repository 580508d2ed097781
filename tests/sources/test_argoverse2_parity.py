"""The reader against av2's own, state by state and point by point, on every real scenario at hand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from av2.datasets.motion_forecasting.scenario_serialization import load_argoverse_scenario_parquet
from av2.map.map_api import ArgoverseStaticMap

from trajpred.errors import DataError
from trajpred.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE, LaneMap
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.sources import SOURCES
from trajpred.sources.argoverse2 import discover, read_map, read_scenario
from trajpred.splits import SPLITS

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "datasets" / "argoverse2" / "sample"
SHARED = Path(os.environ.get("TRAJPRED_SHARED", ROOT.parent / "shared"))


def folders(root: Path, pattern: str) -> list[str]:
    """Scenario folders below ``root``; one name that is not there where there are none."""
    found = sorted(str(path.parent.relative_to(root)) for path in root.glob(f"{pattern}/scenario_*.parquet"))
    return found or ["no scenarios"]


each_sample = pytest.mark.parametrize("folder", folders(SAMPLE, "*/*"))
each_shared = pytest.mark.parametrize("folder", folders(SHARED, "data/argoverse2/*/*/*"))


def check_tracks(scenario: Scenario, path: Path) -> None:
    expected = load_argoverse_scenario_parquet(path)
    assert scenario.scenario_id == expected.scenario_id
    assert scenario.city == expected.city_name
    assert scenario.focal_id == expected.focal_track_id
    # av2 leaves its interpolated timestamps as floats, good to 64 ns.
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
        np.testing.assert_array_equal(tracks.position[row, steps], [state.position for state in states])
        np.testing.assert_array_equal(tracks.heading[row, steps], [state.heading for state in states])
        np.testing.assert_array_equal(tracks.velocity[row, steps], [state.velocity for state in states])
    for name in ("position", "heading", "velocity"):
        assert not getattr(tracks, name)[~tracks.valid].any()


def check_map(lanes: LaneMap, path: Path) -> None:
    expected = ArgoverseStaticMap.from_json(path)
    archive: dict[str, Any] = json.loads(path.read_text())
    centerline = {record["id"]: record["centerline"] for record in archive["lane_segments"].values()}

    def neighbor(lane_id: int) -> int | None:
        return None if lane_id == NO_LANE else lane_id

    assert set(lanes.lane_id.tolist()) == set(expected.vector_lane_segments)
    assert len(lanes) == len(expected.vector_lane_segments)
    for row, lane_id in enumerate(lanes.lane_id.tolist()):
        lane = expected.vector_lane_segments[lane_id]
        assert LANE_TYPES[lanes.lane_type[row]] == lane.lane_type.value
        assert MARK_TYPES[lanes.left_mark[row]] == lane.left_mark_type.value
        assert MARK_TYPES[lanes.right_mark[row]] == lane.right_mark_type.value
        assert bool(lanes.is_intersection[row]) == lane.is_intersection
        assert neighbor(lanes.left_neighbor[row]) == lane.left_neighbor_id
        assert neighbor(lanes.right_neighbor[row]) == lane.right_neighbor_id
        assert lanes.predecessors[row].tolist() == lane.predecessors
        assert lanes.successors[row].tolist() == lane.successors
        np.testing.assert_array_equal(lanes.left_boundary[row], lane.left_lane_boundary.xyz)
        np.testing.assert_array_equal(lanes.right_boundary[row], lane.right_lane_boundary.xyz)
        given = [[point["x"], point["y"], point["z"]] for point in centerline[lane_id]]
        np.testing.assert_array_equal(lanes.centerline[row], given)

    assert set(lanes.crossing_id.tolist()) == set(expected.vector_pedestrian_crossings)
    for row, crossing_id in enumerate(lanes.crossing_id.tolist()):
        crossing = expected.vector_pedestrian_crossings[crossing_id]
        np.testing.assert_array_equal(lanes.crossing_edge1[row], crossing.edge1.xyz)
        np.testing.assert_array_equal(lanes.crossing_edge2[row], crossing.edge2.xyz)

    assert set(lanes.drivable_area_id.tolist()) == set(expected.vector_drivable_areas)
    for row, area_id in enumerate(lanes.drivable_area_id.tolist()):
        # av2 repeats the first vertex at the end.
        np.testing.assert_array_equal(
            lanes.drivable_area[row], expected.vector_drivable_areas[area_id].xyz[:-1]
        )


def check(folder: Path) -> None:
    scenario = read_scenario(folder)
    check_tracks(scenario, next(folder.glob("scenario_*.parquet")))
    check_map(scenario.map, next(folder.glob("log_map_archive_*.json")))


@each_sample
def test_sample_equals_av2(folder: str) -> None:
    check(SAMPLE / folder)


@each_shared
def test_shared_equals_av2(shared: Path, folder: str) -> None:
    check(shared / folder)


@each_sample
def test_window_lengths_and_futures(folder: str) -> None:
    scenario = read_scenario(SAMPLE / folder)
    assert (scenario.num_observed, scenario.num_steps) == (50, 110)
    assert scenario.step_s == pytest.approx(0.1, abs=2e-4)
    assert scenario.has_future == (not folder.startswith("test"))
    assert scenario.tracks.valid[scenario.focal, :50].all()


def test_discover_finds_every_folder_of_every_split() -> None:
    found = discover(SAMPLE)
    assert sorted(found) == sorted(SPLITS)
    for split, paths in found.items():
        assert paths == sorted((SAMPLE / split).iterdir())
    assert SOURCES["argoverse2"].discover(SAMPLE) == found


def test_discover_looks_past_files_and_absent_splits(tmp_path: Path) -> None:
    (tmp_path / "val" / "b").mkdir(parents=True)
    (tmp_path / "val" / "a").mkdir()
    (tmp_path / "val" / "list.txt").touch()
    assert discover(tmp_path) == {"val": [tmp_path / "val" / "a", tmp_path / "val" / "b"]}


@pytest.mark.parametrize("splits", [[], ["train"]])
def test_discover_says_what_it_expected(tmp_path: Path, splits: list[str]) -> None:
    for split in splits:
        (tmp_path / split).mkdir()
    with pytest.raises(DataError, match="train,val,test") as caught:
        discover(tmp_path)
    assert caught.value.file == tmp_path


def test_a_map_can_be_read_alone() -> None:
    path = next(SAMPLE.glob("test/*/log_map_archive_*.json"))
    check_map(read_map(path), path)
