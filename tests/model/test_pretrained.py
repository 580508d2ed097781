"""Shipped weights are found by name and keep the results of their card (making them: ``tests/tools``)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT, run
from tests.model.small import checkpoint_of, small_model
from trajpred.errors import DataError
from trajpred.evaluation import evaluate
from trajpred.model import Forecaster, pretrained
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore


def test_an_unknown_name_is_rejected_with_the_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shipped"
    folder.mkdir()
    monkeypatch.setattr(pretrained, "FOLDER", folder)
    with pytest.raises(DataError, match="known: none"):
        Forecaster.from_pretrained("tiny-2")
    shutil.copy(checkpoint_of(small_model(), tmp_path / "model.ckpt"), folder / "tiny-1.pt")
    for load in (Forecaster.from_pretrained, load_predictor, Forecaster.load):
        with pytest.raises(DataError, match=r"tiny-2: .*: tiny-1"):
            load("tiny-2")


def card(name: str) -> dict[str, float]:
    """Read the model's own row of the first table in its card."""
    lines = (pretrained.FOLDER / f"{name}.md").read_text().splitlines()
    table = [line.replace(" ", "").strip("|") for line in lines if line.startswith("|")]
    rows = [line.split("|") for line in table]
    metrics = rows[0][2:]
    for row in rows:
        if row[0] == name:
            values = [float(cell) for cell in row[2:]]
            return dict(zip(metrics, values, strict=True))
    raise LookupError(name)


@pytest.mark.slow  # tests/training/test_regression.py evaluates the demo weights for every change
@pytest.mark.parametrize("name", pretrained.list_models())
def test_shipped_weights_reach_the_results_of_their_card(name: str, tmp_path: Path) -> None:
    raw = ROOT / "datasets" / "argoverse1"
    assert run("prepare", "--source", "argoverse1", "--raw", raw, "--store", tmp_path, "--workers", 1) == 0
    scenes = ScenarioStore(tmp_path, "val")
    if "the reporting half" in (pretrained.FOLDER / f"{name}.md").read_text():
        scenes = scenes.halved("reporting")
    evaluation = evaluate(load_predictor(name), scenes, progress=False)
    for metric, value in card(name).items():
        assert evaluation.metrics["focal"][metric] == pytest.approx(value, abs=0.01), metric
