"""Checkpoints of a run: when they are saved, how they are written, and from which one it resumes."""

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
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from pytorch_lightning.trainer.states import TrainerFn
from pytorch_lightning.utilities import rank_zero_only

from trajpred.data.files import atomic_file, sync
from trajpred.errors import DataError
from trajpred.model.checkpoint import read_checkpoint, require_undamaged
from trajpred.model.pretrained import CHECKPOINTS, LAST, list_models

#: In the folder of a run, beside :data:`LAST`: the one before that.
PREVIOUS = "previous.ckpt"
#: Signals that stop a run: Ctrl-C, ``kill`` and schedulers, SLURM before its time limit (not on Windows).
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
#: Exit code of a run that was stopped and can be resumed: EX_TEMPFAIL, "try again".
STOPPED = 75
#: A Ctrl-C within this time is the same one, forwarded by a launcher.
_REPEATED_S = 2.0


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write checkpoints atomically, and keep the previous ``last.ckpt`` as ``previous.ckpt``.

    If the process or the machine stops at any time, a file with a checkpoint's name is complete and the files
    that existed before are unchanged. Raises: OSError if the disk is full.
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
            if path.name == LAST and _is_complete(path):
                _keep_as_previous(path)


def _keep_as_previous(path: Path) -> None:
    with atomic_file(path.with_name(PREVIOUS)) as previous:
        try:
            os.link(os.path.realpath(path), previous)
        except OSError:  # links are not supported
            shutil.copyfile(path, previous)


def _is_complete(path: Path) -> bool:
    try:
        require_undamaged(path)
    except (DataError, OSError, BadZipFile):
        return False
    return True


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
        problem = "holds weights only, which cannot be resumed: fine-tune them with --weights"
        raise DataError(problem, file=run)
    if not path.is_file() and not has_previous:
        problem = f"holds no {LAST} to resume from" if run.is_dir() else "no such run or checkpoint"
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


class RunCheckpoint(ModelCheckpoint):
    """Lightning's callback, which keeps its best checkpoint when the folder of the run has moved.

    Lightning compares absolute paths: in a moved run the next checkpoint would count as the best one.
    """

    @property
    def state_key(self) -> str:
        """Lightning's own key, so that checkpoints do not depend on this class."""
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__, 1)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        best = {self._moved(path): score for path, score in state_dict["best_k_models"].items()}
        latest = self._moved(state_dict["best_model_path"])
        if all(Path(path).is_file() for path in (*best, latest) if path):
            state_dict = dict(state_dict)
            for name, value in state_dict.items():
                if name.endswith("_model_path"):
                    state_dict[name] = self._moved(value)
            state_dict["best_k_models"] = best
            state_dict["dirpath"] = self.dirpath
            super().load_state_dict(state_dict)
        # Otherwise nothing is restored: the next checkpoint need not be better than one that is lost.

    def _moved(self, path: str) -> str:
        if not path:
            return path
        return str(Path(self.dirpath or "") / Path(path).name)


class StoppedError(Exception):
    """Training was stopped by a signal, after saving ``checkpoint``."""

    def __init__(self, checkpoint: str) -> None:
        super().__init__(checkpoint)
        self.checkpoint = checkpoint


class RecentCheckpoint(RunCheckpoint):
    """Lightning's callback, which also saves before each validation and when a signal stops the run.

    After one of :data:`SIGNALS` in any process, all processes finish their step or validation batch and raise
    :class:`StoppedError`. A second Ctrl-C raises KeyboardInterrupt.

    No checkpoint is written between accumulated gradients and their step. After the last step of an epoch it
    is written when validation starts, or at the end of an epoch without validation: Lightning counts the
    epochs of a run that resumes from within its last batch wrongly.
    """

    requested_at: float | None = None
    stop_at_epoch_end = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:  # replaces Lightning's handlers, which restores all at the end
                signal.signal(number, self._request_stop)
            # A signal that Lightning's handler received before; its exit code would be 0.
            if trainer._signal_connector.received_sigterm:
                trainer._signal_connector.received_sigterm = False
                self._request_stop(signal.SIGTERM, None)

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested_at is None:
            self.requested_at = now
        elif number == signal.SIGINT and now - self.requested_at > _REPEATED_S:
            raise KeyboardInterrupt

    def _stop_requested(self, trainer: pl.Trainer) -> bool:
        """Return whether any process received a signal; all processes must call this together."""
        return bool(trainer.strategy.reduce_boolean_decision(self.requested_at is not None, all=False))

    def _save_and_stop(self, trainer: pl.Trainer) -> None:
        if not self._should_skip_saving_checkpoint(trainer):
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))
        raise StoppedError(self.best_model_path)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *batch: Any) -> None:
        stop = self._stop_requested(trainer)
        loop = trainer.fit_loop
        validates = loop._data_fetcher and loop.epoch_loop._should_check_val_fx(loop._data_fetcher)
        if loop._should_accumulate() or validates:
            return
        if loop.epoch_loop.batch_progress.is_last_batch:
            self.stop_at_epoch_end = stop
            return
        if stop:
            self._save_and_stop(trainer)
        super().on_train_batch_end(trainer, pl_module, *batch)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.stop_at_epoch_end:
            self._save_and_stop(trainer)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._should_skip_saving_checkpoint(trainer):
            return
        # The state within the first validation batch, from which Lightning resumes with the validation.
        progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
        progress.reset()
        progress.increment_ready()
        progress.increment_started()
        self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))
        progress.reset()

    def on_validation_batch_end(self, trainer: pl.Trainer, *batch: Any) -> None:
        # Nothing is saved here, since averaged weights may replace the model's during validation.
        fits = trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking
        if fits and self._stop_requested(trainer):
            raise StoppedError(self.best_model_path)
