"""Training that can be told to stop, and goes on later as if it had not been."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.trainer.states import TrainerFn

from trajpred.training.run_checkpoint import RunCheckpoint

#: What asks for an end: Ctrl-C, schedulers and ``kill``, and SLURM before its time limit (Windows lacks it).
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
#: Exit code of a training that was told to stop and can be resumed: EX_TEMPFAIL, "try again".
STOPPED = 75
#: A launcher may pass on the Ctrl-C that everyone got already; one that comes later is another one.
_AGAIN_S = 2.0


class StoppedError(Exception):
    """Training was told to stop, and has saved ``checkpoint``."""

    def __init__(self, checkpoint: str) -> None:
        super().__init__(checkpoint)
        self.checkpoint = checkpoint


class RecentCheckpoint(RunCheckpoint):
    """Lightning's callback, which also saves before each validation and when training is told to stop.

    After one of :data:`SIGNALS`, in whichever process, all of them finish their step or validation batch and
    raise :class:`StoppedError`. A second Ctrl-C ends at once.

    Nothing is saved between gradients that are accumulated and their step, nor after the last step before a
    validation: what is saved as the validation begins lets the resumed run validate too.
    """

    asked_at: float | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:  # instead of Lightning's handlers, which restores all in the end
                signal.signal(number, self._ask)
            # What those had heard before, and would end with exit code 0.
            if trainer._signal_connector.received_sigterm:
                trainer._signal_connector.received_sigterm = False
                self._ask(signal.SIGTERM, None)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.asked_at is None:
            self.asked_at = now
        elif number == signal.SIGINT and now - self.asked_at > _AGAIN_S:
            raise KeyboardInterrupt

    def _asked(self, trainer: pl.Trainer) -> bool:
        """Whether any process has been asked; all of them must come here together."""
        return bool(trainer.strategy.reduce_boolean_decision(self.asked_at is not None, all=False))

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *batch: Any) -> None:
        asked, loop = self._asked(trainer), trainer.fit_loop
        validates = loop._data_fetcher and loop.epoch_loop._should_check_val_fx(loop._data_fetcher)
        if loop._should_accumulate() or validates:
            return
        if asked:
            if not self._should_skip_saving_checkpoint(trainer):
                self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))
            raise StoppedError(self.best_model_path)
        super().on_train_batch_end(trainer, pl_module, *batch)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._should_skip_saving_checkpoint(trainer):
            return
        # As the loop stands within its first batch: Lightning then takes up the validation from there.
        progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
        progress.reset()
        progress.increment_ready()
        progress.increment_started()
        self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))
        progress.reset()

    def on_validation_batch_end(self, trainer: pl.Trainer, *batch: Any) -> None:
        # Not saved here: averaged weights stand in for the model's while it is validated.
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking and self._asked(trainer):
            raise StoppedError(self.best_model_path)
