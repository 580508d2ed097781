"""Weights that ship: found by name, the same predictions as the checkpoint they come from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import ROOT, run
from tests.graph.conftest import store_path  # noqa: F401
from tests.model.small import batch_of, largest_change, small_model
from trajpred.errors import DataError
from trajpred.evaluation import evaluate, read_results
from trajpred.export.pretrained import changes, in_half, ship
from trajpred.model import Forecaster, SceneEncoder
from trajpred.model import pretrained as weights
from trajpred.model.checkpoint import TRAINING
from trajpred.predictors import load_predictor
from trajpred.scenario import Scenario
from trajpred.store import ScenarioStore
from trajpred.training.lit_forecaster import LitForecaster

NAME = "tiny-1"
FACTS = {
    "seed": 7,
    "recipe": "tiny",
    "store": {"source": "argoverse2", "config": "c", "scenarios": {"train": 9}},
}


def save(model: LitForecaster, path: Path) -> Path:
    content = {"state_dict": model.state_dict(), TRAINING: FACTS}
    model.on_save_checkpoint(content)
    torch.save(content, path)
    return path


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return save(small_model(), tmp_path / "model.ckpt")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where weights ship from, empty."""
    empty = tmp_path / "shipped"
    empty.mkdir()
    monkeypatch.setattr(weights, "FOLDER", empty)
    return empty


@pytest.fixture
def val(store_path: Path) -> ScenarioStore:  # noqa: F811
    return ScenarioStore(store_path, "val")


def assert_near(found: LitForecaster | Forecaster, scenarios: Sequence[Scenario]) -> None:
    """Nowhere farther from the checkpoint's predictions than half precision explains."""
    batch = batch_of(scenarios)
    with torch.inference_mode():
        assert 0 < largest_change(found(batch), small_model()(batch)) < 0.05


def test_shipped_weights_predict_what_the_checkpoint_does(
    checkpoint: Path, folder: Path, val: ScenarioStore, real: Sequence[Scenario]
) -> None:
    said = ship(checkpoint, NAME, val, tolerance_m=0.05)
    assert weights.list_models() == [NAME] and "half precision" in said
    assert (folder / f"{NAME}.pt").stat().st_size < 0.65 * checkpoint.stat().st_size
    model = Forecaster.from_pretrained(NAME)
    assert {p.dtype for p in model.parameters()} == {torch.float32} and not model.training
    assert_near(model, real)
    assert_near(Forecaster.from_pretrained(NAME), real)
    encoder, expected = SceneEncoder.from_checkpoint(NAME), SceneEncoder.from_checkpoint(checkpoint)
    with torch.inference_mode():
        tokens = [one.encode(batch_of(real)).agent for one in (encoder, expected)]
    torch.testing.assert_close(*tokens, rtol=0, atol=0.05)
    assert (tokens[0] != tokens[1]).any()
    forecast, unshipped = (load_predictor(one)([real[0]])[0] for one in (NAME, checkpoint))
    np.testing.assert_allclose(forecast.trajectory, unshipped.trajectory, atol=0.05)


