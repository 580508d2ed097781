"""Recordings of a scenario by trackers of other rates, on clocks that jitter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trajpred.data.scenario import Scenario
from trajpred.data.tracks import TrackCategory

#: Heading (radians) of tracks that have none in the recording.
HEADING = 0.3


def recorded_at(scenario: Scenario, rate: float, jitter: float, random: np.random.Generator) -> Scenario:
    """Record the observed steps at ``rate`` Hz, ending with the last one.

    States are interpolated over the time of each track; all have headings.

    Args:
        jitter: share of a step by which every other time may differ.
    """
    tracks = scenario.tracks
    now = scenario.num_observed - 1
    recorded_s = (scenario.timestamps_ns[: now + 1] - scenario.timestamps_ns[now]) / 1e9
    steps = np.arange(int(-recorded_s[0] * rate + 1e-6) + 1)
    late = random.uniform(-jitter, jitter, len(steps)) * (steps > 0)
    time = np.sort((late - steps) / rate)
    time = time[time >= recorded_s[0] - 1e-9]
    states = np.zeros((len(tracks), len(time), 5))
    states[..., 4] = HEADING
    valid = np.zeros(states.shape[:2], np.bool_)
    for row in range(len(tracks)):
        seen = np.flatnonzero(tracks.valid[row, : now + 1])
        if not len(seen):
            continue
        own_s = recorded_s[seen]
        valid[row] = (own_s[0] - 1e-9 <= time) & (time <= own_s[-1] + 1e-9)
        motion = np.concatenate((tracks.position[row, seen], tracks.velocity[row, seen]), -1)
        for column in range(4):
            states[row, :, column] = np.interp(time, own_s, motion[:, column])
        heading = tracks.heading[row, seen]
        known = heading != 0
        if known.any():
            states[row, :, 4] = np.interp(time, own_s[known], np.unwrap(heading[known]))
    states *= valid[..., None]
    recorded = replace(
        tracks,
        category=np.full(len(valid), TrackCategory.UNSCORED, np.int8),
        valid=valid,
        position=states[..., :2],
        velocity=states[..., 2:4],
        heading=(states[..., 4] + np.pi) % (2 * np.pi) - np.pi,
    )
    return replace(
        scenario,
        timestamps_ns=scenario.timestamps_ns[now] + np.round(time * 1e9).astype(np.int64),
        num_observed=len(time),
        tracks=recorded.take(np.flatnonzero(valid.any(axis=1))),
    )
