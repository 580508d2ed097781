"""Facts and curves of a training, kept in its checkpoints, and its folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from filelock import FileLock, Timeout
from pytorch_lightning.loggers import TensorBoardLogger
from torch import Tensor

from trajpred.errors import DataError, require
from trajpred.evaluation.results import environment, store_facts
from trajpred.model.checkpoint import TRAINING
from trajpred.training.data_module import SceneData

#: Facts of a record that determine the batches of an epoch, besides the store.
_BATCH_FACTS = (
    "seed",
    "batch_size",
    "accumulate_grad_batches",
    "memory_gb",
    "hold_out",
    "stores",
    "processes",
)
#: Seconds to wait for another training of the same run to end.
LOCK_S = 10.0


def batch_order(record: dict[str, Any]) -> dict[str, Any]:
    """Select the facts of a record that determine the batches of an epoch; older records lack some.

    Of the store only the training split counts: other splits may have changed.
    """
    facts = {name: record[name] for name in _BATCH_FACTS if name in record}
    store = record.get("store") or {}
    origin = {name: store[name] for name in ("source", "config") if name in store}
    if origin:
        origin["train"] = store.get("scenarios", {}).get("train")
        facts["store"] = origin
    return facts


class TrainingRecord(pl.Callback):
    """Write the facts of the run into every checkpoint, as plain values under :data:`TRAINING`.

    ``recipe`` (the logger's name, the same for all seeds), ``seed``, ``epoch`` (the current one, from 1),
    ``epochs`` (planned), ``steps``, ``batch_size`` (scenes of a step, over all processes and accumulated
    batches), ``accumulate_grad_batches``, ``processes``, ``memory_gb`` (of each process, None without a
    bound), ``hold_out`` (share of the training scenes), ``stores`` (as in the config),
    ``precision``, ``wall_s`` (including earlier runs), ``weights`` (the checkpoint fine-tuned from, or None),
    ``licence`` (of these weights), and ``store`` and ``environment`` when the run started.

    Raises: DataError if a run resumes within an epoch and its batches would be different.
    """

    def __init__(self, weights: str | None = None) -> None:
        self.weights = weights
        self.licence = ""
        self.earlier_s = 0.0
        #: Facts that must not change, of a run that resumes within an epoch.
        self.required: dict[str, Any] = {}
        self.start_s = time.monotonic()
        self.fixed: dict[str, Any] = {}

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Recorded at the start, since the package's files may change during training.
        self.start_s = time.monotonic()
        self.fixed = {
            "recipe": trainer.logger.name if trainer.logger else None,
            "epochs": trainer.max_epochs,
            "precision": str(trainer.precision),
            "environment": environment(),
        }
        data = getattr(trainer, "datamodule", None)
        if isinstance(data, SceneData):
            self.fixed |= {
                "seed": data.seed,
                "batch_size": data.batch_size * trainer.accumulate_grad_batches,
                "accumulate_grad_batches": trainer.accumulate_grad_batches,
                "processes": trainer.world_size,
                "memory_gb": data.memory_gb,
                "hold_out": data.hold_out,
                "stores": data.stores,
                "store": store_facts(data.store),
            }
        current = batch_order(self.fixed)
        for name, value in self.required.items():
            same = current.get(name) == value
            if name == "processes" and isinstance(data, SceneData):
                same = same or data.steps_per_epoch(value) == data.steps_per_epoch(trainer.world_size)
            require(same, "resume", f"continues within an epoch, which needs the same {name}: {value}")

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        earlier = checkpoint.get(TRAINING, {})
        self.earlier_s = earlier.get("wall_s", 0.0)
        self.weights = earlier.get("weights")
        self.licence = earlier.get("licence", "")
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        within = progress["current"]["completed"] > 0 and not progress["is_last_batch"]
        self.required = batch_order(earlier) if within else {}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        wall_s = round(self.earlier_s + time.monotonic() - self.start_s, 1)
        checkpoint[TRAINING] = self.fixed | {
            "weights": self.weights,
            "licence": self.licence,
            "epoch": trainer.current_epoch + 1,
            "steps": trainer.global_step,
            "wall_s": wall_s,
        }


def epochs_done(trainer: pl.Trainer) -> float:
    """Return the number of epochs trained, with the share of the current one."""
    batches = trainer.fit_loop.epoch_loop.batch_progress.current.ready
    return trainer.current_epoch + min(1.0, batches / trainer.num_training_batches)


class RunHistory(pl.Callback):
    """Collect the curves of a run; they survive stops, since they are part of its checkpoints.

    Attributes:
        rows: by optimiser step, at the end of each epoch and after each validation: ``epoch`` (those done),
            ``train/loss`` (mean over the epoch, at its end), and the logged ``val/…``.
    """

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, float]] = {}
        self._sum: Tensor | float = 0.0
        self._batches = 0

    @property
    def loss(self) -> float:
        """The mean training loss of the current epoch so far; reading it synchronises a GPU."""
        return float(self._sum) / max(1, self._batches)

    def on_train_epoch_start(self, *_: Any) -> None:
        self._sum = 0.0
        self._batches = 0

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._sum = self._sum + trainer.callback_metrics["train/loss"]
        self._batches += 1

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if not trainer.sanity_checking:
            metrics = trainer.callback_metrics
            validation = {name: float(x) for name, x in metrics.items() if name.startswith("val/")}
            self._add(trainer, validation)

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._add(trainer, {"train/loss": self.loss})

    def _add(self, trainer: pl.Trainer, values: dict[str, float]) -> None:
        self.rows.setdefault(trainer.global_step, {}).update(values, epoch=epochs_done(trainer))

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "sum": float(self._sum), "batches": self._batches}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = state_dict["rows"]
        self._sum = state_dict["sum"]
        self._batches = state_dict["batches"]


@contextmanager
def lock_run(trainer: pl.Trainer) -> Iterator[None]:
    """Hold the lock of a run's folder. Raises: DataError if another training holds it."""
    with ExitStack() as stack:
        if trainer.is_global_zero and isinstance(trainer.logger, TensorBoardLogger):
            run = Path(trainer.logger.log_dir)
            run.mkdir(parents=True, exist_ok=True)
            try:
                # The data workers of a killed training live, and hold its lock, for some seconds.
                stack.enter_context(FileLock(run / ".training.lock").acquire(timeout=LOCK_S))
            except Timeout:
                raise DataError("another training is writing here", file=run) from None
        yield


class RunLogger(TensorBoardLogger):
    """Lightning's logger without its curve of the epoch: TensorBoard sorts by name and opens on train/loss.

    Args:
        save_dir: folder of all runs; that of this run is ``save_dir/name/version``.
        name: of the recipe.
        version: of the run; by default a new ``version_N``.
    """

    def __init__(
        self, save_dir: str = "runs", name: str = "forecaster", version: int | str | None = None
    ) -> None:
        super().__init__(save_dir, name, version, default_hp_metric=False)

    def create_folder(self) -> None:
        """Create the folder of a new run, which no other training that starts at the same time can share."""
        number = self.version
        while isinstance(number, int):  # a version given by name may exist
            try:
                Path(self.root_dir, f"version_{number}").mkdir(parents=True)
            except FileExistsError:
                number += 1
                continue
            super().__init__(self.save_dir, self.name, number, default_hp_metric=False)
            return

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        curves = {name: value for name, value in metrics.items() if name != "epoch"}
        super().log_metrics(curves, step)
