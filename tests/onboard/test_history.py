"""Histories of tracks are those of the scenario that was recorded until then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trajpred.data.resample import resample
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES, Tracks
from trajpred.onboard.history import HistoryTable, States

LENGTH, STEP, START_S = 30, 0.1, 1000.0


def states_of(positions: dict[str, tuple[float, float]], motion: np.ndarray | None = None) -> States:
    """Return the detections at one time; ``motion``: ``[N, 3]`` headings, velocities, or unknown."""
    N = len(positions)
    if motion is None:
        motion = np.full((N, 3), np.nan)
    position = np.array(list(positions.values())).reshape(N, 2)
    names = np.array(list(positions), np.str_)
    return States(names, position, motion[:, 0], motion[:, 1:], np.zeros(N, np.int8))


def add(table: HistoryTable, time_s: float, states: States) -> list[str]:
    table.advance(time_s)
    return table.add(time_s, states, max_speed=100.0, max_jump_m=5.0)


def assert_same_history(found: Tracks, recorded: Scenario) -> None:
    """The last steps of both are the same; a table has forgotten tracks that have none there."""
    expected = resample(recorded, STEP).tracks
    steps = min(LENGTH, expected.valid.shape[1])
    expected = expected.window(expected.valid.shape[1] - steps, steps)
    assert found.valid.shape[1] == steps
    seen = found.track_id[found.valid.any(axis=1)]
    assert set(seen) == set(expected.track_id[expected.valid.any(axis=1)])
    for name in seen:
        a, b = found.index(name), expected.index(name)
        assert np.array_equal(found.valid[a], expected.valid[b])
        np.testing.assert_allclose(found.position[a], expected.position[b], atol=1e-5)
        np.testing.assert_allclose(found.velocity[a], expected.velocity[b], atol=1e-5)
        np.testing.assert_allclose(found.heading[a], expected.heading[b], atol=1e-5)


@pytest.mark.parametrize("rate", [1, 4, 10, 50])
def test_histories_are_those_of_the_resampled_scenario(rate: int) -> None:
    """On a jittering clock, with tracks that come and go; what is older than the history is cut."""
    random = np.random.default_rng(0)
    names, count = [f"t{i}" for i in range(5)], 6 * rate
    seconds = np.cumsum(random.uniform(0.8, 1.2, count)) / rate
    valid = random.random((5, count)) < 0.6
    valid[0] = True
    position = np.cumsum(random.normal(0, 2 / rate, (5, count, 2)), axis=1)
    heading = random.uniform(-3, 3, (5, count))
    velocity = random.normal(0, 5, (5, count, 2))
    motion = np.concatenate((heading[..., None], velocity), -1)
    table = HistoryTable(LENGTH, STEP, 100)
    for now in range(count):
        rows = np.flatnonzero(valid[:, now])
        positions = {names[row]: tuple(position[row, now]) for row in rows}
        assert add(table, START_S + seconds[now], states_of(positions, motion[rows, now])) == []
        if now < 2 or now % max(1, rate // 2):
            continue
        until = slice(0, now + 1)
        mask = valid[:, until]
        states = {"heading": heading[:, until] * mask, "velocity": velocity[:, until] * mask[..., None]}
        recorded = Scenario.from_arrays(
            position[:, until], num_observed=now + 1, valid=mask, track_id=names, **states
        )
        stamps_ns = np.round(seconds[until] * 1e9).astype(np.int64)
        recorded = replace(recorded, timestamps_ns=stamps_ns)
        assert_same_history(table.resampled(START_S + seconds[now], table.memory_s), recorded)


@pytest.mark.parametrize("rate", [1, 3, 10, 25, 50])
def test_missing_motion_is_that_of_a_scenario_without_it(rate: int) -> None:
    """Of a car that comes to a halt, one that creeps, and one that stands, also longer than the history."""
    time = np.arange(9 * rate) / rate
    x = np.minimum(time, 4.0)
    driving = np.stack((8 * x - x**2, 0.05 * x**3), -1)
    creeping = np.stack((0 * time, -0.3 * time), -1)
    standing = np.stack((0.2 * np.sin(9 * time), 0 * time), -1)
    position = np.stack((driving, creeping, standing))
    table = HistoryTable(LENGTH, STEP, 100)
    for now in range(len(time)):
        positions = {name: tuple(position[row, now]) for row, name in enumerate("abc")}
        assert add(table, time[now], states_of(positions)) == []
        if now and now % max(1, rate // 2) == 0:
            names = list("abc")
            recorded = Scenario.from_arrays(
                position[:, : now + 1], num_observed=now + 1, step_s=1 / rate, track_id=names
            )
            assert_same_history(table.resampled(time[now], table.memory_s), recorded)
    final = table.resampled(time[-1], table.memory_s)
    assert final.heading[0, -1] > 0.5
    assert final.heading[1, -1] == pytest.approx(-np.pi / 2)
    assert final.heading[2, -1] == 0


@pytest.mark.parametrize(("steps", "limit_m"), [(0, 15.0), (1, 15.0), (3, 35.0)])
def test_history_is_dropped_after_a_jump(steps: int, limit_m: float) -> None:
    """The limit is 5 m plus the distance at 100 m/s since the update before."""
    table = HistoryTable(LENGTH, STEP, 100)
    add(table, 0.0, states_of({"near": (1, 0), "far": (1, 0)}))
    if steps != 1:
        add(table, 0.1, states_of({"near": (1, 0), "far": (1, 0)}))
    now_s = 0.1 if steps < 2 else 0.1 + steps * STEP
    jumped = add(table, now_s, states_of({"near": (limit_m + 0.9, 0), "far": (limit_m + 1.1, 0)}))
    assert jumped == ["far"]
    valid = table.resampled(now_s, 1.0).valid
    assert valid[:, -1].all()
    assert valid[0, :-1].any()
    assert not valid[1, :-1].any()


def test_derived_velocities_are_those_of_road_users() -> None:
    """A detection that is 3 m off, 20 ms after the first, is no speed of 150 m/s."""
    table = HistoryTable(LENGTH, STEP, 100)
    add(table, 0.0, states_of({"a": (0, 0)}))
    add(table, 0.02, states_of({"a": (3, 0)}))
    assert not table.resampled(0.02, 1.0).velocity.any()


def test_tracks_beyond_the_limit_are_forgotten_from_the_oldest() -> None:
    table = HistoryTable(LENGTH, STEP, 3)
    for step, name in enumerate("abcab"):
        add(table, step * STEP, states_of({name: (0, 0)}))
    add(table, 0.5, states_of({"d": (0, 0), "e": (0, 0)}))
    assert table.track_id.tolist() == ["b", "d", "e"]
    np.testing.assert_allclose(table.last_seen_s(), [0.4, 0.5, 0.5])


@pytest.mark.parametrize(("rate", "updates"), [(1, 4), (50, 152), (5000, 602)])
def test_memory_is_bounded_at_any_rate(rate: int, updates: int) -> None:
    """A history of 3 s, and the update before; those that come within 5 ms of each other are one."""
    table = HistoryTable(LENGTH, STEP, 100)
    for step in range(5 * rate):
        add(table, step / rate, states_of({"a": (0, 0)}))
        assert table._states.shape[2] <= updates
    assert table._states.shape[2] > 0.9 * updates - 1


@pytest.mark.parametrize(
    ("detected", "expected"),
    [
        ("pedestrian bus bus", "bus"),
        ("unknown unknown bus", "bus"),
        ("bus bus pedestrian", "bus"),
        ("cyclist pedestrian", "pedestrian"),
        ("unknown", "unknown"),
        ("bus " * 40 + "vehicle " * 20, "vehicle"),  # of 3 s, the first of equally frequent ones
    ],
)
def test_types_are_the_most_frequent_known_ones_of_the_history(detected: str, expected: str) -> None:
    table = HistoryTable(LENGTH, STEP, 100)
    for step, name in enumerate(detected.split()):
        object_type = np.array([OBJECT_TYPES.index(name)], np.int8)
        add(table, step * STEP, states_of({"a": (0, 0)})._replace(object_type=object_type))
    [found] = table.resampled(step * STEP, 1.0).object_type
    assert OBJECT_TYPES[found] == expected
