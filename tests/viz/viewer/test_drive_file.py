"""Files for viewers, read back with mcap-ros2-support and rosbags: positions, times and probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import Reader

from tests.conftest import run
from tests.sources.drives import identity, read_back, write_drive
from trajpred.forecast import Forecast
from trajpred.onboard import OnboardForecast
from trajpred.predictors.baselines import lane_following
from trajpred.scenario import Scenario
from trajpred.sources.recorded_drive import RecordedDrive, TrackedObjects
from trajpred.tracks import EGO_ID, TrackCategory
from trajpred.viz.viewer import DriveFile, save_mcap
from trajpred.viz.viewer.drive_file import OBJECTS, ROAD, SCENE, VIEW
from trajpred.viz.viewer.messages import MAX_POSES

#: Rounding of what is written.
MM = 1.1e-3


@pytest.fixture(scope="module")
def scenario(sample_scenarios: Sequence[Scenario]) -> Scenario:
    return sample_scenarios[0]


@pytest.fixture(scope="module")
def forecast(scenario: Scenario) -> Forecast:
    return lane_following(scenario)


def points(line: Any) -> np.ndarray:
    """Return the points of a line in the map's frame."""
    origin = line.pose.position
    return np.array([[p.x + origin.x, p.y + origin.y] for p in line.points]).reshape(-1, 2)


def yaw(turn: Any) -> float:
    return float(2 * np.arctan2(turn.z, turn.w))


def test_scenarios_are_shown_at_their_times_and_places(
    scenario: Scenario, forecast: Forecast, tmp_path: Path
) -> None:
    path, tracks, now = tmp_path / "scene.mcap", scenario.tracks, scenario.num_observed - 1
    save_mcap(scenario, forecast, path)
    scene = list(read_back(path, SCENE))
    assert [time for time, _ in scene] == scenario.timestamps_ns.tolist()
    for step in (0, now - 1, now, now + 20, scenario.num_steps - 1):
        entities = {one.id: one for one in scene[step][1].entities}
        rows = np.flatnonzero(tracks.valid[:, step])
        assert set(entities) == set(tracks.track_id[rows].tolist())
        assert [one.type for one in scene[step][1].deletions] == [1], "each update is complete"
        for row in rows.tolist():
            one = entities[tracks.track_id[row]]
            [box] = one.cubes
            place = [box.pose.position.x, box.pose.position.y]
            np.testing.assert_array_equal(place, tracks.position[row, step])
            assert np.cos(yaw(box.pose.orientation) - tracks.heading[row, step]) > 1 - 1e-9
            assert one.frame_id == "map" and box.size.x > 0
            past = tracks.valid[row, max(0, step - 20) : step + 1]
            expected = tracks.position[row, max(0, step - 20) : step + 1][past]
            np.testing.assert_allclose(points(one.lines[0]), expected, atol=MM)
    rows = tracks.track_id.tolist()
    for one in scene[now][1].entities:
        i, row = forecast.track_id.tolist().index(one.id), rows.index(one.id)
        order = np.argsort(-forecast.probability[i], kind="stable")
        for line, mode in zip(one.lines[1:7], order.tolist(), strict=True):
            np.testing.assert_allclose(points(line), forecast.trajectory[i, mode, 2::3], atol=MM)
        colors = [(line.color.r, line.color.g, line.color.b) for line in one.lines[1:7]]
        assert colors[0] != colors[-1], "coloured by probability"
        known = tracks.category[row] >= TrackCategory.SCORED
        assert len(one.lines) == 7 + known
        if known:
            valid = tracks.valid[row, now:]
            np.testing.assert_allclose(points(one.lines[7]), tracks.position[row, now:][valid], atol=MM)
    view = [message.transforms[0] for _, message in read_back(path, VIEW)]
    ego = tracks.position[tracks.index(EGO_ID)]
    moved = [[one.transform.translation.x, one.transform.translation.y] for one in view]
    np.testing.assert_array_equal(moved, ego)


def test_the_command_writes_recordings(store_path: Path, tmp_path: Path) -> None:
    given = ["--store", store_path, "--checkpoint", "constant_velocity", "--format", "mcap", "--limit", 2]
    assert run("visualize", *given, "--out", tmp_path) == 0
    found = [list(read_back(path, SCENE)) for path in sorted(tmp_path.glob("*.mcap"))]
    assert [len(one) for one in found] == [110, 110]
    modes = [len(one.lines) for one in found[0][49][1].entities if one.lines]
    assert min(modes) == 2, "history and the one mode"
    assert run("visualize", *given, "--theme", "dark", "--out", tmp_path) == 2


def test_the_road_is_drawn_once(scenario: Scenario, tmp_path: Path) -> None:
    save_mcap(scenario, None, tmp_path / "scene.mcap")
    [(time, road)] = read_back(tmp_path / "scene.mcap", ROAD)
    assert time == scenario.timestamps_ns[0]
    drawn = np.concatenate([points(line) for line in road.entities[0].lines])
    lanes = scenario.map
    lines = [*lanes.left_boundary, *lanes.right_boundary, *lanes.centerline, *lanes.crossing_edge1]
    expected = np.concatenate([line[:, :2] for line in [*lines, *lanes.drivable_area]])
    gap = np.abs(expected[::7, None] - drawn).max(axis=2).min(axis=1)
    assert gap.max() < MM


