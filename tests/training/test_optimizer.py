"""The schedule, weight decay, gradient clipping, and the check for non-finite numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn
from torch_geometric.data import HeteroData

from tests.conftest import rejects
from tests.model.small import small_model
from tests.training.runs import SMALL_SCENES, trainer
from trajpred.training.data_module import SceneData
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.training.optimizer import OptimizerConfig, configure

POISONED = "forecaster.encoder.layers.1.attention.value.weight"


def rates(config: OptimizerConfig, total: int, more: int = 0) -> list[float]:
    configured = configure(nn.Linear(2, 2), config, total)
    optimizer = configured["optimizer"]
    scheduler = configured["lr_scheduler"]["scheduler"]
    assert configured["lr_scheduler"]["interval"] == "step"
    used = []
    for _ in range(total + more):
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return used


def test_the_rate_rises_linearly_and_decays_as_a_cosine() -> None:
    used = rates(OptimizerConfig(learning_rate=2.0, warmup=0.1, final=0.25), 100, more=5)
    rise = [2.0 * (i + 1) / 10 for i in range(10)]
    decay = [2.0 * (0.25 + 0.75 * (1 + math.cos(math.pi * i / 89)) / 2) for i in range(90)]
    assert used == pytest.approx(rise + decay + [0.5] * 5)
    assert decay[-1] == 0.5
    for total in (1, 2, 3):
        used = rates(OptimizerConfig(), total)
        assert min(used) > 0
        assert max(used) <= 1e-3


@pytest.mark.parametrize("name", ["warmup", "final"])
def test_shares_are_not_steps(name: str) -> None:
    rejects("is a share and must be at most 1, is 500", OptimizerConfig, **{name: 500})


def test_a_run_without_an_end_has_no_schedule(store_path: Path, tmp_path: Path) -> None:
    endless = trainer(tmp_path, max_epochs=-1)
    rejects("or max_steps must be given", endless.fit, small_model(), SceneData(store_path, batch_size=4))


def test_only_matrices_decay_and_every_trainable_parameter_is_optimised() -> None:
    model = small_model()
    model.forecaster.decoder.logit_head.requires_grad_(False)
    groups = configure(model, OptimizerConfig(weight_decay=0.3), 10)["optimizer"].param_groups
    decay = {}
    for group in groups:
        for parameter in group["params"]:
            decay[id(parameter)] = group["weight_decay"]
    for name, parameter in model.named_parameters():
        if "logit_head" in name:
            assert id(parameter) not in decay
        else:
            expected = 0.3 if parameter.ndim > 1 else 0.0
            assert decay[id(parameter)] == expected


class HarmAt(pl.Callback):
    """Damage model or batch before one step; record the scenarios of its batches, and the gradient norms."""

    def __init__(self, step: int = -1, harm: Callable[[LitForecaster, HeteroData], None] | None = None):
        self.step = step
        self.harm = harm
        self.scenarios: list[str] = []
        self.before: list[float] = []
        self.after: list[float] = []
        self.logged: list[float] = []

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self.step:
            if self.harm and not self.scenarios:
                self.harm(module, batch)
            self.scenarios += batch.scenario_id

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        self.before.append(self._norm(module))

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, *_: Any) -> None:
        if len(self.logged) < len(self.before):
            self.logged.append(float(trainer.callback_metrics["update/grad_norm"]))
            self.after.append(self._norm(module))

    def _norm(self, module: pl.LightningModule) -> float:
        gradients = [p.grad.flatten().numpy() for p in module.parameters() if p.grad is not None]
        return float(np.linalg.norm(np.concatenate(gradients).astype(float)))


def fit(store: Path, folder: Path, harm: HarmAt, **options: Any) -> LitForecaster:
    """Train for three epochs of two batches."""
    model = small_model(seed=4, scene=SMALL_SCENES).train()
    saver = ModelCheckpoint(folder, "last", save_on_train_epoch_end=True, enable_version_counter=False)
    run = trainer(folder, max_epochs=3, limit_val_batches=0, callbacks=[harm, saver], **options)
    run.fit(model, SceneData(store, batch_size=5, seed=3))
    return model


def harm_weight(model: LitForecaster, batch: HeteroData) -> None:
    dict(model.named_parameters())[POISONED].data[0, 0] = math.nan


def harm_target(model: LitForecaster, batch: HeteroData) -> None:
    batch["agent"].target[batch["agent"].target_mask] = math.inf


def harm_gradient(model: LitForecaster, batch: HeteroData) -> None:
    dict(model.named_parameters())[POISONED].register_hook(lambda g: g * math.inf)


@pytest.mark.parametrize(
    ("harm", "cause"),
    [
        (harm_weight, f"not finite: weight {POISONED};"),
        (harm_target, "not finite: loss refinement, mode, proposal, loss, and"),
        (harm_gradient, f"not finite: gradient of {POISONED};"),
    ],
)
def test_a_non_finite_number_stops_training_by_name_before_it_is_saved(
    store_path: Path, tmp_path: Path, harm: Any, cause: str
) -> None:
    at = HarmAt(3, harm)
    message = str(rejects("", fit, store_path, tmp_path, at))
    assert message.startswith("training stopped at step 3 (epoch 1), ")
    assert cause in message
    named = ", ".join(at.scenarios[:4])
    assert f"scenarios: {named}, and 1 more" in message
    content = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert content["global_step"] == 2
    assert all(value.isfinite().all() for value in content["state_dict"].values())


def test_every_batch_of_an_accumulated_step_is_checked(store_path: Path, tmp_path: Path) -> None:
    at = HarmAt(1, harm_target)  # the first of the step's two batches
    message = r"step 1 \(epoch 1\), not finite: loss "
    error = rejects(message, fit, store_path, tmp_path, at, accumulate_grad_batches=2)
    named = ", ".join(at.scenarios[:4])
    assert f"scenarios: {named}, and 6 more" in str(error)


def test_the_gradient_norm_is_logged_before_clipping(store_path: Path, tmp_path: Path) -> None:
    norms = HarmAt()
    fit(store_path, tmp_path, norms, gradient_clip_val=0.5)
    assert norms.logged == pytest.approx(norms.before, rel=1e-5)
    assert max(norms.before) > 0.5
    assert norms.after == pytest.approx([min(0.5, norm) for norm in norms.before], rel=1e-4)


def test_the_fused_step_is_that_of_adamw_and_clips_values(store_path: Path, tmp_path: Path) -> None:
    model = small_model().train()
    optimizer = configure(model, OptimizerConfig(), 10)["optimizer"]
    assert optimizer.defaults["fused"]
    clipped = HarmAt()
    options: dict[str, Any] = {"gradient_clip_algorithm": "value", "precision": "bf16-mixed"}
    fit(store_path, tmp_path, clipped, gradient_clip_val=1e-3, **options)
    assert max(clipped.after) < max(clipped.before)
    linear = nn.Linear(3, 2)
    single = nn.Linear(3, 2)
    single.load_state_dict(linear.state_dict())
    fused = configure(linear, OptimizerConfig(), 2)["optimizer"]
    expected = torch.optim.AdamW(
        [{"params": [single.weight], "weight_decay": 0.01}, {"params": [single.bias], "weight_decay": 0.0}],
        lr=fused.param_groups[0]["lr"],
        foreach=False,
    )
    for _ in range(3):
        for module, steps in ((linear, fused), (single, expected)):
            module(torch.ones(4, 3)).square().sum().backward()
            steps.step()
            steps.zero_grad()
    torch.testing.assert_close(linear.state_dict(), single.state_dict())


def test_the_algorithm_is_a_class_of_torch_or_of_an_imported_module() -> None:
    config = OptimizerConfig(algorithm="SGD", options={"momentum": 0.5}, learning_rate=0.3)
    optimizer = configure(nn.Linear(2, 2), config, 10)["optimizer"]
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.defaults["momentum"] == 0.5
    own = configure(nn.Linear(2, 2), OptimizerConfig(algorithm=f"{__name__}.OwnAdam"), 10)["optimizer"]
    assert isinstance(own, OwnAdam)
    for name in ("adamw", "lr_scheduler", "antigravity.Adam", "os.system", "torch.nn.Linear"):
        message = f"{name} is not an optimiser of torch.optim or of a module"
        rejects(message, configure, nn.Linear(2, 2), OptimizerConfig(algorithm=name), 10)
    assert "antigravity" not in sys.modules
    wrong = OptimizerConfig(algorithm="SGD", options={"speed": 1})
    rejects("SGD cannot be made", configure, nn.Linear(2, 2), wrong, 10)


class OwnAdam(torch.optim.Adam):
    pass
