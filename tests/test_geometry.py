"""Geometry against complex numbers and homogeneous matrices, for NumPy and torch alike."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trajpred.geometry import (
    Pose,
    direction,
    norm,
    relative_pose,
    rotate,
    to_global,
    to_local,
    unit_vector,
    wrap_angle,
)

Function = Callable[..., Any]
any_finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
any_finite32 = st.floats(allow_nan=False, allow_infinity=False, width=32)
angles = st.floats(-20.0, 20.0)
points = arrays(np.float64, 2, elements=st.floats(-1e4, 1e4))
poses = st.builds(Pose, points, angles.map(np.float64))
both_kinds = pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])


def matrix(pose: Any) -> np.ndarray:
    """``[3, 3]``: from the pose's frame to the one it is given in."""
    cos, sin = np.cos(pose.heading), np.sin(pose.heading)
    x, y = pose.position
    return np.array([[cos, -sin, x], [sin, cos, y], [0, 0, 1]])


@given(any_finite)
@example(np.pi)
@example(-np.pi)
@example(np.nextafter(np.pi, 0))
@example(np.nextafter(-np.pi, -4))
@example(-1e-17)
@example(3 * np.pi)
@example(-3 * np.pi)
@example(1e308)
def test_wrapped_angles_lie_in_the_half_open_circle(angle: float) -> None:
    assert -np.pi <= wrap_angle(np.float64(angle)) < np.pi
    assert -np.pi <= wrap_angle(torch.tensor(angle, dtype=torch.float64)).item() < np.pi


@given(any_finite32)
@example(float(np.float32(np.pi)))
@example(float(-np.float32(np.pi)))
@example(-1e-8)
def test_wrapped_float32_angles_stay_float32_and_in_range(angle: float) -> None:
    half = np.float32(np.pi)
    array = wrap_angle(np.array([angle], np.float32))
    tensor = wrap_angle(torch.tensor([angle], dtype=torch.float32))
    assert array.dtype == np.float32
    assert tensor.dtype == torch.float32
    for wrapped in (array[0], tensor.numpy()[0]):
        assert -half <= wrapped < half


@given(st.floats(-1e4, 1e4))
def test_wrapping_keeps_the_direction(angle: float) -> None:
    assert abs(np.exp(1j * wrap_angle(np.float64(angle))) - np.exp(1j * angle)) < 1e-11


def test_wrapping_changes_no_angle_that_is_in_range() -> None:
    inside = np.linspace(-np.pi, np.pi, 1001)[:-1]
    np.testing.assert_allclose(wrap_angle(inside), inside, rtol=0, atol=1e-15)


@both_kinds
def test_a_quarter_turn_is_counter_clockwise(kind: Function) -> None:
    turned = rotate(kind(np.array([[1.0, 0.0], [0.0, 2.0]])), kind(np.array([np.pi / 2, np.pi / 2])))
    np.testing.assert_allclose(turned, [[0, 1], [-2, 0]], atol=1e-15)


@given(points, angles)
def test_rotation_is_multiplication_of_complex_numbers(point: np.ndarray, angle: float) -> None:
    x, y = rotate(point, np.float64(angle))
    assert abs((x + 1j * y) - (point[0] + 1j * point[1]) * np.exp(1j * angle)) < 1e-9


@given(poses)
def test_local_axes_point_ahead_and_left(pose: Any) -> None:
    ahead = pose.position + np.array([np.cos(pose.heading), np.sin(pose.heading)])
    left = pose.position + np.array([-np.sin(pose.heading), np.cos(pose.heading)])
    stacked = np.stack((pose.position, ahead, left))
    local = to_local(stacked, pose.position, pose.heading)
    np.testing.assert_allclose(local, [[0, 0], [1, 0], [0, 1]], atol=1e-11)


@given(points, poses)
def test_to_global_undoes_to_local(point: np.ndarray, pose: Any) -> None:
    back = to_global(to_local(point, pose.position, pose.heading), pose.position, pose.heading)
    np.testing.assert_allclose(back, point, atol=1e-9)


def test_local_coordinates_are_exact_ten_thousand_kilometres_out() -> None:
    origin = np.array([1e7, -1e7])
    local = to_local(origin + np.array([3.0, 4.0]), origin, np.float64(np.pi / 2))
    np.testing.assert_allclose(local, [4.0, -3.0], atol=1e-8)


@given(poses, poses)
def test_relative_pose_is_the_inverse_matrix_times_the_other(pose: Any, frame: Any) -> None:
    relative = relative_pose(pose, frame)
    np.testing.assert_allclose(matrix(relative), np.linalg.solve(matrix(frame), matrix(pose)), atol=1e-8)
    assert -np.pi <= relative.heading < np.pi


@given(poses, poses, poses)
def test_relative_poses_compose(a: Any, b: Any, c: Any) -> None:
    composed = matrix(relative_pose(b, c)) @ matrix(relative_pose(a, b))
    np.testing.assert_allclose(composed, matrix(relative_pose(a, c)), atol=1e-8)


@given(angles)
def test_direction_undoes_unit_vector(angle: float) -> None:
    vector = unit_vector(np.float64(angle))
    np.testing.assert_allclose(vector, [np.cos(angle), np.sin(angle)], atol=1e-15)
    assert abs(wrap_angle(direction(vector) - angle)) < 1e-14


@both_kinds
def test_the_zero_vector_points_along_x(kind: Function) -> None:
    assert direction(kind(np.zeros((1, 2)))).item() == 0


@both_kinds
def test_norm_is_the_euclidean_length_also_where_squares_overflow(kind: Function) -> None:
    vectors = np.array([[3.0, 4.0], [0.0, 0.0], [-5e200, 12e200]])
    np.testing.assert_allclose(norm(kind(vectors)), [5.0, 0.0, 13e200])


RNG = np.random.default_rng(0)
VECTOR, ORIGIN, ANGLE = (
    RNG.normal(size=(4, 5, 2)) * 50,
    RNG.normal(size=(4, 1, 2)),
    RNG.normal(size=(4, 5)) * 4,
)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (wrap_angle, (ANGLE,)),
        (rotate, (VECTOR, ANGLE)),
        (to_local, (VECTOR, ORIGIN, ANGLE)),
        (to_global, (VECTOR, ORIGIN, ANGLE)),
        (unit_vector, (ANGLE,)),
        (direction, (VECTOR,)),
        (norm, (VECTOR,)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-4)])
def test_torch_equals_numpy(
    function: Function, inputs: tuple[np.ndarray, ...], dtype: type, tolerance: float
) -> None:
    cast = [array.astype(dtype) for array in inputs]
    expected = function(*cast)
    found = function(*(torch.from_numpy(array) for array in cast))
    assert isinstance(expected, np.ndarray)
    assert isinstance(found, torch.Tensor)
    assert found.numpy().dtype == expected.dtype == dtype
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=tolerance)


def test_relative_pose_in_torch_equals_numpy() -> None:
    poses = [Pose(VECTOR, ANGLE), Pose(ORIGIN, ANGLE[:, :1])]
    expected = relative_pose(*poses)
    found = relative_pose(
        *(Pose(torch.from_numpy(pose.position), torch.from_numpy(pose.heading)) for pose in poses)
    )
    np.testing.assert_allclose(found.position.numpy(), expected.position, atol=1e-12)
    np.testing.assert_allclose(found.heading.numpy(), expected.heading, atol=1e-12)


def test_the_records_and_the_store_need_no_torch() -> None:
    modules = "trajpred, trajpred.scenario, trajpred.forecast, trajpred.sources, trajpred.store"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
