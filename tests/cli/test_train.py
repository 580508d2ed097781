"""A short training run: what it leaves, repeats and resumes, and what other commands make of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import yaml
from PIL import Image

from tests.conftest import ROOT, run
from tests.training.command import tiny
from trajpred.model import Forecaster

#: The curves of each group of agents.
CURVES = {f"{name}{k}" for name in ("minADE", "minFDE", "MR", "brier-minFDE") for k in (1, 6)}
#: Trainer settings of a run of one batch.
SHORT = {"max_epochs": 1, "limit_train_batches": 1, "limit_val_batches": 1, "enable_progress_bar": "false"}


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    return Forecaster.load(checkpoint).state_dict()


def same(first: Path, second: Path) -> bool:
    one, other = weights(first), weights(second)
    return all(torch.equal(one[name], other[name]) for name in one)


def test_the_folder_of_a_finished_run_holds_checkpoints_config_and_pictures(trained: Path) -> None:
    assert {path.name for path in (trained / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    config = yaml.safe_load((trained / "config.yaml").read_text())["model"]
    assert config["encoder"]["init_args"]["dim"] == 16 and config["decoder"]["init_args"]["horizon"] == 60
    for name in ("curves.png", *(f"worst_{number}.png" for number in (1, 2, 3, 4))):
        with Image.open(trained / name) as image:
            pixels = np.asarray(image.convert("L"))
        assert min(pixels.shape) > 700 and np.ptp(pixels) > 100, name


def test_table_and_curves_are_what_evaluate_reports(trained: Path, store: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found, tables = {}, tmp_path / "tables.md"
    for name in ("last", "best"):
        out, checkpoint = tmp_path / "new" / f"{name}.json", trained / "checkpoints" / f"{name}.ckpt"
        given = ["--checkpoint", checkpoint, "--store", store, "--json", out, "--markdown", tables]
        assert run("evaluate", *given) == 0
        found[name] = json.loads(out.read_text())
    assert (trained / "evaluation.md").read_text("utf-8") == tables.read_text("utf-8"), "of the best"
    constant_velocity, model = json.loads((trained / "evaluation.json").read_text())
    assert model["metrics"]["focal"] == pytest.approx(found["best"]["metrics"]["focal"], abs=1e-4)
    assert constant_velocity["metrics"]["focal"]["minFDE6"] == pytest.approx(11.51, abs=0.01)
    facts, reached = model["training"], torch.load(trained / "checkpoints" / "best.ckpt", weights_only=True)
    assert found["best"]["training"] == facts and constant_velocity["training"] == {}
    assert (facts["recipe"], facts["seed"], facts["epochs"], facts["batch_size"]) == ("forecaster", 0, 2, 4)
    assert (facts["epoch"], facts["steps"]) == (reached["epoch"] + 1, reached["global_step"])
    assert facts["store"]["scenarios"]["train"] == 10 and facts["environment"]["torch"] == torch.__version__
    events = EventAccumulator(str(trained)).Reload()
    curves = {"train/loss", "val/loss", "update/grad_norm", "update/learning_rate"}
    assert curves <= {*events.Tags()["scalars"]}
    for group, metrics in found["last"]["metrics"].items():
        for name in CURVES:
            before, logged = (event.value for event in events.Scalars(f"val/{group}/{name}"))
            assert metrics[name] == pytest.approx(logged, abs=1e-3) and np.isfinite(before), (group, name)


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
    stop = f"--trainer.callbacks={__name__}.StopAfter", "--trainer.callbacks.init_args.epochs=1"
    run("train", *args, *stop)
    last = runs / "version_0" / "checkpoints" / "last.ckpt"
    content = torch.load(last, weights_only=True)
    assert content["epoch"] == 0 and content["trajpred_training"]["epoch"] == 1
    content["trajpred_training"]["wall_s"] = 1000.0
    torch.save(content, last)
    assert run("train", *args, "--resume", last) == 0
    assert [path.name for path in runs.iterdir()] == ["version_0"]
    facts = torch.load(last, weights_only=True)["trajpred_training"]
    assert facts["epoch"] == 2 and facts["wall_s"] > 1000, "the time of both runs"
    assert same(last, trained / "checkpoints" / "last.ckpt")


def test_weights_of_another_run_are_the_start(
    trained: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = trained / "checkpoints" / "last.ckpt"
    still = tiny(store, tmp_path, "--model.optimizer.learning_rate=1e-12", **SHORT)
    assert run("train", *still, "--weights", first) == 0
    assert f"{first}; newly initialised: none" in capsys.readouterr().out
    last = tmp_path / "forecaster" / "version_0" / "checkpoints" / "last.ckpt"
    before, after = weights(first), weights(last)
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)
    assert torch.load(last, weights_only=True)["trajpred_training"]["weights"] == str(first)
    assert run("train", *still, "--weights", "argoverse-nano") == 2
    assert run("train", "--model.encoder.init_args.layers=3", "--resume", first) == 2
    assert "other model settings" in capsys.readouterr().err


def test_results_lie_in_the_folder_of_the_run_wherever_its_checkpoints_are(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "a" / "elsewhere"
    short = tiny(store, tmp_path / "runs", "--pictures.scenes=0", **SHORT)
    assert run("train", *short, f"--last.dirpath={elsewhere}") == 0
    assert f"  {elsewhere / 'last.ckpt'}  the model" in capsys.readouterr().out
    assert {path.name for path in elsewhere.parent.rglob("*")} == {"elsewhere", "last.ckpt"}
    folder = tmp_path / "runs" / "forecaster" / "version_0"
    assert {"evaluation.json", "evaluation.md", "curves.png"} <= {path.name for path in folder.iterdir()}

    monkeypatch.chdir(elsewhere)
    assert run("train", *short, "--trainer.logger=false") == 0
    assert "Validation, 5 scenarios" in capsys.readouterr().out
    assert not [*elsewhere.rglob("evaluation*"), *elsewhere.rglob("*.png")]


def test_recipes_and_trainers_are_accepted(store: Path) -> None:
    """The configs of models are built in tests/model."""
    configs = [path for name in ("recipes", "trainer") for path in (ROOT / "configs" / name).glob("*.yaml")]
    assert len(configs) > 4
    for config in configs:
        assert run("train", "--config", config, f"--data.store={store}", "--print_config") == 0


def test_calibrated_mirrored_and_perturbed_models_are_evaluated(
    trained: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, out = trained / "checkpoints" / "last.ckpt", tmp_path / "calibrated.ckpt"
    fit = ["--checkpoint", checkpoint, "--store", store, "--out", out, "--group", "all"]
    assert run("calibrate", *fit) == 0 and "a coverage of 90%" in capsys.readouterr().out
    given = ["--store", store, "--limit", "2"]
    assert run("evaluate", *given, "--checkpoint", out, "--mirror", "--perturb", "noise", "--beyond") == 0
    printed = capsys.readouterr().out
    for part in ("calibrated + calibrated, mirrored", ", noise |", " ECE |", " off-road |"):
        assert part in printed, part
