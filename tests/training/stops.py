"""Events of a training at which it is stopped: the hooks of callbacks, and parts of saving a checkpoint."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from trajpred.training import checkpoint_io
from trajpred.training.checkpoint_io import SIGNALS
from trajpred.training.distributed import process_count

#: Hooks of callbacks at which a run may be stopped.
HOOKS = (
    *("on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_before_optimizer_step"),
    *("on_train_batch_end", "on_train_epoch_end", "on_train_end"),
    *("on_validation_start", "on_validation_batch_start", "on_validation_batch_end"),
    *("on_validation_epoch_end", "on_validation_end"),
)


class Stop(NamedTuple):
    """A signal to the process of ``rank`` at its event number ``at``, or a kill of all processes."""

    at: int
    signal: str | None  # None: as SIGKILL
    rank: int = 0

    @classmethod
    def draw(cls, random: np.random.Generator, events: int, processes: int) -> list[Stop]:
        """Draw one to five stops of a run that has ``events`` if it is undisturbed."""
        count = int(random.integers(1, 6))
        kinds = [None, *(one.name for one in SIGNALS)]
        return [
            cls(
                at=1 + int(random.integers(max(2, 2 * events // count))),
                signal=kinds[random.integers(2) * random.integers(len(kinds))],
                rank=int(random.integers(processes)),
            )
            for _ in range(count)
        ]


class Killed(BaseException):
    """Ends a run as SIGKILL does: nothing is saved after it."""


@dataclass
class Events:
    """Count the events of a run, and stop it at one of them."""

    stop: Stop | None
    count: int = 0
    killed: bool = False

    def __call__(self, trainer: pl.Trainer | None = None, *_: Any) -> None:
        assert not self.killed or trainer, "nothing is written after a kill"
        self.count += 1
        if self.stop is None or self.count != self.stop.at or self.killed:
            return
        if self.stop.signal is None:
            self.killed = True
            raise Killed
        if trainer is None or trainer.global_rank == self.stop.rank:
            os.kill(os.getpid(), signal.Signals[self.stop.signal])


class First(pl.Callback):
    """Report the hooks to ``events``, before the callbacks that save."""

    def __init__(self, events: Events) -> None:
        for hook in HOOKS:
            setattr(self, hook, events)


class Last(First, Checkpoint):
    """The same, after them: Lightning calls subclasses of its Checkpoint last."""


@contextmanager
def saves_reported(events: Events) -> Iterator[None]:
    """Report to ``events`` when a checkpoint is written but not renamed; not with several processes.

    Of those only the first one writes, so events would differ between them.
    """
    if process_count() > 1:
        yield
        return
    before, sync = checkpoint_io._is_complete, checkpoint_io.sync

    def reporting(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
        def call(path: Path) -> Any:
            events()
            result = function(path)
            events()
            return result

        return call

    checkpoint_io._is_complete, checkpoint_io.sync = reporting(before), reporting(sync)
    try:
        yield
    finally:
        checkpoint_io._is_complete, checkpoint_io.sync = before, sync
