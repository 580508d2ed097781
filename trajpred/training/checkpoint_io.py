"""Checkpoints of a run: when they are saved, how they are written, and which one to resume from."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from io import BytesIO
from pathlib import Path
from types import FrameType
from typing import Any
from zipfile import BadZipFile

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, ModelCheckpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from pytorch_lightning.trainer.states import TrainerFn
from pytorch_lightning.utilities import rank_zero_only
from pytorch_lightning.utilities.exceptions import SIGTERMException

from trajpred.data.files import atomic_file, sync
from trajpred.errors import DataError
from trajpred.model.checkpoint import read_checkpoint, require_undamaged
from trajpred.model.pretrained import CHECKPOINTS, LAST, list_models

#: In the folder of a run, beside :data:`LAST`: the checkpoint before it.
PREVIOUS = "previous.ckpt"
#: Signals that stop a run: Ctrl-C, ``kill`` and schedulers, SLURM before its time limit (not on Windows).
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
#: Exit code of a run that was stopped and can be resumed: EX_TEMPFAIL, "try again".
STOPPED = 75
#: A second Ctrl-C within this time is the first one, forwarded by a launcher.
_REPEATED_S = 2.0


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write checkpoints atomically, and keep the previous ``last.ckpt`` as ``previous.ckpt``.

    Whenever the process or the machine stops, files with a checkpoint's name are complete, and earlier files
    are unchanged. Raises: OSError if the disk is full.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        path = Path(path)
        content = BytesIO()
        torch.save(checkpoint, content)  # to memory: torch reports a full disk as RuntimeError
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as unfinished:
            unfinished.write_bytes(content.getbuffer())
            sync(unfinished)
            if path.name == LAST:
                _keep_as_previous(path)


def _keep_as_previous(path: Path) -> None:
    """Keep the checkpoint at ``path`` under another name, unless it is damaged or missing."""
    try:
        require_undamaged(path)
    except (DataError, OSError, BadZipFile):  # there is none, or it is damaged
        return
    with atomic_file(path.with_name(PREVIOUS)) as previous:
        try:
            os.link(os.path.realpath(path), previous)
        except OSError:  # links are not supported
            shutil.copyfile(path, previous)


def newest_checkpoint(run: Path) -> tuple[Path, dict[str, Any]]:
    """Return the checkpoint to resume from, and its content.

    Args:
        run: a checkpoint, or the folder of a run, which stands for its ``last.ckpt``. If ``last.ckpt`` is
            missing or damaged, ``previous.ckpt`` is used and a warning printed.

    Raises: DataError if there is none, or it is damaged.
    """
    path = run
    if run.is_dir():
        folder = run / CHECKPOINTS
        path = folder / LAST if folder.is_dir() else run / LAST
    previous = path.with_name(PREVIOUS)
    has_previous = path.name == LAST and previous.is_file()
    if str(run) in list_models():
        problem = "contains only weights, which cannot be resumed: fine-tune them with --weights"
        raise DataError(problem, file=run)
    if not path.is_file() and not has_previous:
        problem = f"contains no {LAST} to resume from" if run.is_dir() else "no such run or checkpoint"
        raise DataError(f"{problem}; give the folder of a run, as runs/NAME/version_0", file=run)
    try:
        return path, read_checkpoint(path)
    except DataError as error:
        if not has_previous:
            raise
        content = read_checkpoint(previous)
        warn(f"{error}; resumes from {previous} instead")
        return previous, content


@rank_zero_only
def warn(text: str) -> None:
    """Print a warning, in the first process."""
    print(f"warning: {text}", file=sys.stderr)


class BestCheckpoint(ModelCheckpoint):
    """Lightning's callback, which keeps its best checkpoint if the run's folder has moved.

    Lightning compares absolute paths: in a moved run the next checkpoint would count as the best one.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best checkpoints, in this run's folder, if their files still exist."""

        def moved(path: str) -> str:
            return str(Path(self.dirpath or "", Path(path).name)) if path else ""

        best = {moved(path): score for path, score in state_dict["best_k_models"].items()}
        state = state_dict | {"dirpath": self.dirpath, "best_k_models": best}
        for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
            state[name] = moved(state[name])
        if all(Path(path).is_file() for path in (*best, state["best_model_path"]) if path):
            super().load_state_dict(state)
        # Otherwise, the next checkpoint need not be better than a lost one.


