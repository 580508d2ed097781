"""When checkpoints are saved, and clean interruption."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.trainer.states import TrainerFn

#: Signals that stop a run: Ctrl-C, ``kill`` and schedulers, SLURM before its time limit (not on Windows).
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
#: Exit code of a run that was stopped and can be resumed: EX_TEMPFAIL, "try again".
STOPPED = 75
#: A Ctrl-C within this time is the same one, forwarded by a launcher.
_REPEATED_S = 2.0


class RunCheckpoint(ModelCheckpoint):
    """Lightning's callback, which keeps its best checkpoint when the folder of the run has moved.

    Lightning compares absolute paths: in a moved run the next checkpoint would count as the best one.
    """

    @property
    def state_key(self) -> str:
        """Lightning's own key, so that checkpoints do not depend on this class."""
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__, 1)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        paths = {name: self._moved(x) for name, x in state_dict.items() if name.endswith("_model_path")}
        best = {self._moved(path): score for path, score in state_dict["best_k_models"].items()}
        if all(Path(path).is_file() for path in best):
            state_dict = {**state_dict, **paths, "best_k_models": best, "dirpath": self.dirpath}
        super().load_state_dict(state_dict)
        if not Path(self.best_model_path).is_file():
            self.best_model_path = ""

    def _moved(self, path: str) -> str:
        return str(Path(self.dirpath or "") / Path(path).name) if path else path


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
        stop, loop = self._stop_requested(trainer), trainer.fit_loop
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
