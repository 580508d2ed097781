"""Score a predictor on the labelled scenarios of a store."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from trajpred.errors import DataError, require
from trajpred.evaluation.predictors import Predictor, in_batches
from trajpred.evaluation.results import Evaluation
from trajpred.forecast import Forecast
from trajpred.metrics import ForecastMetrics
from trajpred.provenance import environment, store_facts
from trajpred.scenario import Scenario, TrackCategory
from trajpred.store import ScenarioStore

#: Kept of every scenario's focal agent, for intervals and comparisons.
PER_SCENARIO = ("minADE6", "minFDE6", "brier-minFDE6")


def evaluate(
    predictor: Predictor, store: ScenarioStore, *, batch_size: int = 16, progress: bool = True
) -> Evaluation:
    """Metrics of ``predictor`` over a split. Raises: DataError if no scenario of it has a labelled future."""
    require(batch_size > 0, "batch_size", "must be positive")
    scores, scenarios, start = _Scores(), 0, time.monotonic()
    with tqdm(total=len(store), unit=" scenarios", desc=predictor.name, disable=not progress) as bar:
        for rows in in_batches(range(len(store)), batch_size):
            labelled = [s for s in (store[row] for row in rows) if s.has_future]
            if labelled:
                for scenario, forecast in zip(labelled, predictor(labelled), strict=True):
                    scores.add(scenario, forecast)
            scenarios += len(labelled)
            bar.update(len(rows))
    if not scenarios:
        raise DataError(f"split {store.split!r} has no scenario with a future to score", file=store.path)
    return Evaluation(
        predictor.name,
        store.split,
        scenarios,
        scores.missing,
        scores.metrics.compute(),
        scores.per_scenario,
        predictor.training,
        store_facts(store.path),
        {**environment(), "wall_s": round(time.monotonic() - start, 1)},
    )


def judged(scenario: Scenario) -> dict[str, NDArray[np.bool_]]:
    """Which tracks each group holds, ``[A]``: those seen at the last observed step that have a future."""
    tracks, now = scenario.tracks, scenario.num_observed
    known = tracks.valid[:, now - 1] & tracks.valid[:, now:].any(axis=1)
    return {
        "focal": known & (tracks.category == TrackCategory.FOCAL),
        "scored": known & (tracks.category >= TrackCategory.SCORED),
        "all": known,
    }


class _Scores:
    """Sums over all scenarios, and the focal agent's values of each."""

    def __init__(self) -> None:
        self.metrics, self.missing = ForecastMetrics(sync_on_compute=False), 0
        self._focal: list[tuple[str, list[float]]] = []

    def add(self, scenario: Scenario, forecast: Forecast) -> None:
        groups, row = judged(scenario), forecast.rows(scenario.tracks.track_id)
        chosen = np.flatnonzero(groups["all"] & (row >= 0))
        self.missing += int((groups["all"] & (row < 0)).sum())
        future = scenario.num_observed + np.arange(forecast.trajectory.shape[2])
        agents = (
            torch.from_numpy(forecast.trajectory[row[chosen]]),
            torch.from_numpy(forecast.probability[row[chosen]]),
            torch.from_numpy(scenario.tracks.position[np.ix_(chosen, future)]),
            torch.from_numpy(scenario.tracks.valid[np.ix_(chosen, future)]),
        )
        member = {name: torch.from_numpy(group[chosen]) for name, group in groups.items()}
        self.metrics.update(*agents, member)
        focal = self.metrics.values(*(part[member["focal"]] for part in agents))
        self._focal += [(scenario.scenario_id, values) for values in focal.tolist()]

    @property
    def per_scenario(self) -> dict[str, list[Any]]:
        columns = {name: self.metrics.names.index(name) for name in PER_SCENARIO}
        return {
            "scenario_id": [scenario_id for scenario_id, _ in self._focal],
            **{name: [round(values[i], 4) for _, values in self._focal] for name, i in columns.items()},
        }
