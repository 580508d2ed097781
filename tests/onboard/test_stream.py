"""Each streamed update is the model's forecast of that moment, and no input makes one raise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.onboard.conftest import STEP, drive, warnings
from tests.scenes import moment
from trajpred.data.batch import ScenarioBatch
from trajpred.data.lane_map import LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.resample import resample
from trajpred.data.scenario import Scenario
from trajpred.integrations.replay import detections, resident_mb
from trajpred.onboard import Detections, OnboardForecast, OnboardForecaster, StreamingForecaster
from trajpred.onboard.detections import MAX_SPEED, MAX_TRACKS
from trajpred.predictors.checkpoint import CheckpointPredictor


def test_every_step_is_the_models_forecast_of_that_moment(
    forecaster: OnboardForecaster, predictor: CheckpointPredictor, scenes: list[Scenario]
) -> None:
    """Against PyTorch on windows cut from the scenario, from the first step to beyond a full history."""
    scenario = scenes[0]
    stream = StreamingForecaster(forecaster, scenario.map)
    last = int(np.flatnonzero(scenario.tracks.valid.any(axis=0))[-1])
    for step in range(min(last, scenario.num_observed + 5) + 1):
        found = stream.update(scenario.timestamps_ns[step] / 1e9, detections(scenario, step))
        assert not found.warnings
        if step % 12 and step not in (1, 2, 50):
            continue
        [expected] = predictor([moment(scenario, step)])
        rows = expected.rows(found.track_id)
        assert len(rows) == len(expected.track_id)
        assert (rows >= 0).all()
        np.testing.assert_allclose(found.trajectory, expected.trajectory[rows], rtol=0, atol=1e-2)
        np.testing.assert_allclose(found.probability, expected.probability[rows], rtol=0, atol=1e-3)
    lanes = len(scenario.map) + len(scenario.map.crossing_id)
    assert 0 < forecaster.lanes.encoded <= lanes, "each lane once"


def test_streamed_recordings_equal_the_forecast_of_the_whole_scene(
    forecaster: OnboardForecaster, sample_scenarios: list[Scenario]
) -> None:
    """At the model's steps: also in the windows of sensor logs, whose steps take 0.1000019 s."""
    for scenario in sample_scenarios[::3]:
        stream = StreamingForecaster(forecaster, scenario.map, scenario.focal_id)
        for step in range(scenario.num_observed):
            found = stream.update(scenario.timestamps_ns[step] / 1e9, detections(scenario, step), targets=[])
        scene = stream._scene()
        assert not found.warnings
        step_s = forecaster.bundle.step_s
        assert scene.step_s[0] == step_s
        offline = forecaster.localise(ScenarioBatch.of([resample(scenario, step_s)]))
        streamed = forecaster.localise(scene)
        order = [offline.agents.track_id.tolist().index(name) for name in streamed.agents.track_id]
        np.testing.assert_allclose(streamed.agents.history, offline.agents.history[order], rtol=0, atol=1e-6)
        np.testing.assert_allclose(streamed.agents.elapsed_s, offline.agents.elapsed_s[order], atol=1e-7)


