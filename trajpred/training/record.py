"""The facts of a training, kept in its checkpoints for result tables and model cards."""

from __future__ import annotations

import time
from typing import Any

import pytorch_lightning as pl

from trajpred.errors import require
from trajpred.evaluation.provenance import environment, store_facts
from trajpred.graph.data_module import SceneData
from trajpred.model.checkpoint import TRAINING


def batch_order(record: dict[str, Any]) -> dict[str, Any]:
    """Select the facts of a record that determine the batches of an epoch.

    Of the store only the training split counts: other splits may have changed.
    """
    facts = {name: record[name] for name in ("seed", "batch_size", "memory_gb") if name in record}
    store = record.get("store") or {}
    origin = {name: store[name] for name in ("source", "config") if name in store}
    return facts | ({"store": {**origin, "train": store.get("scenarios", {}).get("train")}} if origin else {})


class TrainingRecord(pl.Callback):
    """Write the facts of the run into every checkpoint, as plain values under :data:`TRAINING`.

    ``recipe`` (the logger's name, the same for all seeds), ``seed``, ``epoch`` (the current one, from 1),
    ``epochs`` (planned), ``steps``, ``batch_size`` (of all processes together), ``memory_gb`` (of each
    process, None without a bound), ``precision``, ``wall_s`` (including earlier runs), ``weights`` (the
    checkpoint fine-tuned from, or None), and ``store`` and ``environment`` when the run started.

    Raises: DataError if a run resumes within an epoch and its batches would be different.
    """

    def __init__(self, weights: str | None = None) -> None:
        self.weights = weights
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
            batch = data.batch_size * trainer.world_size * trainer.accumulate_grad_batches
            self.fixed |= {"seed": data.seed, "batch_size": batch, "memory_gb": data.memory_gb}
            self.fixed["store"] = store_facts(data.store)
        current = batch_order(self.fixed)
        for name, value in self.required.items():
            same = current.get(name) == value
            require(same, "resume", f"continues within an epoch, which needs the same {name}: {value}")

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        earlier = checkpoint.get(TRAINING, {})
        self.earlier_s, self.weights = earlier.get("wall_s", 0.0), earlier.get("weights")
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        within = progress["current"]["completed"] > 0 and not progress["is_last_batch"]
        self.required = batch_order(earlier) if within else {}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        wall_s = round(self.earlier_s + time.monotonic() - self.start_s, 1)
        reached = {"epoch": trainer.current_epoch + 1, "steps": trainer.global_step, "wall_s": wall_s}
        checkpoint[TRAINING] = {**self.fixed, "weights": self.weights, **reached}
