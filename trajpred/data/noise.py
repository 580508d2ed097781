"""The noise of a tracker: noisy positions, and states derived from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trajpred.data.motion import causal_heading, causal_velocity
from trajpred.data.tracks import Tracks

#: Correlation time (s) of slow noise, like a filter's drift: a fit over a second does not average it out.
SLOW_S = 1.0


def slow(noise: NDArray[np.float64], step_s: float) -> NDArray[np.float64]:
    """Correlate white noise ``[A, T, 2]`` over :data:`SLOW_S`, keeping its standard deviation.

    The covariance of two steps is exp(-Δt / :data:`SLOW_S`), that of an Ornstein-Uhlenbeck process (Uhlenbeck
    and Ornstein 1930).
    """
    time = np.arange(noise.shape[1]) * step_s
    covariance = np.exp(-np.abs(time[:, None] - time) / SLOW_S)
    return np.linalg.cholesky(covariance) @ noise


def add_noise(tracks: Tracks, noise: NDArray[np.float64]) -> Tracks:
    """Add ``noise`` ``[A, T, 2]`` (m) to the valid positions of the first ``T`` steps."""
    observed = slice(0, noise.shape[1])
    position = tracks.position.copy()
    position[:, observed] += np.where(tracks.valid[:, observed, None], noise, 0.0)
    return replace(tracks, position=position)


def derive_states(tracks: Tracks, num_observed: int, step_s: float) -> Tracks:
    """Derive the observed headings and velocities from the positions, as for data without them."""
    observed = slice(0, num_observed)
    valid = tracks.valid[:, observed]
    position = tracks.position[:, observed]
    velocity = tracks.velocity.copy()
    heading = tracks.heading.copy()
    velocity[:, observed] = causal_velocity(position, valid, step_s)
    derived = causal_heading(velocity[:, observed], position, valid)
    heading[:, observed] = np.where(valid, derived, 0.0)
    return replace(tracks, heading=heading, velocity=velocity)
