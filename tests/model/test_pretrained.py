"""Shipped weights: found by name, with the predictions of their checkpoint and the results of their card."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import ROOT, run
from tests.graph.conftest import store_path  # noqa: F401
from tests.model.small import batch_of, largest_change, small_model
from tests.model.test_scene_encoder import checkpoint_of
from trajpred.errors import DataError
from trajpred.evaluation import evaluate, read_results
from trajpred.export.pretrained import changes, in_half, ship
from trajpred.model import Forecaster, SceneEncoder, pretrained
from trajpred.model.checkpoint import TRAINING
from trajpred.predictors import load_predictor
from trajpred.scenario import Scenario
from trajpred.store import ScenarioStore

NAME = "tiny-1"
FACTS = {
    "seed": 7,
    "recipe": "tiny",
    "store": {"source": "argoverse2", "config": "c", "scenarios": {"train": 9}},
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = checkpoint_of(small_model(), tmp_path / "model.ckpt")
    torch.save({**torch.load(path, weights_only=True), TRAINING: FACTS}, path)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of shipped weights."""
    empty = tmp_path / "shipped"
    empty.mkdir()
    monkeypatch.setattr(pretrained, "FOLDER", empty)
    return empty


@pytest.fixture
def val(store_path: Path) -> ScenarioStore:  # noqa: F811
    return ScenarioStore(store_path, "val")


def test_shipped_weights_predict_what_their_checkpoint_does(
    checkpoint: Path, folder: Path, val: ScenarioStore, real: list[Scenario]
) -> None:
    message = ship(checkpoint, NAME, val, tolerance_m=0.05)
    assert pretrained.list_models() == [NAME] and "half precision" in message
    assert (folder / f"{NAME}.pt").stat().st_size < 0.65 * checkpoint.stat().st_size
    model, batch = Forecaster.from_pretrained(NAME), batch_of(real)
    assert {p.dtype for p in model.parameters()} == {torch.float32} and not model.training
    encoder, expected = SceneEncoder.from_checkpoint(NAME), SceneEncoder.from_checkpoint(checkpoint)
    with torch.inference_mode():
        assert 0 < largest_change(model(batch), small_model()(batch)) < 0.05
        tokens = [one.encode(batch).agent for one in (encoder, expected)]
    torch.testing.assert_close(*tokens, rtol=0, atol=0.05)
    forecast, original = (load_predictor(one)([real[0]])[0] for one in (NAME, checkpoint))
    np.testing.assert_allclose(forecast.trajectory, original.trajectory, atol=0.05)


def test_the_commands_accept_the_name_and_the_card_states_the_results(
    checkpoint: Path, folder: Path, val: ScenarioStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make = ["--checkpoint", checkpoint, "--name", NAME, "--store", val.path, "--half", "false"]
    assert run("ship", *make, "--note", "A toy.") == 0
    out = tmp_path / "out.json"
    assert run("evaluate", "--store", val.path, "--checkpoint", NAME, "--json", out) == 0
    [result], batch = read_results(out), batch_of(list(val)[:1])
    with torch.inference_mode():
        assert largest_change(Forecaster.from_pretrained(NAME)(batch), small_model()(batch)) == 0
    assert result.predictor == result.recipe == NAME and result.training["seed"] == 7
    card = (folder / f"{NAME}.md").read_text()
    fde = f"{result.metrics['focal']['minFDE6']:.2f}"
    for part in (f"# {NAME}", "A toy.", "60 steps", "CC BY-NC-SA 4.0", "non-commercial", "seeds 7", fde):
        assert part in card
    assert "| constant_velocity |" in card
    capsys.readouterr()
    assert run("train", "--data.store", val.path, "--resume", NAME) == 2
    assert "contains weights only" in capsys.readouterr().err


def test_an_unknown_name_is_rejected_with_the_known_ones(checkpoint: Path, folder: Path) -> None:
    with pytest.raises(DataError, match="known: none"):
        Forecaster.from_pretrained("tiny-2")
    shutil.copy(checkpoint, folder / f"{NAME}.pt")
    for load in (Forecaster.from_pretrained, load_predictor, Forecaster.load, SceneEncoder.from_checkpoint):
        with pytest.raises(DataError, match=r"tiny-2: .*: tiny-1"):
            load("tiny-2")


def test_half_precision_that_moves_predictions_is_rejected_and_nothing_written(
    checkpoint: Path, folder: Path, val: ScenarioStore
) -> None:
    with pytest.raises(DataError, match=r"0\.0\d+ m .*1e-06"):
        ship(checkpoint, NAME, val, tolerance_m=1e-6)
    assert list(folder.iterdir()) == []


def test_changes_are_those_between_the_predictions(val: ScenarioStore) -> None:
    one, other = small_model(0), small_model(1)
    found = changes(one.config, one.state_dict(), other.state_dict(), val)
    batch = batch_of(list(val))
    with torch.inference_mode():
        a, b = one(batch), other(batch)
    moved = (a.trajectory - b.trajectory).norm(dim=-1).flatten(1).amax(1).numpy()
    assert found.largest == pytest.approx(moved.max(), abs=0.01)
    assert found.usual == pytest.approx(np.quantile(moved, 0.99), abs=0.01) and found.usual < found.largest
    shifted = (a.logits.softmax(-1) - b.logits.softmax(-1)).abs().max()
    assert found.probability == pytest.approx(float(shifted), abs=1e-3)


def test_weights_that_half_precision_cannot_represent_stay_in_float32() -> None:
    assert in_half(torch.tensor([1.0, -0.3, 1e-9])).dtype == torch.float16
    assert in_half(torch.zeros(3)).dtype == torch.float16
    for values in (torch.tensor([1.0, 7e4]), torch.tensor([1e-7, 3e-8]), torch.tensor([3]), torch.ones(0)):
        assert in_half(values) is values


def test_unusable_names_and_large_files_are_rejected(
    checkpoint: Path, folder: Path, val: ScenarioStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("../out", "Upper", "", "constant_velocity", "a b"):
        with pytest.raises(DataError, match="lower-case"):
            ship(checkpoint, name, val)
    monkeypatch.setattr("trajpred.export.pretrained.MAX_BYTES", 1000)
    with pytest.raises(DataError, match=r"0\.\d MB, more than 0\.001"):
        ship(checkpoint, NAME, val, half=False)
    assert list(folder.iterdir()) == []


def card(name: str) -> dict[str, float]:
    """Read the model's own row of the table in its card."""
    lines = (pretrained.FOLDER / f"{name}.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("|")]
    head, *_, own = ([cell.strip() for cell in line.strip("|").split("|")] for line in table)
    return dict(zip(head[2:], map(float, own[2:]), strict=True))


@pytest.mark.parametrize(
    ("name", "scenes"),
    [
        ("argoverse2-demo", 5),
        pytest.param("argoverse1-small", 616, marks=pytest.mark.slow),
        pytest.param("argoverse1-small-longer", 616, marks=pytest.mark.slow),
    ],
)
def test_shipped_weights_reach_the_results_of_their_card(name: str, scenes: int, tmp_path: Path) -> None:
    source = name.split("-")[0]
    raw = ROOT / "datasets" / source / ("sample" if source == "argoverse2" else "")
    assert run("prepare", "--source", source, "--raw", raw, "--store", tmp_path, "--workers", 1) == 0
    found = evaluate(load_predictor(name), ScenarioStore(tmp_path, "val"), progress=False)
    assert found.scenarios == scenes
    for metric, value in card(name).items():
        assert found.metrics["focal"][metric] == pytest.approx(value, abs=0.01), metric
