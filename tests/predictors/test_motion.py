"""Baselines: what they share, the published reference table, and closed forms of steady motion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import equal, rejects
from tests.scenes import other_future
from trajpred.data.forecast import Forecast
from trajpred.data.geometry import norm, unit_vector, wrap_angle
from trajpred.data.scenario import Scenario
from trajpred.predictors.baselines import (
    BASELINES,
    MAX_TURN_RATE,
    constant_turn_rate,
    constant_velocity,
    lane_following,
)

Baseline = Callable[..., Forecast]
each_baseline = pytest.mark.parametrize("baseline", BASELINES.values(), ids=BASELINES.keys())


CENTRE = np.array([3000.0, -1500.0])


def circling(speed: float, rate: float, start: float = 0.0, seen: int = 50, offset: float = 0.0) -> Scenario:
    """A track on an exact circle about CENTRE, of which the last ``50 - seen`` observed steps are invalid.

    ``offset`` is the angle from the direction of motion to the heading (π: it reverses).
    """
    step = np.arange(110)
    course = start + rate * (step - 49) * 0.1
    return Scenario.from_arrays(
        (CENTRE + speed / rate * unit_vector(course - np.pi / 2))[None],
        num_observed=50,
        valid=((step < seen) | (step >= 50))[None],
        heading=wrap_angle(course + offset)[None],
        velocity=speed * unit_vector(course)[None],
    )


@each_baseline
def test_every_observed_track_is_forecast(sample_scenarios: list[Scenario], baseline: Baseline) -> None:
    scenario = next(scenario for scenario in sample_scenarios if not scenario.has_future)  # the test split
    forecast = baseline(scenario, num_future=60)
    observed = scenario.tracks.valid[:, : scenario.num_observed].any(axis=1)
    assert forecast.track_id.tolist() == scenario.tracks.track_id[observed].tolist()
    modes = 6 if baseline is lane_following else 1
    assert forecast.trajectory.shape == (observed.sum(), modes, 60, 2)
    np.testing.assert_allclose(forecast.probability.sum(axis=1), 1, rtol=1e-12)
    assert (np.diff(forecast.probability, axis=1) <= 0).all()
    rejects("num_future", lambda: baseline(Scenario.from_arrays(np.zeros((1, 10, 2)), num_observed=10)))


@each_baseline
def test_the_future_is_not_used(sample_scenarios: list[Scenario], baseline: Baseline) -> None:
    for scenario in sample_scenarios[:6]:
        stamps = scenario.timestamps_ns.copy()
        stamps[scenario.num_observed :] += np.arange(1, scenario.num_future + 1) * 10_000_000
        other = replace(other_future(scenario), timestamps_ns=stamps)
        assert equal(baseline(other), baseline(scenario))


@each_baseline
@pytest.mark.parametrize("num_observed", [1, 10])
def test_tracks_observed_once_go_straight_others_are_omitted(num_observed: int, baseline: Baseline) -> None:
    path = np.full((2, 20, 2), np.nan)
    path[0, num_observed - 1] = path[1, 15] = [5.0, 6.0]
    velocity = np.broadcast_to([3.0, 4.0], (2, 20, 2))
    scenario = Scenario.from_arrays(path, num_observed=num_observed, velocity=velocity, track_id=["a", "b"])
    forecast = baseline(scenario, num_future=10)
    assert forecast.track_id.tolist() == ["a"]
    assert forecast.trajectory.shape[2:] == (10, 2)
    np.testing.assert_allclose(forecast.trajectory[0, 0, -1], [8.0, 10.0], atol=1e-9)


def test_constant_velocity_fills_the_gap_to_the_last_observed_step() -> None:
    position = np.arange(110)[:, None] * [0.2, -0.1] + [1000.0, 50.0]
    valid = np.ones((2, 110), bool)
    valid[0, 30:50] = False
    scenario = Scenario.from_arrays(np.stack((position, position)), num_observed=50, valid=valid)
    forecast = constant_velocity(scenario)
    np.testing.assert_allclose(forecast.trajectory[:, 0], scenario.tracks.position[:, 50:], atol=1e-9)
    # The first step starts at the last observed step, not at the track's last observation.
    np.testing.assert_allclose(forecast.speed, np.hypot(2, 1), rtol=1e-9)


@pytest.mark.parametrize("seen", [50, 40])
@pytest.mark.parametrize(("rate", "offset"), [(0.6, 0.0), (-0.6, np.pi), (-1e-4, 0.0)])  # π: it reverses
@pytest.mark.parametrize("start", [0.0, 3.1])  # the heading passes ±π within the window
def test_constant_turn_rate_stays_on_the_circle(rate: float, offset: float, start: float, seen: int) -> None:
    speed = 8.0
    scenario = circling(speed, rate, start, seen, offset)
    path = constant_turn_rate(scenario).trajectory[0, 0]
    np.testing.assert_allclose(norm(path - CENTRE), speed / abs(rate), rtol=1e-9)
    np.testing.assert_allclose(path, scenario.tracks.position[0, 50:], atol=1e-6)
    # The endpoint, in the textbook form: v/ω (sin(θ+ωt) - sin θ, cos θ - cos(θ+ωt)) after 6 s.
    turned = start + rate * 6.0
    arc = np.array([np.sin(turned) - np.sin(start), np.cos(start) - np.cos(turned)]) * speed / rate
    now = CENTRE + speed / rate * unit_vector(np.array(start - np.pi / 2))
    np.testing.assert_allclose(path[-1], now + arc, atol=1e-6)


@pytest.mark.parametrize("turned", [[49], [40], [45], [47, 48, 49], list(range(40, 50, 2))], ids=str)
@pytest.mark.parametrize("rate", [0.6, -1e-4])
def test_headings_that_are_turned_round_do_not_matter(rate: float, turned: list[int]) -> None:
    scenario = circling(8.0, rate)
    heading = scenario.tracks.heading.copy()
    heading[:, turned] = wrap_angle(heading[:, turned] + np.pi)
    path = constant_turn_rate(replace(scenario, tracks=replace(scenario.tracks, heading=heading))).trajectory
    np.testing.assert_allclose(path[0, 0], scenario.tracks.position[0, 50:], atol=1e-6)


@pytest.mark.parametrize(("num_observed", "step_s"), [(50, 0.1), (6, 0.1), (50, 0.5), (50, 0.04)])
def test_turn_rate_is_a_least_squares_fit_over_the_last_second(num_observed: int, step_s: float) -> None:
    """Noisy headings with gaps, random or absent before the window, against np.polyfit."""
    draw = np.random.default_rng(3)
    step = np.arange(50 - num_observed, 50)
    first = 50 - round(1 / step_s)
    turning = 3.0 + 0.3 * step_s * step + draw.normal(0, 0.02, num_observed)
    heading = np.where(step < first, draw.normal(0, 3, num_observed), turning)
    valid = ~np.isin(step, [42, 43, 47])
    scenario = Scenario.from_arrays(
        np.zeros((1, num_observed, 2)),
        num_observed=num_observed,
        step_s=step_s,
        valid=valid[None],
        heading=wrap_angle(heading)[None],
        velocity=np.broadcast_to([10.0, 0.0], (1, num_observed, 2)),
    )
    window = valid & (step >= first)
    rate = np.polyfit(step[window] * step_s, heading[window], 1)[0]
    end = constant_turn_rate(scenario, num_future=10).trajectory[0, 0, -1]
    turned = rate * 10 * step_s
    np.testing.assert_allclose(end, 10 / rate * np.array([np.sin(turned), 1 - np.cos(turned)]), rtol=1e-9)


def test_turn_rate_is_limited_and_standing_tracks_stay() -> None:
    scenario = circling(5.0, 2 * MAX_TURN_RATE)
    path = constant_turn_rate(scenario).trajectory[0, 0]
    slower = circling(5.0, MAX_TURN_RATE).tracks.position[0, 49:]
    np.testing.assert_allclose(path - scenario.tracks.position[0, 49], slower[1:] - slower[0], atol=1e-6)
    spin = wrap_angle(np.arange(110) * 0.05)[None]
    still, noise = np.full((1, 110, 2), 300.0), np.full((1, 110, 2), 0.2)
    forecast = constant_turn_rate(Scenario.from_arrays(still, num_observed=50, heading=spin, velocity=noise))
    np.testing.assert_array_equal(forecast.trajectory[0, 0], still[0, 50:])
    assert (forecast.heading == spin[0, 49]).all()
    assert (forecast.speed == 0).all()


@pytest.mark.parametrize(
    ("step_s", "seen"), [(0.1, 2), (0.1, 5), (0.1, 6), (0.1, 50), (0.5, 4), (0.04, 12), (1.0, 3)]
)
@pytest.mark.parametrize("course", [np.pi / 2, -2.5, 0.0])
def test_straight_tracks_without_headings_stay_straight(step_s: float, seen: int, course: float) -> None:
    """The heading of the first state is unknown, and no part of the fit."""
    distance = 12 * step_s * np.arange(seen + 6)
    path = CENTRE + distance[:, None] * unit_vector(np.array(course))
    scenario = Scenario.from_arrays(path[None], num_observed=seen, step_s=step_s)
    found = constant_turn_rate(scenario).trajectory[0, 0]
    np.testing.assert_allclose(found, path[seen:], atol=1e-6)
