"""Models on data of any history, horizon, time step and map: finite forecasts on the data's own grid."""

from __future__ import annotations

import numpy as np
import pytest

from trajpred.data.resample import resample
from trajpred.data.scenario import Scenario
from trajpred.model import pretrained
from trajpred.predictors import load_predictor
from trajpred.predictors.checkpoint import attention_of

#: Observed steps, seconds between them, and future steps.
WINDOWS = [(8, 0.5, 12), (50, 0.1, 30), (125, 0.04, 150), (11, 0.1, 80), (1, 0.1, 60), (5, 0.5, 0)]
ROAD = [[[-200, 0], [0, 0]], [[0, 0], [200, 0]], [[-200, 3.5], [200, 3.5]]]


#: The smallest weights that ship; the others are slow.
MODELS = ["argoverse-nano"]
OTHERS = [name for name in pretrained.list_models() if name not in MODELS]


@pytest.fixture(
    scope="module", params=[*MODELS, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def two_cars(observed: int, step_s: float, future: int, with_map: bool) -> Scenario:
    time = (np.arange(observed + future) - observed + 1) * step_s
    cars = ((10, 0), (12, 3.5))
    paths = np.stack([np.stack((speed * time, np.full_like(time, y)), -1) for speed, y in cars])
    return Scenario.from_arrays(
        paths, num_observed=observed, step_s=step_s, map=ROAD if with_map else None, scenario_id=f"{observed}"
    )


@pytest.mark.parametrize("with_map", [True, False])
@pytest.mark.parametrize("window", WINDOWS)
def test_every_window_is_predicted_on_its_own_grid(
    name: str, window: tuple[int, float, int], with_map: bool
) -> None:
    predictor = load_predictor(name)
    observed, step_s, future = window
    scenario = two_cars(observed, step_s, future, with_map)
    [found] = predictor([scenario])
    reach = round(predictor.horizon * predictor.step_s / step_s)
    steps = min(future or round(6 / step_s), reach)
    assert found.trajectory.shape == (2, 6, steps, 2)
    assert np.isfinite(found.trajectory).all()
    assert found.probability.sum(1) == pytest.approx([1, 1])
    assert found.track_id.tolist() == ["0", "1"]
    start = np.abs(found.trajectory[:, :, 0] - scenario.tracks.position[:, None, observed - 1])
    if observed == 1:  # the speed is unknown: a single mode may be fast
        start = np.median(start, axis=1)
    assert start.max() < 20 * step_s, "the first step is one of the scenario's own"


def test_leading_steps_that_were_not_observed_change_nothing(name: str) -> None:
    """Truth: the same recording, cut to the steps that were observed."""
    predictor = load_predictor(name)
    scenario = two_cars(12, 0.1, 30, True)
    path = np.concatenate((np.full((2, 25, 2), np.nan), scenario.tracks.position), 1)
    padded = Scenario.from_arrays(path, num_observed=37, map=ROAD, scenario_id=scenario.scenario_id)
    [one], [other] = predictor([scenario]), predictor([padded])
    np.testing.assert_allclose(one.trajectory, other.trajectory, atol=1e-4)
    np.testing.assert_allclose(one.probability, other.probability, atol=1e-5)


def test_scenarios_of_different_windows_are_predicted_together(name: str) -> None:
    predictor = load_predictor(name)
    scenarios = [two_cars(*window, True) for window in WINDOWS]
    for scenario, found in zip(scenarios, predictor(scenarios), strict=True):
        [alone] = predictor([scenario])
        assert found.scenario_id == scenario.scenario_id
        np.testing.assert_allclose(found.trajectory, alone.trajectory, atol=1e-4)


def test_attention_is_that_of_the_forecast_at_the_model_s_time_step(name: str) -> None:
    predictor = load_predictor(name)
    scenario = two_cars(25, 0.2, 30, with_map=True)
    [found] = attention_of(predictor, [scenario])
    [expected] = attention_of(predictor, [resample(scenario, predictor.step_s)])
    assert np.array_equal(found.weight, expected.weight)
