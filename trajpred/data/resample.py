"""Scenarios and forecasts on other time grids: models and data have different steps."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.data.forecast import Forecast
from trajpred.data.geometry import unit_vector, wrap_angle
from trajpred.data.motion import UNKNOWN_HEADING, given_heading, heading_known
from trajpred.data.scenario import Scenario
from trajpred.data.time import JITTER, SAME_TIME, longest_gap_s, regular_step_s
from trajpred.data.tracks import Tracks
from trajpred.errors import require

#: The columns of :class:`~trajpred.data.tracks.Tracks` that have a value for each step.
STATES = ("valid", "position", "heading", "velocity")


def same_step(step_s: float, other_s: float) -> bool:
    """Return whether two steps are equal up to clock jitter, a tenth of a step."""
    return abs(step_s - other_s) <= JITTER * other_s


def resample(scenario: Scenario, step_s: float) -> Scenario:
    """Return the scenario at steps of ``step_s`` seconds before and after its last observed step.

    States are resampled by :func:`states_at`: gaps stay gaps, and later states do not change the history.
    Tracks without a state on the grid are omitted.

    Raises: DataError if ``step_s`` is not positive, or the focal track has no observed state on the grid.
    """
    require(0 < step_s < np.inf, "step_s", f"must be a positive number of seconds, is {step_s}")
    now = scenario.num_observed - 1
    time = (scenario.timestamps_ns - scenario.timestamps_ns[now]) / 1e9
    before = whole_steps(-time[0], step_s)
    after = whole_steps(time[-1], step_s)
    if before == after == 0:
        before = 1  # one stamp does not define the step length
    grid: NDArray[np.float64] = np.arange(-before, after + 1) * np.float64(step_s)
    continued = 0
    if scenario.continued:
        last_recorded = time[scenario.num_steps - scenario.continued - 1]
        continued = int((grid > last_recorded + SAME_TIME * step_s).sum())
    return replace(
        scenario,
        timestamps_ns=scenario.timestamps_ns[now] + np.round(grid * 1e9).astype(np.int64),
        num_observed=before + 1,
        continued=continued,
        tracks=tracks_at(scenario.tracks, time, grid, recorded_s=_recorded_s(scenario), step_s=step_s),
    ).validate()


def _recorded_s(scenario: Scenario) -> float:
    """Return the usual seconds between observed steps with a state, as known to a stream."""
    observed = scenario.num_observed
    seen = scenario.tracks.valid[:, :observed].any(axis=0)
    stamps = scenario.timestamps_ns[:observed][seen]
    return regular_step_s(stamps) if len(stamps) > 1 else scenario.step_s


def tracks_at(
    tracks: Tracks, time: NDArray[np.float64], grid: NDArray[np.float64], *, recorded_s: float, step_s: float
) -> Tracks:
    """Resample tracks recorded at ``time`` ``[T]`` to ``grid`` ``[G]`` by :func:`states_at`.

    States after time 0 do not change the states up to 0.
    """

    def at(tracks: Tracks, grid: NDArray[np.float64]) -> Tracks:
        has_heading = heading_known(tracks.heading, tracks.position, tracks.valid)
        motion = np.concatenate((tracks.position, tracks.velocity), axis=-1)
        heading = np.where(has_heading, tracks.heading, np.nan)
        states = np.concatenate((np.moveaxis(motion, -1, 0), heading[None]))
        columns = states_at(states, tracks.valid, time, grid, recorded_s=recorded_s, step_s=step_s)
        return replace(tracks, **columns)

    is_past = grid <= 0
    seen = replace(tracks, valid=tracks.valid & (time <= 0))
    past = at(seen, grid[is_past])
    future = at(tracks, grid[~is_past])
    rows = past.valid.any(axis=1) | future.valid.any(axis=1)
    columns: dict[str, NDArray[Any]] = {}
    for column in fields(Tracks):
        values = getattr(past, column.name)
        if column.name in STATES:
            values = np.concatenate((values, getattr(future, column.name)), axis=1)
        columns[column.name] = values[rows]
    return Tracks(**columns)


def whole_steps(seconds: float, step_s: float) -> int:
    """Return how many steps of ``step_s`` seconds fit into ``seconds``."""
    return int(seconds / step_s + SAME_TIME)


def states_at(
    states: NDArray[np.float64],
    valid: NDArray[np.bool_],
    time: NDArray[np.float64],
    grid: NDArray[np.float64],
    *,
    recorded_s: float,
    step_s: float,
) -> dict[str, Any]:
    """Return the states at times ``grid`` ``[G]`` of tracks recorded at ``time`` ``[T]``.

    Between two states up to :func:`~trajpred.data.time.longest_gap_s` apart, position and velocity are
    interpolated linearly and the heading along the shorter arc. Otherwise the state before is extrapolated at
    its velocity if it is less than a step old, or else the state after if it is at most half a step ahead.
    States are continuous functions of the times; at the rule's limits, times count as equal up to a
    tolerance.

    Args:
        states: ``[5, A, T]`` position, velocity and heading, NaN where the heading is unknown.
        valid: ``[A, T]``.
        time: ``[T]`` seconds, ascending.
        grid: ``[G]`` seconds, ascending.
        recorded_s: usual seconds between recorded states.
        step_s: step of the grid.

    Returns:
        The columns :data:`STATES` of :class:`~trajpred.data.tracks.Tracks` at the times of the grid.
    """
    A, T = valid.shape
    left, right = _neighbours(valid, time, grid)
    track = np.arange(A)[:, None] * T  # first row of each track
    left_time = time.take(left)
    right_time = time.take(right)
    apart = right_time - left_time
    ago = grid - left_time
    ahead = right_time - grid
    has_left = valid.take(track + left) & (ago >= 0)
    has_right = valid.take(track + right) & (ahead >= 0)
    is_between = has_left & has_right & (apart > 0) & (apart <= longest_gap_s(recorded_s, step_s))
    is_after = has_left & (ago < (1 - SAME_TIME) * step_s)
    is_before = has_right & (ahead <= (0.5 + SAME_TIME) * step_s)

    # A state that counts alone is both neighbours.
    use_right = ~is_after & is_before
    left = np.where(is_between | ~use_right, left, right)
    right = np.where(is_between | use_right, right, left)
    share = np.where(is_between, ago / np.where(apart > 0, apart, 1.0), 0.0)
    extrapolated_s = np.where(is_between, 0.0, grid - time.take(left))

    rows = states.reshape(5, A * T)
    before = rows.take(track + left, axis=1)
    following = rows.take(track + right, axis=1)
    is_known = is_between | is_after | is_before
    motion = np.where(is_known, before[:4] + share * (following[:4] - before[:4]), 0.0)
    x, y, vx, vy = motion
    heading = _turned(before[4], following[4], share)
    return {
        "valid": is_known,
        "position": np.stack((x + extrapolated_s * vx, y + extrapolated_s * vy), -1),
        "velocity": np.stack((vx, vy), -1),
        "heading": np.where(is_known, heading, UNKNOWN_HEADING),
    }


def _turned(
    before: NDArray[np.float64], following: NDArray[np.float64], share: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Interpolate headings ``[A, G]``, NaN where unknown; if one is unknown, return the other.

    At the time of one state, the other's heading does not matter.
    """
    turn = wrap_angle(following - before)
    turned = given_heading(wrap_angle(before + share * turn))
    use_following = (share > 1 - SAME_TIME) | ((share > SAME_TIME) & np.isnan(before))
    either = np.where(use_following, following, before)
    heading = np.where((share > 0) & ~np.isnan(turned), turned, either)
    return np.where(np.isnan(heading), UNKNOWN_HEADING, heading)


