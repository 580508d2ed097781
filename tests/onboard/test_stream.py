"""Streaming is at every step what the model says of that moment; bad input gives a forecast or a reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.onboard.streams import moment
from tests.onboard.test_lane_cache import bent, damaged_maps
from trajpred.lane_map import LaneMap
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.onboard.replay import detections
from trajpred.onboard.stream import FASTEST, Detections, OnboardForecast, StreamingForecaster
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.scenario import Scenario

STEP = 0.1


@pytest.fixture
def stream(forecaster: OnboardForecaster, scenes: list[Scenario]) -> StreamingForecaster:
    """With the map of the smallest scene."""
    return StreamingForecaster(forecaster, scenes[0].map)


def drive(stream: StreamingForecaster, steps: int = 6, **more: tuple[float, float]) -> OnboardForecast:
    """Some steps of one car at 10 m/s, ``a``, and of whoever stands at ``more``."""
    for step in range(steps):
        found = stream.update(step * STEP, Detections(["a", *more], [(step, 0.0), *more.values()]))
    return found


def told(found: OnboardForecast) -> str:
    return "; ".join(found.warnings)


@pytest.mark.parametrize("row", [0, 2])
def test_every_step_is_what_the_model_says_of_that_moment(
    forecaster: OnboardForecaster, predictor: CheckpointPredictor, scenes: list[Scenario], row: int
) -> None:
    """In PyTorch, from windows cut out of the scenario; also past the end of the first history."""
    scenario = scenes[row]
    stream = StreamingForecaster(forecaster, scenario.map)
    last = int(np.flatnonzero(scenario.tracks.valid.any(axis=0))[-1])
    for step in range(min(last, scenario.num_observed + 5) + 1):
        found = stream.update(scenario.timestamps_ns[step] / 1e9, detections(scenario, step))
        assert not found.warnings
        if step % 3 and step not in (1, 2, 50):
            continue
        [expected] = predictor([moment(scenario, step)])
        rows = expected.rows(found.track_id)
        assert len(rows) == len(expected.track_id) and (rows >= 0).all()
        np.testing.assert_allclose(found.trajectory, expected.trajectory[rows], rtol=0, atol=1e-2)
        np.testing.assert_allclose(found.probability, expected.probability[rows], rtol=0, atol=1e-3)
    lanes = len(scenario.map) + len(scenario.map.crossing_id)
    assert 0 < forecaster.lanes.encoded <= lanes, "every lane once over the whole drive"


def test_two_updates_in_one_step_are_one(stream: StreamingForecaster) -> None:
    drive(stream)
    first = stream.update(0.6, Detections(["a"], [(6.0, 0.0)]))
    again = stream.update(0.61, Detections(["a"], [(6.0, 0.0)]))
    np.testing.assert_array_equal(first.trajectory, again.trajectory)
    assert stream.history.tracks().valid.sum() == 7


def test_targets(stream: StreamingForecaster) -> None:
    every = drive(stream, b=(5.0, 5.0))
    found = stream.update(0.5, Detections(["a"], [(5.0, 0.0)]), targets=["b", "who"])
    assert found.track_id.tolist() == ["b"] and set(found.not_predicted) == {"who"}
    np.testing.assert_allclose(
        found.trajectory[0], every.trajectory[every.rows(np.array(["b"]))[0]], atol=1e-4
    )


def test_nobody(stream: StreamingForecaster) -> None:
    found = stream.update(0.0, Detections([], []))
    assert found.trajectory.shape == (0, 6, 60, 2) and not found.not_predicted and not found.warnings


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, 1e9])
def test_a_position_that_cannot_be(stream: StreamingForecaster, value: float) -> None:
    """Who was seen before is predicted from there, who is new is told."""
    before = drive(stream)
    found = stream.update(0.6, Detections(["a", "b", "c"], [(value, 0.0), (0.0, value), (3.0, 1.0)]))
    assert set(found.validate().track_id) == {"a", "c"}
    assert list(found.not_predicted) == ["b"] and "not finite" in found.not_predicted["b"]
    start = found.trajectory[found.rows(np.array(["a"]))[0], :, 0]
    assert np.abs(start - before.trajectory[0, :, 0]).max() < 10


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300, -1e300, 1e12])
def test_heading_and_velocity_that_cannot_be(stream: StreamingForecaster, value: float) -> None:
    """They are taken from the positions, as where they are not given at all."""
    drive(stream)
    found = stream.update(0.6, Detections(["a"], [(6.0, 0.0)], velocity=[(value, 1.0)]))
    tracks = stream.history.tracks()
    np.testing.assert_allclose(tracks.velocity[0, -1], [10.0, 0.0], atol=1e-6)
    found = stream.update(0.7, Detections(["a"], [(7.0, 0.0)], heading=[value]))
    assert found.validate().track_id.tolist() == ["a"]
    assert abs(stream.history.tracks().heading[0, -1]) <= np.pi


def test_the_same_id_twice(stream: StreamingForecaster) -> None:
    places = [(0.0, 0.0), (np.nan, 0.0), (50.0, 0.0), (7.0, 7.0)]
    found = stream.update(0.0, Detections(["a", "b", "a", "b"], places))
    assert "twice" in told(found) and "a, b" in told(found) and not found.not_predicted
    tracks = stream.history.tracks()
    assert dict(zip(tracks.track_id, tracks.position[:, -1].tolist(), strict=True)) == {
        "a": [0, 0],
        "b": [7, 7],
    }


@pytest.mark.parametrize("back_s", [0.01, 0.3, 4.0])
def test_time_going_back(stream: StreamingForecaster, back_s: float) -> None:
    before = drive(stream, steps=50)
    found = stream.update(4.9 - back_s, Detections(["a"], [(0.0, 30.0)]))
    assert "time went back" in told(found) and found.timestamp_s == 49 * STEP
    np.testing.assert_array_equal(found.trajectory, before.trajectory)


@pytest.mark.parametrize("time_s", [-1e3, 1e3, 1e300, -1e300, 5.2])
def test_a_jump_of_time_starts_anew(stream: StreamingForecaster, time_s: float) -> None:
    drive(stream, steps=3)
    found = stream.update(time_s, Detections(["b"], [(1.0, 1.0)]))
    assert found.track_id.tolist() == ["b"] and "start anew" in told(found) and len(stream.history) == 1


@pytest.mark.parametrize("time_s", [np.nan, np.inf, -np.inf])
def test_what_is_no_time(stream: StreamingForecaster, time_s: float) -> None:
    assert "is no time" in told(stream.update(time_s, Detections(["a"], [(0.0, 0.0)])))
    before = drive(stream)
    found = stream.update(time_s, Detections(["a"], [(6.0, 0.0)]))
    assert "is no time" in told(found)
    np.testing.assert_array_equal(found.trajectory, before.trajectory)


def test_who_is_not_seen_is_remembered_for_a_second(stream: StreamingForecaster) -> None:
    drive(stream, b=(4.0, 4.0))
    for step in range(6, 30):
        found = stream.update(step * STEP, Detections(["a"], [(step, 0.0)]))
        assert ("b" in found.track_id) == (step <= 15)
        assert list(found.not_predicted) == ([] if step <= 15 else ["b"])
    assert found.not_predicted["b"] == "not seen for 2.4 s"


def test_a_gap_in_everything(stream: StreamingForecaster) -> None:
    """Nobody is predicted from what is older than the model's memory, not even the ego."""
    stream.ego_id = "a"
    drive(stream)
    assert stream.update(1.4, Detections([], [])).track_id.tolist() == ["a"]
    found = stream.update(3.0, Detections([], []))
    assert len(found.track_id) == 0 and found.not_predicted == {"a": "not seen for 2.5 s"}


