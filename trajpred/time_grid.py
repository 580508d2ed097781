"""Scenarios and forecasts on other time grids: a model has its own step, data have theirs."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from trajpred.clock import GAP_STEPS
from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.geometry import unit_vector, wrap_angle
from trajpred.scenario import Scenario, Tracks

#: Share of a step by which times may differ and still be the same.
SAME_TIME = 0.01


def same_step(step_s: float, other_s: float) -> bool:
    """Whether two steps are the same but for the jitter of clocks, a tenth of a step."""
    return abs(step_s - other_s) <= 0.1 * other_s


def resample(scenario: Scenario, step_s: float) -> Scenario:
    """Return the scenario at steps of ``step_s`` seconds before and after its last observed step.

    Between two recorded states of a track, position and velocity are interpolated linearly and the heading
    along the shorter arc. A state whose neighbours are missing counts for the nearest time within half a
    step, moved there at its velocity; other times stay unknown, so gaps stay gaps. Tracks that no time of the
    grid meets are omitted.

    Raises: DataError if ``step_s`` is not positive, or no time of the grid meets the focal track's history.
    """
    require(0 < step_s < np.inf, "step_s", f"must be a positive number of seconds, is {step_s}")
    now = scenario.num_observed - 1
    time = (scenario.timestamps_ns - scenario.timestamps_ns[now]) / 1e9
    before = int(-time[0] / step_s + SAME_TIME)
    after = int(time[-1] / step_s + SAME_TIME)
    if before == after == 0:
        before = 1  # one stamp would not say how long a step is
    grid: NDArray[np.float64] = np.arange(-before, after + 1) * np.float64(step_s)
    states = _states(scenario.tracks, time, grid, GAP_STEPS * scenario.step_s, step_s)
    kept = states.valid.any(axis=1)
    tracks = Tracks(**{one.name: getattr(states, one.name)[kept] for one in fields(states)})
    stamps = scenario.timestamps_ns[now] + np.round(grid * 1e9).astype(np.int64)
    return replace(scenario, timestamps_ns=stamps, num_observed=before + 1, tracks=tracks).validate()


def _states(
    tracks: Tracks, time: NDArray[np.float64], grid: NDArray[np.float64], gap_s: float, step_s: float
) -> Tracks:
    """Interpolate the states at ``time`` ``[T]`` to the times ``grid`` ``[G]``, in seconds."""
    last, row = len(time) - 1, np.arange(len(tracks))[:, None]
    step = (np.searchsorted(time, grid + SAME_TIME * step_s, side="right") - 1).clip(0, last)
    # The known states around each time, ``[A, G]``; the first or last step where there is none.
    steps = np.arange(last + 1)
    left = np.maximum.accumulate(np.where(tracks.valid, steps, 0), axis=1)[:, step]
    known = np.where(tracks.valid, steps, last)[:, ::-1]
    right = np.minimum.accumulate(known, axis=1)[:, ::-1][:, (step + 1).clip(max=last)]
    apart = time[right] - time[left]
    share = ((grid - time[left]) / np.where(apart > 0, apart, 1.0)).clip(0.0, 1.0)
    near = np.where((share > 0.5) & tracks.valid[row, right] | ~tracks.valid[row, left], right, left)
    after = grid - time[near]
    between = tracks.valid[row, left] & tracks.valid[row, right] & (apart <= gap_s) & (share > SAME_TIME)
    valid = between | (tracks.valid[row, near] & (np.abs(after) <= (0.5 + SAME_TIME) * step_s))

    def mix(values: NDArray[np.float64], nearest: NDArray[np.float64]) -> NDArray[np.float64]:
        mixed = values[row, left] + share[..., None] * (values[row, right] - values[row, left])
        return np.where(valid[..., None], np.where(between[..., None], mixed, nearest), 0.0)

    heading, velocity = tracks.heading[row, near], tracks.velocity[row, near]
    turn = wrap_angle(tracks.heading[row, right] - tracks.heading[row, left])
    turned = wrap_angle(tracks.heading[row, left] + share * turn)
    return replace(
        tracks,
        valid=valid,
        position=mix(tracks.position, tracks.position[row, near] + velocity * after[..., None]),
        heading=np.where(valid, np.where(between, turned, heading), 0.0),
        velocity=mix(tracks.velocity, velocity),
    )


def resample_forecast(forecast: Forecast, from_s: float, step_s: float, steps: int) -> Forecast:
    """Return ``steps`` steps of ``step_s`` seconds of a forecast with steps of ``from_s`` seconds.

    Positions and scales are interpolated linearly; the forecast must reach as far.
    """
    speed, heading = forecast.speed[:, :1, :1], forecast.heading[:, :1, :1]
    first = forecast.trajectory[:, :1, :1]
    start = first - from_s * speed[..., None] * unit_vector(heading)
    at = np.arange(1, steps + 1) * step_s / from_s
    left = np.minimum((at + SAME_TIME).astype(np.int64), forecast.trajectory.shape[2] - 1)
    share = (at - left)[:, None]

    def mix(values: NDArray[np.float64], origin: NDArray[np.float64]) -> NDArray[np.float64]:
        known = np.concatenate((np.broadcast_to(origin, (*values.shape[:2], 1, 2)), values), axis=2)
        mixed: NDArray[np.float64] = known[:, :, left] + share * (known[:, :, left + 1] - known[:, :, left])
        return mixed

    return Forecast.from_trajectories(
        forecast.scenario_id,
        forecast.track_id,
        mix(forecast.trajectory, start),
        forecast.probability,
        origin=start[:, 0, 0],
        origin_heading=heading[:, 0, 0],
        step_s=step_s,
        scale=None if forecast.scale is None else mix(forecast.scale, forecast.scale[:, :, :1]),
    )
