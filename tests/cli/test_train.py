"""A short training run: what it leaves, repeats and resumes, and what other commands make of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import yaml
from PIL import Image

from tests.conftest import ROOT, error_of, output_of, run
from tests.training.command import tiny
from trajpred.model import Forecaster

#: The curves of each group of agents.
CURVES = (*("minADE1", "minFDE1", "MR1", "brier-minFDE1"), *("minADE6", "minFDE6", "MR6", "brier-minFDE6"))
#: Trainer settings of a run of one batch.
SHORT = {"max_epochs": 1, "limit_train_batches": 1, "limit_val_batches": 1, "enable_progress_bar": "false"}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    return Forecaster.load(checkpoint).state_dict()


def assert_same_weights(first: Path, second: Path, atol: float = 0.0) -> None:
    expected = weights(second)
    for name, values in weights(first).items():
        torch.testing.assert_close(values, expected[name], rtol=0, atol=atol)


def test_the_folder_of_a_finished_run_holds_checkpoints_config_and_pictures(trained: Path) -> None:
    assert names_in(trained / "checkpoints") == ["best.ckpt", "last.ckpt"]
    config = yaml.safe_load((trained / "config.yaml").read_text())["model"]
    assert config["encoder"]["init_args"]["dim"] == 16
    assert config["decoder"]["init_args"]["horizon"] == 60
    for name in ("curves.png", "worst_1.png", "worst_2.png", "worst_3.png", "worst_4.png"):
        with Image.open(trained / name) as image:
            pixels = np.asarray(image.convert("L"))
        assert min(pixels.shape) > 700, name
        assert np.ptp(pixels) > 100, name


def test_table_and_curves_are_what_evaluate_reports(trained: Path, store: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    results = {}
    tables = tmp_path / "tables.md"
    checkpoints = trained / "checkpoints"
    for name in ("last", "best"):
        out = tmp_path / "new" / f"{name}.json"
        options = ["--checkpoint", checkpoints / f"{name}.ckpt", "--out", out, tables]
        assert run("evaluate", "--store", store, *options) == 0
        results[name] = json.loads(out.read_text())
    assert (trained / "evaluation.md").read_text("utf-8") == tables.read_text("utf-8"), "of the best"
    model, _, constant_velocity = json.loads((trained / "evaluation.json").read_text())
    assert model["metrics"]["focal"] == pytest.approx(results["best"]["metrics"]["focal"], abs=1e-4)
    assert constant_velocity["metrics"]["focal"]["minFDE6"] == pytest.approx(11.51, abs=0.01)
    assert constant_velocity["training"] == {}
    facts = model["training"]
    assert results["best"]["training"] == facts
    assert facts["recipe"] == "forecaster"
    assert facts["seed"] == 0
    assert facts["epochs"] == 2
    assert facts["batch_size"] == 4
    best = torch.load(checkpoints / "best.ckpt", weights_only=True)
    assert facts["epoch"] == best["epoch"] + 1
    assert facts["steps"] == best["global_step"]
    assert facts["store"]["scenarios"]["train"] == 10
    assert facts["environment"]["torch"] == torch.__version__
    events = EventAccumulator(str(trained)).Reload()
    curves = {"train/loss", "val/loss", "update/grad_norm", "update/learning_rate"}
    assert curves <= {*events.Tags()["scalars"]}
    assert min(events.Tags()["scalars"]).startswith("train/"), "where TensorBoard opens"
    for group, metrics in results["last"]["metrics"].items():
        for name in CURVES:
            first, last = events.Scalars(f"val/{group}/{name}")
            assert np.isfinite(first.value), (group, name)
            assert metrics[name] == pytest.approx(last.value, abs=1e-3), (group, name)


class StopAfter(pl.Callback):
    """Interrupt before the epoch ``epochs``."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_train_epoch_start(self, trainer: pl.Trainer, *_: object) -> None:
        if trainer.current_epoch == self.epochs:
            raise KeyboardInterrupt


