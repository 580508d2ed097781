"""A run that is stopped anywhere and resumed ends with the weights of one that was not."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.callbacks import EMAWeightAveraging, ModelCheckpoint

from tests.conftest import ROOT
from tests.graph.conftest import store_path  # noqa: F401
from tests.model.small import small_model
from trajpred.graph.data_module import SceneData
from trajpred.graph.transforms import AugmentConfig
from trajpred.training.callbacks import STOPPED
from trajpred.training.lit_forecaster import LitForecaster

VARIED = AugmentConfig(drop_agents=0.3, drop_lanes=0.3, truncate_history=0.5, mirror=0.5)
#: Ten scenes in batches of three at most.
STEPS, EPOCHS = 4, 3
needs_signals = pytest.mark.skipif(
    sys.platform == "win32", reason="on Windows whatever signal a process is sent ends it at once"
)


class Seen(pl.Callback):
    """The scenarios of every step."""

    def __init__(self) -> None:
        self.steps: list[list[str]] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.steps.append(list(batch.scenario_id))


class SignalAt(pl.Callback):
    """Sends this process a signal when so many steps are done: before the next one, or while validating.

    By name: not every system has every signal.
    """

    def __init__(self, step: int, name: str, validating: bool = False) -> None:
        self.step, self.name, self.validating = step, name, validating

    def _send(self, trainer: pl.Trainer) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.Signals[self.name])

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if not self.validating:
            self._send(trainer)

    def on_validation_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if self.validating:
            self._send(trainer)


def fit(
    store: Path,
    folder: Path,
    workers: int = 0,
    resume: Path | None = None,
    callbacks: Sequence[pl.Callback] = (),
    **options: Any,
) -> tuple[LitForecaster, list[list[str]]]:
    """The trained model, and the scenarios of its steps; a checkpoint after every step lies in ``folder``."""
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    seen, model = Seen(), small_model(seed=4)
    every_step = {"every_n_train_steps": 1, "save_top_k": -1, "auto_insert_metric_name": False}
    off = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        callbacks=[*callbacks, seen, ModelCheckpoint(folder, "{step}", **every_step)],  # type: ignore[arg-type]
        accelerator="cpu",
        num_sanity_val_steps=0,
        **off,  # type: ignore[arg-type]
        **options,
    )
    torch.manual_seed(1 if resume is None else 2)  # of dropout; the checkpoint knows better
    data = SceneData(store, VARIED, batch_size=3, workers=workers, seed=3)
    trainer.fit(model, data, ckpt_path=resume)
    return model, seen.steps


def assert_same_weights(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys() and all(torch.equal(value, b[name]) for name, value in a.items())


@pytest.fixture(scope="module")
def whole(
    store_path: Path,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, LitForecaster, list[list[str]]]:
    """Checkpoints, model and steps of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, *fit(store_path, folder)


@pytest.mark.parametrize(("done", "workers"), [(1, 0), (6, 0), (8, 0), (4, 2), (7, 2), (11, 2)])
def test_a_run_resumed_anywhere_sees_the_rest_and_ends_with_the_same_weights(
    store_path: Path,  # noqa: F811
    whole: tuple[Path, LitForecaster, list[list[str]]],
    tmp_path: Path,
    done: int,
    workers: int,
) -> None:
    folder, model, steps = whole
    assert len(steps) == STEPS * EPOCHS
    resumed, rest = fit(store_path, tmp_path, workers, folder / f"{done}.ckpt")
    assert rest == steps[done:]
    assert_same_weights(model.state_dict(), resumed.state_dict())


def test_with_accumulated_gradients_too(store_path: Path, tmp_path: Path) -> None:  # noqa: F811
    model, steps = fit(store_path, tmp_path, accumulate_grad_batches=2)
    resumed, rest = fit(store_path, tmp_path / "rest", 0, tmp_path / "3.ckpt", accumulate_grad_batches=2)
    assert rest == steps[6:]
    assert_same_weights(model.state_dict(), resumed.state_dict())


