"""predict: predictors into predictions files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from av2.datasets.motion_forecasting.eval.submission import ChallengeSubmission

from tests.predictors.saved import saved
from trajpred.errors import DataError
from trajpred.evaluation import evaluate
from trajpred.forecast import Forecast
from trajpred.predictors import FilePredictor, Predictor, load_predictor
from trajpred.predictors.predict import Agents, predict, tracks_to_predict
from trajpred.predictors.predictions_file import read_predictions
from trajpred.scenario import Scenario
from trajpred.store import ScenarioStore


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with joint modes."""
    return saved(tmp_path_factory.mktemp("model"))


class Selected(Predictor):
    """A predictor's forecasts of the agents that ``predict`` writes."""

    name = "selected"

    def __init__(self, source: str | Path, agents: Agents, joint: bool) -> None:
        self.predictor, self.agents, self.joint = load_predictor(source, joint), agents, joint

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        found = zip(self.predictor(scenarios), scenarios, strict=True)
        return [one.of(tracks_to_predict(scenario, self.agents)) for one, scenario in found]


@pytest.mark.parametrize(
    ("name", "agents", "joint"),
    [("lane_following", "focal", False), ("model", "scored", True)],
)
def test_file_scores_as_its_predictor(
    store_path: Path,
    tmp_path: Path,
    checkpoint: Path,
    name: str,
    agents: Agents,
    joint: bool,
) -> None:
    store, out = ScenarioStore(store_path, "val"), tmp_path / "p.parquet"
    source = checkpoint if name == "model" else name
    written = predict(source, out, store_path, "val", agents, joint, batch_size=2, progress=False)
    assert written == (len(store), sum(len(tracks_to_predict(scenario, agents)) for scenario in store))
    file = load_predictor(out)
    assert isinstance(file, FilePredictor) and file.name == "p.parquet" and file.training == {}
    found = evaluate(file, store, batch_size=3, progress=False)
    expected = evaluate(Selected(source, agents, joint), store, batch_size=2, progress=False)
    assert found.missing == expected.missing and found.metrics.keys() == expected.metrics.keys()
    for group, values in expected.metrics.items():
        assert found.metrics[group] == pytest.approx(values, abs=1e-6)
    assert found.worlds["scored"] == pytest.approx(expected.worlds["scored"], abs=1e-6)
    assert file.problems == {} and not file.file.note


def test_scenarios_without_a_future_are_predicted(store_path: Path, tmp_path: Path) -> None:
    store = ScenarioStore(store_path, "test")
    written = predict("lane_following", tmp_path / "p.parquet", store_path, "test", progress=False)
    assert not any(one.has_future for one in store) and written == (len(store), len(store))
    submission = ChallengeSubmission.from_parquet(tmp_path / "p.parquet").predictions
    found = {scenario: list(tracks) for scenario, (_, tracks) in submission.items()}
    assert found == {one.scenario_id: [one.focal_id] for one in store}
    predict("constant_velocity", tmp_path / "p.parquet", store_path, limit=2, progress=False)
    ids = ScenarioStore(store_path, "val").scenario_ids
    assert read_predictions(tmp_path / "p.parquet").scenario_ids == ids[:2]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"out": Path("p.csv")}, "parquet"),
        ({"limit": 0}, "positive"),
        ({"split": "nothing"}, "nothing"),
        ({"agents": "scored"}, "need joint futures"),
        ({"agents": "scored", "joint": True}, "no joint futures"),
    ],
)
def test_impossible_arguments_are_rejected(
    store_path: Path,
    tmp_path: Path,
    wrong: dict[str, Any],
    message: str,
) -> None:
    options: dict[str, Any] = {"out": tmp_path / "p.parquet", "store": store_path, **wrong}
    with pytest.raises(DataError, match=message):
        predict("lane_following", progress=False, **options)
    assert not (tmp_path / "p.parquet").exists()
