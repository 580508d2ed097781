"""predict: predictors into predictions files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from av2.datasets.motion_forecasting.eval.submission import ChallengeSubmission

from tests.conftest import rejects
from tests.model.small import saved
from tests.predictors.random_forecasts import assert_same, random_forecast, scene, sorted_modes
from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.evaluation import evaluate
from trajpred.predictors import FilePredictor, Predictor, load_predictor
from trajpred.predictors.predict import Agents, predict, tracks_to_predict, write_predictions
from trajpred.predictors.predictions_file import read_predictions
from trajpred.store import ScenarioStore


class Selected(Predictor):
    """A predictor's forecasts of the agents that ``predict`` writes."""

    name = "selected"

    def __init__(self, source: str | Path, agents: Agents, joint: bool) -> None:
        self.predictor, self.agents, self.joint = load_predictor(source, joint), agents, joint

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        found = zip(self.predictor(scenarios), scenarios, strict=True)
        return [one.of(tracks_to_predict(scenario, self.agents)) for one, scenario in found]


@pytest.mark.parametrize(
    ("name", "agents", "joint"), [("lane_following", "focal", False), ("model", "scored", True)]
)
def test_file_scores_as_its_predictor(
    store_path: Path, tmp_path: Path, name: str, agents: Agents, joint: bool
) -> None:
    store, out = ScenarioStore(store_path, "val"), tmp_path / "p.parquet"
    source = saved(tmp_path) if name == "model" else name
    written = predict(load_predictor(source, joint), store, out, agents, batch_size=2, progress=False)
    assert written == (len(store), sum(len(tracks_to_predict(scenario, agents)) for scenario in store))
    file = load_predictor(out)
    assert isinstance(file, FilePredictor)
    assert file.name == "p.parquet"
    assert file.training == {}
    found = evaluate(file, store, batch_size=3, progress=False)
    expected = evaluate(Selected(source, agents, joint), store, batch_size=2, progress=False)
    assert found.missing == expected.missing
    assert found.metrics.keys() == expected.metrics.keys()
    for group, values in expected.metrics.items():
        assert found.metrics[group] == pytest.approx(values, abs=1e-6)
    assert found.joint["scored"] == pytest.approx(expected.joint["scored"], abs=1e-6)
    assert file.problems == {}
    assert not file.file.note
    if not joint:
        rejects("no joint futures: it contains one track", load_predictor, out, joint=True)
        return
    again = tmp_path / "again.parquet"  # a file of worlds is a predictor of worlds
    assert predict(load_predictor(out, joint=True), store, again, "scored", progress=False) == written
    for one, other in zip(file(list(store)), load_predictor(again)(list(store)), strict=True):
        np.testing.assert_array_equal(one.trajectory, other.trajectory)


def test_all_agents_are_written_with_their_own_probabilities(store_path: Path, tmp_path: Path) -> None:
    """Moving agents of the file score what those of the predictor do; nothing in it is a joint mode."""
    source = load_predictor("lane_following")
    store = ScenarioStore(store_path, "val")
    out = tmp_path / "p.parquet"
    predict(source, store, out, "all", progress=False)
    file = load_predictor(out)
    assert not file.joint
    found = evaluate(file, store, progress=False)
    expected = evaluate(source, store, progress=False)
    for group in ("focal", "scored", "moving", "all"):
        assert found.metrics[group] == pytest.approx(expected.metrics[group], abs=1e-6), group
    assert found.joint == expected.joint


def test_scenarios_without_a_future_are_predicted(store_path: Path, tmp_path: Path) -> None:
    store = ScenarioStore(store_path, "test")
    written = predict(load_predictor("lane_following"), store, tmp_path / "p.parquet", progress=False)
    assert not any(one.has_future for one in store)
    assert written == (len(store), len(store))
    submission = ChallengeSubmission.from_parquet(tmp_path / "p.parquet").predictions
    found = {scenario: list(tracks) for scenario, (_, tracks) in submission.items()}
    assert found == {one.scenario_id: [one.focal_id] for one in store}
    val = ScenarioStore(store_path, "val")
    predict(load_predictor("constant_velocity"), val, tmp_path / "p.parquet", limit=2, progress=False)
    assert read_predictions(tmp_path / "p.parquet").scenario_ids == val.scenario_ids[:2]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"out": Path("p.csv")}, "parquet"), ({"limit": 0}, "positive"), ({"agents": "scored"}, "need joint")],
)
def test_impossible_arguments_are_rejected(
    store_path: Path, tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    options: dict[str, Any] = {"out": tmp_path / "p.parquet", **wrong}
    store = ScenarioStore(store_path, "val")
    rejects(message, predict, load_predictor("lane_following"), store, progress=False, **options)
    assert not (tmp_path / "p.parquet").exists()


@pytest.mark.parametrize("tracks", [1, 4])
def test_av2_reads_our_files(tmp_path: Path, tracks: int) -> None:
    forecasts = [random_forecast(f"s{i}", tracks, seed=i) for i in range(3)]
    # av2 requires a sum closer to 1 than Forecast does.
    given = [replace(forecasts[0], probability=forecasts[0].probability * 1.0009), *forecasts[1:]]
    assert write_predictions(tmp_path / "p.parquet", iter(given)) == (3, 3 * tracks)
    found = ChallengeSubmission.from_parquet(tmp_path / "p.parquet").predictions
    assert found.keys() == {"s0", "s1", "s2"}
    for forecast in forecasts:
        probability, paths = found[forecast.scenario_id]
        path, weight = sorted_modes(forecast)
        np.testing.assert_allclose(probability, weight[0], rtol=0, atol=1e-12)
        for track, expected in zip(forecast.track_id.tolist(), path, strict=True):
            np.testing.assert_array_equal(paths[track], expected)


def test_failed_writing_keeps_the_old_file(tmp_path: Path) -> None:
    def failing() -> Iterator[Forecast]:
        yield from (random_forecast(f"s{i}", 1) for i in range(300))
        raise KeyboardInterrupt

    path = tmp_path / "deeper" / "p.parquet"
    for before in ([], [path]):
        with pytest.raises(KeyboardInterrupt):
            write_predictions(path, failing())
        assert list(path.parent.iterdir()) == before
        write_predictions(path, [random_forecast("old", 1)])
    assert read_predictions(path).scenario_ids == ["old"]


def test_forecasts_that_cannot_be_written_are_rejected(tmp_path: Path) -> None:
    one, marginal = random_forecast("s", 2), random_forecast("s", 3, shared=False)
    for forecasts, message in (
        ([marginal], "scenario s have different probabilities.*focal track alone"),
        ([one, one], "scenario s was forecast twice"),
        ([replace(one, trajectory=one.trajectory * np.nan)], r"p\.parquet.*not finite"),
    ):
        rejects(message, write_predictions, tmp_path / "p.parquet", forecasts)
    assert list(tmp_path.iterdir()) == []
    alone = marginal.of(np.array(["1"]))
    write_predictions(tmp_path / "p.parquet", [alone])
    assert_same(read_predictions(tmp_path / "p.parquet").forecast(scene("s", 3)), alone)
