"""ScenarioNet's scenes: states, times, roles and maps against the file's own numbers and known truth."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely

from tests.conftest import rejected, rejects, run
from tests.integrations.scenes import LANE_M, ORIGIN, line, scene, write
from trajpred import Scenario
from trajpred.data.lane_map import LANE_TYPES, MARK_TYPES, MAX_LENGTH_M, NO_LANE, REACH_M
from trajpred.data.tracks import EGO_ID, OBJECT_TYPES, TrackCategory
from trajpred.integrations.scenarionet import discover, read
from trajpred.sources.windows import Windows
from trajpred.store import ScenarioStore

#: A clock as Waymo's, and one of annotations.
JITTERED = (np.arange(91) * 0.1 + 2e-4 * np.sin(np.arange(91))).astype(np.float32)
SLOW = np.arange(40) * 0.5
PREDICTED = {"current_time_index": 10, "tracks_to_predict": {"bus": {"track_id": "bus"}, "7": {}}}
NUSCENES = ("scene-0757", "scene-0796")


def scenarios(file: Path, options: Windows = Windows()) -> list[Scenario]:
    """All windows of a file."""
    return [read(window, options) for windows in discover(file, options).values() for window in windows]


def nuscenes(shared: Path, name: str) -> Path:
    return shared / "data" / "scenarionet" / f"sd_nuscenes_v1.0-mini_{name}.pkl"


@pytest.mark.parametrize("name", NUSCENES)
def test_states_are_those_of_the_file(shared: Path, name: str) -> None:
    file = nuscenes(shared, name)
    raw = pickle.loads(file.read_bytes())
    windows = scenarios(file)
    assert len(windows) > 5
    for scenario in windows:
        tracks = scenario.tracks
        assert (scenario.num_observed, scenario.num_steps) == (50, 110)
        step = np.searchsorted(raw["metadata"]["ts"], scenario.timestamps_ns / 1e9 - 0.05)
        assert EGO_ID in tracks.track_id
        for row, track in enumerate(tracks.track_id.tolist()):
            state = raw["tracks"]["ego" if track == EGO_ID else track]["state"]
            seen = state["valid"][step] > 0.5
            np.testing.assert_array_equal(tracks.valid[row], seen)
            position = state["position"][step, :2]
            np.testing.assert_allclose(tracks.position[row, seen], position[seen], atol=1e-9)
            turn = tracks.heading[row, seen] - state["heading"][step][seen]
            assert np.allclose(np.cos(turn), 1)
            given = seen & state["velocity"][step].any(-1)
            np.testing.assert_allclose(tracks.velocity[row, given], state["velocity"][step][given], atol=1e-9)
            length = state["length"][state["valid"] > 0.5]
            assert length.min() <= tracks.size[row, 0] <= length.max()


def test_a_scene_that_names_its_tracks_is_one_scenario(tmp_path: Path) -> None:
    [scenario] = scenarios(write(tmp_path / "sd.pkl", scene(JITTERED, **PREDICTED, map="here")))
    tracks = scenario.tracks
    assert (scenario.num_observed, scenario.num_steps) == (11, 91)
    assert scenario.step_s == pytest.approx(float(JITTERED[-1]) / 90, abs=1e-6)
    assert (scenario.scenario_id, scenario.city, scenario.focal_id) == ("sd", "here", "bus")
    kinds = {name: OBJECT_TYPES[code] for name, code in zip(tracks.track_id, tracks.object_type, strict=True)}
    assert kinds == {
        "car": "vehicle", "bus": "bus", "bike": "cyclist", "cone": "construction", EGO_ID: "vehicle"
    }  # fmt: skip
    scored = tracks.track_id[tracks.category == TrackCategory.SCORED]
    assert scored.tolist() == [EGO_ID]
    car = tracks.index("car")
    np.testing.assert_allclose(tracks.position[car, :, 0] - ORIGIN[0], 10 + 8 * JITTERED, atol=1e-3)
    assert tracks.size[car].tolist() == [4.5, 1.8]
    assert np.allclose(np.cos(tracks.heading[car]), 1)
    assert np.flatnonzero(tracks.valid[tracks.index("bike")])[0] == 3
    [coarse] = scenarios(tmp_path / "sd.pkl", Windows(step_s=0.2))
    assert (coarse.num_observed, coarse.num_steps, coarse.step_s) == (6, 46, 0.2)


def test_a_scene_without_a_future_or_a_map(tmp_path: Path) -> None:
    content = scene(JITTERED[:11], **PREDICTED)
    content["map_features"] = {}
    [scenario] = scenarios(write(tmp_path / "sd.pkl", content), Windows(predict_s=8))
    assert (scenario.num_observed, scenario.num_steps, scenario.focal_id) == (11, 91, "bus")
    assert not scenario.has_future
    assert len(scenario.map) == 0


def test_other_scenes_are_cut_into_windows_at_their_own_rate(tmp_path: Path) -> None:
    file = write(tmp_path / "sd.pkl", scene(SLOW))
    windows = scenarios(file, Windows(every_s=3))
    found = [window for part in discover(file).values() for window in part]
    assert {window.recording for window in found} == {"sd"}
    assert [(one.num_observed, one.num_steps, one.step_s) for one in windows] == [(10, 22, 0.5)] * 4
    assert [one.timestamps_ns[0] / 1e9 for one in windows] == [0, 3, 6, 9]
    [*_, last] = scenarios(file, Windows(step_s=0.25, observe_s=2, predict_s=3))
    assert (last.num_observed, last.num_steps, last.step_s) == (8, 20, 0.25)


def test_a_velocity_of_zero_that_stands_for_none_is_estimated(tmp_path: Path) -> None:
    content = scene(SLOW)
    content["tracks"]["car"]["state"]["velocity"][:] = 0
    content["tracks"]["cone"]["state"]["velocity"][:] = 0
    tracks = scenarios(write(tmp_path / "sd.pkl", content))[0].tracks
    np.testing.assert_allclose(tracks.velocity[tracks.index("car"), 5], [8, 0], atol=1e-3)
    assert not tracks.velocity[tracks.index("cone")].any()


def test_the_map_of_a_scene_has_its_links_boundaries_and_marks(tmp_path: Path) -> None:
    [scenario] = scenarios(write(tmp_path / "sd.pkl", scene(JITTERED, **PREDICTED)))
    lanes = scenario.map
    assert {1, 2, 3, 4} <= set(lanes.lane_id.tolist())
    assert len(lanes) == 10  # three lanes of 120 m in three parts, one of 30 m; one is too far away
    first = lanes.lane_id.tolist().index(1)
    assert [LANE_TYPES[code] for code in lanes.lane_type] == ["VEHICLE"] * 7 + ["BIKE"] * 3
    chain = [1]
    while following := lanes.successors[lanes.lane_id.tolist().index(chain[-1])].tolist():
        chain += following
    assert (len(chain), chain[-1]) == (4, 3)
    assert lanes.successors[9].tolist() == [3]
    road = np.concatenate([lanes.centerline[lanes.lane_id.tolist().index(lane)] for lane in chain])
    truth = shapely.LineString(line(0, -30, 120)[:, :2])
    assert shapely.hausdorff_distance(shapely.LineString(road), truth) < 1e-3

    rows = slice(first, first + 3)
    for left in lanes.left_boundary.take(np.arange(10)[rows]):
        np.testing.assert_allclose(left[:, 1] - ORIGIN[1], 1.75)
    right = lanes.right_boundary
    np.testing.assert_allclose(right[first][:, 1] - ORIGIN[1], -1.5)
    assert right.lengths[first + 2] == 0  # the road edge is named to the 120th of 240 points
    assert [MARK_TYPES[code] for code in lanes.left_mark[rows]] == ["DASHED_WHITE"] * 3
    assert [MARK_TYPES[code] for code in lanes.right_mark[rows]] == ["NONE", "NONE", "UNKNOWN"]
    assert lanes.left_neighbor[rows].tolist() == lanes.lane_id[first + 3 : first + 6].tolist()
    assert lanes.right_neighbor[rows].tolist() == [NO_LANE] * 3
    assert lanes.right_neighbor[first + 3 : first + 6].tolist() == [1, NO_LANE, NO_LANE]

    assert len(lanes.crossing_id) == 1
    for edge, x in ((lanes.crossing_edge1[0], -30), (lanes.crossing_edge2[0], -26)):
        np.testing.assert_allclose(edge - ORIGIN, [[x, -7], [x, 7]])


def test_without_links_and_neighbours_the_geometry_decides(tmp_path: Path) -> None:
    content = scene(SLOW)
    for feature in content["map_features"].values():
        for field in ("entry_lanes", "exit_lanes", "left_neighbor", "right_neighbor"):
            feature.pop(field, None)
    content["map_features"]["back"] = {"type": "LANE_SURFACE_STREET", "polyline": line(2 * LANE_M)[::-1]}
    lanes = scenarios(write(tmp_path / "sd.pkl", content))[0].map
    ids = lanes.lane_id.tolist()
    third = ids.index(1) + 2
    assert lanes.successors[third].tolist() == [3]
    parts = {lane: ids[ids.index(lane) : ids.index(lane) + 3] for lane in (1, 2, 4)}
    assert lanes.left_neighbor[third - 2 : third + 1].tolist() == parts[2]
    assert lanes.right_neighbor[third - 2 : third + 1].tolist() == parts[4]
    assert lanes.left_neighbor[ids.index(2)] == NO_LANE  # that lane runs the other way


@pytest.mark.parametrize("name", NUSCENES)
def test_the_lanes_of_nuscenes(shared: Path, name: str) -> None:
    """Those near road users, connected at their ends, bounded by their polygons."""
    file = nuscenes(shared, name)
    raw = pickle.loads(file.read_bytes())
    lanes = scenarios(file)[0].map
    seen = [track["state"]["position"][track["state"]["valid"] > 0.5, :2] for track in raw["tracks"].values()]
    places = np.unique(np.concatenate(seen).round(), axis=0)
    features = [feature for feature in raw["map_features"].values() if feature["type"].startswith("LANE")]
    points = np.concatenate([np.asarray(feature["polyline"])[:, :2] for feature in features])
    away = np.array([np.hypot(*(places - point).T).min() for point in points])
    shapes = [shapely.LineString(centerline) for centerline in lanes.centerline]
    kept = shapely.distance(shapely.points(points), shapely.MultiLineString(shapes)) < 1e-3
    assert kept[away < REACH_M - 1].all()
    assert not kept[away > REACH_M + MAX_LENGTH_M + 5].any()

    row = {lane: number for number, lane in enumerate(lanes.lane_id.tolist())}
    linked = 0
    for shape, successors in zip(shapes, lanes.successors, strict=True):
        for successor in successors.tolist():
            start = shapely.get_point(shapes[row[successor]], 0)
            assert shapely.distance(shapely.get_point(shape, -1), start) < 0.1
            linked += 1
    assert linked > 0.8 * len(lanes)

    polygons = [shapely.Polygon(feature["polygon"]) for feature in features if "polygon" in feature]
    edges = shapely.union_all([polygon.exterior for polygon in polygons])
    for sides in (lanes.left_boundary, lanes.right_boundary):
        away = shapely.distance(shapely.points(sides.values), edges)
        assert np.quantile(away, 0.9) < 0.1


class Call:
    def __reduce__(self) -> Any:
        return os.system, ("touch owned",)


def test_bad_files_are_named_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    good = scene(JITTERED, **PREDICTED)
    loop: dict[str, Any] = {"metadata": good["metadata"]}
    loop["tracks"] = {"a": loop}
    short = scene(JITTERED, **PREDICTED)
    short["tracks"]["bus"]["state"]["heading"] = np.zeros(7)
    bad = {
        "hostile": Call(),
        "inside": {**good, "map_features": {"1": Call()}},
        "no scene": [1, 2],
        "no tracks": {**good, "tracks": {}},
        "loop": loop,
        "short": short,
        "milliseconds": scene(1000 * SLOW, **PREDICTED),
        "still": {**good, "metadata": {**good["metadata"], "ts": np.zeros(91)}},
        "huge number": {**good, "length": 10**4000},
    }
    for name, content in {**bad, "good": good, "also good": good}.items():
        write(tmp_path / "raw" / "val" / f"{name}.pkl", content)
    pickled = pickle.dumps(good)
    (tmp_path / "raw" / "val" / "half.pkl").write_bytes(pickled[: len(pickled) // 2])
    store = tmp_path / "store"
    code = run("prepare", "--source", "scenarionet", "--raw", "raw", "--store", store, "--workers", 1)
    assert code == 3
    told = capsys.readouterr().err
    for name in (*bad, "half"):
        assert f"{name}.pkl" in told
    assert "Traceback" not in told
    assert sorted(ScenarioStore(store, "val").scenario_ids) == ["also good", "good"]
    assert not (tmp_path / "owned").exists()


def test_a_data_base_names_its_scenes(tmp_path: Path) -> None:
    """Those of its mapping alone, wherever they are; plain folders are searched."""
    base = tmp_path / "base"
    one = scene(JITTERED, **PREDICTED)
    write(base / "part_0" / "sd_a.pkl", one)
    write(tmp_path / "other" / "sd_b.pkl", one)
    write(base / "part_0" / "sd_left_out.pkl", one)
    index = {"sd_a.pkl": one["metadata"], "sd_b.pkl": one["metadata"]}
    write(base / "dataset_summary.pkl", index)
    write(base / "dataset_mapping.pkl", {"sd_a.pkl": "part_0", "sd_b.pkl": "../other"})
    assert names(discover(base)) == ["other-sd_b", "part_0-sd_a"]
    for windows in discover(base).values():
        assert [read(window).focal_id for window in windows] == ["bus"]

    assert names(discover(tmp_path)) == ["base-other-sd_b", "base-part_0-sd_a", "other-sd_b"]
    (base / "dataset_summary.pkl").write_bytes(b"nothing")
    (base / "dataset_mapping.pkl").unlink()
    with pytest.warns(UserWarning, match=r"dataset_summary.pkl.*all scenes of the folder"):
        assert names(discover(base)) == ["part_0-sd_a", "part_0-sd_left_out"]


def names(splits: dict[str, list[Any]]) -> list[str]:
    return sorted(window.name for windows in splits.values() for window in windows)


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    content = scene(SLOW)
    content["tracks"]["car"]["state"]["position"] = np.zeros((40, 5))
    file = write(tmp_path / "sd.pkl", content)
    rejected(lambda: scenarios(file), "sd.pkl", "position", r"\[40, 2 or 3\]")
    content = scene(SLOW, tracks_to_predict=5)
    rejects("tracks_to_predict", lambda: scenarios(write(tmp_path / "sd.pkl", content)))
