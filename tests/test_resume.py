"""A run that is stopped anywhere and resumed ends with the weights of one that was not."""

from __future__ import annotations

import os
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
from pytorch_lightning.callbacks import EMAWeightAveraging, ModelCheckpoint

from tests.conftest import ROOT
from tests.graph.conftest import store_path  # noqa: F401
from tests.model.small import small_model
from trajpred.graph.augment import AugmentConfig
from trajpred.graph.data_module import SceneData
from trajpred.model import LitForecaster

VARIED = AugmentConfig(drop_agents=0.3, drop_lanes=0.3, truncate_history=0.5, mirror=0.5)
#: Ten scenes in batches of three at most.
STEPS, EPOCHS = 4, 3


class Seen(pl.Callback):
    """The scenarios of every step."""

    def __init__(self) -> None:
        self.steps: list[list[str]] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.steps.append(list(batch.scenario_id))


class KillAt(pl.Callback):
    """Ends the process as a power cut does when so many steps are done."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


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


def test_a_killed_run_goes_on_from_its_last_checkpoint(store_path: Path, tmp_path: Path) -> None:  # noqa: F811
    """As a user does it, each time in a new process; here ``last.ckpt`` is saved after every step."""

    def run(name: str, *args: str) -> int:
        small = ["encoder.init_args.layers=1", "decoder.init_args.propose_layers=1"]
        small += [f"{part}.init_args.{s}" for part in ("encoder", "decoder") for s in ("dim=16", "heads=2")]
        trainer = ["accelerator=cpu", "max_epochs=2", "enable_progress_bar=false", "limit_val_batches=0"]
        given = [*(f"--model.{x}" for x in small), *(f"--trainer.{x}" for x in trainer), *args]
        given += [f"--data.store={store_path}", f"--trainer.logger.init_args.save_dir={tmp_path / name}"]
        tool = [sys.executable, str(ROOT / "tools" / "train.py"), *given]
        path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        return subprocess.run(tool, env=environment, capture_output=True, check=False).returncode

    def last(name: str) -> Path:
        return tmp_path / name / "forecaster" / "version_0" / "checkpoints" / "last.ckpt"

    assert run("whole") == 0
    kill = ("--trainer.callbacks=tests.test_resume.KillAt", "--trainer.callbacks.init_args.step=5")
    assert run("killed", "--recent.train_time_interval=0:00:00", *kill) == -signal.SIGKILL
    assert torch.load(last("killed"), weights_only=True)["global_step"] == 5, "the middle of the second epoch"
    assert run("killed", f"--resume={last('killed')}") == 0
    weights = [torch.load(last(name), weights_only=True)["state_dict"] for name in ("whole", "killed")]
    assert_same_weights(*weights)
