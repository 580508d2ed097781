"""Recordings of a scenario by trackers of other rates, on clocks that jitter."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trajpred.data.scenario import Scenario
from trajpred.data.tracks import TrackCategory, Tracks

#: Heading (radians) of tracks that have none in the recording.
HEADING = 0.3


def recorded_at(scenario: Scenario, rate: float, jitter: float, random: np.random.Generator) -> Scenario:
    """Record the observed steps at ``rate`` Hz, ending with the last one.

    States are interpolated over the time of each track; all have headings.

    Args:
        jitter: share of a step by which every other time may differ.
    """
    now = scenario.num_observed - 1
    recorded_s = (scenario.timestamps_ns[: now + 1] - scenario.timestamps_ns[now]) / 1e9
    steps = np.arange(int(-recorded_s[0] * rate + 1e-6) + 1)
    late = random.uniform(-jitter, jitter, len(steps)) * (steps > 0)
    time = np.sort((late - steps) / rate)
    time = time[time >= recorded_s[0] - 1e-9]
    states = np.zeros((5, len(scenario.tracks), len(time)))
    valid = np.zeros(states.shape[1:], np.bool_)
    for row in range(len(scenario.tracks)):
        columns = _columns(scenario.tracks, row, now + 1)
        if not len(columns[0]):
            continue
        own_s = recorded_s[columns[0]]
        valid[row] = (own_s[0] - 1e-9 <= time) & (time <= own_s[-1] + 1e-9)
        for state, values in zip(states[:, row], columns[1:], strict=True):
            state[:] = np.interp(time, own_s, values)
    states *= valid
    x, y, vx, vy, heading = states
    tracks = Tracks(
        track_id=scenario.tracks.track_id,
        object_type=scenario.tracks.object_type,
        category=np.full(len(valid), TrackCategory.UNSCORED, np.int8),
        valid=valid,
        position=np.stack((x, y), -1),
        heading=(heading + np.pi) % (2 * np.pi) - np.pi,
        velocity=np.stack((vx, vy), -1),
    )
    return Scenario(
        scenario_id=scenario.scenario_id,
        city=scenario.city,
        timestamps_ns=scenario.timestamps_ns[now] + np.round(time * 1e9).astype(np.int64),
        num_observed=len(time),
        focal_id=scenario.focal_id,
        tracks=tracks.take(np.flatnonzero(valid.any(axis=1))),
        map=scenario.map,
    )


def _columns(tracks: Tracks, row: int, steps: int) -> list[NDArray[np.float64]]:
    """Return the valid steps of a track and its x, y, vx, vy and heading there."""
    valid = np.flatnonzero(tracks.valid[row, :steps])
    heading = tracks.heading[row, valid]
    known = heading != 0
    complete = np.full(len(valid), HEADING)
    if known.any():
        complete = np.interp(valid, valid[known], np.unwrap(heading[known]))
    motion = np.concatenate((tracks.position[row, valid], tracks.velocity[row, valid]), -1)
    return [valid, *motion.T, complete]
