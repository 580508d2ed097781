"""Predictors of other packages by name: what is none is one sentence that names it and its package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.predictors import PREDICTORS, CheckpointPredictor, Predictor, load_predictor
from trajpred.predictors.baselines import constant_velocity


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
    with pytest.raises(DataError) as caught:
        load_predictor("mine")
    assert f"predictor 'mine' {sentence}" in str(caught.value)


@pytest.mark.parametrize("returned", [lambda _: None, tuple, lambda _: [None, None], lambda made: made[:1]])
def test_what_is_no_forecast_of_each_scenario_is_named(
    returned: Any, sample_scenarios: list[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenarios = [scenario for scenario in sample_scenarios if scenario.has_future][:2]
    monkeypatch.setitem(PREDICTORS, "mine", Mine)
    forecasts = load_predictor("mine")(scenarios)
    assert [forecast.scenario_id for forecast in forecasts] == [s.scenario_id for s in scenarios]
    monkeypatch.setitem(PREDICTORS, "mine", lambda: Mine(returned))
    with pytest.raises(DataError, match="predictor 'mine' of tests must return a list with a Forecast for"):
        load_predictor("mine")(scenarios)


def test_a_model_of_another_package_stays_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PREDICTORS, "mine", Renamed)
    assert isinstance(load_predictor("mine"), Renamed)