def test_memory_is_bounded_and_too_many_detections_are_refused(stream: StreamingForecaster) -> None:
    drive(stream)
    for step in range(6, 12):
        names = ["a", *(f"{step} {i}" for i in range(MAX_TRACKS // 2))]
        found = stream.update(step * STEP, Detections(names, [(step, 0.0)] * len(names)))
        assert not found.warnings
        assert "a" in found.track_id
    assert len(stream.history) == MAX_TRACKS
    assert {name.split()[0] for name in stream.history.track_id.tolist()} == {"a", "10", "11"}
    names = [f"n {i}" for i in range(10**5)]
    found = stream.update(1.2, Detections(names, np.zeros((10**5, 2))))
    assert f"has 100,000 entries, more than {MAX_TRACKS:,}" in warnings(found)
    assert "a" in found.track_id
    assert {found.not_predicted[name] for name in names} == {"its update was omitted"}


def test_updates_a_few_milliseconds_apart_are_one(stream: StreamingForecaster) -> None:
    """As of two sensors: a velocity between their detections would be noise."""
    drive(stream)
    first = stream.update(0.6, Detections(["a"], [(6.2, 0.0)]))
    again = stream.update(0.604, Detections(["a", "b"], [(6.0, 0.0), (9.0, 0.0)]))
    assert not first.warnings
    assert not again.warnings
    assert stream.tracks.track_id.tolist() == ["a", "b"]
    assert stream.tracks.valid.sum(axis=1).tolist() == [7, 1]
    np.testing.assert_allclose(stream.tracks.velocity[0, -1], [10.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(stream.tracks.position[0, -1], [6.04, 0.0], atol=1e-6)


def test_targets(stream: StreamingForecaster) -> None:
    every = drive(stream, b=(5.0, 5.0))
    found = stream.update(0.5, Detections(["a"], [(5.0, 0.0)]), targets=["b", "stranger"])
    assert found.track_id.tolist() == ["b"]
    assert set(found.not_predicted) == {"stranger"}
    row = every.rows(np.array(["b"]))[0]
    np.testing.assert_allclose(found.trajectory[0], every.trajectory[row], atol=1e-4)


@pytest.mark.parametrize("time_s", [-1e3, 1e300, 5.2])
def test_long_gap_resets_the_histories(stream: StreamingForecaster, time_s: float) -> None:
    drive(stream, steps=3)
    found = stream.update(time_s, Detections(["b"], [(1.0, 1.0)]))
    assert found.track_id.tolist() == ["b"]
    assert "were reset" in warnings(found)
    assert len(stream.history) == 1


def test_tracks_are_predicted_for_a_second_after_their_last_detection(stream: StreamingForecaster) -> None:
    stream.ego_id = "b"
    drive(stream, b=(4.0, 4.0))
    for step in range(6, 18):
        found = stream.update(step * STEP, Detections(["a"], [(step, 0.0)]))
        assert ("b" in found.track_id) == (step <= 15)
        assert list(found.not_predicted) == ([] if step <= 15 else ["b"])
    assert found.not_predicted["b"] == "not seen for 1.2 s"
    assert stream.update(2.7, Detections([], [])).track_id.tolist() == ["a"]
    found = stream.update(2.8, Detections([], []))
    assert len(found.track_id) == 0
    assert found.not_predicted == {"a": "not seen for 1.1 s", "b": "not seen for 2.3 s"}


def test_jump_drops_the_history(stream: StreamingForecaster) -> None:
    drive(stream, b=(4.0, 4.0))
    found = stream.update(0.6, Detections(["a", "b"], [(900.0, 0.0), (4.0, 4.0)]))
    assert "track a jumped" in warnings(found)
    assert set(found.validate().track_id) == {"a", "b"}
    tracks = stream.tracks
    assert tracks.valid.sum(axis=1)[tracks.track_id == "a"] == 1
    row = found.rows(np.array(["a"]))[0]
    assert np.abs(found.trajectory[row, :, 0] - [900.0, 0.0]).max() < 2 * MAX_SPEED * STEP


def test_map_can_change_and_invalid_maps_are_rejected(
    forecaster: OnboardForecaster, scenes: list[Scenario]
) -> None:
    good = scenes[0].map
    stream = StreamingForecaster(forecaster)
    position = good.centerline.values[:1, :2]
    times = itertools.count(0.0, STEP)

    def update() -> OnboardForecast:
        found = stream.update(next(times), Detections(["a"], position)).validate()
        assert found.track_id.tolist() == ["a"]
        return found

    assert not update().warnings
    assert forecaster.lanes.encoded == 0
    stream.set_map(good)
    assert not update().warnings
    known = forecaster.lanes.encoded
    for bad in [*invalid_maps(good).values()] * 2:
        stream.set_map(bad)
        assert "map rejected" in warnings(update())
        assert stream.map is good
    assert forecaster.lanes.encoded == known > 0
    stream.set_map(LaneMap())
    assert not update().warnings


def test_failed_forecast_is_reported_and_keeps_the_histories(
    stream: StreamingForecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no memory left")

    before = drive(stream, b=(4.0, 4.0))
    with monkeypatch.context() as broken:
        broken.setattr(stream.runtime, "run", fail)
        found = stream.update(0.5, Detections(["a", "b"], [(5.0, 0.0), (4.0, 4.0)])).validate()
        target = stream.update(0.5, Detections([], []), targets=["b"])
    assert not len(found.track_id)
    assert "no memory left" in warnings(found)
    assert found.not_predicted == dict.fromkeys("ab", "the forecast failed")
    assert target.not_predicted == {"b": "the forecast failed"}
    again = stream.update(0.5, Detections([], []))
    np.testing.assert_array_equal(again.trajectory, before.trajectory)


def test_nearest_agents_are_predicted_beyond_the_limit(stream: StreamingForecaster) -> None:
    """The nearest to the ego, or to the first track while there is no ego."""
    limit, count = stream.runtime.bundle.features.max_agents, 150
    positions = np.stack((3.0 * np.arange(count), np.zeros(count)), -1)
    names = [f"t{i}" for i in range(count)]
    found = stream.update(0.0, Detections(names, positions)).validate()
    assert set(found.track_id) == set(names[:limit])
    assert set(found.not_predicted) == set(names[limit:])
    assert all("nearest" in reason for reason in found.not_predicted.values())
    stream.ego_id = names[-1]
    found = stream.update(STEP, Detections(names, positions))
    assert set(found.track_id) == set(names[count - limit :])


NUMBER = st.one_of(
    st.floats(-60, 60), st.sampled_from([np.nan, np.inf, -np.inf, 1e300, 1e9, 1e6, 0.0, -1e-300])
)
TRACK = st.tuples(st.sampled_from("abcdef"), NUMBER, NUMBER, NUMBER, NUMBER)
UPDATE = st.tuples(
    st.one_of(st.floats(0.0, 0.3), st.sampled_from([-0.2, -9.0, 1.2, 4.95, 5.0, 70.0, np.nan, np.inf])),
    st.lists(TRACK, max_size=6),
    st.sampled_from(["same", "empty", "good", "ids", "is_intersection", "far"]),
)


@settings(max_examples=40, derandomize=True, suppress_health_check=list(HealthCheck))
@given(updates=st.lists(UPDATE, min_size=1, max_size=8))
def test_no_update_raises(
    updates: list[tuple[float, list[tuple[str, float, float, float, float]], str]],
    shared_forecaster: OnboardForecaster,
    scenes: list[Scenario],
) -> None:
    """Forecasts are valid, and each detected or remembered track has either futures or a reason."""
    good, now = scenes[0].map, 0.0
    maps = {"empty": LaneMap(), "good": good, **invalid_maps(good)}
    stream = StreamingForecaster(shared_forecaster)
    center = good.centerline.values[:, :2].mean(axis=0)
    for passed, tracks, which in updates:
        if which in maps:
            stream.set_map(maps[which])
        names = [track[0] for track in tracks]
        position = np.array([track[1:3] for track in tracks]).reshape(-1, 2) + center
        heading = [track[3] for track in tracks]
        speed = [track[4] for track in tracks]
        now += passed if np.isfinite(passed) else 0.0
        velocity = np.stack((speed, heading), -1) if tracks else None
        found = stream.update(
            now if np.isfinite(passed) else passed, Detections(names, position, heading, velocity)
        ).validate()
        predicted, reasons = set(found.track_id.tolist()), set(found.not_predicted)
        assert not predicted & reasons
        assert predicted | reasons >= set(stream.history.track_id.tolist()) | set(names)


def drive_on_repeat(scenario: Scenario) -> Iterator[tuple[float, Detections]]:
    """Repeat the observed steps of a scenario without end: seconds on a continuing clock, and detections.

    Track ids change with every round, as on a long drive.
    """
    steps = [detections(scenario, step) for step in range(scenario.num_observed)]
    for count in itertools.count():
        round_, step = divmod(count, len(steps))
        track_id = [f"{name}, round {round_}" for name in steps[step].track_id]
        yield count * scenario.step_s, steps[step]._replace(track_id=track_id)


@pytest.mark.slow
def test_memory_does_not_grow_on_a_long_drive(bundle: Path, sample_scenarios: list[Scenario]) -> None:
    """Between update 1,000 and 10,000, with new track ids in every round."""
    if resident_mb() is None:
        pytest.skip("resident memory is unknown on this system")
    scenario = min(sample_scenarios, key=lambda one: len(one.tracks))
    stream = StreamingForecaster(OnboardForecaster(bundle, threads=1), scenario.map)
    early_mb = 0.0
    for count, (seconds, seen) in enumerate(itertools.islice(drive_on_repeat(scenario), 10_000), 1):
        found = stream.update(seconds, seen, targets=seen.track_id[:1])
        assert len(found.track_id) == min(1, len(seen.track_id))
        assert not found.warnings
        if count == 1000:
            early_mb = resident_mb() or 0.0
    assert (resident_mb() or 0.0) - early_mb < 8.0
    assert len(stream.history) <= 2 * len(scenario.tracks)
    assert stream.runtime.lanes.encoded <= len(scenario.map) + len(scenario.map.crossing_id)


def invalid_maps(good: LaneMap) -> dict[str, Any]:
    """Return maps with one invalid field each, and values that are not maps."""
    line = good.centerline
    far = line.values.copy()
    far[1, 0] = 1e200
    nan = line.values.copy()
    nan[3] = np.nan
    no_links = Ragged(np.zeros((0, 2), np.int64), np.zeros(len(good) + 1, np.int64))
    return {
        "is_intersection": replace(good, is_intersection=np.arange(len(good)) * 7),
        "far": replace(good, centerline=Ragged(far, line.offsets)),
        "nan": replace(good, centerline=Ragged(nan, line.offsets)),
        "columns": replace(good, centerline=Ragged(line.values[:, :1], line.offsets)),
        "offsets": replace(good, centerline=Ragged(line.values, line.offsets[:-1])),
        "predecessors": replace(good, predecessors=no_links),
        "ids": replace(good, lane_id=good.lane_id[:-1]),
        "none": None,
        "text": "a map",
    }
