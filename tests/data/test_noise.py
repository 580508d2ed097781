"""Noise has the covariance of its definition, and disturbs nothing but observed states."""

from __future__ import annotations

import numpy as np
import pytest

from trajpred.data.motion import causal_heading, causal_velocity
from trajpred.data.noise import add_noise, derive_states, slow
from trajpred.data.scenario import Scenario


@pytest.mark.parametrize("step_s", [0.1, 0.5])
def test_slow_noise_is_an_ornstein_uhlenbeck_process(step_s: float) -> None:
    """Its covariance over Δt is exp(-Δt / 1 s), whatever the step."""
    noise = slow(np.random.default_rng(0).normal(size=(20_000, 12, 2)), step_s)
    for lag in (0, 1, 5, 11):
        covariance = (noise[:, 0] * noise[:, lag]).mean()
        assert covariance == pytest.approx(np.exp(-lag * step_s), abs=0.02)
    assert (noise[..., 0] * noise[..., 1]).mean() == pytest.approx(0, abs=0.02)


def test_noise_moves_valid_observed_positions_alone(sample_scenarios: list[Scenario]) -> None:
    tracks = sample_scenarios[0].tracks
    noise = np.ones((len(tracks), 50, 2))
    moved = add_noise(tracks, noise).position - tracks.position
    expected = np.repeat(tracks.valid[:, :50, None], 2, axis=2)
    assert np.allclose(moved[:, :50], expected, atol=1e-9)
    assert not moved[:, 50:].any()


def test_derived_states_are_those_of_the_noisy_positions(sample_scenarios: list[Scenario]) -> None:
    scenario = sample_scenarios[0]
    noise = np.random.default_rng(0).normal(0, 0.2, (len(scenario.tracks), 50, 2))
    noisy = add_noise(scenario.tracks, noise)
    derived = derive_states(noisy, 50, 0.1)
    valid = noisy.valid[:, :50]
    velocity = causal_velocity(noisy.position[:, :50], valid, 0.1)
    heading = causal_heading(velocity, noisy.position[:, :50], valid)
    assert np.array_equal(derived.velocity[:, :50], velocity)
    assert np.array_equal(derived.heading[:, :50][valid], heading[valid])
    assert np.array_equal(derived.velocity[:, 50:], scenario.tracks.velocity[:, 50:])
    assert np.array_equal(derived.heading[:, 50:], scenario.tracks.heading[:, 50:])
    assert derived.position is noisy.position
