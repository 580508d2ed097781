"""What a run prints: what is trained, then a line per epoch, on a terminal above Lightning's bar."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import TensorBoardLogger
from tqdm import tqdm

from trajpred.data.resample import same_step
from trajpred.model.forecaster import Forecaster
from trajpred.training.data_module import SceneData
from trajpred.training.record import RunHistory, epochs_done

#: Seconds at most between two lines.
LINE_S = 120.0


class RunProgress(pl.Callback):
    """Print the device, the model and its data, then a line per epoch, and at least every :data:`LINE_S`.

    Args:
        history: the curves of the run, updated before this callback.
    """

    def __init__(self, history: RunHistory) -> None:
        self.history = history
        #: Step at which the run starts or resumes.
        self.first = 0
        self.start_s = 0.0
        self.printed_s = 0.0
        #: The validation that no line has shown yet.
        self.news = ""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.first = trainer.global_step
        self.start_s = time.monotonic()
        self.printed_s = self.start_s
        for name, text in describe(trainer, pl_module):
            pl_module.print(f"{name:<11} {text}")
        sys.stdout.flush()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        if not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:  # the end of the epoch follows
            self._print_if_due(trainer, pl_module)

    def on_validation_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        self._print_if_due(trainer, module, f"validates {batch_idx + 1}/{int(sum(trainer.num_val_batches))}")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Shown later, because the best checkpoint is chosen after this.
        self.news = _describe_validation(self.history.rows.get(trainer.global_step, {}))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._print(trainer, pl_module)

    def _print_if_due(self, trainer: pl.Trainer, module: pl.LightningModule, note: str = "") -> None:
        if time.monotonic() - self.printed_s >= LINE_S:
            self._print(trainer, module, note)

    def _print(self, trainer: pl.Trainer, module: pl.LightningModule, note: str = "") -> None:
        self.printed_s = time.monotonic()
        loss = note or f"loss {self.history.loss:.3f}"
        parts = (_epochs(trainer), _steps(trainer), self._times(trainer), loss, _best(trainer), self.news)
        self.news = ""
        module.print("   ".join(part for part in parts if part))
        sys.stdout.flush()

    def _times(self, trainer: pl.Trainer) -> str:
        """Return the time since the start and to the end."""
        total = total_steps(trainer)
        elapsed = time.monotonic() - self.start_s
        done = trainer.global_step - self.first
        text = tqdm.format_interval(elapsed)
        if not total or not done:
            return text
        left = elapsed / done * (total - trainer.global_step)
        return f"{text}, {tqdm.format_interval(left)} left"


def _steps(trainer: pl.Trainer) -> str:
    """Return the steps done, of all if the run has an end."""
    total = total_steps(trainer)
    text = f"step {trainer.global_step:{len(str(total))}}"
    return f"{text}/{total}" if total else text


def _describe_validation(row: dict[str, float]) -> str:
    if "val/loss" not in row:
        return ""
    parts: list[str] = []
    for name in ("minADE6", "minFDE6"):
        key = f"val/focal/{name}"
        if key in row:
            parts.append(f"{name} {row[key]:.2f}")
    return f"validation loss {row['val/loss']:.3f}, focal {' '.join(parts)}"


def total_steps(trainer: pl.Trainer) -> int | None:
    """Return the number of optimiser steps of the whole run; None if it has no end."""
    total = trainer.estimated_stepping_batches
    return None if total == float("inf") else int(total)


def _epochs(trainer: pl.Trainer) -> str:
    """Return the epochs done, with a decimal within an epoch, of all."""
    total = trainer.max_epochs or -1
    done = f"{epochs_done(trainer):.1f}".removesuffix(".0")
    if total <= 0:
        return f"epoch {done}"
    return f"epoch {done:>{len(str(total))}}/{total}"


def _best(trainer: pl.Trainer) -> str:
    """Return the best value so far of the metric that chooses the best checkpoint."""
    best = trainer.checkpoint_callback
    if not isinstance(best, ModelCheckpoint) or not best.monitor or best.best_model_score is None:
        return ""
    name = best.monitor.removeprefix("val/").replace("/", " ")
    return f"best {name} {float(best.best_model_score):.3f}"


def describe(trainer: Any, module: Any) -> Iterator[tuple[str, str]]:
    """Yield names and texts of what is about to be trained: a LitForecaster on SceneData."""
    yield "device", _device(trainer)
    data = trainer.datamodule
    train = len(data.training_scenes())
    yield "scenes", f"{train:,} for training, {len(data.validation_scenes()):,} for validation"
    yield "store", _store(data, module.forecaster.step_s)
    encoder = type(module.forecaster.encoder).__name__
    decoder = type(module.forecaster.decoder).__name__
    parameters = sum(p.numel() for p in module.parameters())
    yield "model", f"{encoder} and {decoder}, {parameters:,} parameters"
    yield "steps", _time(module.forecaster)
    total = total_steps(trainer)
    epochs = f"{trainer.max_epochs} epochs, " if (trainer.max_epochs or 0) > 0 else ""
    steps = f"{total:,} steps" if total else "steps without end"
    at_most = "" if data.memory_gb is None else "at most "
    scenes = data.batch_size * trainer.accumulate_grad_batches
    yield "training", f"{epochs}{steps} of {at_most}{scenes} scenes"
    if trainer.global_step:
        yield "resumes", f"after {trainer.global_step:,} steps"
    if isinstance(trainer.logger, TensorBoardLogger):  # trainer.log_dir would wait for the other processes
        yield "results", trainer.logger.log_dir
        yield "curves", f"tensorboard --logdir {shlex.quote(trainer.logger.log_dir)}"


def _store(data: SceneData, step_s: float) -> str:
    """Return the path of the store, and its step if that is not the model's."""
    own_s = data.validation_scenes()[0].step_s
    if same_step(own_s, step_s):
        return str(data.store)
    return f"{data.store}, resampled from steps of {own_s:.3g} s to {step_s:.3g} s"


def _time(forecaster: Forecaster) -> str:
    """Return how many steps a model reads and predicts, and how long these are."""
    observed, future = forecaster.history, forecaster.horizon
    seconds = f"{observed * forecaster.step_s:.3g} s and {future * forecaster.step_s:.3g} s"
    return f"reads {observed} and predicts {future} steps of {forecaster.step_s:.3g} s ({seconds})"


def _device(trainer: pl.Trainer) -> str:
    precision = "" if str(trainer.precision).startswith("32") else f", {trainer.precision}"
    kind = trainer.strategy.root_device.type
    processes = trainer.world_size
    if kind == "cuda":
        return f"{processes} x {torch.cuda.get_device_name()}{precision}"
    each = f"{processes} processes, each with " if processes > 1 else ""
    count = torch.get_num_threads()
    threads = "1 thread" if count == 1 else f"{count} threads"
    return f"{kind.upper()}, {each}{threads}{precision}"
