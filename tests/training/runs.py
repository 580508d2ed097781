"""Short trainings in this process."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException

from tests.model.small import TINY, small_model
from tests.training.command import SignalAt, assert_same_weights
from trajpred.training.augmentation import AugmentConfig
from trajpred.training.checkpoint_io import AtomicCheckpointIO, LastCheckpoint
from trajpred.training.data_module import SceneData

#: Small scenes make training cheap.
SMALL_SCENES = {"features": {"max_agents": 8, "max_lanes": 24}, "graph": {"lane_agent_k": 8}}
AUGMENT = AugmentConfig(drop_agents=0.3, drop_lanes=0.3, truncate_history=0.5, mirror=0.5)
#: Steps of an epoch: ten scenes in batches of at most three.
STEPS = 4
EPOCHS = 2


def trainer(folder: Path, **options: Any) -> pl.Trainer:
    """Return a trainer, on the CPU, that prints nothing."""
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    silent = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    return pl.Trainer(default_root_dir=folder, **({"accelerator": "cpu"} | silent | options))


@dataclass
class Record(pl.Callback):
    """The scenarios of every step, the validation losses by step, and the final weights."""

    steps: list[list[str]] = field(default_factory=list)
    losses: dict[int, float] = field(default_factory=dict)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.steps.append(list(batch.scenario_id))

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert trainer.global_step not in self.losses, "validated twice"
        self.losses[trainer.global_step] = float(trainer.callback_metrics["val/loss"])

    def __add__(self, other: Record) -> Record:
        assert not self.losses.keys() & other.losses.keys(), "validated twice"
        steps = self.steps + other.steps
        losses = self.losses | other.losses
        return Record(steps, losses, other.weights)


def fit(
    store: Path,
    folder: Path,
    resume: Path | None = None,
    callbacks: Sequence[pl.Callback] = (),
    stop: SignalAt | None = None,
    **options: Any,
) -> tuple[Record, Path]:
    """Train, or resume, until the end or ``stop``: what was recorded, and the last checkpoint."""
    record = Record()
    model = small_model(seed=4, scene=SMALL_SCENES, **TINY).train()
    every = [*callbacks, record]
    if stop is None:
        every.append(_checkpoint_of_every_step(folder))
    else:
        every += [stop, LastCheckpoint(every_s=3600)]
    run = trainer(
        folder,
        max_epochs=EPOCHS,
        callbacks=every,
        num_sanity_val_steps=0,
        plugins=[AtomicCheckpointIO()],
        **options,
    )
    torch.manual_seed(1 if resume is None else 2)  # the checkpoint restores dropout's
    data = SceneData(store, AUGMENT, batch_size=3, seed=3)
    last = folder / "checkpoints" / "last.ckpt"
    if stop is None:
        run.fit(model, data, ckpt_path=resume)
    else:
        with pytest.raises(SIGTERMException):
            run.fit(model, data, ckpt_path=resume)
    record.weights = model.state_dict()
    return record, last


def assert_same_run(found: Record, expected: Record) -> None:
    """Assert that two runs have the same scenarios, validations and weights."""
    assert found.steps == expected.steps
    assert found.losses == expected.losses
    assert_same_weights(found.weights, expected.weights)


def _checkpoint_of_every_step(folder: Path) -> ModelCheckpoint:
    return ModelCheckpoint(
        folder, "{step}", every_n_train_steps=1, save_top_k=-1, auto_insert_metric_name=False
    )
