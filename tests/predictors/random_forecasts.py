"""Forecasts with random futures, and their order in a predictions file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.scenes import straight
from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario

K = 6
F = 60


def random_forecast(
    scenario_id: str, tracks: int, seed: int = 0, modes: int = K, steps: int = F, shared: bool = True
) -> Forecast:
    """Random futures of the tracks of :func:`straight`, thousands of metres from the origin."""
    random = np.random.default_rng(seed)
    path = 5e3 + random.normal(0, 50, (tracks, modes, steps, 2))
    weight = random.dirichlet(np.ones(modes), 1 if shared else tracks)
    return Forecast.from_trajectories(
        scenario_id,
        np.arange(tracks).astype(str),
        path,
        np.broadcast_to(weight, (tracks, modes)).copy(),
        origin=path[:, 0, 0],
        origin_heading=np.zeros(tracks),
        step_s=0.1,
    )


def scene(scenario_id: str, tracks: int, **options: Any) -> Scenario:
    return straight(tracks, scenario_id=scenario_id, **options)


def sorted_modes(forecast: Forecast) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Trajectories and probabilities by descending probability."""
    order = np.argsort(-forecast.probability, axis=1, kind="stable")
    path = np.take_along_axis(forecast.trajectory, order[..., None, None], 1)
    return path, np.take_along_axis(forecast.probability, order, 1)


def assert_same(found: Forecast, expected: Forecast) -> None:
    path, weight = sorted_modes(expected)
    assert found.track_id.tolist() == expected.track_id.tolist()
    np.testing.assert_array_equal(found.trajectory, path)
    np.testing.assert_allclose(found.probability, weight, rtol=0, atol=1e-12)
