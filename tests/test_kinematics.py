"""Causal motion: against np.polyfit and closed forms, and blind to the future bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from trajpred.geometry import STANDING_SPEED, causal_heading, causal_velocity, unit_vector, wrap_angle

STEP = 0.1


def wandering(seed: int, tracks: int = 6, steps: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Random walks far from the origin, with gaps, late starts and early ends; NaN where missing."""
    rng = np.random.default_rng(seed)
    position = 1e6 + np.cumsum(rng.normal(size=(tracks, steps, 2)), axis=1)
    valid = rng.random((tracks, steps)) < 0.6
    valid[0], valid[1, : steps // 2], valid[2, steps // 3 :] = True, False, False
    position[~valid] = np.nan
    return position, valid


def reference_velocity(position: np.ndarray, valid: np.ndarray, window: int) -> np.ndarray:
    """Line fits one by one."""
    velocity = np.zeros_like(position)
    for a, t in np.argwhere(valid):
        used = [s for s in range(max(t - window + 1, 0), t + 1) if valid[a, s]]
        if len(used) > 1:
            xy = position[a, used] - position[a, used[0]]
            velocity[a, t] = np.polyfit(STEP * (np.array(used) - t), xy, 1)[0]
    return velocity


def kinematics(position: np.ndarray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    velocity = causal_velocity(position, valid, STEP)
    return velocity, causal_heading(velocity, valid)


@pytest.mark.parametrize("window", [2, 3, 10, 60, 100])
@pytest.mark.parametrize("seed", [0, 1])
def test_velocity_is_the_slope_of_the_line_fit_over_the_window(seed: int, window: int) -> None:
    position, valid = wandering(seed)
    found = causal_velocity(position, valid, STEP, window)
    np.testing.assert_allclose(found, reference_velocity(position, valid, window), atol=1e-7)


@pytest.mark.parametrize("now", [0, 1, 5, 20, 58])
@pytest.mark.parametrize("seed", range(3))
def test_the_future_does_not_change_a_bit_of_the_past(seed: int, now: int) -> None:
    position, valid = wandering(seed)
    other_position, other_valid = wandering(seed + 100)
    other_position[:, : now + 1], other_valid[:, : now + 1] = position[:, : now + 1], valid[:, : now + 1]
    for before, after in zip(
        kinematics(position, valid), kinematics(other_position, other_valid), strict=True
    ):
        assert before[:, : now + 1].tobytes() == after[:, : now + 1].tobytes()


def test_the_present_does_change_the_velocity() -> None:
    position, valid = wandering(0)
    moved = position.copy()
    moved[0, 20] += 1
    assert (causal_velocity(moved, valid, STEP)[0, 20] != causal_velocity(position, valid, STEP)[0, 20]).all()


@pytest.mark.parametrize("window", [2, 10])
def test_constant_velocity_is_found_at_every_step_far_from_the_origin(window: int) -> None:
    true = np.array([[12.0, -5.0], [0.6, 0.0], [0.0, 0.0]])
    valid = np.ones((3, 110), bool)
    valid[:, [0, 7, 8, 30]] = False
    position = 1e7 + true[:, None] * STEP * np.arange(110)[:, None]
    velocity = causal_velocity(position, valid, STEP, window)
    pairs = valid & np.roll(valid, 1, axis=1)  # where even a window of two holds two states
    pairs[:, 1] = False
    np.testing.assert_allclose(
        velocity[pairs], np.broadcast_to(true[:, None], velocity.shape)[pairs], atol=1e-6
    )


def test_long_recordings_lose_no_precision() -> None:
    steps = np.arange(10_000) * STEP
    position = np.stack((20 * steps, -3 * steps), -1)[None]
    velocity = causal_velocity(position, np.ones((1, 10_000), bool), STEP)
    np.testing.assert_allclose(velocity[0, 1:], np.broadcast_to([20.0, -3.0], (9_999, 2)), atol=1e-3)


def test_fewer_than_two_states_in_the_window_give_zero() -> None:
    position = np.arange(80.0).reshape(1, 40, 2)
    valid = np.zeros((1, 40), bool)
    valid[0, [3, 25, 26]] = True
    moving = (causal_velocity(position, valid, STEP) != 0).any(-1)[0]
    assert np.flatnonzero(moving).tolist() == [26]


@pytest.mark.parametrize("shape", [(0, 5), (2, 0), (2, 1)])
def test_no_tracks_no_steps_and_one_step(shape: tuple[int, int]) -> None:
    velocity, heading = kinematics(np.zeros((*shape, 2)), np.ones(shape, bool))
    assert velocity.shape == (*shape, 2)
    assert heading.shape == shape
    assert not velocity.any()
    assert not heading.any()


def test_heading_follows_a_circle() -> None:
    course = np.linspace(0, 12, 200)
    heading = causal_heading(5 * unit_vector(course)[None], np.ones((1, 200), bool))
    np.testing.assert_allclose(wrap_angle(heading[0] - course), 0, atol=1e-12)


def test_a_track_that_stops_keeps_its_last_certain_heading() -> None:
    velocity = np.array([[[0, 0], [0, 2], [-1e-3, 0], [0, 0], [-3, 0], [0, -0.4]]], float)
    heading = causal_heading(velocity, np.ones((1, 6), bool))
    np.testing.assert_allclose(heading, [[0, np.pi / 2, np.pi / 2, np.pi / 2, np.pi, np.pi]])


def test_a_gap_keeps_the_last_certain_heading() -> None:
    velocity = np.tile([0.0, 2.0], (1, 4, 1))
    velocity[0, 1] = [5, 0]
    heading = causal_heading(velocity, np.array([[True, False, False, True]]))
    np.testing.assert_allclose(heading, np.pi / 2)


@pytest.mark.parametrize(("speed", "expected"), [(STANDING_SPEED * 0.99, 0), (STANDING_SPEED * 1.01, -1.2)])
def test_only_above_standing_speed_travel_tells_the_heading(speed: float, expected: float) -> None:
    velocity = speed * unit_vector(np.full((1, 3), -1.2))
    np.testing.assert_allclose(causal_heading(velocity, np.ones((1, 3), bool)), expected)


def test_noise_of_a_standing_track_turns_no_heading() -> None:
    noise = np.random.default_rng(0).normal(scale=0.02, size=(1, 110, 2))
    _, heading = kinematics(noise, np.ones((1, 110), bool))
    assert not heading[0, 10:].any()
