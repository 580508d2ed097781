"""--check-with-av2: agreement with av2's functions, and detection of every disagreement."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from av2.datasets.motion_forecasting.eval import metrics as av2

from tests.conftest import run
from tests.evaluation.predictors import Scattered, ScatteredJoint
from trajpred import to_av2
from trajpred.data import environment
from trajpred.errors import DataError
from trajpred.evaluation import agents, av2_check, evaluate
from trajpred.evaluation.av2_check import agrees_with_av2
from trajpred.metrics import displacement
from trajpred.store import ScenarioStore


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


def test_a_choice_of_other_joint_modes_is_noticed(
    store: ScenarioStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All twenty joint modes of a predictor instead of the six most probable ones."""
    monkeypatch.setattr(displacement, "JOINT_MODES", 20)
    found = evaluate(ScatteredJoint(modes=20), store, check_with_av2=True, limit=2, progress=False)
    assert not agrees_with_av2(found)


def test_the_command_prints_the_table_and_fails_on_a_difference(
    store: ScenarioStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["evaluate", "--store", store.path, "--check-with-av2", "--limit", 1]
    assert run(*command) == 0
    assert "largest difference" in capsys.readouterr().out
    compute = av2.compute_fde
    monkeypatch.setattr(av2, "compute_fde", lambda *args: compute(*args) + 1e-5)
    assert run(*command) == 1


def test_without_av2_one_sentence_says_so(store: ScenarioStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "has_av2", lambda: False)
    for needs in (lambda: evaluate(Scattered(), store, check_with_av2=True), lambda: to_av2(store[0])):
        with pytest.raises(DataError, match="needs av2"):
            needs()
