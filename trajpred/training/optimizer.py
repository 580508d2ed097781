"""AdamW with warm-up and cosine decay, and the check before each of its steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from trajpred.errors import DataError, require, require_not_negative


@dataclass(frozen=True)
class OptimizerConfig:
    """Learning rate and schedule.

    Attributes:
        learning_rate: peak; scale it with the square root of the batch size (1e-3 at 128).
        weight_decay: of tensors with two or more dimensions (not of biases and norms).
        warmup: share of all steps with a rising rate; post-LN needs it.
        final: rate of the last step as a share of the peak.
    """

    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup: float = 0.05
    final: float = 0.01

    def __post_init__(self) -> None:
        require_not_negative(**vars(self))
        for name in ("warmup", "final"):
            share = getattr(self, name)
            require(share <= 1, name, f"is a share and must be at most 1, is {share}")


def configure(module: nn.Module, config: OptimizerConfig, total_steps: int) -> dict[str, Any]:
    """Return optimiser and per-step schedule for ``configure_optimizers``."""
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
        progress = min(1.0, (step - warmup) / max(1, total_steps - 1 - warmup))
        return config.final + (1 - config.final) * 0.5 * (1 + math.cos(math.pi * progress))

    schedule = {"scheduler": LambdaLR(optimizer, rate), "interval": "step"}
    return {"optimizer": optimizer, "lr_scheduler": schedule}


class FiniteGuard:
    """Check losses and gradients of the batches since the last optimiser step, before the next one.

    One number per step is read, so that a GPU is synchronised once.
    """

    def __init__(self) -> None:
        self.losses: list[dict[str, Tensor]] = []
        self.scenarios: list[str] = []

    def add(self, losses: dict[str, Tensor], scenarios: Sequence[str]) -> None:
        """Add the named losses of one batch, of which ``loss`` is trained."""
        self.losses.append({name: value.detach() for name, value in losses.items()})
        self.scenarios += scenarios

    def check(self, model: nn.Module, gradients: dict[str, Tensor], norm: Tensor, when: str) -> None:
        """Raise :class:`DataError` if a loss or the ``norm`` of all ``gradients`` is not finite.

        ``gradients`` are keyed by the names of the model's parameters; ``when`` is for the message.
        """
        losses, scenarios, self.losses, self.scenarios = self.losses, self.scenarios, [], []
        if bool((norm + sum(batch["loss"] for batch in losses)).isfinite()):
            return
        # In causal order (weights make losses non-finite): the first group with such a value is the cause.
        groups = {
            "weight": model.named_parameters(),
            "loss": (item for batch in losses for item in batch.items()),
            "gradient of": gradients.items(),
        }
        found = ((group, _non_finite(values)) for group, values in groups.items())
        cause = next((f"{group} {_first(names)}" for group, names in found if names), "norm of all gradients")
        raise DataError(f"training stopped at {when}, not finite: {cause}; scenarios: {_first(scenarios)}")


def _non_finite(named: Iterable[tuple[str, Tensor]]) -> list[str]:
    return list(dict.fromkeys(name for name, value in named if not bool(value.isfinite().all())))


def _first(names: Sequence[str], count: int = 4) -> str:
    rest = [f"and {len(names) - count} more"] if len(names) > count else []
    return ", ".join([*names[:count], *rest])