def test_an_agent_that_teleports(stream: StreamingForecaster) -> None:
    drive(stream, b=(4.0, 4.0))
    found = stream.update(0.6, Detections(["a", "b"], [(900.0, 0.0), (4.0, 4.0)]))
    assert "track a jumped" in told(found) and set(found.validate().track_id) == {"a", "b"}
    tracks = stream.history.tracks()
    assert tracks.valid.sum(axis=1)[tracks.track_id == "a"] == 1
    row = found.rows(np.array(["a"]))[0]
    assert np.abs(found.trajectory[row, :, 0] - [900.0, 0.0]).max() < 2 * FASTEST * STEP


@pytest.mark.parametrize(
    "bad",
    [
        Detections(["a"], [(1.0, 2.0), (3.0, 4.0)]),
        Detections(["a"], [[1.0, 2.0, 3.0]]),
        Detections(["a"], "here"),
        Detections(["a", "b"], [[1.0], [1.0, 2.0]]),  # type: ignore[list-item]
        Detections(["a"], [(1.0, 2.0)], heading=[1.0, 2.0]),
        Detections(["a"], [(1.0, 2.0)], velocity=[1.0]),
        Detections(["a"], [(1.0, 2.0)], object_type=["vehicle", "bus"]),
        Detections(None, [(1.0, 2.0)]),  # type: ignore[arg-type]
        Detections(["a"], [(1.0, 2.0)], object_type=7),  # type: ignore[arg-type]
    ],
)
def test_detections_that_do_not_fit_are_left_out(stream: StreamingForecaster, bad: Detections) -> None:
    drive(stream)
    found = stream.update(0.6, bad)
    assert "left out" in told(found) and found.validate().track_id.tolist() == ["a"]


