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

from trajpred.training.data_module import SceneData
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.training.record import RunHistory, epochs_done

#: Seconds between two states of the bar.
REFRESH_S = 0.2
#: Seconds at most between two lines.
LINE_S = 120.0


class RunProgress(ProgressBar):
    """Show the progress of the whole run, over all epochs and validations; only the first process prints.

    On a terminal it is one bar, and otherwise a line per epoch, and at least every :data:`LINE_S`.

    Args:
        history: the curves of the run, updated before this callback.
    """

    def __init__(self, history: RunHistory) -> None:
        super().__init__()
        self.history = history
        self.enabled = True
        self.bar: Any = None
        #: Step at which the run starts or resumes.
        self.first = 0
        self.start_s = 0.0
        self.shown_s = 0.0
        #: Step of a validation that no line has shown yet.
        self.validated: int | None = None

    def enable(self) -> None:
        self.enabled = True

    def disable(self) -> None:
        self.enabled = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.first = trainer.global_step
        self.start_s = time.monotonic()
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
        self.shown_s = time.monotonic()
        validation: dict[str, float] = {}
        if self.validated:
            validation = self.history.rows.get(self.validated, {})
        self.validated = None
        epochs = _epochs(trainer)
        loss = note or f"loss {self.history.loss:.3f}"
        best = _best(trainer)
        if self.bar is None:
            news = _describe_validation(validation)
            parts = (epochs, _steps(trainer), self._times(trainer), loss, best, news)
            print("   ".join(part for part in parts if part), flush=True)
            return
        self.bar.n = trainer.global_step
        postfix = (loss, best, epochs.strip())
        # tqdm fits the line to the terminal.
        self.bar.set_postfix_str(", ".join(part for part in postfix if part))

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
    if total == float("inf"):
        return None
    return int(total)


def _epochs(trainer: pl.Trainer) -> str:
    """Return the epochs done, with a decimal within an epoch, of all."""
    total = trainer.max_epochs or -1
    done = f"{epochs_done(trainer):.1f}".removesuffix(".0")
    if total <= 0:
        return f"epoch {done}"
    return f"epoch {done:>{len(str(total))}}/{total}"


def _best(trainer: pl.Trainer) -> str:
    """Return the best value so far of the metric that chooses the best checkpoint."""
    for callback in trainer.checkpoint_callbacks:
        if not isinstance(callback, ModelCheckpoint) or not callback.monitor:
            continue
        if callback.best_model_score is not None:
            score = float(callback.best_model_score)
            return f"best {metric_label(callback.monitor)} {score:.3f}"
    return ""


def metric_label(key: str) -> str:
    """Return the text for a logged metric: ``scored minFDE6`` for ``val/scored/minFDE6``."""
    return key.removeprefix("val/").replace("/", " ")


def describe(trainer: pl.Trainer, module: pl.LightningModule) -> Iterator[tuple[str, str]]:
    """Yield names and texts of what is about to be trained."""
    yield "device", _device(trainer)
    data = getattr(trainer, "datamodule", None)
    step_size = ""
    if isinstance(data, SceneData):
        train = data.training_scenes()
        val = data.validation_scenes()
        yield "scenes", f"{len(train):,} for training, {len(val):,} for validation"
        yield "store", str(data.store)
        at_most = "" if data.memory_gb is None else "at most "
        step_size = f" of {at_most}{data.batch_size * trainer.accumulate_grad_batches} scenes"
    if isinstance(module, LitForecaster):
        encoder = type(module.forecaster.encoder).__name__
        decoder = type(module.forecaster.decoder).__name__
        count = sum(p.numel() for p in module.parameters())
        yield "model", f"{encoder} and {decoder}, {count:,} parameters"
    total = total_steps(trainer)
    epochs = f"{trainer.max_epochs} epochs, " if (trainer.max_epochs or 0) > 0 else ""
    steps = f"{total:,} steps" if total else "steps without end"
    yield "training", epochs + steps + step_size
    if trainer.global_step:
        yield "resumes", f"after {trainer.global_step:,} steps"
    if isinstance(trainer.logger, TensorBoardLogger):  # trainer.log_dir would wait for the other processes
        yield "results", trainer.logger.log_dir
        yield "curves", f"tensorboard --logdir {shlex.quote(trainer.logger.log_dir)}"


def _device(trainer: pl.Trainer) -> str:
    precision = "" if str(trainer.precision).startswith("32") else f", {trainer.precision}"
    kind = trainer.strategy.root_device.type
    processes = trainer.world_size
    if kind == "cuda":
        return f"{processes} x {torch.cuda.get_device_name()}{precision}"
    share = f"{processes} processes, each with " if processes > 1 else ""
    count = torch.get_num_threads()
    threads = "1 thread" if count == 1 else f"{count} threads"
    return f"{kind.upper()}, {share}{threads}{precision}"