def test_a_run_repeats_and_resumes_to_the_same_weights(trained: Path, tmp_path: Path) -> None:
    runs = tmp_path / "forecaster"
    args = ["--config", trained / "config.yaml", f"--trainer.logger.init_args.save_dir={tmp_path}"]
    stop = [f"--trainer.callbacks={__name__}.StopAfter", "--trainer.callbacks.init_args.epochs=1"]
    run("train", *args, *stop)
    last = runs / "version_0" / "checkpoints" / "last.ckpt"
    content = torch.load(last, weights_only=True)
    assert content["epoch"] == 0
    assert content["trajpred_training"]["epoch"] == 1
    content["trajpred_training"]["wall_s"] = 1000.0
    torch.save(content, last)
    assert run("train", *args, "--resume", last) == 0
    assert names_in(runs) == ["version_0"]
    facts = torch.load(last, weights_only=True)["trajpred_training"]
    assert facts["epoch"] == 2
    assert facts["wall_s"] > 1000, "the time of both runs"
    assert_same_weights(last, trained / "checkpoints" / "last.ckpt")


def test_a_run_without_anything_left_to_train_stays_as_it_is(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "forecaster" / "version_0"
    shutil.copytree(trained, folder)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    for settings in ([], ["--trainer.max_epochs=1"], ["--trainer.max_steps=1"]):
        assert run("train", "--resume", folder, *settings) == 0
        assert "has already finished training; give more epochs with" in capsys.readouterr().out
        assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    (folder / "evaluation.json").unlink()
    assert run("train", "--resume", folder) == 0
    assert (folder / "evaluation.json").is_file(), "it was stopped before its results were written"


def test_weights_of_another_run_are_the_start(
    trained: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = trained / "checkpoints" / "last.ckpt"
    still = tiny(store, tmp_path, "--model.optimizer.learning_rate=1e-12", **SHORT)
    assert f"{first}; newly initialised: none" in output_of(capsys, "train", *still, "--weights", first)
    last = tmp_path / "forecaster" / "version_0" / "checkpoints" / "last.ckpt"
    assert_same_weights(first, last, atol=1e-6)
    assert torch.load(last, weights_only=True)["trajpred_training"]["weights"] == str(first)
    for setting, sentence in (
        ("model.encoder.init_args.layers=3", "other model settings (model.encoder.layers): "),
        ("model.optimizer.learning_rate=0.1", "(model.optimizer.learning_rate): give its config.yaml, or"),
    ):
        assert sentence in error_of(capsys, "train", f"--{setting}", "--resume", first)


def test_results_lie_in_the_folder_of_the_run_wherever_its_checkpoints_are(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "a" / "elsewhere"
    short = tiny(store, tmp_path / "runs", "--pictures.scenes=0", **SHORT)
    assert run("train", *short, f"--best.dirpath={elsewhere}") == 0
    assert f"  {elsewhere / 'last.ckpt'}  the model" in capsys.readouterr().out
    assert names_in(elsewhere.parent) == ["elsewhere"]
    assert names_in(elsewhere) == ["last.ckpt"]
    folder = tmp_path / "runs" / "forecaster" / "version_0"
    for name in ("evaluation.json", "evaluation.md", "curves.png"):
        assert (folder / name).is_file()

    monkeypatch.chdir(elsewhere)
    assert "Validation, 5 scenarios" in output_of(capsys, "train", *short, "--trainer.logger=false")
    assert not [*elsewhere.rglob("evaluation*"), *elsewhere.rglob("*.png")]


def test_recipes_and_trainers_are_accepted(store: Path) -> None:
    """The configs of models are built in tests/model."""
    recipes = (ROOT / "configs" / "recipes").glob("*.yaml")
    trainers = (ROOT / "configs" / "trainer").glob("*.yaml")
    configs = [*recipes, *trainers]
    assert len(configs) > 4
    for config in configs:
        assert run("train", "--config", config, f"--data.store={store}", "--print_config") == 0


def test_calibrated_and_perturbed_models_are_evaluated(
    trained: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = trained / "checkpoints" / "last.ckpt"
    out = tmp_path / "calibrated.ckpt"
    fit = ["--checkpoint", checkpoint, "--store", store, "--out", out, "--group", "all"]
    assert "inside the 90% regions" in output_of(capsys, "calibrate", *fit)
    options = ["--perturb", "noise", "--plausibility", "--limit", "2"]
    printed = output_of(capsys, "stress", "--store", store, "--checkpoint", out, *options)
    for part in ("calibrated: 2 scenarios", ", noise |", " ECE |", " off-road |"):
        assert part in printed, part
