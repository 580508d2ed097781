"""Evaluate a predictor on the labelled scenarios of a store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import compress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.evaluation.agents import FACTS
from trajpred.evaluation.av2_check import Av2Check
from trajpred.evaluation.comparison import bootstrap_columns
from trajpred.evaluation.results import Evaluation, environment, store_facts
from trajpred.evaluation.scores import Scores
from trajpred.evaluation.updates import changes
from trajpred.metrics import metric_of, paired_columns
from trajpred.predictors.forecast_store import forecast_store
from trajpred.predictors.predictions_file import reasons
from trajpred.predictors.predictor import Predictor
from trajpred.splits import GROUPS, PAIRED_GROUPS
from trajpred.store import ScenarioStore

#: Number of agents and sums of metrics by name, ``[S]`` each.
Sums: TypeAlias = dict[str, NDArray[np.float32]]


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
            :class:`~trajpred.predictors.derived.StreamedPredictor` for the metrics of updates, too.
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
    check = Av2Check(used) if check_with_av2 else None
    scores = Scores(used, beyond, predictor.joint, check)
    scenarios, start = 0, time.monotonic()
    batches = forecast_store(
        predictor, store, labelled=True, batch_size=batch_size, limit=limit, workers=workers,
        progress=progress,
    )  # fmt: skip
    for labelled, found in batches:
        if labelled:
            scores.add(labelled, found)
            scenarios += len(labelled)
    if not scenarios:
        raise DataError(f"split {store.split!r} has no scenario with a future to score", file=store.path)
    if not scores.agents:
        why = reasons(predictor, store.scenario_ids)
        problem = f"{predictor.name} forecasts no scored agent of split {store.split!r}"
        raise DataError(f"{problem}{why and ': '}{why}")
    return Evaluation(
        predictor.name,
        store.split,
        scenarios,
        scores.missing,
        how=predictor.how,
        **_summary(scores, ks),
        av2=check.summary() if check else {},
        training=dict(predictor.training),
        half=store.half,
        observed_s=store.observed_s,
        store=store_facts(store.path),
        environment={**environment(), "wall_s": round(time.monotonic() - start, 1)},
    )


def _summary(scores: Scores, ks: Sequence[int]) -> dict[str, Any]:
    """Collect the means, breakdowns and values per scenario of an :class:`Evaluation`."""
    names = [name for name in scores.names if _is_asked(name, ks)]
    return {
        "metrics": scores.means(names),
        "intervals": {group: _intervals(scores.by_scenario(group), names) for group in GROUPS},
        "calibration": scores.calibration.summary() if scores.calibration else {},
        "worlds": {group: means.means() for group, means in scores.worlds.items()},
        "horizons": scores.horizons(),
        "updates": scores.updates(),
        "seconds": scores.seconds,
        "breakdowns": {fact: scores.breakdown(fact) for fact in FACTS},
        "per_scenario": _per_scenario(scores.scenario_ids, {g: scores.by_scenario(g) for g in PAIRED_GROUPS}),
    }


def _is_asked(column: str, ks: Sequence[int]) -> bool:
    """Whether a column is to be reported: K = 6 may have been computed for breakdowns only."""
    metric = metric_of(column)
    return metric.kind != "displacement" or bool(metric.ks) or int(column.removeprefix(metric.name)) in ks


def _per_scenario(scenario_ids: list[str], sums: dict[str, Sums]) -> dict[str, list[Any]]:
    """Return ``scenario_id``, and by group the ``count`` of agents and their means, to 0.1 mm.

    Means without agents are NaN; scenarios without agents of any group are omitted.
    """
    rows = np.any([each["count"] > 0 for each in sums.values()], axis=0)
    found: dict[str, list[Any]] = {"scenario_id": [*compress(scenario_ids, rows)]}
    for group, each in sums.items():
        count = each["count"][rows].astype(np.float64)
        found[f"{group}/count"] = count.astype(int).tolist()
        for name in (x for x in (*paired_columns(), *changes()) if x in each):
            mean = np.divide(each[name][rows], count, out=np.full(len(count), np.nan), where=count > 0)
            found[f"{group}/{name}"] = np.round(mean, 4).tolist()
    return found


def _intervals(sums: Sums, names: Sequence[str]) -> dict[str, list[float]]:
    """Compute intervals over scenarios of the means over agents, for metrics that all of them have."""
    rows = sums["count"] > 0
    known = {name: sums[name][rows] for name in names if name in sums and np.isfinite(sums[name]).all()}
    found = bootstrap_columns(known, sums["count"][rows]) if known and rows.sum() > 1 else {}
    return {name: [interval.low, interval.high] for name, interval in found.items()}
