"""Evaluate a predictor on the labelled scenarios of a store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.evaluation.agents import FACTS
from trajpred.evaluation.av2_check import Av2Check
from trajpred.evaluation.comparison import bootstrap_columns
from trajpred.evaluation.provenance import environment, store_facts
from trajpred.evaluation.results import Evaluation
from trajpred.evaluation.scores import Scores
from trajpred.evaluation.updates import changes
from trajpred.metrics import columns, metric_of
from trajpred.predictors.forecast_store import forecast_store
from trajpred.predictors.predictions_file import predictions_path
from trajpred.predictors.predictor import Predictor
from trajpred.store import ScenarioStore


def evaluate(
    predictor: Predictor,
    store: ScenarioStore,
    *,
    batch_size: int = 16,
    limit: int | None = None,
    ks: Sequence[int] = (1, 6),
    beyond: bool = False,
    workers: int = 1,
    check_with_av2: bool = False,
    progress: bool = True,
) -> Evaluation:
    """Compute the metrics of a predictor over a split.

    Args:
        predictor: a model, a baseline, a predictions file or an ensemble; a
            :class:`~trajpred.predictors.streamed.StreamedPredictor` for the metrics of updates, too.
        store: the split.
        batch_size, limit, workers: as in :func:`~trajpred.predictors.forecast_store.forecast_store`.
        ks: for each k, evaluate the k most probable modes.
        beyond: also compute plausibility and calibration, which takes longer.
        check_with_av2: also compute the metrics with av2's own functions, and compare.
        progress: show a progress bar.

    Raises: DataError if no scenario has a labelled future, scenarios differ in length, or the predictor
        forecasts no scored agent.
    """
    require(len(ks) > 0 and min(ks) > 0, "ks", "must be positive numbers")
    _ = store.lengths  # raises if there are several: errors after 3 s and after 6 s have no common mean
    used = sorted({*ks, 6})  # breakdowns, horizons and comparisons use K = 6
    check = Av2Check(used, predictions_path(predictor)) if check_with_av2 else None
    scores = Scores(used, beyond, predictor.joint, check)
    scenarios, start = 0, time.monotonic()
    title = predictor.name if progress else None
    for labelled, found in forecast_store(
        predictor, store, labelled=True, batch_size=batch_size, limit=limit, workers=workers, progress=title
    ):
        if labelled:
            scores.add(labelled, found)
            scenarios += len(labelled)
    if not scenarios:
        raise DataError(f"split {store.split!r} has no scenario with a future to score", file=store.path)
    if not scores.agents:
        raise DataError(f"{predictor.name} forecasts no scored agent of split {store.split!r}")
    return Evaluation(
        predictor.name,
        store.split,
        scenarios,
        scores.missing,
        how=predictor.how,
        **_summary(scores, ks),
        av2=check.summary() if check else {},
        training=dict(predictor.training),
        store=store_facts(store.path),
        environment={**environment(), "wall_s": round(time.monotonic() - start, 1)},
    )


def _summary(scores: Scores, ks: Sequence[int]) -> dict[str, Any]:
    """Collect the means, breakdowns and values per scenario of an :class:`Evaluation`."""
    names = [name for name in scores.names if _is_asked(name, ks)]
    focal, paired = scores.focal(), (*columns("breakdown"), *changes())
    return {
        "metrics": scores.means(names),
        "intervals": _intervals({name: focal[name] for name in names}),
        "calibration": scores.calibration.summary() if scores.calibration else {},
        "worlds": {group: means.means() for group, means in scores.worlds.items()},
        "horizons": scores.horizons(),
        "updates": scores.updates(),
        "breakdowns": {fact: scores.breakdown(fact) for fact in FACTS},
        "per_scenario": {
            "scenario_id": focal["scenario_id"].tolist(),
            **{n: np.round(focal[n].astype(np.float64), 4).tolist() for n in paired if n in focal},
        },
    }


def _is_asked(column: str, ks: Sequence[int]) -> bool:
    """Whether a column is to be reported: K = 6 may have been computed for breakdowns only."""
    metric = metric_of(column)
    return metric.kind != "displacement" or bool(metric.ks) or int(column.removeprefix(metric.name)) in ks


def _intervals(focal: dict[str, NDArray[Any]]) -> dict[str, list[float]]:
    """Compute intervals of the means over focal agents, for metrics that all of them have."""
    known = {name: each for name, each in focal.items() if len(each) > 1 and np.isfinite(each).all()}
    found = bootstrap_columns(known) if known else {}
    return {name: [interval.low, interval.high] for name, interval in found.items()}
