"""A run that is stopped anywhere and resumed ends with the weights, bit for bit, of one that was not."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.callbacks import EMAWeightAveraging

from tests.conftest import ROOT, rejects
from tests.model.small import TINY, small_model
from tests.training.command import SignalAt, assert_same_weights, call, last_weights, signal_at, tiny
from tests.training.runs import EPOCHS, SMALL_SCENES, STEPS, Record, assert_same_run, fit, trainer
from trajpred.training.checkpoint_io import STOPPED, BestCheckpoint, LastCheckpoint
from trajpred.training.data_module import SceneData
from trajpred.training.record import RunHistory

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="on Windows every signal ends a process at once"),
    pytest.mark.usefixtures("ignored_signals"),
]


@pytest.fixture(scope="module")
def whole(store_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Path]:
    """An undisturbed run, with a checkpoint after every step."""
    folder = tmp_path_factory.mktemp("whole")
    return fit(store_path, folder)[0], folder


VALIDATING = "validation_batch_start"


@pytest.mark.parametrize(
    ("stop", "done"),
    [
        (SignalAt(5, "SIGINT"), 6),
        (SignalAt(3, "SIGTERM"), 4),  # the last step of an epoch: its validation follows
        (SignalAt(8, "SIGUSR1", VALIDATING), 8),  # only a validation is left
        # Lightning's own handlers are still in place:
        pytest.param(SignalAt(0, "SIGTERM", "train_start"), 1, marks=pytest.mark.slow),
        pytest.param(SignalAt(4, "SIGINT", VALIDATING), 4, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_resumes_as_if_it_had_not_been(
    store_path: Path, whole: tuple[Record, Path], tmp_path: Path, stop: SignalAt, done: int
) -> None:
    before, saved = fit(store_path, tmp_path, stop=stop)
    assert torch.load(saved, weights_only=True)["global_step"] == done
    after, _ = fit(store_path, tmp_path / "rest", saved)
    assert_same_run(before + after, whole[0])


def test_a_checkpoint_whose_weights_have_other_names_is_not_resumed(
    store_path: Path, whole: tuple[Record, Path], tmp_path: Path
) -> None:
    content = torch.load(next(whole[1].rglob("*.ckpt")), weights_only=True)
    state = content["state_dict"]
    content["state_dict"] = {f"module.{name}": weight for name, weight in state.items()}
    torch.save(content, tmp_path / "renamed.ckpt")
    message = rf"renamed\.ckpt.* {len(state)} missing .* {len(state)} surplus "
    rejects(message, fit, store_path, tmp_path, tmp_path / "renamed.ckpt")


@pytest.mark.parametrize(
    ("options", "stops"),
    [
        # The last step of an epoch without a validation.
        ({"check_val_every_n_epoch": 2}, (1, 3)),
        # Validated within epochs.
        ({"accumulate_grad_batches": 2, "val_check_interval": 2}, (0, 1)),
    ],
)
def test_a_run_that_is_stopped_twice_ends_with_the_same_files(
    store_path: Path, tmp_path: Path, options: dict[str, Any], stops: Sequence[int]
) -> None:
    """Weights and optimiser, the curves, and the best checkpoint with its score."""

    def kept(folder: Path) -> list[pl.Callback]:
        checkpoints = folder / "checkpoints"
        best = BestCheckpoint(checkpoints, "best", monitor="val/loss", enable_version_counter=False)
        return [RunHistory(), best]

    every = [*kept(tmp_path / "whole"), LastCheckpoint()]
    expected, _ = fit(store_path, tmp_path / "whole", callbacks=every, **options)
    folder = tmp_path / "stopped"
    saved = None
    steps = list[list[str]]()
    for step in (*stops, None):
        stop = None if step is None else SignalAt(step, "SIGTERM")
        every = kept(folder) if stop else [*kept(folder), LastCheckpoint()]
        record, saved = fit(store_path, folder, saved, every, stop, **options)
        steps += record.steps
    assert steps == expected.steps
    assert_same_weights(record.weights, expected.weights)
    for name in ("best", "last"):
        a = torch.load(tmp_path / "stopped" / "checkpoints" / f"{name}.ckpt", weights_only=True)
        b = torch.load(tmp_path / "whole" / "checkpoints" / f"{name}.ckpt", weights_only=True)
        assert_same_weights(a["state_dict"], b["state_dict"])
        assert a["optimizer_states"][0]["param_groups"] == b["optimizer_states"][0]["param_groups"]
        assert (a["epoch"], a["global_step"]) == (b["epoch"], b["global_step"])
        assert a["callbacks"]["RunHistory"] == b["callbacks"]["RunHistory"]


def average() -> list[pl.Callback]:
    """The callback of ``average.yaml`` with a shorter memory."""
    config = yaml.safe_load((ROOT / "configs" / "trainer" / "average.yaml").read_text())
    [callback] = config["trainer"]["callbacks"]
    assert callback["class_path"] == "pytorch_lightning.callbacks.EMAWeightAveraging"
    options = callback["init_args"] | {"decay": 0.8}
    return [EMAWeightAveraging(**options)]


@pytest.mark.parametrize(
    "stop", [SignalAt(4, "SIGTERM", VALIDATING), pytest.param(SignalAt(5, "SIGTERM"), marks=pytest.mark.slow)]
)
def test_averaged_weights_are_validated_saved_and_resumed_and_do_not_disturb_training(
    store_path: Path, whole: tuple[Record, Path], tmp_path: Path, stop: SignalAt
) -> None:
    before, saved = fit(store_path, tmp_path, callbacks=average(), stop=stop)
    after, _ = fit(store_path, tmp_path / "rest", saved, average())
    record = before + after
    expected, folder = whole
    assert record.steps == expected.steps
    end = torch.load(tmp_path / "rest" / "8.ckpt", weights_only=True)
    assert_same_weights(end["current_model_state"], expected.weights)
    mean: dict[str, torch.Tensor] = {}
    for step in range(1, STEPS * EPOCHS + 1):
        weights = torch.load(folder / f"{step}.ckpt", weights_only=True)["state_dict"]
        for name, value in weights.items():
            mean[name] = 0.8 * mean.get(name, value) + 0.2 * value.double()
    for name, value in end["state_dict"].items():
        torch.testing.assert_close(value.double(), mean[name], rtol=1e-5, atol=1e-7, msg=name)
    averaged = small_model(scene=SMALL_SCENES, **TINY)
    averaged.load_state_dict(end["state_dict"])
    [again] = trainer(tmp_path).validate(averaged, SceneData(store_path, batch_size=3), verbose=False)
    loss = record.losses[8]
    assert again["val/loss"] == pytest.approx(loss, rel=1e-5)
    assert abs(loss - expected.losses[8]) > 1e-3 * abs(loss)


def train(store: Path, runs: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Train a tiny model in a process of its own, which saves ``last.ckpt`` after every step."""
    trainer = {"max_epochs": 2, "enable_progress_bar": "false", "limit_val_batches": 0}
    settings = tiny(store, runs, "--last.every_s=0", *args, **trainer)
    return call([sys.executable, str(ROOT / "tools" / "train.py"), *settings])