def test_unknown_types_and_ids_that_are_no_text(stream: StreamingForecaster) -> None:
    seen: Any = Detections([7, 8], [(0.0, 0.0), (5.0, 0.0)], object_type=["ufo", "bus"])
    found = stream.update(0.0, seen)
    assert "ufo" in told(found) and set(found.track_id) == {"7", "8"}


def test_no_map_another_tile_and_a_damaged_one(forecaster: OnboardForecaster, scenes: list[Scenario]) -> None:
    scenario = scenes[0]
    stream = StreamingForecaster(forecaster)
    times, seen = scenario.timestamps_ns / 1e9, [detections(scenario, step) for step in range(50)]
    without = stream.update(times[0], seen[0]).validate()
    assert len(without.track_id) and forecaster.lanes.encoded == 0
    stream.set_map(scenario.map)
    with_map = stream.update(times[1], seen[1])
    known = forecaster.lanes.encoded
    assert known > 0 and not with_map.warnings
    stream.set_map(replace(scenario.map, lane_id=scenario.map.lane_id[:-1]))
    found = stream.update(times[2], seen[2]).validate()
    assert "map not taken" in told(found) and stream.map is scenario.map
    stream.set_map(bent(scenario.map, 0))
    found = stream.update(times[3], seen[3]).validate()
    assert not found.warnings and forecaster.lanes.encoded <= known + 2
    stream.set_map(LaneMap())
    assert len(stream.update(times[4], seen[4]).validate().track_id)


@pytest.mark.parametrize("which", ["is_intersection", "centerline", "predecessors", "columns"])
def test_a_damaged_map_costs_no_forecast(stream: StreamingForecaster, which: str) -> None:
    good, bad = stream.map, damaged_maps(stream.map)[which]
    centre = good.centerline.values[0, :2]
    for step in range(3):
        stream.set_map(bad)
        found = stream.update(step * STEP, Detections(["a"], [centre])).validate()
        assert "map not taken" in told(found) and stream.map is good
        assert found.track_id.tolist() == ["a"]


