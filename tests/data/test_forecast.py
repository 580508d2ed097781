"""Forecast: headings and speeds in closed form, and rejected values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import rejects
from trajpred.data.forecast import STILL_STEP, Attention, Forecast
from trajpred.data.geometry import Pose, unit_vector, wrap_angle
from trajpred.errors import DataError

STEP = 0.1


def forecast(mode: Any = ((1.0, 0.0),), heading: float = 0.3, **changes: Any) -> Forecast:
    """Return a forecast of one track that follows ``mode`` ``[F, 2]``; ``changes`` replace any argument."""
    inputs = {
        "scenario_id": "s",
        "track_id": np.array(["a"]),
        "trajectory": np.asarray(mode, float)[None, None],
        "probability": np.ones((1, 1)),
        "origin": np.zeros((1, 2)),
        "origin_heading": np.array([heading]),
        "step_s": STEP,
    }
    return Forecast.from_trajectories(**(inputs | changes))


def two_by_three() -> Forecast:
    """Return two tracks, three modes, four steps."""
    return forecast(
        track_id=np.array(["a", "b"]),
        trajectory=np.random.default_rng(0).normal(size=(2, 3, 4, 2)),
        probability=np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]),
        origin=np.zeros((2, 2)),
        origin_heading=np.zeros(2),
        scale=np.ones((2, 3, 4, 2)),
    )


def test_lines_and_circles_have_exact_headings_and_speeds() -> None:
    origin = np.array([1e6, -1e6])
    path = origin + 8.0 * STEP * np.arange(1, 61)[:, None] * unit_vector(np.float64(2.0))
    line = forecast(path, origin=origin[None])
    np.testing.assert_allclose(line.heading, 2.0, atol=1e-8)
    np.testing.assert_allclose(line.speed, 8.0, atol=1e-8)
    radius, rate = 20.0, 0.5
    course = rate * STEP * np.arange(0, 61)
    points = radius * unit_vector(course - np.pi / 2)
    circle = forecast(points[1:], origin=points[:1])
    np.testing.assert_allclose(wrap_angle(circle.heading[0, 0] - course[1:] + rate * STEP / 2), 0, atol=1e-9)
    np.testing.assert_allclose(circle.speed, 2 * radius * np.sin(rate * STEP / 2) / STEP)


def test_short_steps_keep_the_previous_heading() -> None:
    short, long = STILL_STEP * 0.9, STILL_STEP * 1.1
    mode = np.cumsum([[0, short], [0, long], [0, 0], [short, 0], [-1, 0]], axis=0)
    found = forecast(mode, heading=-2.5)
    np.testing.assert_allclose(found.heading[0, 0], [-2.5, np.pi / 2, np.pi / 2, np.pi / 2, np.pi])
    np.testing.assert_allclose(found.speed[0, 0], [short / STEP, long / STEP, 0, short / STEP, 10])


def test_local_forecasts_start_where_the_track_is_now() -> None:
    """A track last observed 1 s ago at (5, 0), heading 90 degrees, at 10 m/s."""
    found = Forecast.from_local(
        *("s", np.array(["a"]), np.array([[[[11.0, 0.0], [11.0, 2.0]]]], np.float32)),
        *(np.ones((1, 1), np.float32), np.ones((1, 1, 2, 2), np.float32)),
        pose=Pose(np.array([[5.0, 0.0]]), np.array([np.pi / 2])),
        velocity=np.array([[10.0, 0.0]]),
        elapsed_s=np.array([1.0]),
        step_s=STEP,
    )
    np.testing.assert_allclose(found.trajectory[0, 0], [[5, 11], [3, 11]], atol=1e-9)
    np.testing.assert_allclose(found.heading[0, 0], [np.pi / 2, np.pi], atol=1e-9)
    np.testing.assert_allclose(found.speed[0, 0], [10, 20])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("trajectory", np.zeros((1, 3, 2))),
        ("trajectory", np.zeros((1, 1, 3, 3))),
        ("probability", np.full((1, 1), 0.9)),
        ("track_id", np.array(["a", "b"])),
        ("origin", np.zeros(2)),
        ("origin_heading", np.zeros((1, 1))),
        ("scale", np.ones((1, 1, 3))),
    ],
)
def test_invalid_arguments_are_named(field: str, value: np.ndarray) -> None:
    rejects(f"field '{field}'", forecast, **{field: value})


def test_lists_and_tensors_are_read_and_masked_values_refused() -> None:
    """As the arguments of scenarios are."""
    expected = forecast()
    trajectory = torch.tensor([[[[1.0, 0.0]]]], requires_grad=True)
    made = forecast(track_id=[b"a"], trajectory=trajectory, probability=[[1]], origin=[[0, 0]])
    assert made.track_id.tolist() == ["a"]
    assert made.speed.tolist() == expected.speed.tolist()
    masked = np.ma.masked_equal([[[[-999.0, 0.0]]]], -999.0)
    rejects(r"field 'trajectory'.*not finite", forecast, trajectory=masked)


@pytest.mark.parametrize("field", ["trajectory", "probability", "heading", "speed", "scale"])
def test_arrays_must_be_finite_and_of_their_shape(field: str) -> None:
    valid = two_by_three()
    assert valid.validate() is valid
    assert replace(valid, scale=None).validate().scale is None
    broken = getattr(valid, field).copy()
    broken.flat[-1] = np.nan
    for value in (broken, getattr(valid, field)[:, :, ..., None]):
        rejects(f"field '{field}'", replace(valid, **{field: value}).validate)
    with pytest.raises(DataError, match="'probability': has a negative entry"):
        replace(valid, probability=np.array([[-0.5, 1.0, 0.5], [1, 0, 0]])).validate()


def test_worlds_are_ranked_by_probability() -> None:
    marginal = two_by_three()
    joint = replace(marginal, probability=np.array([[0.2, 0.3, 0.5]] * 2))
    assert joint.is_joint
    assert not marginal.is_joint
    for rank, mode in enumerate((2, 1, 0)):
        world = joint.joint_mode(rank)
        np.testing.assert_array_equal(world.trajectory, joint.trajectory[:, [mode]])
        np.testing.assert_array_equal(world.probability, joint.probability[:, [mode]])
    for forecast_, rank in ((marginal, 0), (joint, 3), (joint, -1), (joint.of(np.array(["x"])), 0)):
        rejects("'joint_mode'", forecast_.joint_mode, rank)


def test_rows_finds_tracks_in_any_order() -> None:
    assert two_by_three().rows(np.array(["b", "x", "a", "b"])).tolist() == [1, -1, 0, 1]


def test_attention_shares_average_layers_and_heads() -> None:
    weight = np.random.default_rng(0).random((2, 3, 2, 4), np.float32)
    attention = Attention("s", np.array(["a", "b"]), np.arange(2), weight)
    np.testing.assert_allclose(attention.shares("b"), weight[:, :, 1].reshape(6, 4).mean(axis=0))
    rejects("c is not an agent", attention.shares, "c")
