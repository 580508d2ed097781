"""Training stops before a step that would spoil the weights, and says what is not finite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from trajpred.errors import DataError


class FiniteGuard:
    """Remembers the batches since the last optimiser step, and looks at them before the next one.

    One look at one number per step: on a GPU that is the only wait, and it comes when little is left to do.
    """

    def __init__(self) -> None:
        self.losses: list[dict[str, Tensor]] = []
        self.scenarios: list[str] = []

    def add(self, losses: dict[str, Tensor], scenarios: Sequence[str]) -> None:
        """One batch: its losses by name, of which ``loss`` is the one that is trained."""
        self.losses.append({name: value.detach() for name, value in losses.items()})
        self.scenarios += scenarios

    def check(self, model: nn.Module, gradients: dict[str, Tensor], norm: Tensor, when: str) -> None:
        """Raise :class:`DataError` if a loss, or the ``norm`` of all ``gradients``, is not finite.

        Args:
            model: whose weights are blamed first, for a loss of theirs is not finite either.
            gradients: by the names of the parameters.
            norm: of all of them, a scalar.
            when: which step it is.
        """
        losses, scenarios, self.losses, self.scenarios = self.losses, self.scenarios, [], []
        if bool((norm + sum(batch["loss"] for batch in losses)).isfinite()):
            return
        suspects = {
            "weight": model.named_parameters(),
            "loss": (item for batch in losses for item in batch.items()),
            "gradient of": gradients.items(),
        }
        # What is not finite makes all that comes after it so: the first kind is the cause.
        found = ((kind, _not_finite(named)) for kind, named in suspects.items())
        what = next((f"{kind} {_few(names)}" for kind, names in found if names), "norm of all gradients")
        raise DataError(f"training stopped at {when}, not finite: {what}; scenarios: {_few(scenarios)}")


def _not_finite(named: Iterable[tuple[str, Tensor]]) -> list[str]:
    return list(dict.fromkeys(name for name, value in named if not bool(value.isfinite().all())))


def _few(names: Sequence[str], most: int = 4) -> str:
    rest = [f"and {len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *rest])
