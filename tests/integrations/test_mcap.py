"""Files for viewers, read back with mcap-ros2-support and rosbags: positions, times and probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import Reader

from tests.conftest import run
from tests.integrations.drives import identity, read_back, write_drive
from trajpred.data.forecast import Forecast
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import EGO_ID, OBJECT_TYPES, TYPICAL_SIZE, TrackCategory
from trajpred.integrations.mcap import MAX_POSES, OBJECTS, ROAD, SCENE, VIEW, DriveFile, save_mcap
from trajpred.integrations.recorded_drive import RecordedDrive, TrackedObjects
from trajpred.onboard import OnboardForecast
from trajpred.predictors.baselines import lane_following

#: Rounding of what is written.
MM = 1.1e-3


@pytest.fixture(scope="module")
def scenario(sample_scenarios: Sequence[Scenario]) -> Scenario:
    """A real one, whose tracks have sizes but for every third."""
    scenario = sample_scenarios[0]
    size = np.random.default_rng(0).uniform(1, 9, (len(scenario.tracks), 2))
    size[::3] = np.nan
    return replace(scenario, tracks=replace(scenario.tracks, size=size))


@pytest.fixture(scope="module")
def forecast(scenario: Scenario) -> Forecast:
    return lane_following(scenario)


def points(line: Any) -> np.ndarray:
    """Return the points of a line in the map's frame."""
    return positions(line.points) + xy(line.pose.position)


def positions(messages: Iterable[Any]) -> np.ndarray:
    """Return x and y ``[M, 2]`` of points or vectors."""
    return np.array([xy(message) for message in messages]).reshape(-1, 2)


def xy(message: Any) -> list[float]:
    return [message.x, message.y]


def yaw(turn: Any) -> float:
    return float(2 * np.arctan2(turn.z, turn.w))