@pytest.mark.slow
def test_the_command_resumes_after_a_kill_damage_and_a_stop(store_path: Path, tmp_path: Path) -> None:
    done = train(store_path, tmp_path / "whole")
    assert done.returncode == 0, done.stderr
    [only] = (tmp_path / "whole").rglob("*.ckpt")
    assert only.name == "last.ckpt"
    runs = tmp_path / "killed"
    assert train(store_path, runs, *signal_at(5, "SIGKILL")).returncode == -signal.SIGKILL
    folder = runs / "forecaster" / "version_0"
    last = folder / "checkpoints" / "last.ckpt"
    previous = folder / "checkpoints" / "previous.ckpt"
    assert torch.load(last, weights_only=True)["global_step"] in (4, 5)
    last.write_bytes(last.read_bytes()[:-1000])  # as a disk may damage it
    done = train(store_path, runs, f"--resume={folder}", "--trainer.callbacks=null")
    assert done.returncode == 0
    assert f"warning: {last}" in done.stderr
    assert str(previous) in done.stderr
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["resume"] is None
    assert config["trainer"]["logger"]["init_args"]["version"] is None
    assert_same_weights(last_weights(tmp_path / "whole"), last_weights(runs))

    runs = tmp_path / "stopped"
    done = train(store_path, runs, *signal_at(4, "SIGTERM"), "--last.every_s=3600", "--data.workers=1")
    assert done.returncode == STOPPED
    assert "Traceback" not in done.stderr
    *_, message, command = done.stdout.splitlines()
    assert message.startswith(f"Stopped as requested; saved {runs}")
    assert message.endswith("Resume with:")
    program, *rest = shlex.split(command)
    assert rest == ["train", "--resume", str(runs / "forecaster" / "version_0")], "its config is its own"
    done = call([sys.executable, "-m", program, *rest, "--trainer.callbacks=null"])
    assert done.returncode == 0, done.stderr
    assert_same_weights(last_weights(tmp_path / "whole"), last_weights(runs))
