"""Score a predictor on the labelled scenarios of a store."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from trajpred.errors import DataError, require
from trajpred.evaluation.predictors import Predictor, in_batches
from trajpred.forecast import Forecast
from trajpred.metrics import ForecastMetrics
from trajpred.scenario import Scenario, TrackCategory
from trajpred.store import ScenarioStore


@dataclass(frozen=True)
class Evaluation:
    """The outcome of :func:`evaluate`.

    Attributes:
        predictor: name of what was scored.
        split: of the store.
        scenarios: how many labelled scenarios were scored.
        missing: judged tracks that the predictor said nothing about; they count in no metric.
        metrics: ``metrics[group][name]``, groups ``focal``, ``scored`` (focal included), ``all``.
    """

    predictor: str
    split: str
    scenarios: int
    missing: int
    metrics: dict[str, dict[str, float]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def evaluate(
    predictor: Predictor, store: ScenarioStore, *, batch_size: int = 16, progress: bool = True
) -> Evaluation:
    """Metrics of ``predictor`` over a split. Raises: DataError if no scenario of it has a labelled future."""
    require(batch_size > 0, "batch_size", "must be positive")
    metrics, scenarios, missing = ForecastMetrics(sync_on_compute=False), 0, 0
    with tqdm(total=len(store), unit=" scenarios", desc=predictor.name, disable=not progress) as bar:
        for rows in in_batches(range(len(store)), batch_size):
            labelled = [s for s in (store[row] for row in rows) if s.has_future]
            if labelled:
                for scenario, forecast in zip(labelled, predictor(labelled), strict=True):
                    missing += _score(metrics, scenario, forecast)
            scenarios += len(labelled)
            bar.update(len(rows))
    if not scenarios:
        raise DataError(f"split {store.split!r} has no scenario with a future to score", file=store.path)
    return Evaluation(predictor.name, store.split, scenarios, missing, metrics.compute())


def judged(scenario: Scenario) -> dict[str, NDArray[np.bool_]]:
    """Which tracks each group holds, ``[A]``: those seen at the last observed step that have a future."""
    tracks, now = scenario.tracks, scenario.num_observed
    known = tracks.valid[:, now - 1] & tracks.valid[:, now:].any(axis=1)
    return {
        "focal": known & (tracks.category == TrackCategory.FOCAL),
        "scored": known & (tracks.category >= TrackCategory.SCORED),
        "all": known,
    }


def _score(metrics: ForecastMetrics, scenario: Scenario, forecast: Forecast) -> int:
    """Add one scenario; returns how many judged tracks were not predicted."""
    groups, row = judged(scenario), forecast.rows(scenario.tracks.track_id)
    chosen = np.flatnonzero(groups["all"] & (row >= 0))
    future = scenario.num_observed + np.arange(forecast.trajectory.shape[2])
    metrics.update(
        torch.from_numpy(forecast.trajectory[row[chosen]]),
        torch.from_numpy(forecast.probability[row[chosen]]),
        torch.from_numpy(scenario.tracks.position[np.ix_(chosen, future)]),
        torch.from_numpy(scenario.tracks.valid[np.ix_(chosen, future)]),
        {name: torch.from_numpy(member[chosen]) for name, member in groups.items()},
    )
    return int((groups["all"] & (row < 0)).sum())
