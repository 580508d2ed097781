"""evaluate: the same numbers as av2, of which every disagreement is noticed; what cannot be scored."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from av2.datasets.motion_forecasting.eval import metrics as av2

from tests.conftest import output_of, rejects, run
from tests.evaluation.predictors import ChangedStore, Scattered, ScatteredJoint
from trajpred import to_av2
from trajpred.data import environment
from trajpred.evaluation import agents, av2_check, evaluate
from trajpred.evaluation.av2_check import agrees_with_av2
from trajpred.evaluation.report import tables
from trajpred.metrics import displacement
from trajpred.store import ScenarioStore


def test_values_per_scenario_are_those_of_the_focal_agents(store: ScenarioStore) -> None:
    predictor = Scattered()
    found = evaluate(predictor, store, batch_size=2, progress=False)
    expected = []
    for scenario in store:
        forecast = predictor.one(scenario).of(np.array([scenario.focal_id]))
        truth = scenario.tracks.position[scenario.focal, 50:]
        expected.append(av2.compute_fde(forecast.trajectory[0], truth).min())
    assert found.per_scenario["focal"]["minFDE6"].to_pylist() == pytest.approx(expected, abs=6e-5)
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
    assert tables(found)[0].title.startswith("scattered: 5 scenarios, K = 1")
    whole = evaluate(Scattered(), store, progress=False).metrics["all"]["count"]
    assert found.metrics["all"]["count"] + found.missing["all"] == whole


def test_only_recorded_futures_are_scored(store: ScenarioStore) -> None:
    """A split without futures, and one whose futures were all continued by a model."""
    test = ScenarioStore(store.path, "test")
    rejects("no scenario with a future", evaluate, Scattered(), test, progress=False)
    continued = ChangedStore(store, lambda scenario: replace(scenario, continued=scenario.num_future))
    message = "no scenario of split 'val' has a recorded future.*continued is never scored: evaluate a split"
    rejects(message, evaluate, Scattered(), continued, progress=False)


@pytest.mark.parametrize("modes", [6, 20])
def test_every_metric_agrees_and_means_are_those_of_the_evaluation(store: ScenarioStore, modes: int) -> None:
    found = evaluate(ScatteredJoint(modes=modes), store, check_with_av2=True, batch_size=2, progress=False)
    assert agrees_with_av2(found), "four metrics at K = 1 and 6, five of joint futures"
    assert len(found.av2) == 13, "four metrics at K = 1 and 6, five of joint futures"
    for name, one in found.av2.items():
        every = found.metrics["all"] if name in found.metrics["all"] else found.joint["scored"]
        assert one["av2"] == pytest.approx(one["trajpred"], rel=1e-12)
        assert one["count"] <= every["count"]
        if name in found.metrics["all"]:
            assert one["av2"] == pytest.approx(every[name], rel=1e-5), name
    assert found.av2["actorCR"]["av2"] > 0, "some agents collide"


@pytest.mark.parametrize(
    ("module", "name"), [(av2_check, "agent_metrics"), (agents, "joint_metrics")], ids=["agents", "joint"]
)
def test_a_metric_that_differs_for_one_agent_is_noticed(
    store: ScenarioStore, module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    correct = getattr(module, name)

    def wrong(*args: torch.Tensor, **more: Any) -> dict[str, torch.Tensor]:
        found = correct(*args, **more)
        next(iter(found.values()))[0] += 2e-6
        return found

    monkeypatch.setattr(module, name, wrong)
    found = evaluate(ScatteredJoint(), store, check_with_av2=True, limit=2, progress=False)
    assert not agrees_with_av2(found)


def test_other_joint_modes_are_noticed(store: ScenarioStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """All twenty joint modes of a predictor instead of the six most probable ones."""
    monkeypatch.setattr(displacement, "JOINT_MODES", 20)
    found = evaluate(ScatteredJoint(modes=20), store, check_with_av2=True, limit=2, progress=False)
    assert not agrees_with_av2(found)


def test_the_command_prints_the_table_and_fails_on_a_difference(
    store: ScenarioStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["evaluate", "--store", store.path, "--check-with-av2", "--limit", 1]
    assert "largest difference" in output_of(capsys, *command)
    compute = av2.compute_fde
    monkeypatch.setattr(av2, "compute_fde", lambda *args: compute(*args) + 1e-5)
    assert run(*command) == 1


def test_without_av2_one_sentence_says_so(store: ScenarioStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "has_av2", lambda: False)
    for needs in (lambda: evaluate(Scattered(), store, check_with_av2=True), lambda: to_av2(store[0])):
        rejects("needs av2", needs)
