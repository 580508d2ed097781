"""Forecast: headings and speeds in closed form, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trajpred.errors import DataError
from trajpred.forecast import STILL_STEP, Forecast
from trajpred.geometry import unit_vector, wrap_angle

STEP = 0.1


def forecast(mode: Any = ((1.0, 0.0),), heading: float = 0.3, **changes: Any) -> Forecast:
    """One track that follows ``mode`` ``[F, 2]`` from the origin; ``changes`` replace any argument."""
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
    """Two tracks, three modes, four steps."""
    trajectory = np.random.default_rng(0).normal(size=(2, 3, 4, 2))
    probability = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    return Forecast.from_trajectories(
        "s",
        np.array(["a", "b"]),
        trajectory,
        probability,
        origin=np.zeros((2, 2)),
        origin_heading=np.zeros(2),
        step_s=STEP,
        scale=np.ones((2, 3, 4, 2)),
    )


def test_a_straight_line_has_its_direction_and_speed_from_the_first_step_on() -> None:
    origin = np.array([1e6, -1e6])
    line = origin + 8.0 * STEP * np.arange(1, 61)[:, None] * unit_vector(np.float64(2.0))
    result = forecast(line, origin=origin[None])
    np.testing.assert_allclose(result.heading, 2.0, atol=1e-8)
    np.testing.assert_allclose(result.speed, 8.0, atol=1e-8)


def test_a_circle_is_followed_along_its_chords() -> None:
    radius, rate = 20.0, 0.5
    course = rate * STEP * np.arange(0, 61)
    circle = radius * unit_vector(course - np.pi / 2)
    result = forecast(circle[1:], origin=circle[:1])
    chord = course[1:] - rate * STEP / 2
    np.testing.assert_allclose(wrap_angle(result.heading[0, 0] - chord), 0, atol=1e-9)
    np.testing.assert_allclose(result.speed, 2 * radius * np.sin(rate * STEP / 2) / STEP)


def test_a_standing_mode_keeps_the_observed_heading() -> None:
    result = forecast(np.zeros((5, 2)), heading=-2.5)
    assert (result.heading == -2.5).all()
    assert not result.speed.any()


def test_a_mode_that_stops_keeps_its_last_direction() -> None:
    result = forecast([[0, 1], [0, 2], [0, 2], [0.01, 2], [-1, 2]])
    expected = [np.pi / 2, np.pi / 2, np.pi / 2, np.pi / 2, np.pi]
    np.testing.assert_allclose(result.heading[0, 0], expected)


@pytest.mark.parametrize(("length", "expected"), [(STILL_STEP * 0.9, 0.3), (STILL_STEP * 1.1, np.pi / 2)])
def test_short_steps_tell_no_direction(length: float, expected: float) -> None:
    assert forecast([[0, length]]).heading.item() == pytest.approx(expected)


def test_modes_and_tracks_do_not_mix() -> None:
    trajectory = np.zeros((2, 2, 1, 2))
    trajectory[0, 1, 0], trajectory[1, 0, 0] = [0, 3], [-4, 0]
    result = forecast(
        track_id=np.array(["a", "b"]),
        trajectory=trajectory,
        probability=np.full((2, 2), 0.5),
        origin=np.zeros((2, 2)),
        origin_heading=np.array([0.1, 0.2]),
    )
    np.testing.assert_allclose(result.heading[..., 0], [[0.1, np.pi / 2], [np.pi, 0.2]])
    np.testing.assert_allclose(result.speed[..., 0], [[0, 30], [40, 0]])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("trajectory", np.zeros((1, 3, 2))),
        ("trajectory", np.zeros((1, 1, 3, 3))),
        ("trajectory", np.full((1, 1, 3, 2), np.nan)),
        ("probability", np.ones(1)),
        ("probability", np.full((1, 1), 0.9)),
        ("probability", np.full((1, 1), np.nan)),
        ("track_id", np.array(["a", "b"])),
        ("origin", np.zeros(2)),
        ("origin_heading", np.zeros((1, 1))),
        ("scale", np.ones((1, 1, 3))),
        ("scale", np.full((1, 1, 3, 2), np.inf)),
    ],
)
def test_wrong_shapes_and_values_are_refused_by_name(field: str, value: np.ndarray) -> None:
    with pytest.raises(DataError) as caught:
        forecast(**{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize("field", ["trajectory", "probability", "heading", "speed", "scale"])
def test_every_array_must_be_finite_and_of_its_shape(field: str) -> None:
    good = two_by_three()
    assert good.validate() is good
    broken = getattr(good, field).copy()
    broken.flat[-1] = np.nan
    for value in (broken, getattr(good, field)[:, :, ..., None]):
        with pytest.raises(DataError) as caught:
            replace(good, **{field: value}).validate()
        assert caught.value.field == field


def test_a_negative_probability_is_refused_although_the_sum_is_one() -> None:
    with pytest.raises(DataError, match="negative") as caught:
        replace(two_by_three(), probability=np.array([[-0.5, 1.0, 0.5], [1, 0, 0]])).validate()
    assert caught.value.field == "probability"


def test_scales_may_be_unknown() -> None:
    assert replace(two_by_three(), scale=None).validate().scale is None


def test_rows_finds_tracks_by_name_in_any_order() -> None:
    assert two_by_three().rows(np.array(["b", "x", "a", "b"])).tolist() == [1, -1, 0, 1]