def test_tools_take_the_name(
    checkpoint: Path, folder: Path, val: ScenarioStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make = ["--checkpoint", checkpoint, "--name", NAME, "--store", val.path, "--tolerance_m", 0.05]
    assert run("ship", *make, "--note", "A toy.") == 0
    out, where = tmp_path / "out.json", ["--store", val.path, "--checkpoint", NAME]
    assert run("evaluate", *where, "--json", out) == 0
    assert run("visualize", *where, "--limit", 1, "--out", tmp_path / "pictures") == 0
    [result] = read_results(out)
    assert result.predictor == result.recipe == NAME and result.training["seed"] == 7
    card = (folder / f"{NAME}.md").read_text()
    fde = f"{result.metrics['focal']['minFDE6']:.2f}"
    for part in (
        f"# {NAME}",
        "A toy.",
        "6.0 s (60 steps",
        "CC BY-NC-SA 4.0",
        "non-commercial",
        "seeds 7",
        fde,
    ):
        assert part in card
    assert "| constant_velocity |" in card and "9 scenarios of argoverse2" in card
    capsys.readouterr()
    assert run("train", "--data.store", val.path, "--resume", NAME) == 2
    assert "contains weights only" in capsys.readouterr().err


def test_an_unknown_name_gets_the_known_ones(checkpoint: Path, folder: Path, val: ScenarioStore) -> None:
    with pytest.raises(DataError, match="known: none"):
        Forecaster.from_pretrained("argoverse1-smal")
    ship(checkpoint, NAME, val, half=False)
    ship(checkpoint, "other", val, half=False)
    for load in (Forecaster.from_pretrained, Forecaster.from_pretrained):
        with pytest.raises(DataError, match=r"argoverse1-smal: no weights .* known: other, tiny-1"):
            load("argoverse1-smal")
    for load in (load_predictor, Forecaster.load, SceneEncoder.from_checkpoint):
        with pytest.raises(DataError, match=r"argoverse1-smal: .* ship: other, tiny-1"):
            load("argoverse1-smal")


def test_half_precision_that_moves_predictions_is_refused_and_nothing_written(
    checkpoint: Path, folder: Path, val: ScenarioStore, real: Sequence[Scenario]
) -> None:
    with pytest.raises(DataError, match=r"1 % of the predictions by more than 0\.0\d+ m .*1e-06"):
        ship(checkpoint, NAME, val, tolerance_m=1e-6)
    assert list(folder.iterdir()) == []
    ship(checkpoint, NAME, val, tolerance_m=1e-6, half=False)
    with torch.inference_mode():
        batch = batch_of(real)
        assert largest_change(Forecaster.from_pretrained(NAME)(batch), small_model()(batch)) == 0


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


def test_weights_that_half_precision_cannot_hold_keep_theirs() -> None:
    normal = torch.tensor([1.0, -0.3, 1e-9])
    assert in_half(normal).dtype == torch.float16
    for values in (torch.tensor([1.0, 7e4]), torch.tensor([1e-7, 3e-8]), torch.tensor([3]), torch.ones(0)):
        assert in_half(values) is values
    assert in_half(torch.zeros(3)).dtype == torch.float16


@pytest.mark.parametrize("name", ["../out", "Upper", "", "constant_velocity", "a b"])
def test_names_that_cannot_be_files_or_are_taken_are_refused(
    name: str, checkpoint: Path, folder: Path, val: ScenarioStore
) -> None:
    with pytest.raises(DataError, match="lower-case"):
        ship(checkpoint, name, val)


def test_large_files_are_refused(
    checkpoint: Path, folder: Path, val: ScenarioStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trajpred.export.pretrained.MAX_BYTES", 1000)
    with pytest.raises(DataError, match=r"would have 0\.\d MB, more than 0\.001"):
        ship(checkpoint, NAME, val, half=False)
    assert list(folder.iterdir()) == []


def card(name: str) -> dict[str, float]:
    """The metrics of a model in its card, by name."""
    table = [
        line for line in (weights.FOLDER / f"{name}.md").read_text().splitlines() if line.startswith("|")
    ]
    head, *_, own = ([cell.strip() for cell in line.strip("|").split("|")] for line in table)
    return dict(zip(head[2:], map(float, own[2:]), strict=True))


SHIPPED = [("argoverse1-small", 616), ("argoverse1-small-longer", 616), ("argoverse2-demo", 5)]


@pytest.mark.parametrize(("name", "scenes"), SHIPPED)
def test_what_ships_does_what_its_card_says(name: str, scenes: int, tmp_path: Path) -> None:
    source = name.split("-")[0]
    raw = ROOT / "datasets" / source / ("sample" if source == "argoverse2" else "")
    assert run("prepare", "--source", source, "--raw", raw, "--store", tmp_path, "--workers", 1) == 0
    found = evaluate(load_predictor(name), ScenarioStore(tmp_path, "val"), progress=False)
    assert found.scenarios == scenes
    for metric, value in card(name).items():
        assert found.metrics["focal"][metric] == pytest.approx(value, abs=0.01), metric
