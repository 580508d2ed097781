"""Whatever predicts: a trained checkpoint or a baseline, behind one interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import torch

from trajpred.baselines import BASELINES
from trajpred.errors import DataError
from trajpred.forecast import Forecast
from trajpred.graph.scene_graph import build_batch
from trajpred.model import LitForecaster
from trajpred.scenario import Scenario


class Predictor(Protocol):
    """Forecasts scenarios.

    Attributes:
        name: shown in tables.
    """

    name: str

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        """One forecast per scenario, in order."""
        ...


class BaselinePredictor:
    """A baseline of :mod:`trajpred.baselines` by name; 6 s ahead where a scenario has no future steps."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return [BASELINES[self.name](scenario, _horizon(scenario)) for scenario in scenarios]


def _horizon(scenario: Scenario) -> int:
    return scenario.num_steps - scenario.num_observed or round(6 / scenario.step_s)


class CheckpointPredictor:
    """A trained model, on a GPU if there is one."""

    def __init__(self, checkpoint: Path) -> None:
        self.name = "/".join((*checkpoint.resolve().parts[-3:-2], checkpoint.stem))
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = LitForecaster.load(checkpoint).to(self.device)

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        if not scenarios:
            return []
        batch = build_batch(scenarios, self.model.scene)
        self.model.check(batch)
        return self.model.forecaster.forecast(batch.to(self.device))


def load_predictor(checkpoint: str | Path) -> Predictor:
    """A baseline by its name, or a trained model by the path of its checkpoint. Raises: DataError."""
    if str(checkpoint) in BASELINES:
        return BaselinePredictor(str(checkpoint))
    if not Path(checkpoint).is_file():
        known = ", ".join(BASELINES)
        raise DataError(f"is neither a checkpoint nor one of the baselines {known}", file=checkpoint)
    return CheckpointPredictor(Path(checkpoint))


def in_batches(rows: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """``rows`` in runs of at most ``size``."""
    return (rows[start : start + size] for start in range(0, len(rows), size))
