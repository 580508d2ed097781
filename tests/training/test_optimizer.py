"""The schedule's shape, and what is decayed."""

from __future__ import annotations

import math

import pytest
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tests.model.small import small_model
from trajpred.training.optimizer import OptimizerConfig, configure


def rates(config: OptimizerConfig, total: int, more: int = 0) -> list[float]:
    configured = configure(nn.Linear(2, 2), config, total)
    optimizer: Optimizer = configured["optimizer"]
    scheduler: LRScheduler = configured["lr_scheduler"]["scheduler"]
    assert configured["lr_scheduler"]["interval"] == "step"
    found = []
    for _ in range(total + more):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_the_rate_rises_in_a_line_and_falls_as_a_cosine() -> None:
    found = rates(OptimizerConfig(learning_rate=2.0, warmup=0.1, final=0.25), 100, more=5)
    rise = [2.0 * (i + 1) / 10 for i in range(10)]
    fall = [2.0 * (0.25 + 0.75 * (1 + math.cos(math.pi * i / 90)) / 2) for i in range(90)]
    assert found == pytest.approx(rise + fall + [0.5] * 5)


@pytest.mark.parametrize("total", [1, 2, 3])
def test_short_runs_have_a_positive_rate(total: int) -> None:
    config = OptimizerConfig()
    assert all(0 < rate <= config.learning_rate for rate in rates(config, total))


def test_vectors_are_not_decayed_and_nothing_is_left_out() -> None:
    model = small_model()
    model.forecaster.decoder.logit_head.requires_grad_(False)
    groups = configure(model, OptimizerConfig(weight_decay=0.3), 10)["optimizer"].param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    names = {name: decay.get(id(p)) for name, p in model.named_parameters()}
    assert names["forecaster.encoder.layers.0.attention.query.weight"] == 0.3
    assert names["forecaster.encoder.layers.0.attention.query.bias"] == 0
    assert names["forecaster.encoder.layers.0.norm1.weight"] == 0
    frozen = {name for name, value in names.items() if value is None}
    assert frozen == {name for name in names if "logit_head" in name}
