"""evaluate --labels: futures from elsewhere give what a labelled split gives."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import run
from tools.synthesize import make_scenario, scenario_table, write_scenario
from trajpred.errors import DataError
from trajpred.evaluation import Evaluation, evaluate
from trajpred.evaluation.labels import LabelledStore, ObservedStore
from trajpred.predictors import load_predictor
from trajpred.predictors.predict import predict
from trajpred.store import ScenarioStore, prepare

SCENARIOS = [make_scenario(0, i) for i in range(4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose ``test`` has no futures and whose ``val`` contains the same scenarios with them."""
    path = tmp_path_factory.mktemp("labels")
    for one in SCENARIOS:
        write_scenario(one, path / "raw" / "test" / one.scenario_id, future=False)
        write_scenario(one, path / "raw" / "val" / one.scenario_id)
    prepare("argoverse2", path / "raw", path / "store", workers=1, progress=False)
    return path


def score(store: ScenarioStore) -> Evaluation:
    return evaluate(load_predictor("lane_following"), store, progress=False)


def test_scenario_files_give_the_metrics_of_a_labelled_split(folder: Path) -> None:
    labelled = LabelledStore(ScenarioStore(folder / "store", "test"), folder / "raw" / "val")
    found, expected = score(labelled), score(ScenarioStore(folder / "store", "val"))
    assert found.metrics["all"]["count"] > 4
    assert found.scenarios == labelled.labelled == 4
    for group, means in expected.metrics.items():  # a store keeps half a millimetre
        assert found.metrics[group] == pytest.approx(means, abs=1e-3), group
    assert labelled.batch([2, 0]).tracks.valid[:, 50:].any()
    assert len(labelled.batch([2, 0])) == 2
    assert found.breakdowns["manoeuvre"].keys() == expected.breakdowns["manoeuvre"].keys()


def test_the_command_scores_a_predictions_file_of_a_test_split(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ScenarioStore(folder / "store", "test")
    predict(load_predictor("lane_following"), store, folder / "p.parquet", progress=False)
    command = ["evaluate", "--store", store.path, "--split", "test", "--checkpoint", folder / "p.parquet"]
    assert run(*command) == 2
    assert "no scenario with a future" in capsys.readouterr().err
    assert run(*command, "--labels", folder / "raw" / "val") == 0
    assert "labels of 4 of 4 scenarios" in capsys.readouterr().out


def test_scenarios_without_labels_have_none_after_fewer_observed_steps_either(
    folder: Path, tmp_path: Path
) -> None:
    """Of 5 s that are observed, 3 s would leave them 2 s to be scored, the others 8 s."""
    labels = sorted((folder / "raw" / "val").rglob("scenario_*.parquet"))[:2]
    for file in labels:
        shutil.copy(file, tmp_path)
    store = LabelledStore(ScenarioStore(folder / "store", "test"), tmp_path)
    observed = ObservedStore(store, 3.0)
    has_future = [observed[row].has_future for row in range(len(observed))]
    assert sum(has_future) == 2


def other_positions(folder: Path) -> None:
    tracks = SCENARIOS[0].tracks
    moved = replace(SCENARIOS[0], tracks=replace(tracks, position=tracks.position + 1.0))
    pq.write_table(scenario_table(moved), folder / f"scenario_{moved.scenario_id}.parquet")


def no_future(folder: Path) -> None:
    name = f"scenario_{SCENARIOS[0].scenario_id}.parquet"
    pq.write_table(scenario_table(SCENARIOS[0], future=False), folder / name)


def twice(folder: Path) -> None:
    for name in ("a", "b"):
        write_scenario(SCENARIOS[0], folder / name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "contains no files scenario_"),
        (twice, "two files of the same name, scenario_"),
        (other_positions, "not that of the store"),
        (no_future, "and a future"),
        (lambda folder: write_scenario(make_scenario(9, 9), folder / "other"), "none of the 4 scenarios"),
        (lambda folder: (folder / "scenario_0.parquet").write_bytes(b"PAR1"), "not a readable parquet"),
    ],
)
def test_wrong_folders_are_rejected(
    folder: Path, tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(tmp_path)
    store = ScenarioStore(folder / "store", "test")
    with pytest.raises(DataError, match=message):
        LabelledStore(store, tmp_path)[store.index(SCENARIOS[0].scenario_id)]


def test_labelled_splits_are_rejected(folder: Path) -> None:
    with pytest.raises(DataError, match="has a future already"):
        LabelledStore(ScenarioStore(folder / "store", "val"), folder / "raw" / "val")[0]
