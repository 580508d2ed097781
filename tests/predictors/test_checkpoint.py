"""Predictors of models on any data; loading of any predictor, of other packages too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import rejects
from tests.model.small import saved
from tests.scenes import assert_same_forecasts, in_a_mirror
from trajpred.data.forecast import Forecast
from trajpred.data.resample import resample
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import TrackCategory
from trajpred.model import pretrained
from trajpred.predictors import (
    PREDICTORS,
    CheckpointPredictor,
    EnsemblePredictor,
    Predictor,
    load_ensemble,
    load_predictor,
)
from trajpred.predictors.baselines import constant_velocity
from trajpred.predictors.checkpoint import attention_of


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> CheckpointPredictor:
    return CheckpointPredictor(checkpoint)


def test_mirrored_model_equals_the_model_on_mirrored_scenes(
    model: CheckpointPredictor, sample_scenarios: list[Scenario]
) -> None:
    scenes = sample_scenarios[:2]
    plain, found = model(scenes), model.mirrored()(scenes)
    expected = model([in_a_mirror(scene) for scene in scenes])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.trajectory, other.trajectory * [1, -1], atol=5e-3)
        turned = np.exp(1j * one.heading) * np.exp(1j * other.heading)
        np.testing.assert_allclose(turned, 1, atol=5e-2)
        np.testing.assert_allclose(one.probability, other.probability, atol=1e-4)
    assert np.abs(found[0].trajectory - plain[0].trajectory).max() > 0.1, "mirroring must matter"
    assert model.mirrored().name != model.name
    assert not model.mirror


def test_a_scene_in_which_nobody_was_seen_of_late_has_no_futures(sample_scenarios: list[Scenario]) -> None:
    """The model predicts who was seen within the last second, and the focal track within 2 s."""
    steps = np.arange(120)
    valid = np.stack((steps < 90, steps < 105))
    position = np.stack((np.stack((0.5 * steps, 0 * steps), -1), np.stack((0.5 * steps, 5 + 0 * steps), -1)))
    category = [TrackCategory.FOCAL, TrackCategory.UNSCORED]
    road = [np.array([[-50.0, 0.0], [150.0, 0.0]])]
    lost = Scenario.from_arrays(position, valid=valid, num_observed=120, category=category, map=road)
    predictor = load_predictor("argoverse-nano")
    other = sample_scenarios[0]
    for scenarios in ([lost], [other, lost], [lost, other]):
        sizes = [len(forecast.track_id) for forecast in predictor(scenarios)]
        assert [size == 0 for size in sizes] == [scenario is lost for scenario in scenarios]


def test_joint_modes_are_worlds(checkpoint: Path, sample_scenarios: list[Scenario], tmp_path: Path) -> None:
    [found] = load_predictor(checkpoint, joint=True)(sample_scenarios[:1])
    assert found.is_joint
    assert len(found.track_id) > 1
    single = saved(tmp_path, joint=False)
    rejects("no joint modes: use argoverse-nano, or train", load_predictor, single, joint=True)
    rejects("cannot be merged", load_ensemble, [checkpoint, checkpoint], joint=True)


def test_ensembles_contain_all_modes(model: CheckpointPredictor, sample_scenarios: list[Scenario]) -> None:
    members = [model, model.mirrored(), load_predictor("constant_velocity")]
    [merged] = EnsemblePredictor(members, modes=100)(sample_scenarios[:1])
    assert merged.trajectory.shape[1] == 13
    for member in members:
        [one] = member(sample_scenarios[:1])
        ends = one.trajectory[one.rows(merged.track_id)][:, :, -1]
        near = np.linalg.norm(merged.trajectory[:, None, :, -1] - ends[:, :, None], axis=-1).min(2)
        assert near.max() < 1.0, "every mode is a merged one, or beside one"


class Mine(Predictor):
    name = "mine"

    def __init__(self, returned: Callable[[list[Forecast]], Any] = list) -> None:
        self.returned = returned

    def __call__(self, scenarios: Sequence[Scenario]) -> Any:
        return self.returned([constant_velocity(scenario) for scenario in scenarios])


class Nameless(Predictor):
    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return []


class Uncallable(Predictor):
    name = "mine"


class Renamed(CheckpointPredictor):
    """It keeps what only models have, as attention."""

    def __init__(self) -> None:
        super().__init__("argoverse-nano")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (5, "of builtins cannot be made (TypeError: 'int' object is not callable)"),
        (Mine(), "of tests cannot be made (TypeError: Mine.__call__() missing"),
        (lambda: 1 / 0, "of tests cannot be made (ZeroDivisionError: division by zero)"),
        (lambda: None, "of tests must be a trajpred.predictors.Predictor, is None"),
        (Nameless, "of tests must have a name and a __call__"),
        (Uncallable, "of tests must have a name and a __call__"),
    ],
)
def test_what_is_no_predictor_is_named(make: Any, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PREDICTORS, "mine", make)
    assert f"predictor 'mine' {sentence}" in str(rejects("", load_predictor, "mine"))


@pytest.mark.parametrize("returned", [lambda _: None, tuple, lambda _: [None, None], lambda made: made[:1]])
def test_what_is_no_forecast_of_each_scenario_is_named(
    returned: Any, sample_scenarios: list[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenarios = [scenario for scenario in sample_scenarios if scenario.has_future][:2]
    monkeypatch.setitem(PREDICTORS, "mine", Mine)
    forecasts = load_predictor("mine")(scenarios)
    assert [forecast.scenario_id for forecast in forecasts] == [s.scenario_id for s in scenarios]
    monkeypatch.setitem(PREDICTORS, "mine", lambda: Mine(returned))
    message = "predictor 'mine' of tests must return a list with a Forecast for"
    rejects(message, load_predictor("mine"), scenarios)


def test_a_model_of_another_package_stays_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PREDICTORS, "mine", Renamed)
    assert isinstance(load_predictor("mine"), Renamed)


#: Observed steps, seconds between them, and future steps.
WINDOWS = [(8, 0.5, 12), (50, 0.1, 30), (125, 0.04, 150), (11, 0.1, 80), (1, 0.1, 60), (5, 0.5, 0)]
ROAD = [[[-200, 0], [0, 0]], [[0, 0], [200, 0]], [[-200, 3.5], [200, 3.5]]]


OTHERS = [name for name in pretrained.list_models() if name != "argoverse-nano"]
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in OTHERS]


@pytest.fixture(scope="module", params=["argoverse-nano", *SLOW])
def predictor(request: pytest.FixtureRequest) -> Predictor:
    """The smallest weights that ship; the others are slow."""
    return load_predictor(request.param)


def two_cars(observed: int, step_s: float, future: int, with_map: bool) -> Scenario:
    time = (np.arange(observed + future) - observed + 1) * step_s
    cars = ((10, 0), (12, 3.5))
    paths = np.stack([np.stack((speed * time, np.full_like(time, y)), -1) for speed, y in cars])
    return Scenario.from_arrays(
        paths, num_observed=observed, step_s=step_s, map=ROAD if with_map else None, scenario_id=f"{observed}"
    )


@pytest.mark.parametrize("with_map", [True, False])
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_are_predicted_on_their_grid(
    predictor: CheckpointPredictor, window: tuple[int, float, int], with_map: bool
) -> None:
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


def test_leading_steps_that_were_not_observed_change_nothing(predictor: Predictor) -> None:
    """Truth: the same recording, cut to the steps that were observed."""
    scenario = two_cars(12, 0.1, 30, True)
    path = np.concatenate((np.full((2, 25, 2), np.nan), scenario.tracks.position), 1)
    padded = Scenario.from_arrays(path, num_observed=37, map=ROAD, scenario_id=scenario.scenario_id)
    assert_same_forecasts(predictor([scenario]), predictor([padded]), atol=1e-4, of_probability=1e-5)


def test_scenarios_of_different_windows_are_predicted_together(predictor: Predictor) -> None:
    scenarios = [two_cars(*window, True) for window in WINDOWS]
    alone = [predictor([scenario])[0] for scenario in scenarios]
    assert_same_forecasts(predictor(scenarios), alone, atol=1e-4, of_probability=1e-4)


def test_attention_is_that_of_the_forecast_at_the_model_s_time_step(predictor: CheckpointPredictor) -> None:
    scenario = two_cars(25, 0.2, 30, with_map=True)
    [found] = attention_of(predictor, [scenario])
    [expected] = attention_of(predictor, [resample(scenario, predictor.step_s)])
    assert np.array_equal(found.weight, expected.weight)