@pytest.fixture(scope="module")
def tracked(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> TrackedObjects:
    """The tracked objects at the last observed step."""
    path = write_drive(scenario, tmp_path_factory.mktemp("drive") / "drive.mcap", steps=scenario.num_observed)
    return list(RecordedDrive(path))[-1]


def named(forecast: Forecast, scenario: Scenario, **more: Any) -> tuple[Any, OnboardForecast]:
    """Return tracks and forecast with the ids that they have in a recorded drive."""
    tracks = scenario.tracks.window(0, scenario.num_observed)
    ids = np.array([identity(name).hex() for name in forecast.track_id.tolist()])
    all_ids = np.array([identity(name).hex() for name in tracks.track_id.tolist()])
    arrays = forecast.arrays | {"track_id": ids}
    return replace(tracks, track_id=all_ids), OnboardForecast(forecast.scenario_id, **arrays, **more)


@pytest.mark.parametrize(("steps", "share"), [(60, 0.1), (150, 1.0)])
def test_predicted_objects_are_the_forecast_of_the_tracked_ones(
    scenario: Scenario, tracked: TrackedObjects, tmp_path: Path, steps: int, share: float
) -> None:
    """The modes of at least this probability, or the most probable one."""
    forecast = lane_following(scenario, steps)
    tracks, known = named(forecast, scenario, fallback={tracked.track_id[0]: "late"})
    path = tmp_path / "predicted.mcap"
    with DriveFile(path, scenario.map, step_s=0.1, min_probability=share) as file:
        file.add(tracked, tracks, known)
    [(time, found)] = read_back(path, OBJECTS)
    stamp = found.header.stamp
    assert time == tracked.time_ns == stamp.sec * 10**9 + stamp.nanosec and found.header.frame_id == "map"
    assert [bytes(one.object_id.uuid).hex() for one in found.objects] == tracked.track_id
    every = -(-steps // (MAX_POSES - 1))
    for one, name, given in zip(found.objects, tracked.track_id, tracked.message.objects, strict=True):
        i = known.track_id.tolist().index(name)
        paths = one.kinematics.predicted_paths
        expected = np.sort(known.probability[i])[::-1]
        kept = expected[: max(1, (expected >= share).sum())]
        np.testing.assert_allclose([path.confidence for path in paths], kept, atol=1e-6)
        order = np.argsort(-known.probability[i], kind="stable").tolist()
        for path_, mode in zip(paths, order, strict=False):
            xy = np.array([[pose.position.x, pose.position.y] for pose in path_.path])
            assert 2 <= len(xy) <= MAX_POSES
            np.testing.assert_array_equal(xy[0], tracked.position[tracked.track_id.index(name)])
            np.testing.assert_allclose(xy[1:], known.trajectory[i, mode, every - 1 :: every], atol=MM)
            turned = [yaw(pose.orientation) for pose in path_.path[1:]]
            off = turned - known.heading[i, mode, every - 1 :: every]
            np.testing.assert_allclose(np.cos(off), 1, atol=1e-6)
            assert path_.time_step.sec * 10**9 + path_.time_step.nanosec == every * 10**8
        assert one.existence_probability == given.existence_probability
        assert [c.label for c in one.classification] == [c.label for c in given.classification]
        assert one.shape.dimensions.x == given.shape.dimensions.x
        initial = one.kinematics.initial_twist_with_covariance.twist.linear
        assert initial.x == given.kinematics.twist_with_covariance.twist.linear.x
    [(_, scene)] = read_back(path, SCENE)
    facts = {one.id: {m.key: m.value for m in one.metadata} for one in scene.entities}
    assert facts[tracked.track_id[0]]["predicted by"] == "fallback"
    assert facts[tracked.track_id[1]]["predicted by"] == "model"


def test_ros_tools_read_the_files_and_what_was_written_survives(
    scenario: Scenario, tracked: TrackedObjects, tmp_path: Path
) -> None:
    tracks, known = named(lane_following(scenario), scenario)
    path = tmp_path / "predicted.mcap"
    with pytest.raises(RuntimeError), DriveFile(path, scenario.map, step_s=0.1) as file:
        file.add(tracked, tracks, known)
        raise RuntimeError("stopped")
    with Reader(path) as reader:
        kinds = {one.topic: (one.msgtype, one.msgcount) for one in reader.connections}
    assert kinds == {
        OBJECTS: ("autoware_perception_msgs/msg/PredictedObjects", 1),
        SCENE: ("foxglove_msgs/msg/SceneUpdate", 1),
        ROAD: ("foxglove_msgs/msg/SceneUpdate", 1),
        VIEW: ("tf2_msgs/msg/TFMessage", 1),
    }
