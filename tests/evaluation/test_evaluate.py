"""evaluate: the same numbers as av2; what is missing, and what cannot be scored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from av2.datasets.motion_forecasting.eval import metrics as av2

from tests.evaluation.predictors import Scattered
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.evaluation import evaluate
from trajpred.store import ScenarioStore


def test_values_per_scenario_are_those_of_the_focal_agents(store: ScenarioStore) -> None:
    """By av2; the means are compared with av2's in ``test_av2_check.py``."""
    predictor = Scattered()
    found = evaluate(predictor, store, batch_size=2, progress=False)
    expected = []
    for scenario in store:
        forecast = predictor.one(scenario).of(np.array([scenario.focal_id]))
        truth = scenario.tracks.position[scenario.focal, 50:]
        expected.append(av2.compute_fde(forecast.trajectory[0], truth).min())
    assert found.per_scenario["focal"]["minFDE6"].to_pylist() == pytest.approx(expected, abs=6e-5)
    for name in ("minADE6", "minFDE6", "MR6", "brier-minFDE6"):
        mean = np.mean(found.per_scenario["focal"][name])
        assert found.metrics["focal"][name] == pytest.approx(mean, abs=6e-5), name
    assert found.scenarios == found.metrics["focal"]["count"] == len(store) == 5
    assert found.missing == {"focal": 0, "scored": 0, "moving": 0, "all": 0, "scenarios": 0}
    assert found.per_scenario["focal"]["scenario_id"].to_pylist() == store.scenario_ids
    assert found.training == {"seed": 3}
    assert found.store["source"] == "argoverse2"
    assert {"trajpred", "torch", "cpu", "threads", "gpu", "wall_s"} <= found.environment.keys()


def test_agents_without_a_forecast_are_missing(store: ScenarioStore) -> None:
    omitted = frozenset(scenario.focal_id for scenario in store)
    found = evaluate(Scattered(omitted), store, progress=False)
    assert found.metrics["focal"] == {"count": 0}
    assert found.missing["focal"] == len(omitted) <= found.missing["scored"] <= found.missing["all"]
    assert len(found.per_scenario["focal"]) == 0
    whole = evaluate(Scattered(), store, progress=False).metrics["all"]["count"]
    assert found.metrics["all"]["count"] + found.missing["all"] == whole


def test_split_without_futures_is_rejected(store_path: Path) -> None:
    with pytest.raises(DataError, match="no scenario with a future"):
        evaluate(Scattered(), ScenarioStore(store_path, "test"), progress=False)


class ContinuedStore(ScenarioStore):
    """A split whose futures were all continued by a model."""

    def __init__(self, store: ScenarioStore) -> None:
        self.__dict__.update(store.__dict__)

    def __getitem__(self, index: int) -> Scenario:
        scenario = super().__getitem__(index)
        return replace(scenario, continued=scenario.num_steps - scenario.num_observed)


def test_futures_that_a_model_continued_are_not_scored(store: ScenarioStore) -> None:
    message = "no scenario of split 'val' has a recorded future.*continued is never scored: evaluate a split"
    with pytest.raises(DataError, match=message):
        evaluate(Scattered(), ContinuedStore(store), progress=False)
