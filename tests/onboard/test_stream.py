"""Each streamed update is the model's forecast of that moment, and no input makes one raise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import INVALID_NAMES
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


STEP = 0.1


def drive(stream: StreamingForecaster, steps: int = 6, **others: tuple[float, float]) -> OnboardForecast:
    """Update with car ``a`` at 10 m/s and ``others`` that stand."""
    for step in range(steps):
        found = stream.update(step * STEP, Detections(["a", *others], [(step, 0.0), *others.values()]))
    return found


def warnings(found: OnboardForecast) -> str:
    return "; ".join(found.warnings)


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


@pytest.mark.parametrize("name", [*INVALID_NAMES, None, np.nan, ["a"], b"\xff"], ids=lambda x: ascii(x)[:9])
def test_detections_with_invalid_names_have_a_reason(stream: StreamingForecaster, name: Any) -> None:
    found = stream.update(0.0, Detections([name, "a", name], [(0.0, 0.0), (5.0, 0.0), (1.0, 0.0)]))
    assert found.track_id.tolist() == ["a"]
    [(shown, reason)] = found.not_predicted.items()
    assert shown == (name if isinstance(name, str) else "")
    assert not found.warnings
    assert "printable" in reason


@pytest.mark.parametrize("targets", ["ab", b"ab", 7])
def test_targets_that_are_no_list_are_omitted(stream: StreamingForecaster, targets: Any) -> None:
    drive(stream, b=(5.0, 5.0))
    found = stream.update(0.6, Detections(["a"], [(6.0, 0.0)]), targets=targets)
    assert "targets omitted" in warnings(found)
    assert set(found.track_id) == {"a", "b"}


@pytest.mark.parametrize("value", [np.nan, 1e9])
def test_invalid_position(stream: StreamingForecaster, value: float) -> None:
    """Known tracks are predicted from earlier positions, new ones have a reason."""
    before = drive(stream)
    found = stream.update(0.6, Detections(["a", "b", "c"], [(value, 0.0), (0.0, value), (3.0, 1.0)]))
    assert set(found.validate().track_id) == {"a", "c"}
    assert list(found.not_predicted) == ["b"]
    assert "not finite" in found.not_predicted["b"]
    start = found.trajectory[found.rows(np.array(["a"]))[0], :, 0]
    assert np.abs(start - before.trajectory[0, :, 0]).max() < 10


@pytest.mark.parametrize("value", [np.nan, -1e300, 108.0])
def test_invalid_motion_is_derived_from_positions(stream: StreamingForecaster, value: float) -> None:
    drive(stream)
    found = stream.update(0.6, Detections(["a"], [(6.0, 0.0)], velocity=[(value, 1.0)]))
    assert ("velocities above 100 m/s omitted" in warnings(found)) == np.isfinite(value)
    np.testing.assert_allclose(stream.tracks.velocity[0, -1], [10.0, 0.0], atol=1e-6)
    found = stream.update(0.7, Detections(["a"], [(7.0, 0.0)], heading=[value]))
    assert found.validate().track_id.tolist() == ["a"]
    assert abs(stream.tracks.heading[0, -1]) <= np.pi


@pytest.mark.parametrize("of_vehicle", [False, True])
def test_velocities_in_the_frame_of_the_vehicle_are_one_warning(
    stream: StreamingForecaster, of_vehicle: bool
) -> None:
    """Of cars that drive east, north, west and south, the first has the same velocity in both frames."""
    heading = np.tile(np.arange(4) * np.pi / 2, 5)
    travel = np.stack((np.cos(heading), np.sin(heading)), -1)
    start = 30.0 * np.arange(20)[:, None] * np.array([1.0, 0.5])
    velocity = 8 * (np.array([[1.0, 0.0]] * 20) if of_vehicle else travel)
    names = [str(car) for car in range(20)]
    said: list[str] = []
    for step in range(70):
        detected = Detections(names, start + 8 * STEP * step * travel, heading, velocity)
        said += stream.update(step * STEP, detected, targets=[]).warnings
    expected = "75% of the velocities of moving road users contradict the positions"
    assert [text.partition(":")[0] for text in said] == [expected] * of_vehicle
    assert all("median angle between them: 90 degrees" in text for text in said)


@pytest.mark.parametrize("value", [90.0, -180.0, 26.0, 1e300])
def test_headings_in_degrees_are_unknown(stream: StreamingForecaster, value: float) -> None:
    """Those of other tracks in the same update too, which could be radians: 5 degrees, not 5 radians."""
    other = StreamingForecaster(stream.runtime, stream.map)
    for step in range(8):
        positions = [(step, 0.0), (9.0, step)]
        expected = other.update(step * STEP, Detections(["a", "b"], positions))
        found = stream.update(step * STEP, Detections(["a", "b"], positions, heading=[value, 5.0]))
        assert found.warnings == (
            "headings omitted, they follow from positions: must be radians, not degrees",
        )
    np.testing.assert_array_equal(found.trajectory, expected.trajectory)
    assert not stream.update(0.8, Detections(["a"], [(8.0, 0.0)], heading=[25.0])).warnings, "four turns"


def test_first_usable_detection_of_a_duplicate_id_counts(stream: StreamingForecaster) -> None:
    positions = [(0.0, 0.0), (np.nan, 0.0), (50.0, 0.0), (7.0, 7.0)]
    found = stream.update(0.0, Detections(["a", "b", "a", "b"], positions))
    assert "duplicate" in warnings(found)
    assert "a, b" in warnings(found)
    assert not found.not_predicted
    tracks = stream.tracks
    latest = dict(zip(tracks.track_id, tracks.position[:, -1].tolist(), strict=True))
    assert latest == {"a": [0, 0], "b": [7, 7]}


@pytest.mark.parametrize(
    "time_s",
    [
        *(0.89, 0.1, np.nan, np.inf),
        *(None, "now", "0.95", b"0.95", [0.95], {}, np.array([0.95]), 1j),
        *(np.datetime64("2026-11-25T12:00:00"), np.datetime64("NaT"), np.timedelta64(1, "s")),
        datetime(2026, 11, 25, 12),
        *(torch.tensor([0.95]), torch.tensor(np.nan), np.float32(1.7e9), torch.tensor(1.7e9)),
    ],
    ids=repr,
)
def test_update_with_an_invalid_time_is_omitted(stream: StreamingForecaster, time_s: Any) -> None:
    """The forecast stays, and new tracks have a reason."""
    before = drive(stream, steps=10)
    found = stream.update(time_s, Detections(["a", "new"], [(0.0, 30.0), (1.0, 1.0)]))
    [warning] = found.warnings
    assert "update omitted" in warning
    assert warning.startswith("update omitted: field 'timestamp_s'") or isinstance(time_s, float)
    assert found.timestamp_s == 9 * STEP
    assert found.not_predicted == {"new": "its update was omitted"}
    np.testing.assert_array_equal(found.trajectory, before.trajectory)


@pytest.mark.parametrize(
    "kind", [np.float64, np.float32, np.array, torch.tensor, lambda x: round(x * 10) / 10]
)
def test_times_may_be_numbers_of_other_packages(
    shared_forecaster: OnboardForecaster, stream: StreamingForecaster, kind: Any
) -> None:
    expected = drive(stream)
    other = StreamingForecaster(shared_forecaster, stream.map)
    for step in range(6):
        found = other.update(kind(step * STEP), Detections(["a"], [(step, 0.0)]))
        assert not found.warnings
    np.testing.assert_allclose(found.trajectory, expected.trajectory, atol=1e-4)


def test_unix_time_as_float32_is_too_coarse(stream: StreamingForecaster) -> None:
    """It changes every 128 s, and a car that moves would seem to stand."""
    for step in range(3):
        found = stream.update(np.float32(1.7e9 + step * STEP), Detections(["a"], [(step, 0.0)]))
        assert "resolves only 128 s" in warnings(found)
        assert not len(found.track_id)
    found = stream.update(1.7e9, Detections(["a"], [(3.0, 0.0)]))
    assert not found.warnings
    assert found.track_id.tolist() == ["a"]


def test_a_clock_that_was_set_back_is_followed_after_half_a_second(stream: StreamingForecaster) -> None:
    """A single late message is omitted; a step of the clock must not stop the runtime for seconds."""
    drive(stream)
    assert "update omitted" in warnings(stream.update(0.3, Detections(["a"], [(3.0, 0.0)])))
    assert not stream.update(0.6, Detections(["a"], [(6.0, 0.0)])).warnings
    for step in range(5):
        found = stream.update(-2.0 + step * STEP, Detections(["b"], [(step, 0.0)]))
        assert "time went back by" in warnings(found)
        assert found.track_id.tolist() == ["a"]
    found = stream.update(-1.5, Detections(["b"], [(5.0, 0.0)]))
    assert "histories were reset" in warnings(found)
    assert found.track_id.tolist() == ["b"]
    assert not stream.update(-1.4, Detections(["b"], [(6.0, 0.0)])).warnings


def test_a_clock_that_stands_still_has_a_warning(stream: StreamingForecaster) -> None:
    drive(stream)
    first = stream.update(0.6, Detections(["a"], [(6.0, 0.0)]))
    other = stream.update(0.6, Detections(["b"], [(9.0, 9.0)]))
    assert not first.warnings, "another sensor at the same time"
    assert not other.warnings, "another sensor at the same time"
    again = stream.update(0.6, Detections(["a"], [(7.0, 0.0)]))
    assert "time did not advance" in warnings(again)


def test_masks_tensors_and_bytes_are_read(stream: StreamingForecaster) -> None:
    """Masked values are missing: no position, or a velocity derived from the positions."""
    drive(stream)
    position = np.ma.masked_equal([[6.0, 0.0], [-999.0, -999.0]], -999.0)
    velocity = np.ma.masked_equal([[-999.0, 0.0], [0.0, 0.0]], -999.0)
    ids: Any = [b"a", torch.tensor(7)]
    found = stream.update(0.6, Detections(ids, position, velocity=velocity, object_type=[b"bus", b"bus"]))
    assert not found.warnings
    assert found.track_id.tolist() == ["a"]
    assert "not finite" in found.not_predicted["7"]
    np.testing.assert_allclose(stream.tracks.velocity[0, -1], [10.0, 0.0], atol=1e-6)
    moved = torch.tensor([[7.0, 0.0]], requires_grad=True)
    found = stream.update(0.7, Detections(["a"], moved))  # type: ignore[arg-type]
    assert not found.warnings
    assert stream.tracks.position[0, -1].tolist() == [7.0, 0.0]


@pytest.mark.parametrize(
    "bad",
    [
        *(None, {}, (["a"], [(6.0, 0.0)]), "a"),
        Detections(["a"], [(1.0, 2.0), (3.0, 4.0)]),
        Detections(["a"], "here"),
        Detections(["a"], [(1.0, 2.0)], velocity=[1.0]),
        Detections(["a"], [(1.0, 2.0)], object_type=["vehicle", "bus"]),
        Detections(None, [(1.0, 2.0)]),  # type: ignore[arg-type]
        Detections("ab", [(1.0, 2.0), (3.0, 4.0)]),
        Detections(["a"], [(1.0, 2.0)], object_type=7),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_detections_or_of_wrong_shape_is_omitted(stream: StreamingForecaster, bad: Any) -> None:
    drive(stream)
    found = stream.update(0.6, bad)
    assert "omitted" in warnings(found)
    assert "a" in found.validate().track_id.tolist()
    assert found.timestamp_s == 0.6


def test_unknown_types_and_numeric_ids(stream: StreamingForecaster) -> None:
    seen: Any = Detections([7, 8], [(0.0, 0.0), (5.0, 0.0)], object_type=["ufo", "bus"])
    found = stream.update(0.0, seen)
    assert "ufo" in warnings(found)
    assert set(found.track_id) == {"7", "8"}
