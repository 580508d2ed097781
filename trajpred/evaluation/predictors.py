"""Whatever predicts: a trained checkpoint, a baseline or a predictions file, behind one interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from trajpred import weights
from trajpred.baselines import BASELINES
from trajpred.errors import DataError
from trajpred.evaluation.predictions import PredictionsPredictor, future_steps
from trajpred.forecast import Forecast
from trajpred.graph.scene_graph import build_batch
from trajpred.model import LitForecaster
from trajpred.model.checkpoint import read_checkpoint, training_of
from trajpred.scenario import Scenario


class Predictor(Protocol):
    """Forecasts scenarios.

    Attributes:
        name: shown in tables.
        training: how it was trained (:class:`trajpred.training_record.TrainingRecord`), as far as known.
    """

    name: str
    training: dict[str, Any]

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        """One forecast per scenario, in order."""
        ...


class BaselinePredictor:
    """A baseline of :mod:`trajpred.baselines` by name; 6 s ahead where a scenario has no future steps."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.training: dict[str, Any] = {}

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return [BASELINES[self.name](scenario, future_steps(scenario)) for scenario in scenarios]


class CheckpointPredictor:
    """A trained model, on a GPU if there is one: a checkpoint, or weights that ship by their name."""

    def __init__(self, checkpoint: str | Path) -> None:
        self.name = shown_name(checkpoint)
        self.training = training_of(read_checkpoint(checkpoint))
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = LitForecaster.load(checkpoint).to(self.device)

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        if not scenarios:
            return []
        batch = build_batch(scenarios, self.model.scene)
        self.model.check(batch)
        return self.model.forecaster.forecast(batch.to(self.device))


def shown_name(checkpoint: str | Path) -> str:
    """``NAME/version_0/best`` where training wrote it, else the name of the file or of the weights."""
    path = Path(checkpoint).absolute()
    run = path.parts[-4:-2] if path.parent.name == "checkpoints" else ()
    return "/".join((*run, path.name.removesuffix(".ckpt")))


def load_predictor(checkpoint: str | Path) -> Predictor:
    """A baseline or weights that ship, by name, or by its path a checkpoint or a predictions file (.parquet).

    Raises: DataError.
    """
    if Path(checkpoint).suffix == ".parquet":
        return PredictionsPredictor(checkpoint)
    if str(checkpoint) in BASELINES:
        return BaselinePredictor(str(checkpoint))
    if not weights.locate(checkpoint).is_file():
        known = f"{', '.join(BASELINES)}, nor weights that ship: {weights.listed()}"
        raise DataError(f"is neither a checkpoint nor one of the baselines {known}", file=checkpoint)
    return CheckpointPredictor(checkpoint)


def in_batches(rows: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """``rows`` in runs of at most ``size``."""
    return (rows[start : start + size] for start in range(0, len(rows), size))
