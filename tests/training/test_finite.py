"""Training stops at the first number that is not finite, and leaves the last good checkpoint alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch_geometric.data import HeteroData

from tests.graph.conftest import store_path  # noqa: F401
from tests.model.small import small_model
from tests.training.test_lit_forecaster import trainer
from trajpred.errors import DataError
from trajpred.graph.data_module import SceneData
from trajpred.training.lit_forecaster import LitForecaster

POISONED = "forecaster.encoder.layers.1.attention.value.weight"


class At(pl.Callback):
    """Does something to model and batch before one step; remembers its scenarios."""

    def __init__(self, step: int, harm: Callable[[LitForecaster, HeteroData], None]) -> None:
        self.step, self.harm, self.scenarios = step, harm, [""]

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self.step:
            self.scenarios = batch.scenario_id
            self.harm(module, batch)


def weight(model: LitForecaster, batch: HeteroData) -> None:
    dict(model.named_parameters())[POISONED].data[0, 0] = math.nan


def target(model: LitForecaster, batch: HeteroData) -> None:
    """An infinite target: the errors are infinite, their gradients are not."""
    batch["agent"].target[batch["agent"].target_mask] = math.inf


def gradient(model: LitForecaster, batch: HeteroData) -> None:
    dict(model.named_parameters())[POISONED].register_hook(lambda g: g * math.inf)


def stopped(
    store: Path, folder: Path, harm: Any, step: int = 3, **options: Any
) -> tuple[At, LitForecaster, str]:
    """A run of two batches an epoch, harmed before a step, and what it says."""
    at, model = At(step, harm), small_model(seed=4).train()
    saver = ModelCheckpoint(folder, "last", save_on_train_epoch_end=True, enable_version_counter=False)
    run = trainer(folder, max_epochs=3, limit_val_batches=0, callbacks=[at, saver], **options)
    with pytest.raises(DataError) as error:
        run.fit(model, SceneData(store, batch_size=5, seed=3))
    return at, model, str(error.value)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (weight, f"not finite: weight {POISONED};"),
        (target, "not finite: loss refinement, mode, proposal, loss, and"),
        (gradient, f"not finite: gradient of {POISONED};"),
    ],
)
def test_the_cause_the_step_and_the_scenarios_are_named(
    store_path: Path,  # noqa: F811
    tmp_path: Path,
    harm: Any,
    says: str,
) -> None:
    at, model, said = stopped(store_path, tmp_path, harm)
    assert said.startswith("training stopped at step 3 (epoch 1), ") and says in said
    assert all(name in said for name in at.scenarios[:4]) and len(at.scenarios) == 5
    assert said.endswith(", and 1 more") and "\n" not in said
    content = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert content["global_step"] == 2
    assert all(value.isfinite().all() for value in content["state_dict"].values())
    # The step was not taken.
    bad = {name for name, value in model.named_parameters() if not value.isfinite().all()}
    assert bad == ({POISONED} if harm is weight else set())


def test_every_batch_of_a_step_is_looked_at(store_path: Path, tmp_path: Path) -> None:  # noqa: F811
    """Steps of two batches, of which the first is harmed."""
    seen: list[str] = []

    def first(model: LitForecaster, batch: HeteroData) -> None:
        if not seen:
            target(model, batch)
        seen.extend(batch.scenario_id)

    *_, said = stopped(store_path, tmp_path, first, step=1, accumulate_grad_batches=2)
    assert "step 1 (epoch 1), not finite: loss " in said
    assert f"scenarios: {', '.join(seen[:4])}, and 6 more" in said and len(seen) == 10


class Norms(pl.Callback):
    """The gradients' norm before each step as logged, and after clipping as it is."""

    def __init__(self) -> None:
        self.logged: list[float] = []
        self.clipped: list[float] = []
        self.found: list[float] = []

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        self.found.append(self._norm(module))

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, *_: Any) -> None:
        self.logged.append(float(trainer.callback_metrics["train/grad_norm"]))
        self.clipped.append(self._norm(module))

    def _norm(self, module: pl.LightningModule) -> float:
        gradients = [p.grad.flatten().numpy() for p in module.parameters() if p.grad is not None]
        return float(np.linalg.norm(np.concatenate(gradients).astype(float)))


@pytest.mark.parametrize("clip", [None, 0.5])
def test_the_norm_is_logged_before_clipping(
    store_path: Path,  # noqa: F811
    tmp_path: Path,
    clip: float | None,
) -> None:
    norms = Norms()
    options = {"gradient_clip_val": clip, "limit_val_batches": 0, "callbacks": [norms]}
    run = trainer(tmp_path, max_epochs=1, enable_checkpointing=False, **options)
    run.fit(small_model(seed=4).train(), SceneData(store_path, batch_size=5))
    assert norms.logged == pytest.approx(norms.found, rel=1e-5) and len(norms.logged) == 2
    left = norms.found if clip is None else [min(clip, norm) for norm in norms.found]
    assert norms.clipped == pytest.approx(left, rel=1e-4) and max(norms.found) > 0.5
