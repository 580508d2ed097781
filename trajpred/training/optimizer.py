"""The optimiser with warm-up and cosine decay, and the check before each of its steps."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from trajpred.errors import DataError, require, require_not_negative


@dataclass(frozen=True)
class OptimizerConfig:
    """Algorithm, learning rate and schedule.

    Attributes:
        algorithm: a class of ``torch.optim``, or ``MODULE.CLASS`` for a module named by ``--import``.
        options: its further arguments.
        learning_rate: peak rate; scale it with the square root of the batch size (1e-3 at 128).
        weight_decay: for tensors with two or more dimensions (not biases and norms).
        warmup: share of all steps with a rising rate; post-LN needs it.
        final: rate at the last step as a share of the peak.
    """

    algorithm: str = "AdamW"
    options: dict[str, Any] = field(default_factory=dict)
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup: float = 0.05
    final: float = 0.01

    def __post_init__(self) -> None:
        shares = {"warmup": self.warmup, "final": self.final}
        require_not_negative(learning_rate=self.learning_rate, weight_decay=self.weight_decay, **shares)
        for name, share in shares.items():
            require(share <= 1, name, f"is a share and must be at most 1, is {share}")


def configure(module: nn.Module, config: OptimizerConfig, total_steps: int) -> dict[str, Any]:
    """Return optimiser and per-step schedule for ``configure_optimizers``."""
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for parameter in module.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.ndim >= 2:
            matrices.append(parameter)
        else:
            vectors.append(parameter)
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    options = dict(config.options)
    on_cpu = all(parameter.device.type == "cpu" for parameter in matrices + vectors)
    if on_cpu and config.algorithm == "AdamW":
        options.setdefault("fused", True)  # one pass over each tensor instead of ten
    try:
        optimizer = algorithm(config.algorithm)(groups, lr=config.learning_rate, **options)  # type: ignore[call-arg]
    except (TypeError, ValueError) as error:
        raise DataError(f"{config.algorithm} cannot be made ({error})", field="model.optimizer") from None
    warmup = max(1, round(config.warmup * total_steps))

    def rate(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, total_steps - 1 - warmup))
        return config.final + (1 - config.final) * 0.5 * (1 + math.cos(math.pi * progress))

    schedule = {"scheduler": LambdaLR(optimizer, rate), "interval": "step"}
    return {"optimizer": optimizer, "lr_scheduler": schedule}


def algorithm(name: str) -> type[Optimizer]:
    """Find an optimiser class. Nothing is imported for it, since checkpoints also name one.

    Raises: DataError if there is none with this name.
    """
    module, _, cls_name = name.rpartition(".")
    cls = getattr(sys.modules.get(module or "torch.optim"), cls_name, None)
    problem = f"{name} is not an optimiser of torch.optim or of a module that --import names"
    require(isinstance(cls, type) and issubclass(cls, Optimizer), "model.optimizer.algorithm", problem)
    assert cls is not None
    return cls


class FiniteGuard:
    """Check the losses and gradients since the last optimiser step, before the next one.

    Only one number is read per step, which synchronises a GPU once.
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
        losses = self.losses
        scenarios = _first(self.scenarios)
        self.losses = []
        self.scenarios = []
        total = norm + sum(batch["loss"] for batch in losses)
        if bool(total.isfinite()):
            return
        cause = _cause(model, losses, gradients)
        raise DataError(f"training stopped at {when}, not finite: {cause}; scenarios: {scenarios}")


def _cause(model: nn.Module, losses: list[dict[str, Tensor]], gradients: dict[str, Tensor]) -> str:
    """Name what is not finite, in causal order: weights make losses non-finite, and these gradients."""
    if weights := _non_finite(model.named_parameters()):
        return f"weight {_first(weights)}"
    batches = chain.from_iterable(batch.items() for batch in losses)
    if non_finite_losses := _non_finite(batches):
        return f"loss {_first(non_finite_losses)}"
    if non_finite_gradients := _non_finite(gradients.items()):
        return f"gradient of {_first(non_finite_gradients)}"
    return "norm of all gradients"


def _non_finite(tensors: Iterable[tuple[str, Tensor]]) -> list[str]:
    """Return the names of the tensors with a value that is not finite, each once."""
    names = [name for name, value in tensors if not bool(value.isfinite().all())]
    return list(dict.fromkeys(names))


def _first(names: Sequence[str], count: int = 4) -> str:
    shown = list(names[:count])
    if len(names) > count:
        shown.append(f"and {len(names) - count} more")
    return ", ".join(shown)
