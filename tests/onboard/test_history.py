"""Histories of tracks against a dictionary of detections, and the time grid under jittering clocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from trajpred.data.scenario import Scenario
from trajpred.onboard.history import HistoryTable, States, TimeGrid

LENGTH, STEP, UNIX_S = 6, 0.1, 1.7e9


def add(table: HistoryTable, positions: dict[str, tuple[float, float]]) -> list[str]:
    N = len(positions)
    position = np.array(list(positions.values())).reshape(N, 2)
    states = States(
        np.array(list(positions), np.str_), position, np.full((N, 3), np.nan), np.zeros(N, np.int8)
    )
    return table.add(states, max_speed=100.0, max_jump_m=5.0)


def test_table_holds_the_detections_of_the_last_steps() -> None:
    random, table, now = np.random.default_rng(0), HistoryTable(LENGTH, STEP, 100), 0
    log: dict[tuple[str, int], tuple[float, float]] = {}
    for _ in range(60):
        passed = int(random.integers(0, 4))
        now += passed
        table.advance(passed)
        positions = {f"t{i}": tuple(random.normal(0, 1, 2)) for i in range(5) if random.random() < 0.4}
        assert add(table, positions) == []
        log |= {(name, now): position for name, position in positions.items()}
        expected = {(name, step): x for (name, step), x in log.items() if step > now - LENGTH}
        assert set(table.track_id) == {name for name, _ in expected}
        if not len(table):
            continue
        tracks = table.tracks()
        tracks.validate()
        found = {
            (str(tracks.track_id[row]), now - LENGTH + 1 + column): tuple(tracks.position[row, column])
            for row, column in np.argwhere(tracks.valid)
        }
        assert found == expected
        since = dict(zip(table.track_id, table.steps_since_seen(), strict=True))
        latest: dict[str, int] = {}
        for name, step in expected:
            latest[name] = max(step, latest.get(name, step))
        assert since == {name: now - latest[name] for name in since}


@pytest.mark.parametrize(("steps", "limit_m"), [(0, 15.0), (1, 15.0), (3, 35.0)])
def test_history_is_dropped_after_a_jump(steps: int, limit_m: float) -> None:
    """The limit is 5 m plus the distance at 100 m/s, over at least one step."""
    table = HistoryTable(LENGTH, STEP, 100)
    add(table, {"near": (0, 0), "far": (0, 0)})
    table.advance(1)
    add(table, {"near": (1, 0), "far": (1, 0)})
    table.advance(steps)
    assert add(table, {"near": (1 + limit_m - 0.1, 0), "far": (1 + limit_m + 0.1, 0)}) == ["far"]
    valid = table.tracks().valid
    assert valid[:, -1].all()
    assert valid[0, :-1].any()
    assert not valid[1, :-1].any()


def test_missing_motion_is_that_of_a_scenario_without_it() -> None:
    """Also for a track that stood through the whole history."""
    table, positions = HistoryTable(LENGTH, STEP, 100), [(0.0, 1.2 * min(step, 3)) for step in range(20)]
    for now, position in enumerate(positions):
        table.advance(1)
        add(table, {"a": position})
        window = np.array(positions[max(0, now + 1 - LENGTH) : now + 1])
        expected = Scenario.from_arrays(window[None], num_observed=len(window)).tracks
        for name in ("heading", "velocity"):
            found = getattr(table.tracks(), name)[:, -len(window) :]
            np.testing.assert_allclose(found, getattr(expected, name), atol=1e-9)
        if now == 3:
            np.testing.assert_allclose(table.tracks().velocity[0, -1], [0, 12.0])
    assert table.tracks().heading[0, -1] == 0


def steps(times_s: Sequence[float] | np.ndarray) -> list[int]:
    """Count the steps from each update to the next."""
    grid = TimeGrid(STEP)
    grid.start(float(times_s[0]))
    return [grid.advance(float(time_s)) for time_s in times_s[1:]]


def test_grid_counts_gaps_on_an_exact_clock() -> None:
    assert steps(UNIX_S + STEP * np.arange(2000)) == [1] * 1999
    assert steps(STEP * np.array([0, 1, 4, 4, 5, 30])) == [1, 3, 0, 1, 25]


def test_tracks_beyond_the_limit_are_forgotten_from_the_oldest() -> None:
    table = HistoryTable(LENGTH, STEP, 3)
    for name in "abcab":
        add(table, {name: (0, 0)})
        table.advance(1)
    add(table, {"d": (0, 0), "e": (0, 0)})
    assert table.track_id.tolist() == ["b", "d", "e"]
    assert table.steps_since_seen().tolist() == [1, 0, 0]


def measured(intervals_s: Sequence[float] | np.ndarray) -> float:
    """Return the seconds between steps that a grid measures from these intervals between updates."""
    grid = TimeGrid(STEP)
    grid.start(UNIX_S)
    for time_s in UNIX_S + np.cumsum(intervals_s):
        grid.advance(float(time_s))
    return grid.measured_step_s


def test_the_step_of_regular_updates_is_measured() -> None:
    """As the mean of a recording's intervals; jitter leaves the model's."""
    regular = np.full(49, 0.1000019)
    assert measured([]) == measured(0.1 + np.random.default_rng(0).normal(0, 0.004, 49)) == STEP
    assert measured(regular) == pytest.approx(0.1000019, abs=1e-8)
    assert measured([*regular[:20], 0.3000057, *regular[:20]]) == pytest.approx(0.1000019, abs=1e-8)
    assert measured([*regular, 0.104]) == STEP
    assert measured([0.13, 0.07, *regular]) == pytest.approx(0.1000019, abs=1e-8)


@pytest.mark.parametrize("offset", [0.0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("rate", [9.8, 10.0, 10.2])
def test_grid_follows_a_jittering_clock(offset: float, rate: float) -> None:
    """With 4 ms of jitter and a first update ``offset`` steps early, no step is skipped or repeated."""
    times_s = UNIX_S + np.arange(1000) / rate
    times_s += np.random.default_rng(0).normal(0, 0.004, 1000) if rate == 10 else 0
    times_s[0] -= offset * STEP
    found = steps(np.sort(times_s))
    assert found[20:] == [1] * len(found[20:])


@pytest.mark.parametrize(("rate", "counts"), [(20.0, {0, 1}), (40.0, {0, 1}), (5.0, {2}), (7.0, {1, 2})])
def test_grid_keeps_time_at_other_rates(rate: float, counts: set[int]) -> None:
    times_s = np.arange(2000) / rate
    found = np.array(steps(times_s + np.random.default_rng(0).normal(0, 0.002, 2000)))
    assert set(found.tolist()) <= counts
    np.testing.assert_allclose(np.cumsum(found), times_s[1:] / STEP, atol=1.5)
    if rate == 20.0:
        assert set((found[20:-1] + found[21:]).tolist()) == {1}, "two updates per step"
