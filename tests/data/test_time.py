"""Timestamps and resampling: lost frames, other units, and motion in closed form on any grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import rejected, rejects
from tests.scenes import EPOCH_NS, SPEED, drive
from trajpred.data.batch import ScenarioBatch
from trajpred.data.forecast import Forecast
from trajpred.data.motion import heading_known
from trajpred.data.resample import resample, resample_forecast, states_at
from trajpred.data.scenario import Scenario
from trajpred.data.time import MAX_LOST, frame_steps, regular_step_s, with_lost_frames
from trajpred.predictors.baselines import constant_velocity

#: Seconds of 50 observed and 60 future frames at 10 Hz.
TIME = np.arange(110) / 10


@pytest.mark.parametrize("count", [1, 3, 10, 25])
@pytest.mark.parametrize(("first", "last"), [(1, 48), (50, 108)], ids=["observed", "future"])
def test_lost_frames_are_steps_without_states(count: int, first: int, last: int) -> None:
    lost = np.random.default_rng(count).choice(np.arange(first, last + 1), count, replace=False)
    seconds = np.delete(TIME, lost)
    found = drive(seconds, int((seconds < 4.95).sum())).validate()
    assert (found.num_observed, found.num_steps) == (50, 110)
    assert found.step_s == pytest.approx(0.1, abs=1e-12)
    assert np.flatnonzero(~found.tracks.valid[0]).tolist() == sorted(lost)
    assert np.array_equal(found.timestamps_ns - EPOCH_NS, np.arange(110) * 100_000_000)
    path = constant_velocity(found).trajectory[0, 0]
    np.testing.assert_allclose(path[:, 0], 3000 + SPEED * TIME[50:], atol=1e-9)
    np.testing.assert_allclose(found.tracks.position[0, :, 0], (3000 + SPEED * TIME) * found.tracks.valid[0])


def test_clocks_that_jitter_lose_no_frame_and_keep_the_stamps_of_those_that_are_there() -> None:
    jitter_s = np.random.default_rng(0).uniform(-0.015, 0.015, 110)
    late = drive(TIME + jitter_s, 50)
    assert (late.num_observed, late.num_steps) == (50, 110)
    assert late.tracks.valid.all()
    seconds = np.delete(TIME + jitter_s, [7, 8, 70])
    found = drive(seconds, 48).validate()
    assert np.flatnonzero(~found.tracks.valid[0]).tolist() == [7, 8, 70]
    assert found.num_observed == 50
    there = found.timestamps_ns[found.tracks.valid[0]]
    assert np.array_equal(there, EPOCH_NS + np.round(seconds * 1e9).astype(np.int64))
    assert (np.diff(found.timestamps_ns) > 0).all()


@pytest.mark.parametrize(
    ("jitter", "lost", "within"), [(0.3, 0.0, 0.03), (0.4, 0.0, 0.07), (0.2, 0.3, 0.1), (0.0, 0.5, 1e-9)]
)
def test_the_step_of_clocks_that_jitter_is_right(jitter: float, lost: float, within: float) -> None:
    """In 19 of 20 recordings of 50 frames, at a share of a step, whatever share of them is lost."""
    random = np.random.default_rng(0)
    errors = []
    for _ in range(100):
        frames = np.flatnonzero(random.random(50) >= lost)
        late = random.uniform(-jitter, jitter, len(frames))
        stamps = np.round((frames + late) * 1e8).astype(np.int64)
        observed = len(stamps)
        step_s = regular_step_s(stamps)
        errors.append(abs(step_s / 0.1 - 1))
        assert (np.diff(frame_steps(stamps, observed)) > 0).all()
        regular = with_lost_frames(stamps, observed)
        steps = observed - 1 if regular is None else len(regular.frame) - 1
        assert step_s == pytest.approx((stamps[-1] - stamps[0]) / 1e9 / steps)
    ends = 2 * jitter / (50 * (1 - lost))
    assert np.quantile(errors, 0.95) <= within + ends


def test_a_future_at_a_slower_rate_has_unknown_steps() -> None:
    """Labels at 2 Hz after a history at 10 Hz."""
    found = drive(np.concatenate((TIME[:50], TIME[54::5])), 50)
    future = np.flatnonzero(found.tracks.valid[0, 50:]) + 1
    assert found.step_s == pytest.approx(0.1)
    assert future.tolist() == list(range(5, 61, 5))


def test_the_future_moves_no_observed_frame() -> None:
    observed = np.delete(np.arange(50), [10, 30]) * 100_000_000
    for ahead in (np.arange(1, 61), np.arange(1, 13) * 5, np.array([1, 2, 40])):
        regular = with_lost_frames(np.concatenate((observed, observed[-1] + ahead * 100_000_000)), 48)
        assert regular.num_observed == 50
        assert np.flatnonzero(regular.frame[:50] < 0).tolist() == [10, 30]


@pytest.mark.parametrize("observed", [1, 3, 5, 6, 20])
def test_a_short_first_interval_makes_no_gaps_of_the_others(observed: int) -> None:
    """However few frames have been observed, as in the first pictures of a film."""
    intervals = np.full(39, 100_000_000)
    intervals[0] = 60_000_000
    assert with_lost_frames(np.append(0, intervals.cumsum()), observed) is None


@pytest.mark.parametrize(
    ("stamps", "words"),
    [
        (EPOCH_NS // 1000 + np.arange(110) * 100_000, "nanoseconds: read as such, frames are 0.0001 s apart"),
        (EPOCH_NS // 10**6 + np.arange(110) * 100, "nanoseconds"),
        (TIME, "nanoseconds as int64, are float64"),
        (np.zeros(110, np.int64), "must increase, in nanoseconds"),
        (TIME.astype("datetime64[s]"), "nanoseconds as int64"),
        (np.linspace(EPOCH_NS, EPOCH_NS + 2**37, 110).astype(np.int64) // 2**35 * 2**35, "must increase"),
        (np.append(TIME[:-1], 1e4) * 1e9, "nanoseconds"),
    ],
)
def test_stamps_that_are_no_nanoseconds_are_described(stamps: np.ndarray, words: str) -> None:
    scenario = replace(drive(TIME, 50), timestamps_ns=stamps)
    assert words in rejected(lambda: scenario.validate(), None, "timestamps_ns").message


def test_recordings_with_long_pauses_or_two_rates_are_described() -> None:
    pause = np.concatenate((TIME[:30], TIME[30:] + 0.1 * (MAX_LOST + 1)))
    rates = np.concatenate((np.arange(10) * 0.5, 4.5 + np.arange(1, 101) * 0.1))
    for seconds, observed, words in ((pause, 50, "cut scenarios at such"), (rates, 10, "the same step")):
        rejects(words, drive(seconds, observed).validate)


def steady(step_s: float, observed: int = 9, future: int = 8, **states: object) -> Scenario:
    """A car at 10 m/s along x that passes the origin at the last observed step, and one that turns left."""
    time = (np.arange(observed + future) - observed + 1) * step_s
    straight = np.stack((10 * time, 0 * time), -1)
    angle = np.pi + 0.5 * time  # passes π, where angles wrap
    turning = 20 * np.stack((np.sin(angle), -np.cos(angle)), -1)
    heading = np.stack((0 * time, (angle + np.pi) % (2 * np.pi) - np.pi))
    velocity = np.stack((np.full_like(straight, [10, 0]), 10 * np.stack((np.cos(angle), np.sin(angle)), -1)))
    paths = np.stack((straight, turning))
    return Scenario.from_arrays(
        paths, num_observed=observed, step_s=step_s, heading=heading, velocity=velocity, **states
    )


@pytest.mark.parametrize("own_s", [0.5, 0.25, 0.1, 0.04, 1 / 30])
@pytest.mark.parametrize("step_s", [0.1, 0.05, 0.3])
def test_steady_motion_is_the_same_on_every_grid(own_s: float, step_s: float) -> None:
    before = steady(own_s, observed=40, future=40)
    found = resample(before, step_s)
    now, tracks = found.num_observed - 1, found.tracks
    time = (np.arange(found.num_steps) - now) * step_s
    assert now == int(39 * own_s / step_s + 0.01)
    assert found.num_steps - now - 1 == int(40 * own_s / step_s + 0.01)
    assert found.step_s == pytest.approx(step_s)
    assert tracks.valid.all()
    assert found.timestamps_ns[now] == before.timestamps_ns[39]
    np.testing.assert_allclose(tracks.position[0], np.stack((10 * time, 0 * time), -1), atol=1e-6)
    angle = np.pi + 0.5 * time
    sagitta = (10 * own_s) ** 2 / (8 * 20)  # of the chord between two states
    circle = 20 * np.stack((np.sin(angle), -np.cos(angle)), -1)
    assert np.abs(tracks.position[1] - circle).max() <= sagitta + 1e-6
    off = np.angle(np.exp(1j * (tracks.heading[1] - angle)))
    assert np.abs(off).max() < 1e-6
    assert np.abs(tracks.heading).max() <= np.pi


def test_a_gap_stays_a_gap_and_its_neighbours_stay_known() -> None:
    valid = np.ones((2, 17), bool)
    valid[1, 4:7] = False  # 1.5 s; the state at 2.0 s before the last observed step is missing first
    found = resample(steady(0.5, valid=valid), 0.1)
    time = (np.arange(found.num_steps) - found.num_observed + 1) * 0.1
    inside = (time > -2.5 + 0.05) & (time < -0.5 - 0.05)
    assert found.tracks.valid[0].all()
    assert np.array_equal(found.tracks.valid[1], ~inside)
    assert not found.tracks.position[1, inside].any()


def test_a_heading_is_interpolated_between_known_ones_only() -> None:
    """A car waits, its heading unknown, and drives off to the north."""
    y = np.array([0.0, 0.0, 0.0, 2.0, 6.0, 10.0])
    position = np.stack((np.zeros(6), y), -1)[None]
    found = resample(Scenario.from_arrays(position, num_observed=6, step_s=0.5), 0.1).tracks
    assert set(found.heading[0].round(6)) == {0.0, round(np.pi / 2, 6)}
    assert heading_known(found.heading, found.position, found.valid)[0, -1]


def test_a_frame_that_was_lost_is_a_gap_for_everyone() -> None:
    before = steady(0.5)
    stamps = before.timestamps_ns.copy()
    stamps[:5] -= 2_000_000_000
    found = resample(replace(before, timestamps_ns=stamps), 0.1)
    time = (np.arange(found.num_steps) - found.num_observed + 1) * 0.1
    assert not found.tracks.valid[:, (time > -3.9) & (time < -1.6)].any()
    assert found.tracks.valid[:, -1].all()


def test_states_between_the_times_of_a_coarser_grid_move_there_at_their_velocity() -> None:
    valid = np.ones((2, 17), bool)
    valid[0] = np.arange(17) == 5  # 0.15 s before the last observed step
    found = resample(steady(0.05, valid=valid), 0.2)
    row = np.flatnonzero(found.tracks.valid[0])
    assert row.tolist() == [found.num_observed - 2, found.num_observed - 1]
    np.testing.assert_allclose(found.tracks.position[0, row, 0], [-2.0, 0.0], atol=1e-9)


@pytest.mark.parametrize(
    ("recorded_ms", "known_ms"),
    [
        ([0, 50, 150, 200], [0, 100, 200]),  # interpolated where one of 20 Hz is missing
        ([0, 150, 200], [0, 100, 200]),  # also 1.5 steps of the model apart
        ([0, 200], [0, 200]),  # a gap stays a gap
        ([0, 125, 325], [0, 100, 200, 300, 400]),  # else the state before counts for less than a step
        ([75, 275], [100, 300]),
        ([140], [100, 200]),  # and the one after for half a step back
    ],
)
@pytest.mark.parametrize("shift_s", [0.0, 1e-6, -1e-6])
def test_the_states_of_a_time_are_a_rule_with_tolerances(
    recorded_ms: list[int], known_ms: list[int], shift_s: float
) -> None:
    time = np.array(recorded_ms) / 1000 + shift_s
    grid = np.arange(5) / 10
    states = np.zeros((5, 1, len(time)))
    states[0], states[2] = 10 * time, 10
    valid = np.ones((1, len(time)), np.bool_)
    found = states_at(states, valid, time, grid, recorded_s=0.05, step_s=0.1)
    assert (np.round(1000 * grid[found["valid"][0]])).tolist() == known_ms
    np.testing.assert_allclose(found["position"][0, :, 0], 10 * grid * found["valid"][0], atol=1e-9)


@pytest.mark.parametrize("window", [(60, 50, 10), (40, 70, -10), (30, 20, 0), (70, 80, 5), (1, 1, 59)])
def test_windows_of_batches_are_those_of_scenarios(window: tuple[int, int, int]) -> None:
    scenario = replace(steady(0.1, observed=50, future=60), continued=20)
    found = ScenarioBatch.of([scenario]).window(*window)
    expected = ScenarioBatch.of([scenario.window(*window)])
    assert (found.num_observed, found.num_future) == window[:2]
    assert (expected.num_observed, expected.num_future) == window[:2]
    for name in ("valid", "position", "heading", "velocity"):
        assert np.array_equal(getattr(found.tracks, name), getattr(expected.tracks, name))


@pytest.mark.parametrize("step_s", [0.0, -0.1, np.inf, np.nan])
def test_a_step_that_is_none_is_rejected(step_s: float) -> None:
    rejects("step_s': must be a positive number of seconds", lambda: resample(steady(0.1), step_s))


@pytest.mark.parametrize(("step_s", "steps"), [(0.5, 4), (0.04, 50), (0.1, 20), (0.25, 8)])
def test_a_forecast_on_another_grid_passes_the_same_places(step_s: float, steps: int) -> None:
    def along(time: np.ndarray) -> np.ndarray:
        return np.stack((time * [[8.0], [-3.0]], time * [[1.0], [0.0]]), -1)[None]

    own = np.arange(1, 21) * 0.1
    origin, scale = np.zeros((1, 2)), np.broadcast_to(own[:, None], (1, 2, 20, 2))
    given = {"origin": origin, "origin_heading": np.zeros(1), "scale": scale}
    names, p = np.array(["a"]), np.array([[0.25, 0.75]])
    before = Forecast.from_trajectories("s", names, along(own), p, step_s=0.1, **given)
    found = resample_forecast(before, 0.1, step_s, steps)
    time = np.arange(1, steps + 1) * step_s
    np.testing.assert_allclose(found.trajectory, along(time), atol=1e-9)
    np.testing.assert_allclose(found.speed[0, 0], np.hypot(8, 1), atol=1e-9)
    np.testing.assert_allclose(found.scale[0, 0, :, 0], np.maximum(time, 0.1), atol=1e-9)
    assert np.array_equal(found.probability, p)


def test_a_window_keeps_recorded_times_and_continues_them() -> None:
    scenario = steady(0.1, observed=9, future=8)
    jitter = np.array([0, 3, -2, 1, 0, -3, 2, 1, 0, 2, 0, 1, -1, 0, 2, 1, 0]) * 1_000_000
    uneven = replace(scenario, timestamps_ns=scenario.timestamps_ns + jitter)
    found = uneven.window(observed=9, future=14, later=-4)
    assert np.array_equal(found.timestamps_ns[4:21], uneven.timestamps_ns)
    assert np.array_equal(np.diff(found.timestamps_ns)[[0, 1, 2, 3, 20, 21]], [100_000_000] * 6)
    assert found.tracks.valid.sum(axis=1).tolist() == [17, 17]
    assert found.num_observed == 9


@pytest.mark.parametrize(("observed", "known"), [(1, 1), (4, 2)])
def test_a_history_shorter_than_a_step_keeps_the_step(observed: int, known: int) -> None:
    """The first of four states, 0.3 s earlier, counts for the time half a second earlier."""
    found = resample(steady(0.1, observed=observed, future=0), 0.5)
    assert found.step_s == pytest.approx(0.5)
    assert found.num_steps == found.num_observed
    assert found.tracks.valid.sum(axis=1).tolist() == [known, known]


def test_what_is_recorded_later_does_not_change_the_history() -> None:
    """A state 0.04 s after the last observed step is near to it on a grid of 0.1 s, and yet unknown then."""
    valid = np.ones((2, 80), bool)
    valid[1, :40] = False
    seen = resample(steady(0.04, observed=40, future=40, valid=valid), 0.1)
    now = seen.num_observed - 1
    assert not seen.tracks.valid[1, : now + 1].any()
    assert seen.tracks.valid[1, now + 1 :].all()


@pytest.mark.parametrize(("step_s", "continued"), [(0.2, 3), (0.05, 12)])
def test_continued_steps_are_those_after_the_last_recorded_one(step_s: float, continued: int) -> None:
    scenario = replace(steady(0.1, observed=9, future=12), continued=6)
    assert resample(scenario, step_s).continued == continued
