"""AdamW with warm-up and cosine decay."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR


@dataclass(frozen=True)
class OptimizerConfig:
    """Learning rate and schedule.

    Attributes:
        learning_rate: the peak; scale it with the square root of the batch size (1e-3 at 128).
        weight_decay: on tensors of two or more dimensions; not on biases, norms and single vectors.
        warmup: share of all steps over which the rate rises; post-LN needs it.
        final: share of the peak at the last step.
    """

    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup: float = 0.05
    final: float = 0.01


def configure(module: nn.Module, config: OptimizerConfig, total_steps: int) -> dict[str, Any]:
    """Optimiser and per-step schedule in Lightning's form."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = AdamW(groups, lr=config.learning_rate)
    warmup = max(1, round(config.warmup * total_steps))

    def rate(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
        return config.final + (1 - config.final) * 0.5 * (1 + math.cos(math.pi * progress))

    return {
        "optimizer": optimizer,
        "lr_scheduler": {"scheduler": LambdaLR(optimizer, rate), "interval": "step"},
    }
