"""Geometry against complex numbers and matrices, NumPy against torch, causal motion against polyfit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trajpred.geometry import (
    STANDING_SPEED,
    STEP_S,
    Pose,
    causal_heading,
    causal_velocity,
    direction,
    forward_heading,
    heading_known,
    last_step,
    mean_step_s,
    norm,
    relative_pose,
    rotate,
    to_global,
    to_local,
    unit_vector,
    wrap_angle,
)

angles = st.floats(-20.0, 20.0)
points = arrays(np.float64, 2, elements=st.floats(-1e4, 1e4))
poses = st.builds(Pose, points, angles.map(np.float64))
STEP = 0.1


def matrix(pose: Any) -> np.ndarray:
    """Return the transformation ``[3, 3]`` from the pose's frame."""
    cos, sin = np.cos(pose.heading), np.sin(pose.heading)
    x, y = pose.position
    return np.array([[cos, -sin, x], [sin, cos, y], [0, 0, 1]])


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
@example(float(np.pi))
@example(float(np.float32(np.pi)))
@example(float(-np.float32(np.pi)))
@example(float(np.nextafter(-np.pi, -4)))
@example(-1e-17)
@example(-3 * np.pi)
@example(1e308)
def test_wrapped_angles_are_in_the_half_open_interval_and_keep_their_direction(angle: float) -> None:
    for array in (np.float64(angle), torch.tensor(angle, dtype=torch.float64)):
        assert -np.pi <= wrap_angle(array) < np.pi
    if abs(angle) < 1e4:
        assert abs(np.exp(1j * wrap_angle(np.float64(angle))) - np.exp(1j * angle)) < 1e-11
    if abs(angle) < 1e38:
        array, tensor = np.array([angle], np.float32), torch.tensor([angle], dtype=torch.float32)
        for wrapped in (wrap_angle(array), wrap_angle(tensor).numpy()):
            assert wrapped.dtype == np.float32 and -np.float32(np.pi) <= wrapped[0] < np.float32(np.pi)


@given(points, poses, poses, poses)
def test_frames_are_homogeneous_matrices(point: np.ndarray, a: Any, b: Any, c: Any) -> None:
    local = to_local(point, a.position, a.heading)
    np.testing.assert_allclose(matrix(a) @ [*local, 1], [*point, 1], atol=1e-8)
    np.testing.assert_allclose(to_global(local, a.position, a.heading), point, atol=1e-9)
    relative = relative_pose(a, b)
    assert -np.pi <= relative.heading < np.pi
    np.testing.assert_allclose(matrix(relative), np.linalg.solve(matrix(b), matrix(a)), atol=1e-8)
    composed = matrix(relative_pose(b, c)) @ matrix(relative)
    np.testing.assert_allclose(composed, matrix(relative_pose(a, c)), atol=1e-8)


def test_local_coordinates_are_exact_at_ten_thousand_kilometres() -> None:
    origin = np.array([1e7, -1e7])
    local = to_local(origin + np.array([3.0, 4.0]), origin, np.float64(np.pi / 2))
    np.testing.assert_allclose(local, [4.0, -3.0], atol=1e-8)


def test_direction_and_norm_are_polar_coordinates() -> None:
    angle = np.linspace(-np.pi, np.pi, 101)
    np.testing.assert_allclose(unit_vector(angle), np.stack((np.cos(angle), np.sin(angle)), -1))
    np.testing.assert_allclose(direction(unit_vector(angle)), angle, atol=1e-14)
    vectors = np.array([[3.0, 4.0], [0.0, 0.0], [-5e200, 12e200]])  # squares overflow
    for array in (vectors, torch.as_tensor(vectors)):
        np.testing.assert_allclose(norm(array), [5.0, 0.0, 13e200])
        assert direction(array)[1] == 0


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-4)])
def test_torch_equals_numpy(dtype: type, tolerance: float) -> None:
    rng = np.random.default_rng(0)
    vector = rng.normal(size=(4, 5, 2), scale=50)
    origin = rng.normal(size=(4, 1, 2), scale=50)
    angle = rng.normal(size=(4, 5), scale=50)
    functions = ((wrap_angle, angle), (rotate, vector, angle), (to_local, vector, origin, angle))
    functions += ((to_global, vector, origin, angle), (unit_vector, angle), (direction, vector))
    functions += ((norm, vector),)
    for function, *arrays_ in functions:
        cast = [array.astype(dtype) for array in arrays_]
        expected, found = function(*cast), function(*(torch.from_numpy(array) for array in cast))
        assert isinstance(found, torch.Tensor) and found.numpy().dtype == expected.dtype == dtype
        np.testing.assert_allclose(found.numpy(), expected, atol=tolerance)