@pytest.fixture(scope="module")
def recording(scenario: Scenario, forecast: Forecast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "scene.mcap"
    save_mcap(scenario, forecast, path)
    return path


def test_scenarios_are_shown_in_time_and_place(
    scenario: Scenario, forecast: Forecast, recording: Path
) -> None:
    tracks = scenario.tracks
    now = scenario.num_observed - 1
    scene = list(read_back(recording, SCENE))
    assert [time for time, _ in scene] == scenario.timestamps_ns.tolist()
    views = [message.transforms[0].transform for _, message in read_back(recording, VIEW)]
    centre = positions(view.translation for view in views)
    np.testing.assert_array_equal(centre, tracks.position[tracks.index(EGO_ID)], "the view follows the ego")
    for step in (0, now - 1, now, now + 20, scenario.num_steps - 1):
        _, update = scene[step]
        [deletion] = update.deletions
        assert deletion.type == 1, "each update is complete"
        entities = {entity.id: entity for entity in update.entities}
        rows = np.flatnonzero(tracks.valid[:, step])
        visible = set(tracks.track_id[rows].tolist())
        predicted = set(forecast.track_id.tolist()) if step >= now else set()
        assert set(entities) == visible | predicted
        for name in predicted - visible:
            seen = np.flatnonzero(tracks.valid[tracks.index(name), : step + 1])[-1]
            [label] = entities[name].texts
            assert not entities[name].cubes
            assert label.text == f"{(step - seen) * 0.1:.2g} s ago"
            place = tracks.position[tracks.index(name), seen]
            np.testing.assert_array_equal(xy(label.pose.position), place)
            corners = points(entities[name].lines[-1])[:4]
            np.testing.assert_allclose(corners.mean(axis=0), place, atol=MM)
        for row in rows.tolist():
            entity = entities[tracks.track_id[row]]
            assert entity.frame_id == "map"
            [box] = entity.cubes
            kind = OBJECT_TYPES[tracks.object_type[row]]
            length, width = TYPICAL_SIZE[kind] if row % 3 == 0 else tracks.size[row]
            assert (box.size.x, box.size.y) == (length, width)
            np.testing.assert_array_equal(xy(box.pose.position), tracks.position[row, step])
            assert np.cos(yaw(box.pose.orientation) - tracks.heading[row, step]) > 1 - 1e-9
            past = slice(max(0, step - 20), step + 1)
            expected = tracks.position[row, past][tracks.valid[row, past]]
            np.testing.assert_allclose(points(entity.lines[0]), expected, atol=MM)


def test_modes_and_true_futures_are_shown(scenario: Scenario, forecast: Forecast, recording: Path) -> None:
    tracks = scenario.tracks
    now = scenario.num_observed - 1
    _, update = list(read_back(recording, SCENE))[now]
    predicted = forecast.track_id.tolist()
    for entity in update.entities:
        i = predicted.index(entity.id)
        modes = entity.lines[1:7]
        order = np.argsort(-forecast.probability[i], kind="stable")
        for line, mode in zip(modes, order.tolist(), strict=True):
            np.testing.assert_allclose(points(line), forecast.trajectory[i, mode, 2::3], atol=MM)
        first, last = modes[0].color, modes[-1].color
        assert (first.r, first.g, first.b) != (last.r, last.g, last.b), "coloured by probability"
        row = tracks.index(entity.id)
        is_scored = tracks.category[row] >= TrackCategory.SCORED
        assert len(entity.lines) == 7 + is_scored + (not entity.cubes), "and an outline instead of a box"
        if is_scored:
            truth = tracks.position[row, now:][tracks.valid[row, now:]]
            np.testing.assert_allclose(points(entity.lines[7]), truth, atol=MM)


def test_the_view_of_an_empty_scene_is_the_middle_of_the_map(tmp_path: Path) -> None:
    """A recording that begins before the first object, on a map far from the origin of its frame."""
    lanes = LaneMap.from_centerlines([[[6e4, 6e4], [6e4 + 100, 6e4]]])
    track = np.full((1, 12, 2), 6e4)
    scene = Scenario.from_arrays(track, valid=np.arange(12)[None] > 3, num_observed=10, map=lanes)
    save_mcap(scene, None, tmp_path / "scene.mcap")
    views = [message.transforms[0].transform for _, message in read_back(tmp_path / "scene.mcap", VIEW)]
    centre = positions(view.translation for view in views)
    np.testing.assert_allclose(centre[:4], np.tile([6e4 + 50, 6e4], (4, 1)), atol=MM)
    np.testing.assert_allclose(centre[4:], 6e4, atol=MM)


def test_the_command_writes_recordings(store_path: Path, tmp_path: Path) -> None:
    options = ["--store", store_path, "--checkpoint", "constant_velocity", "--limit", 2]
    assert run("visualize", *options, "--out", tmp_path / "made.mcap") == 0
    first, second = sorted((tmp_path / "made").iterdir())
    updates = list(read_back(first, SCENE))
    assert len(updates) == 110
    assert len(list(read_back(second, SCENE))) == 110
    _, update = updates[49]
    lines = [len(entity.lines) for entity in update.entities if entity.lines]
    assert min(lines) == 2, "history and the one mode"
    assert run("visualize", *options, "--theme", "dark", "--out", tmp_path / "dark.mcap") == 2


def test_the_road_is_drawn_once(scenario: Scenario, tmp_path: Path) -> None:
    save_mcap(scenario, None, tmp_path / "scene.mcap")
    [(time, road)] = read_back(tmp_path / "scene.mcap", ROAD)
    assert time == scenario.timestamps_ns[0]
    drawn = np.concatenate([points(line) for line in road.entities[0].lines])
    lanes = scenario.map
    names = ("left_boundary", "right_boundary", "centerline", "crossing_edge1", "drivable_area")
    expected = np.concatenate([getattr(lanes, name).values[:, :2] for name in names])
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
    arrays = forecast.arrays | {"track_id": identities(forecast.track_id)}
    known = OnboardForecast(forecast.scenario_id, **arrays, **more)
    return replace(tracks, track_id=identities(tracks.track_id)), known


def identities(track_id: np.ndarray) -> np.ndarray:
    return np.array([identity(name).hex() for name in track_id.tolist()])


@pytest.mark.parametrize(("steps", "share"), [(60, 0.1), (150, 1.0)])
def test_predicted_objects_are_the_forecast_of_the_tracked_ones(
    scenario: Scenario, tracked: TrackedObjects, tmp_path: Path, steps: int, share: float
) -> None:
    """The modes of at least this probability, or the most probable one."""
    forecast = lane_following(scenario, steps)
    tracks, known = named(forecast, scenario, fallback={tracked.track_id[0]: "late"})
    file_path = tmp_path / "predicted.mcap"
    with DriveFile(file_path, scenario.map, step_s=0.1, min_probability=share) as file:
        file.add(tracked, tracks, known)
    [(time, message)] = read_back(file_path, OBJECTS)
    assert message.header.frame_id == "map"
    assert time == tracked.time_ns
    assert nanoseconds(message.header.stamp) == tracked.time_ns
    assert [bytes(predicted.object_id.uuid).hex() for predicted in message.objects] == tracked.track_id
    stride = -(-steps // (MAX_POSES - 1))
    rows = known.rows(np.array(tracked.track_id))
    for k, predicted in enumerate(message.objects):
        row = rows[k]
        paths = predicted.kinematics.predicted_paths
        order = np.argsort(-known.probability[row], kind="stable")
        probability = known.probability[row, order]
        num_paths = max(1, (probability >= share).sum())
        confidences = [path.confidence for path in paths]
        np.testing.assert_allclose(confidences, probability[:num_paths], atol=1e-6)
        for path, mode in zip(paths, order[:num_paths].tolist(), strict=True):
            place = positions(pose.position for pose in path.path)
            assert 2 <= len(place) <= MAX_POSES
            np.testing.assert_array_equal(place[0], tracked.position[k])
            expected = known.trajectory[row, mode, stride - 1 :: stride]
            np.testing.assert_allclose(place[1:], expected, atol=MM)
            heading = np.array([yaw(pose.orientation) for pose in path.path[1:]])
            turn = heading - known.heading[row, mode, stride - 1 :: stride]
            np.testing.assert_allclose(np.cos(turn), 1, atol=1e-6)
            assert nanoseconds(path.time_step) == stride * 10**8
        assert_same_object(predicted, tracked.message.objects[k])
    [(_, scene)] = read_back(file_path, SCENE)
    for entity in scene.entities:
        facts = {fact.key: fact.value for fact in entity.metadata}
        expected = "fallback" if entity.id == tracked.track_id[0] else "model"
        assert facts["predicted by"] == expected


def nanoseconds(stamp: Any) -> int:
    return int(stamp.sec) * 10**9 + int(stamp.nanosec)


def assert_same_object(predicted: Any, tracked: Any) -> None:
    """All that is not predicted is copied."""
    assert predicted.existence_probability == tracked.existence_probability
    for copied, original in zip(predicted.classification, tracked.classification, strict=True):
        assert copied.label == original.label
    assert predicted.shape.dimensions.x == tracked.shape.dimensions.x
    initial = predicted.kinematics.initial_twist_with_covariance.twist.linear
    assert initial.x == tracked.kinematics.twist_with_covariance.twist.linear.x


def test_ros_tools_read_the_files_and_what_was_written_survives(
    scenario: Scenario, tracked: TrackedObjects, tmp_path: Path
) -> None:
    tracks, known = named(lane_following(scenario), scenario)
    path = tmp_path / "predicted.mcap"
    with pytest.raises(RuntimeError), DriveFile(path, scenario.map, step_s=0.1) as file:
        file.add(tracked, tracks, known)
        raise RuntimeError("stopped")
    with Reader(path) as reader:
        kinds = {topic.topic: (topic.msgtype, topic.msgcount) for topic in reader.connections}
    assert kinds == {
        OBJECTS: ("autoware_perception_msgs/msg/PredictedObjects", 1),
        SCENE: ("foxglove_msgs/msg/SceneUpdate", 1),
        ROAD: ("foxglove_msgs/msg/SceneUpdate", 1),
        VIEW: ("tf2_msgs/msg/TFMessage", 1),
    }
