"""How a model was trained, kept in its checkpoints so that results can say it later."""

from __future__ import annotations

import time
from typing import Any

import pytorch_lightning as pl

from trajpred.errors import require
from trajpred.evaluation.provenance import environment, store_facts
from trajpred.graph.data_module import SceneData
from trajpred.model.checkpoint import TRAINING


def _order(record: dict[str, Any]) -> dict[str, Any]:
    """Of a record, as far as it is told there, what decides in which batches an epoch comes.

    Of the store its training split: others may have changed meanwhile.
    """
    found = {name: record[name] for name in ("seed", "batch_size", "memory_gb") if name in record}
    store = record.get("store") or {}
    made = {name: store[name] for name in ("source", "config") if name in store}
    return found | ({"store": {**made, "train": store.get("scenarios", {}).get("train")}} if made else {})


class TrainingRecord(pl.Callback):
    """Writes facts of the run into every checkpoint, as plain values under :data:`TRAINING`.

    ``recipe`` (the logger's name, the same for all seeds), ``seed``, ``epoch`` (in which it was saved, from
    1), ``epochs`` (planned), ``steps``, ``batch_size`` (of all processes together), ``memory_gb`` (of each,
    None for no bound), ``precision``, ``wall_s`` (of all its runs), ``weights`` (the checkpoint it started
    with, None for none), ``store`` and ``environment`` as the run began.

    A run that is resumed within an epoch needs the same batches: DataError where they would be others.
    """

    def __init__(self, weights: str | None = None) -> None:
        self.weights = weights
        self.earlier_s = 0.0
        #: Of the record of a run that is resumed within an epoch, what has to stay.
        self.kept: dict[str, Any] = {}
        self.start_s = time.monotonic()
        self.fixed: dict[str, Any] = {}

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Now, not when a checkpoint is saved: the files of the package may change while it trains.
        self.start_s = time.monotonic()
        self.fixed = {
            "recipe": trainer.logger.name if trainer.logger else None,
            "epochs": trainer.max_epochs,
            "precision": str(trainer.precision),
            "environment": environment(),
        }
        data = getattr(trainer, "datamodule", None)
        if isinstance(data, SceneData):
            batch = data.batch_size * trainer.world_size * trainer.accumulate_grad_batches
            self.fixed |= {"seed": data.seed, "batch_size": batch, "memory_gb": data.memory_gb}
            self.fixed["store"] = store_facts(data.store)
        now = _order(self.fixed)
        for name, value in self.kept.items():
            same = now.get(name) == value
            require(same, "resume", f"goes on within an epoch, which needs the same {name}: {value}")

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        earlier = checkpoint.get(TRAINING, {})
        self.earlier_s, self.weights = earlier.get("wall_s", 0.0), earlier.get("weights")
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        within = progress["current"]["completed"] > 0 and not progress["is_last_batch"]
        self.kept = _order(earlier) if within else {}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        wall_s = round(self.earlier_s + time.monotonic() - self.start_s, 1)
        reached = {"epoch": trainer.current_epoch + 1, "steps": trainer.global_step, "wall_s": wall_s}
        checkpoint[TRAINING] = {**self.fixed, "weights": self.weights, **reached}
