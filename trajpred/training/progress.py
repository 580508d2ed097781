"""What a run prints: what is trained at the start, then a bar on a terminal, or lines in a file or a pipe."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint, ProgressBar
from pytorch_lightning.loggers import TensorBoardLogger
from tqdm import tqdm

from trajpred.metrics import columns
from trajpred.training.data_module import SceneData
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.training.record import RunHistory, epochs_done

#: Seconds between two states of the bar, and at most between two lines.
REFRESH_S, LINE_S = 0.2, 120.0


class RunProgress(ProgressBar):
    """Show the progress of the whole run, over all epochs and validations; only the first process prints.

    On a terminal it is one bar, and otherwise a line per epoch, and at least every :data:`LINE_S`.

    Args:
        history: the curves of the run, updated before this callback.
    """

    def __init__(self, history: RunHistory) -> None:
        super().__init__()
        self.history, self.enabled = history, True
        self.bar: Any = None
        self.first, self.start_s, self.shown_s = 0, 0.0, 0.0
        #: Step of a validation that no line has shown yet.
        self.validated: int | None = None

    def enable(self) -> None:
        self.enabled = True

    def disable(self) -> None:
        self.enabled = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.first, self.start_s = trainer.global_step, time.monotonic()
        self.shown_s = self.start_s
        if not self.enabled:
            return
        for name, text in describe(trainer, pl_module):
            print(f"{name:<11} {text}", flush=True)
        if sys.stdout.isatty():
            look = "{n_fmt}/{total_fmt} {bar} {remaining} left{postfix}"
            self.bar = tqdm(
                total=total_steps(trainer), initial=self.first, bar_format=look, dynamic_ncols=True,
                smoothing=0, file=sys.stdout,
            )  # fmt: skip

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:  # the end of the epoch follows
            self._show_if_due(trainer, news=self.validated is not None)

    def on_validation_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        batches = int(sum(trainer.num_val_batches))
        self._show_if_due(trainer, f"validates {batch_idx + 1}/{batches}")

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        # Shown later, because the best checkpoint is chosen after this.
        self.validated = trainer.global_step

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._show(trainer)

    def on_train_end(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.close()

    def on_exception(self, *_: Any) -> None:
        self.on_train_end()

    def _show_if_due(self, trainer: pl.Trainer, note: str = "", news: bool = False) -> None:
        interval = LINE_S if self.bar is None else REFRESH_S
        if news or time.monotonic() - self.shown_s >= interval:
            self._show(trainer, note)

    def _show(self, trainer: pl.Trainer, note: str = "") -> None:
        if not self.enabled:
            return
        self.shown_s, validated, self.validated = time.monotonic(), self.validated, None
        epochs, loss = _epochs(trainer), note or f"loss {self.history.loss:.3f}"
        if self.bar is None:
            news = _describe_validation(self.history.rows.get(validated, {}) if validated else {})
            parts = (epochs, *self._times(trainer), loss, _best(trainer), news)
            print("   ".join(filter(None, parts)), flush=True)
            return
        self.bar.n = trainer.global_step
        shown = filter(None, (loss, _best(trainer), epochs.strip()))
        self.bar.set_postfix_str(", ".join(shown))  # tqdm fits the line to the terminal

    def _times(self, trainer: pl.Trainer) -> Iterator[str]:
        """Yield the steps, and the time since the start and to the end."""
        step, total = trainer.global_step, total_steps(trainer)
        elapsed, done = time.monotonic() - self.start_s, step - self.first
        yield f"step {step:{len(str(total))}}" + (f"/{total}" if total else "")
        left = f", {tqdm.format_interval(elapsed / done * (total - step))} left" if total and done else ""
        yield tqdm.format_interval(elapsed) + left


def _describe_validation(row: dict[str, float]) -> str:
    parts = [f"{name} {row[key]:.2f}" for name in columns("progress") if (key := f"val/focal/{name}") in row]
    return f"validation loss {row['val/loss']:.3f}, focal {' '.join(parts)}" if "val/loss" in row else ""


def total_steps(trainer: pl.Trainer) -> int | None:
    """Return the number of optimiser steps of the whole run; None if it has no end."""
    total = trainer.estimated_stepping_batches
    return None if total == float("inf") else int(total)


def _epochs(trainer: pl.Trainer) -> str:
    """Return the epochs done, with a decimal within an epoch, of all."""
    total, done = trainer.max_epochs or -1, f"{epochs_done(trainer):.1f}".removesuffix(".0")
    return f"epoch {done:>{len(str(total))}}/{total}" if total > 0 else f"epoch {done}"


def _best(trainer: pl.Trainer) -> str:
    """Return the best value so far of the metric that chooses the best checkpoint."""
    for one in trainer.checkpoint_callbacks:
        if isinstance(one, ModelCheckpoint) and one.monitor and one.best_model_score is not None:
            return f"best {metric_label(one.monitor)} {float(one.best_model_score):.3f}"
    return ""


def metric_label(key: str) -> str:
    """Return the text for a logged metric: ``scored minFDE6`` for ``val/scored/minFDE6``."""
    return key.removeprefix("val/").replace("/", " ")


def describe(trainer: pl.Trainer, module: pl.LightningModule) -> Iterator[tuple[str, str]]:
    """Yield names and texts of what is about to be trained."""
    yield "device", _device(trainer)
    data, scenes = getattr(trainer, "datamodule", None), ""
    if isinstance(data, SceneData):
        train, val = data.training_scenes(), data.validation_scenes()
        yield "scenes", f"{len(train):,} for training, {len(val):,} for validation"
        yield "store", str(data.store)
        size = data.batch_size * trainer.accumulate_grad_batches
        scenes = f" of {size} scenes" if data.memory_gb is None else f" of at most {size} scenes"
    if isinstance(module, LitForecaster):
        parts = module.forecaster.encoder, module.forecaster.decoder
        count = sum(p.numel() for p in module.parameters())
        yield "model", f"{' and '.join(type(part).__name__ for part in parts)}, {count:,} parameters"
    total = total_steps(trainer)
    epochs = f"{trainer.max_epochs} epochs, " if (trainer.max_epochs or 0) > 0 else ""
    yield "training", epochs + (f"{total:,} steps" if total else "steps without end") + scenes
    if trainer.global_step:
        yield "resumes", f"after {trainer.global_step:,} steps"
    if isinstance(trainer.logger, TensorBoardLogger):  # trainer.log_dir would wait for the other processes
        yield "results", trainer.logger.log_dir
        yield "curves", f"tensorboard --logdir {shlex.quote(trainer.logger.log_dir)}"


def _device(trainer: pl.Trainer) -> str:
    precision = "" if str(trainer.precision).startswith("32") else f", {trainer.precision}"
    kind, processes, threads = trainer.strategy.root_device.type, trainer.world_size, torch.get_num_threads()
    if kind == "cuda":
        return f"{processes} x {torch.cuda.get_device_name()}{precision}"
    share = f"{processes} processes, each with " if processes > 1 else ""
    return f"{kind.upper()}, {share}{threads} thread{'s' if threads > 1 else ''}{precision}"
