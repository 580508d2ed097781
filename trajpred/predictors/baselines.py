"""Baselines: constant velocity, constant turn rate and lane following. Nothing is learned."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trajpred.data.forecast import Forecast
from trajpred.data.geometry import norm
from trajpred.data.motion import STANDING_SPEED, displacement_on_arc, heading_known, hold_last
from trajpred.data.scenario import Scenario
from trajpred.errors import require
from trajpred.features.agents import last_poses
from trajpred.features.lane_futures import lane_futures
from trajpred.features.lane_paths import Routes

#: Seconds to which the turn rate is fitted, up to the current step.
TURN_WINDOW_S = 1.0
#: Maximum turn rate (rad/s). A car at full lock turns more slowly; larger values are noise.
MAX_TURN_RATE = 1.0


def constant_velocity(scenario: Scenario, num_future: int | None = None) -> Forecast:
    """Extrapolate every track at its last observed velocity.

    Args:
        scenario: scenario of which only the observed steps are used.
        num_future: number of steps to forecast; by default the scenario's own.

    Raises: DataError if the scenario has no future steps and ``num_future`` is not given.
    """
    rows, last = last_observed(scenario)
    velocity = scenario.tracks.velocity[rows, last]
    return _follow_arc(scenario, velocity, np.zeros(len(rows)), num_future)


def constant_turn_rate(scenario: Scenario, num_future: int | None = None) -> Forecast:
    """Extrapolate every track at constant speed and turn rate (CTRV), on a circle; stationary tracks stay.

    The circle starts in the direction of motion, which differs from the heading of a reversing car. The turn
    rate is the least-squares slope of the last second's headings, any of which may be turned by π.

    Args and errors: see :func:`constant_velocity`.
    """
    rows, last = last_observed(scenario)
    velocity = scenario.tracks.velocity[rows, last]
    velocity = np.where((norm(velocity) > STANDING_SPEED)[:, None], velocity, 0.0)
    return _follow_arc(scenario, velocity, _turn_rate(scenario, rows, last), num_future)


def lane_following(scenario: Scenario, num_future: int | None = None) -> Forecast:
    """Forecast every track's futures along the lanes (:mod:`trajpred.features.lane_futures`).

    Six futures per track, along the lanes and at several speeds. Args and errors: see
    :func:`constant_velocity`.
    """
    rows, last = last_observed(scenario)
    tracks = scenario.tracks
    pose = last_poses(scenario, rows)
    path, probability = lane_futures(
        Routes.of(scenario.map),
        np.zeros(len(rows), np.int64),
        pose,
        tracks.velocity[rows, last],
        tracks.object_type[rows],
        time_ahead(scenario, last, num_future),
    )
    # Equal accelerations and decelerations are equally probable: without rounding, their order would be
    # arbitrary.
    order = np.argsort(-probability.round(9), axis=1, kind="stable")
    path = np.take_along_axis(path, order[..., None, None], axis=1)
    return as_forecast(scenario, path, -np.sort(-probability, axis=1), pose.heading)


#: The baselines by name. They use only observed steps and forecast every track with an observed step.
BASELINES: dict[str, Callable[..., Forecast]] = {
    "constant_velocity": constant_velocity,
    "constant_turn_rate": constant_turn_rate,
    "lane_following": lane_following,
}


def last_observed(scenario: Scenario) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows ``[N]`` of the observed tracks, and the step ``[N]`` of each one's last observation."""
    last = scenario.last_seen
    rows = np.flatnonzero(last >= 0)
    return rows, last[rows]


def _turn_rate(scenario: Scenario, rows: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.float64]:
    """Fit the turn rate ``[N]`` in rad/s, within ±:data:`MAX_TURN_RATE`; 0 for a single known heading."""
    tracks = scenario.tracks
    window = max(2, round(TURN_WINDOW_S / scenario.step_s))
    step = last[:, None] - np.arange(window)
    states = rows[:, None], np.maximum(step, 0)
    heading = tracks.heading[states]
    has_heading = heading_known(tracks.heading, tracks.position, tracks.valid)
    inside = (step >= 0) & tracks.valid[states] & has_heading[states]
    # Continuous angles. Headings turned by π are turned back: between two steps, no track turns by more than
    # π / 2.
    turn = np.unwrap(hold_last(heading, inside, 0.0), period=np.pi, axis=1)
    turn = np.where(inside, turn, 0.0)
    time = np.where(inside, -np.arange(window) * scenario.step_s, 0.0)
    n = inside.sum(axis=1)
    spread = n * (time**2).sum(axis=1) - time.sum(axis=1) ** 2
    slope = n * (time * turn).sum(axis=1) - time.sum(axis=1) * turn.sum(axis=1)
    return np.clip(slope / np.where(n > 1, spread, 1.0), -MAX_TURN_RATE, MAX_TURN_RATE)


def _follow_arc(
    scenario: Scenario, velocity: NDArray[np.float64], turn_rate: NDArray[np.float64], num_future: int | None
) -> Forecast:
    """Forecast the observed tracks from ``velocity`` ``[N, 2]`` at ``turn_rate`` ``[N]``."""
    rows, last = last_observed(scenario)
    time = time_ahead(scenario, last, num_future)
    path = scenario.tracks.position[rows, last][:, None] + displacement_on_arc(velocity, turn_rate, time)
    heading = last_poses(scenario, rows).heading
    return as_forecast(scenario, path[:, None], np.ones((len(rows), 1)), heading)


def time_ahead(scenario: Scenario, last: NDArray[np.int64], num_future: int | None) -> NDArray[np.float64]:
    """Return the seconds ``[N, F + 1]`` from step ``last`` to the last observed and each future step."""
    F = scenario.num_future if num_future is None else num_future
    require(F > 0, "num_future", "must be given, and positive, for a scenario without future steps")
    gap = scenario.num_observed - 1 - last  # steps between a track's last observation and the scenario's
    return np.asarray((gap[:, None] + np.arange(F + 1)) * scenario.step_s, np.float64)


def as_forecast(
    scenario: Scenario,
    path: NDArray[np.float64],
    probability: NDArray[np.float64],
    heading: NDArray[np.float64],
) -> Forecast:
    """Build the forecast of the observed tracks.

    Args:
        path: ``[N, K, F + 1, 2]`` metres, at the times of :func:`time_ahead`.
        probability: ``[N, K]``.
        heading: ``[N]`` radians, where last observed.
    """
    rows, _ = last_observed(scenario)
    return Forecast.from_trajectories(
        scenario.scenario_id,
        scenario.tracks.track_id[rows],
        path[:, :, 1:],
        probability,
        origin=path[:, 0, 0],
        origin_heading=heading,
        step_s=scenario.step_s,
    )
