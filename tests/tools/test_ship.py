"""Shipped weights predict what their checkpoint does and have a card; others are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from tests.conftest import error_of, rejects
from tests.model.small import checkpoint_of, largest_change, small_model
from tools.ship import in_half, main, ship
from trajpred.evaluation import evaluate
from trajpred.features.scene_graph import build_batch
from trajpred.model import Forecaster, pretrained
from trajpred.model.checkpoint import TRAINING
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore
from trajpred.training.lit_forecaster import LitForecaster

NAME = "tiny-1"
STORE = {"source": "argoverse2", "config": "c", "scenarios": {"train": 9}}
FACTS = {
    "seed": 7,
    "recipe": "tiny",
    "store": STORE,
    "stores": {"/home/me/av2-store": 20},
    "weights": "/home/me/runs/big/version_3/checkpoints/last.ckpt",
}


def model_of(seed: int = 0) -> LitForecaster:
    return small_model(seed, scene={"features": {"max_agents": 8, "max_lanes": 24}})


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = checkpoint_of(model_of(), tmp_path / "model.ckpt")
    content = torch.load(path, weights_only=True)
    torch.save(content | {TRAINING: FACTS}, path)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of shipped weights."""
    empty = tmp_path / "shipped"
    empty.mkdir()
    monkeypatch.setattr(pretrained, "FOLDER", empty)
    return empty


@pytest.fixture
def val(store_path: Path) -> ScenarioStore:
    return ScenarioStore(store_path, "val")


def test_shipped_weights_predict_what_their_checkpoint_does_and_have_a_card(
    checkpoint: Path, folder: Path, val: ScenarioStore, capsys: pytest.CaptureFixture[str]
) -> None:
    main(checkpoint=checkpoint, name=NAME, store=val.path, tolerance_m=0.05, note="A toy.")
    assert "half precision" in capsys.readouterr().out
    assert pretrained.list_models() == [NAME]
    assert (folder / f"{NAME}.pt").stat().st_size < 0.65 * checkpoint.stat().st_size
    model = Forecaster.from_pretrained(NAME)
    batch = build_batch(list(val), Forecaster.load(checkpoint).scene)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert not model.training
    with torch.inference_mode():
        assert 0 < largest_change(model(batch), model_of()(batch)) < 0.05
    card = (folder / f"{NAME}.md").read_text()
    for part in (f"# {NAME}", "A toy.", "60 steps", "CC BY-NC-SA 4.0", "non-commercial", "seed 7"):
        assert part in card
    assert "starting with big/version_3/last" in card
    assert b"/home/me" not in (folder / f"{NAME}.pt").read_bytes()
    assert "| constant_velocity |" in card
    rejects("--overwrite", ship, checkpoint, NAME, val)
    header = yaml.safe_load(card.split("---\n")[1])
    [result] = header["model-index"][0]["results"]
    assert (header["license"], result["dataset"]["type"]) == ("cc-by-nc-sa-4.0", "argoverse2")
    errors = {metric["type"]: metric["value"] for metric in result["metrics"]}
    error = errors["minFDE6"]
    assert f"{error:.2f}" in next(line for line in card.splitlines() if f" {NAME} |" in line)
    means = evaluate(load_predictor(NAME, joint=True), val, progress=False).joint["scored"]
    row = next(line for line in card.splitlines() if line.startswith("| scored |"))
    assert f" {means['avgMinFDE']:.2f} " in row, "it has joint modes"
    assert "contains only weights" in error_of(capsys, "train", "--data.store", val.path, "--resume", NAME)


def test_what_must_not_ship_is_rejected_and_nothing_written(
    checkpoint: Path, folder: Path, val: ScenarioStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("../out", "Upper", "", "constant_velocity", "a b"):
        rejects("lower-case", ship, checkpoint, name, val)
    rejects(r"0\.0\d+ m .*1e-06", ship, checkpoint, NAME, val, tolerance_m=1e-6)
    monkeypatch.setattr("tools.ship.MAX_BYTES", 1000)
    rejects(r"0\.\d MB, more than 0\.001", ship, checkpoint, NAME, val, half=False)
    assert list(folder.iterdir()) == []


def test_weights_that_half_precision_cannot_represent_stay_in_float32() -> None:
    assert in_half(torch.tensor([1.0, -0.3, 1e-9])).dtype == torch.float16
    assert in_half(torch.zeros(3)).dtype == torch.float16
    for values in (torch.tensor([1.0, 7e4]), torch.tensor([1e-7, 3e-8]), torch.tensor([3]), torch.ones(0)):
        assert in_half(values) is values
