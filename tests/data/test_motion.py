"""Causal velocities against polyfit and headings against closed forms; slow noise."""

from __future__ import annotations

import numpy as np
import pytest

from trajpred.data import motion
from trajpred.data.geometry import unit_vector, wrap_angle
from trajpred.data.motion import (
    STANDING_SPEED,
    STEP_S,
    causal_heading,
    causal_velocity,
    causal_velocity_of_rows,
    correlated,
    forward_heading,
    heading_known,
    mean_step_s,
)

STEP = 0.1


def random_tracks(seed: int, tracks: int = 6, steps: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Return random walks far from the origin, with gaps, late starts and early ends; NaN where missing."""
    rng = np.random.default_rng(seed)
    position = 1e6 + np.cumsum(rng.normal(size=(tracks, steps, 2)), axis=1)
    valid = rng.random((tracks, steps)) < 0.6
    valid[0], valid[1, : steps // 2], valid[2, steps // 3 :] = True, False, False
    position[~valid] = np.nan
    return position, valid


@pytest.mark.parametrize(("window", "steps"), [(2, 60), (3, 60), (10, 60), (100, 60), (10, 600), (150, 400)])
def test_velocity_is_the_slope_of_a_line_fit(window: int, steps: int) -> None:
    position, valid = random_tracks(0, steps=steps)
    expected = np.zeros_like(position)
    for a, t in np.argwhere(valid):
        used = [s for s in range(max(t - window + 1, 0), t + 1) if valid[a, s]]
        if len(used) > 1:
            moved = position[a, used] - position[a, used[0]]
            expected[a, t] = np.polyfit(np.array(used) - t, moved, 1)[0]
        elif earlier := [s for s in range(t) if valid[a, s]]:
            expected[a, t] = (position[a, t] - position[a, earlier[-1]]) / (t - earlier[-1])
    # A fit covers a second.
    np.testing.assert_allclose(causal_velocity(position, valid, 1 / window) / window, expected, atol=1e-8)


def test_motion_depends_on_no_later_step() -> None:
    for now in (0, 1, 5, 20, 58):
        (position, valid), (other, other_valid) = random_tracks(now), random_tracks(now + 100)
        other[:, : now + 1], other_valid[:, : now + 1] = position[:, : now + 1], valid[:, : now + 1]
        before, after = causal_velocity(position, valid, STEP), causal_velocity(other, other_valid, STEP)
        headings = causal_heading(before, position, valid), causal_heading(after, other, other_valid)
        for one, two in ((before, after), headings):
            assert one[:, : now + 1].tobytes() == two[:, : now + 1].tobytes()


def test_constant_velocity_is_exact_far_away_and_over_long_recordings() -> None:
    for steps, offset in ((110, 1e7), (10_000, 0.0), (100_000, 0.0)):
        position = offset + np.array([12.0, -5.0]) * STEP * np.arange(steps)[:, None]
        velocity = causal_velocity(position[None], np.ones((1, steps), bool), STEP)
        assert np.abs(velocity[0, 1:] - [12.0, -5.0]).max() < 1e-6
    time = np.arange(864_000) * STEP  # a day
    rows = np.stack((8.0 * time, -3.0 * time), -1)
    velocity = causal_velocity_of_rows(np.zeros(len(time), np.int64), time, rows, STEP)
    assert np.abs(velocity[1:] - [8.0, -3.0]).max() < 1e-6


@pytest.mark.parametrize("shape", [(0, 5), (2, 0), (2, 1)])
def test_motion_of_empty_and_single_steps_is_zero(shape: tuple[int, int]) -> None:
    velocity = causal_velocity(np.ones((*shape, 2)), np.ones(shape, bool), STEP)
    heading = causal_heading(velocity, np.ones((*shape, 2)), np.ones(shape, bool))
    assert velocity.shape == (*shape, 2)
    assert not velocity.any()
    assert heading.shape == shape
    assert not heading.any()


def test_headings_before_a_track_has_moved_are_unknown() -> None:
    x = np.array([0, 0.9, 1.1, 5, 5.2, 4.9])
    position = np.stack((x, np.zeros(6)), -1)[None]
    velocity = np.array([[[9, 0], [9, 0], [0, 9], [9, 0], [0.1, 0.1], [-0.1, 0]]], np.float64)
    valid = np.ones((1, 6), bool)
    heading = causal_heading(velocity, position, valid)
    np.testing.assert_allclose(heading[0], [0, 0, np.pi / 2, 0, 0, 0])
    assert heading_known(heading, position, valid)[0].tolist() == [False, False, True, True, True, True]
    assert heading_known(np.full((1, 6), 0.1), position, valid).all(), "a heading that is given"


def test_heading_is_the_direction_of_travel_or_the_last_one() -> None:
    course = np.linspace(0, 12, 200)
    position = np.full((1, 200, 2), 9.0)
    position[0, 0] = 0.0
    heading = causal_heading(5 * unit_vector(course)[None], position, np.ones((1, 200), bool))
    np.testing.assert_allclose(wrap_angle(heading[0, 1:] - course[1:]), 0, atol=1e-12)
    slow = STANDING_SPEED * 0.99
    fast = STANDING_SPEED * 1.01
    velocity = np.array([[[fast, 0], [slow, 0], [0, fast], [-slow, 0], [0, 0], [-fast, 0], [9, 9]]])
    heading = causal_heading(velocity, position[:, :7], np.array([[True] * 6 + [False]]))
    np.testing.assert_allclose(heading, [[0, np.pi / 4, np.pi / 2, np.pi / 2, np.pi / 2, np.pi, np.pi]])


def test_a_track_that_creeps_heads_away_from_its_first_position() -> None:
    """At 0.4 m/s to the north, as in a queue: never above the speed at which the direction is trusted."""
    position = np.zeros((1, 60, 2))
    position[0, :, 1] = 0.04 * np.arange(60)
    valid = np.ones((1, 60), bool)
    heading = causal_heading(causal_velocity(position, valid, STEP), position, valid)
    np.testing.assert_allclose(heading[0], np.where(position[0, :, 1] > 1, np.pi / 2, 0))


def test_the_mean_step_ignores_future_timestamps_but_for_a_single_observed_one() -> None:
    stamps = np.array([0, 200, 400, 900, 5000]) * 10**6
    for observed, step_s in ((1, 1.25), (3, 0.2), (4, 0.3)):
        assert mean_step_s(stamps, observed) == pytest.approx(step_s)
    assert mean_step_s(stamps[:1], 1) == STEP_S


def test_known_headings_are_reversed_while_a_track_moves_backwards() -> None:
    velocity = np.array([[[0.5, 0], [-3, 0], [-0.5, 0], [-9, 0], [0, 9], [2, 0], [0, 0]]], np.float64)
    heading = np.full((1, 7), 0.25)
    known = np.array([[True, True, True, False, True, True, True]])
    expected = [0.25, 0.25 - np.pi, 0.25, 0.25, 0.25, 0.25, 0.25]
    np.testing.assert_allclose(forward_heading(heading, velocity, known)[0], expected, atol=1e-12)


def test_velocities_of_rows_are_those_of_steps() -> None:
    """Rows of tracks with gaps, at regular times: the same fit, and the same difference after a gap."""
    rng = np.random.default_rng(5)
    position = rng.normal(size=(4, 90, 2)).cumsum(axis=1) + 1e5
    valid = rng.random((4, 90)) < 0.8
    valid[2, 20:60] = False
    track, step = np.nonzero(valid)
    for step_s in (0.04, 0.1, 0.4, 1.0):
        expected = causal_velocity(position, valid, step_s)[track, step]
        velocity = causal_velocity_of_rows(track, step * step_s, position[track, step], step_s)
        np.testing.assert_allclose(velocity, expected, atol=1e-6)


def test_velocities_of_days_are_those_of_single_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but a row's window enters its velocity: no hours before it, tracks or blocks."""
    monkeypatch.setattr(motion, "ROWS", 64)
    rng = np.random.default_rng(3)
    times = []
    for start in (0.0, -3e7, 1.7e9, 1.7e9 + 86_400):
        time = start + rng.uniform(0.03, 0.15, 300).cumsum()
        time[150:] += rng.choice([0.0, 40.0, 3e6])
        times.append(time)
    track = np.repeat(np.arange(4), 300)
    time = np.concatenate(times)
    position = rng.normal(0, 2, (1200, 2)).cumsum(axis=0) + 5e6
    position[300:600] += 1e9
    velocity = causal_velocity_of_rows(track, time, position, STEP)
    for row in range(1200):
        used = np.flatnonzero((track[: row + 1] == track[row]) & (time[row] - time[: row + 1] <= 0.95))
        expected = np.zeros(2)
        if len(used) > 1:
            expected = np.polyfit(time[used] - time[row], position[used] - position[row], 1)[0]
        elif row and track[row - 1] == track[row]:
            expected = (position[row] - position[row - 1]) / (time[row] - time[row - 1])
        np.testing.assert_allclose(velocity[row], expected, atol=1e-5)


@pytest.mark.parametrize("step_s", [0.1, 0.5])
def test_slow_noise_is_an_ornstein_uhlenbeck_process(step_s: float) -> None:
    """Its covariance over Δt is exp(-Δt / 1 s), whatever the step."""
    noise = correlated(np.random.default_rng(0).normal(size=(20_000, 12, 2)), step_s)
    for lag in (0, 1, 5, 11):
        covariance = (noise[:, 0] * noise[:, lag]).mean()
        assert covariance == pytest.approx(np.exp(-lag * step_s), abs=0.02)
    assert (noise[..., 0] * noise[..., 1]).mean() == pytest.approx(0, abs=0.02)