# ------------------------------------------------------------------------------------- causal motion


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
            expected[a, t] = np.polyfit(STEP * (np.array(used) - t), moved, 1)[0]
    np.testing.assert_allclose(causal_velocity(position, valid, STEP, window * STEP), expected, atol=1e-7)


def test_the_last_step_is_the_last_valid_one_or_the_first() -> None:
    valid = np.random.default_rng(0).random((200, 7)) < 0.3
    valid[0], valid[1] = False, True
    expected = [max(np.flatnonzero(row), default=0) for row in valid]
    assert last_step(valid).tolist() == last_step(torch.from_numpy(valid)).tolist() == expected


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


def test_single_states_late_in_a_long_recording_have_no_velocity() -> None:
    valid = np.zeros((1, 20_000), bool)
    valid[0, ::7] = True
    position = np.random.default_rng(0).normal(0, 100, (1, 20_000, 2))
    assert not causal_velocity(position, valid, STEP, window_s=7 * STEP).any()


@pytest.mark.parametrize("shape", [(0, 5), (2, 0), (2, 1)])
def test_motion_of_empty_and_single_steps_is_zero(shape: tuple[int, int]) -> None:
    velocity = causal_velocity(np.ones((*shape, 2)), np.ones(shape, bool), STEP)
    heading = causal_heading(velocity, np.ones((*shape, 2)), np.ones(shape, bool))
    assert velocity.shape == (*shape, 2) and not velocity.any()
    assert heading.shape == shape and not heading.any()


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
    np.testing.assert_allclose(heading, [[0, 0, np.pi / 2, np.pi / 2, np.pi / 2, np.pi, np.pi]])


def test_a_standing_track_has_no_heading_however_noisy_its_velocity_is() -> None:
    noise = np.random.default_rng(0).normal(scale=0.1, size=(20, 110, 2))
    valid = np.ones((20, 110), bool)
    assert not causal_heading(causal_velocity(noise, valid, STEP), noise, valid).any()


def test_the_mean_step_ignores_future_timestamps() -> None:
    stamps = np.array([0, 200, 400, 900, 5000]) * 10**6
    assert mean_step_s(stamps, 3) == pytest.approx(0.2) and mean_step_s(stamps, 4) == pytest.approx(0.3)


def test_the_step_of_one_observed_step_is_that_to_the_future() -> None:
    stamps = np.array([[0, 500, 1000], [0, 40, 80]]) * 10**6
    assert mean_step_s(stamps, 1).tolist() == pytest.approx([0.5, 0.04])
    assert mean_step_s(stamps[:, :1], 1).tolist() == [STEP_S, STEP_S]


def test_known_headings_are_reversed_while_a_track_moves_backwards() -> None:
    velocity = np.array([[[0.5, 0], [-3, 0], [-0.5, 0], [-9, 0], [0, 9], [2, 0], [0, 0]]], np.float64)
    heading = np.full((1, 7), 0.25)
    known = np.array([[True, True, True, False, True, True, True]])
    expected = [0.25, 0.25 - np.pi, 0.25, 0.25, 0.25, 0.25, 0.25]
    np.testing.assert_allclose(forward_heading(heading, velocity, known)[0], expected, atol=1e-12)