def test_with_averaged_weights_too(store_path: Path, tmp_path: Path) -> None:  # noqa: F811
    def average() -> list[pl.Callback]:
        return [EMAWeightAveraging(decay=0.8, use_buffers=False)]

    model, steps = fit(store_path, tmp_path, callbacks=average())
    resumed, rest = fit(store_path, tmp_path / "rest", 0, tmp_path / "6.ckpt", average())
    assert rest == steps[6:]
    assert_same_weights(model.state_dict(), resumed.state_dict())
    ends = [torch.load(folder / "12.ckpt", weights_only=True) for folder in (tmp_path, tmp_path / "rest")]
    for part in ("state_dict", "current_model_state"):  # averaged, and as they are
        assert_same_weights(*(end[part] for end in ends))


def run(store: Path, runs: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Train as a user does, in a process of its own; ``last.ckpt`` is saved after every step."""
    small = ["encoder.init_args.layers=1", "decoder.init_args.propose_layers=1"]
    small += [f"{part}.init_args.{s}" for part in ("encoder", "decoder") for s in ("dim=16", "heads=2")]
    trainer = ["accelerator=cpu", "max_epochs=2", "enable_progress_bar=false", "limit_val_batches=0"]
    given = [*(f"--model.{x}" for x in small), *(f"--trainer.{x}" for x in trainer), f"--data.store={store}"]
    given += [f"--trainer.logger.init_args.save_dir={runs}", "--recent.train_time_interval=0:00:00", *args]
    return call([sys.executable, str(ROOT / "tools" / "train.py"), *given])


def call(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)


def weights_of(runs: Path) -> dict[str, torch.Tensor]:
    last = runs / "forecaster" / "version_0" / "checkpoints" / "last.ckpt"
    weights: dict[str, torch.Tensor] = torch.load(last, weights_only=True)["state_dict"]
    return weights


def signal_at(step: int, name: str) -> list[str]:
    option = "--trainer.callbacks"
    return [
        f"{option}=tests.training.test_resume.SignalAt",
        f"{option}.init_args.step={step}",
        f"{option}.init_args.name={name}",
    ]


@pytest.fixture(scope="module")
def undisturbed(
    store_path: Path,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, torch.Tensor]:
    runs = tmp_path_factory.mktemp("undisturbed")
    done = run(store_path, runs)
    assert done.returncode == 0, done.stderr
    assert {x.name for x in runs.rglob("*.ckpt")} == {"last.ckpt"}, "a finished run needs no other"
    return weights_of(runs)


@needs_signals
def test_a_killed_run_goes_on_from_its_last_checkpoint(
    store_path: Path,  # noqa: F811
    tmp_path: Path,
    undisturbed: dict[str, torch.Tensor],
) -> None:
    assert run(store_path, tmp_path, *signal_at(5, "SIGKILL")).returncode == -signal.SIGKILL
    folder = tmp_path / "forecaster" / "version_0"
    last, previous = (folder / "checkpoints" / f"{name}.ckpt" for name in ("last", "previous"))
    steps = [torch.load(path, weights_only=True)["global_step"] for path in (previous, last)]
    assert steps == [4, 5], "the middle of the second epoch"
    last.write_bytes(last.read_bytes()[:-1000])  # as a disk may damage it
    done = run(store_path, tmp_path, f"--resume={folder}")
    assert done.returncode == 0 and f"warning: {last}" in done.stderr and str(previous) in done.stderr
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["resume"] is None and config["trainer"]["logger"]["init_args"]["version"] is None
    assert_same_weights(undisturbed, weights_of(tmp_path))


@pytest.mark.slow
@needs_signals
def test_a_stopped_run_says_how_to_go_on(
    store_path: Path,  # noqa: F811
    tmp_path: Path,
    undisturbed: dict[str, torch.Tensor],
) -> None:
    done = run(store_path, tmp_path, *signal_at(4, "SIGTERM"), "--recent.train_time_interval=1:00:00")
    assert done.returncode == STOPPED and "Traceback" not in done.stderr
    *_, said, command = done.stdout.splitlines()
    assert said.startswith(f"Stopped as requested; saved {tmp_path}") and said.endswith("Resume with:")
    python, *rest = shlex.split(command)
    done = call([sys.executable, *rest, "--trainer.callbacks=null"])
    assert python == "python" and done.returncode == 0, done.stderr
    assert_same_weights(undisturbed, weights_of(tmp_path))