def _neighbours(
    valid: NDArray[np.bool_], time: NDArray[np.float64], grid: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the steps ``[A, G]`` of the last valid states up to each grid time, and of the first after it.

    If there is none, the first or the last step.
    """
    last = len(time) - 1
    steps = np.arange(last + 1)
    at_or_before = np.where(valid, steps, 0)
    at_or_before = np.maximum.accumulate(at_or_before, axis=1)
    at_or_after = np.where(valid, steps, last)[:, ::-1]
    at_or_after = np.minimum.accumulate(at_or_after, axis=1)[:, ::-1]
    following = np.searchsorted(time, grid, side="right")
    return at_or_before[:, (following - 1).clip(0)], at_or_after[:, following.clip(max=last)]


def resample_forecast(forecast: Forecast, old_step_s: float, step_s: float, steps: int) -> Forecast:
    """Resample a forecast from steps of ``old_step_s`` seconds to ``steps`` steps of ``step_s`` seconds.

    Positions and scales are interpolated linearly. The forecast must be long enough; this is not checked.
    """
    speed = forecast.speed[:, :1, :1]
    heading = forecast.heading[:, :1, :1]
    first = forecast.trajectory[:, :1, :1]
    # The last observed position is one step before the first of any mode: [A, 1, 1, 2].
    start = first - old_step_s * speed[..., None] * unit_vector(heading)
    old_step = np.arange(1, steps + 1) * step_s / old_step_s  # fractional
    left = np.minimum((old_step + SAME_TIME).astype(np.int64), forecast.trajectory.shape[2] - 1)
    share = (old_step - left)[:, None]

    def mix(values: NDArray[np.float64], origin: NDArray[np.float64]) -> NDArray[np.float64]:
        """Interpolate ``[A, K, F, 2]`` values that follow ``origin`` at the last observed step."""
        first_values = np.broadcast_to(origin, (*values.shape[:2], 1, 2))
        steps_from_now = np.concatenate((first_values, values), axis=2)
        before = steps_from_now[:, :, left]
        return before + share * (steps_from_now[:, :, left + 1] - before)

    scale = None
    if forecast.scale is not None:
        scale = mix(forecast.scale, forecast.scale[:, :, :1])
    return Forecast.from_trajectories(
        forecast.scenario_id,
        forecast.track_id,
        mix(forecast.trajectory, start),
        forecast.probability,
        origin=start[:, 0, 0],
        origin_heading=heading[:, 0, 0],
        step_s=step_s,
        scale=scale,
    )
