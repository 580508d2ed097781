"""Geometry against complex numbers and matrices, NumPy against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trajpred.data.geometry import (
    Pose,
    direction,
    last_step,
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
            assert wrapped.dtype == np.float32
            assert -np.float32(np.pi) <= wrapped[0] < np.float32(np.pi)


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
        assert isinstance(found, torch.Tensor)
        assert found.numpy().dtype == expected.dtype == dtype
        np.testing.assert_allclose(found.numpy(), expected, atol=tolerance)


def test_the_last_step_is_the_last_valid_one_or_the_first() -> None:
    valid = np.random.default_rng(0).random((200, 7)) < 0.3
    valid[0], valid[1] = False, True
    expected = [max(np.flatnonzero(row), default=0) for row in valid]
    assert last_step(valid).tolist() == last_step(torch.from_numpy(valid)).tolist() == expected
