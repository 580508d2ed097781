"""The base class of predictors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario


class Predictor:
    """Forecasts scenarios. A predictor of your own is a subclass with a ``name`` and a ``__call__``.

    Attributes:
        name: the name in tables.
        training: how the model was trained (:class:`trajpred.training.TrainingRecord`), as far as known.
        joint: whether mode k of all agents of a scene is one world.
        how: the way of forecasting, where a model has several (``joint``, ``mirrored``).
        fork_safe: whether it also works in forked processes: it has no state and no GPU of this one.

    Example:
        >>> predictor = load_predictor("constant_velocity")
        >>> [forecast] = predictor([scenario])
    """

    name: str
    training: Mapping[str, Any] = {}
    joint: bool = False
    how: str = ""
    fork_safe: bool = False

    @property
    def members(self) -> tuple[Predictor, ...]:
        """The predictors that it consists of; itself by default."""
        return (self,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    def steps(self, scenario: Scenario) -> int:
        """Return how many steps of ``scenario`` it predicts; by default all that there are to predict."""
        return future_steps(scenario)

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        """Forecast each scenario, in order."""
        raise NotImplementedError


def future_steps(scenario: Scenario) -> int:
    """Return the steps to predict: those of the scenario, or 6 s if it ends with the observed ones."""
    return scenario.num_steps - scenario.num_observed or round(6 / scenario.step_s)