def test_a_forecast_that_fails_is_told_of(
    stream: StreamingForecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of everyone who would have had futures; the next update is as before."""

    def fails(*_: object) -> None:
        raise RuntimeError("no memory left")

    before = drive(stream, b=(4.0, 4.0))
    with monkeypatch.context() as broken:
        broken.setattr(stream.forecaster, "run", fails)
        found = stream.update(0.5, Detections(["a", "b"], [(5.0, 0.0), (4.0, 4.0)])).validate()
        asked = stream.update(0.5, Detections([], []), targets=["b"])
    assert not len(found.track_id) and "no memory left" in told(found)
    assert set(found.not_predicted) == {"a", "b"} and "failed" in found.not_predicted["a"]
    assert list(asked.not_predicted) == ["b"] and "failed" in asked.not_predicted["b"]
    again = stream.update(0.5, Detections([], []))
    np.testing.assert_array_equal(again.trajectory, before.trajectory)


@pytest.mark.parametrize(
    ("time_s", "position"),
    [(0.45, [(1.0, 1.0)]), (np.nan, [(1.0, 1.0)]), (0.6, [1.0, 2.0, 3.0])],
    ids=["time back", "no time", "shape"],
)
def test_who_is_new_in_an_update_that_is_left_out(
    stream: StreamingForecaster, time_s: float, position: Any
) -> None:
    drive(stream)
    found = stream.update(time_s, Detections(["new"], position))
    assert found.track_id.tolist() == ["a"]
    assert found.not_predicted == {"new": "its update was left out"}


def test_more_agents_than_the_bundle_takes(stream: StreamingForecaster) -> None:
    most, count = stream.forecaster.bundle.features.max_agents, 150
    places = np.stack((3.0 * np.arange(count), np.zeros(count)), -1)
    names = [f"t{i}" for i in range(count)]
    for step in range(2):
        found = stream.update(step * STEP, Detections(names, places + np.array([step, 0.0]))).validate()
    assert set(found.track_id) == set(names[:most]), "the nearest to the first one"
    assert set(found.not_predicted) == set(names[most:])
    assert all("nearest" in why for why in found.not_predicted.values())
    stream.ego_id = names[-1]
    found = stream.update(0.2, Detections(names, places + np.array([2.0, 0.0])))
    assert set(found.track_id) == set(names[count - most :]), "the nearest to the ego"


NUMBER = st.one_of(
    st.floats(-60, 60), st.sampled_from([np.nan, np.inf, -np.inf, 1e300, 1e9, 1e6, 0.0, -1e-300])
)
ONE = st.tuples(st.sampled_from("abcdef"), NUMBER, NUMBER, NUMBER, NUMBER)
UPDATE = st.tuples(
    st.one_of(st.floats(0.0, 0.3), st.sampled_from([-0.2, -9.0, 1.2, 4.95, 5.0, 70.0, np.nan, np.inf])),
    st.lists(ONE, max_size=6),
    st.sampled_from(["same", "none", "good", "damaged", "is_intersection", "centerline"]),
)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(updates=st.lists(UPDATE, min_size=1, max_size=8))
def test_whatever_comes(
    updates: list[tuple[float, list[tuple[str, float, float, float, float]], str]],
    bundle_forecaster: OnboardForecaster,
    scenes: list[Scenario],
) -> None:
    """Never an error; valid futures; everyone who was detected lately has futures or a reason, never both."""
    good, now = scenes[0].map, 0.0
    maps = {"none": LaneMap(), "good": good, "damaged": replace(good, lane_id=good.lane_id[1:])}
    maps |= damaged_maps(good)
    stream = StreamingForecaster(bundle_forecaster)
    center = good.centerline.values[:, :2].mean(axis=0)
    for passed, seen, which in updates:
        if which in maps:
            stream.set_map(maps[which])
        names = [one[0] for one in seen]
        place = np.array([one[1:3] for one in seen]).reshape(-1, 2) + center
        heading, speed = ([one[i] for one in seen] for i in (3, 4))
        now += passed if np.isfinite(passed) else 0.0
        time_s = now if np.isfinite(passed) else passed
        velocity = np.stack((speed, heading), -1) if seen else None
        found = stream.update(time_s, Detections(names, place, heading, velocity)).validate()
        predicted, reasons = set(found.track_id.tolist()), set(found.not_predicted)
        assert not predicted & reasons
        assert predicted | reasons >= set(stream.history.track_id.tolist())
        assert predicted | reasons >= set(names)