class LastCheckpoint(Checkpoint):
    """Save ``last.ckpt``: after each epoch, before each validation, and when a signal stops the run.

    After one of :data:`SIGNALS` in any process, all processes finish their step or validation batch and raise
    Lightning's SIGTERMException. A second Ctrl-C raises KeyboardInterrupt.

    Between two steps, it is saved when the next one begins: never between accumulated gradients and their
    step, and never within the last batch of an epoch, from which Lightning resumes with wrong counts.

    Args:
        every_s: also save after the step that ends this many seconds after the last checkpoint.
    """

    def __init__(self, every_s: float = 300.0) -> None:
        self.every_s = every_s
        self.path = Path(LAST)
        self.saved_s = 0.0
        #: Optimiser steps done.
        self.step = 0
        #: Whether a checkpoint is due after the step that ended.
        self.due = False
        #: Whether the last batch since the last checkpoint ended with a step.
        self.stepped = False
        #: When a signal was received.
        self.requested_s: float | None = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        folder = Path(trainer.log_dir or trainer.default_root_dir) / CHECKPOINTS
        best = trainer.checkpoint_callback
        if isinstance(best, ModelCheckpoint) and best.dirpath is not None:
            folder = Path(best.dirpath)
        self.path = folder / LAST

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.step = trainer.global_step
        self.saved_s = time.monotonic()
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:  # replaces Lightning's handlers, which restores all at the end
                signal.signal(number, self._request_stop)

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested_s is None:
            self.requested_s = now
        elif number == signal.SIGINT and now - self.requested_s > _REPEATED_S:
            raise KeyboardInterrupt

    def _stop_if_requested(self, trainer: pl.Trainer) -> None:
        """Stop if any process received a signal; all processes must call this together."""
        requested = self.requested_s is not None or trainer.received_sigterm
        if trainer.strategy.reduce_boolean_decision(requested, all=False):
            raise SIGTERMException

    def stop_waiting(self, trainer: pl.Trainer) -> None:
        """Stop a run that waits for a batch if a signal was received; one process saves the steps so far."""
        if self.requested_s is None and not trainer.received_sigterm:
            return
        self.due = self.stepped and trainer.training and trainer.world_size == 1
        raise SIGTERMException

    def _save(self, trainer: pl.Trainer) -> None:
        self.due = False
        self.stepped = False
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]
            trainer.save_checkpoint(self.path)
        self.saved_s = time.monotonic()
        self._stop_if_requested(trainer)

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        due = time.monotonic() - self.saved_s >= self.every_s
        due |= self.requested_s is not None or trainer.received_sigterm
        due = trainer.strategy.reduce_boolean_decision(due, all=False)
        self.stepped = trainer.global_step > self.step
        if self.stepped:  # otherwise gradients are accumulated
            self.due = due
            self.step = trainer.global_step

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Save if that is due, as if this batch had not begun."""
        if not self.due:
            return
        # Save as after the previous batch's validation, if there was one: this batch has not begun.
        progress = trainer.fit_loop.epoch_loop.batch_progress
        is_last_batch = progress.is_last_batch
        progress.is_last_batch = False
        progress.total.ready -= 1
        progress.current.ready -= 1
        self._save(trainer)
        progress.increment_ready()
        progress.is_last_batch = is_last_batch

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save before a validation, so that a resumed run repeats it."""
        if not _fits(trainer):
            return
        # The state within the first validation batch: Lightning then resumes with the validation.
        progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
        progress.reset()
        progress.increment_ready()
        progress.increment_started()
        self._save(trainer)
        progress.reset()

    def on_validation_batch_end(self, trainer: pl.Trainer, *batch: Any) -> None:
        # Save nothing here: averaged weights may replace the model's during validation.
        if _fits(trainer):
            self._stop_if_requested(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._save(trainer)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        # Lightning itself stops if SIGTERM came before the handlers were replaced.
        if isinstance(exception, SIGTERMException) and self.due:
            trainer.save_checkpoint(self.path)


def _fits(trainer: pl.Trainer) -> bool:
    return trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking
