"""Evaluate a predictor on the labelled scenarios of a store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import compress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trajpred.data.registry import foreign
from trajpred.data.splits import GROUPS, PAIRED_GROUPS
from trajpred.errors import DataError, require
from trajpred.evaluation.agent_truth import FACTS
from trajpred.evaluation.av2_check import Av2Check
from trajpred.evaluation.comparison import bootstrap_columns
from trajpred.evaluation.origin import environment, store_facts
from trajpred.evaluation.results import Evaluation
from trajpred.evaluation.scores import Scores
from trajpred.metrics import METRICS, metric_names, metric_of, paired_columns
from trajpred.predictors.checkpoint import code_of
from trajpred.predictors.forecast_store import forecast_store
from trajpred.predictors.predictions_file import reasons
from trajpred.predictors.predictor import Predictor
from trajpred.store import ScenarioStore

#: The number of modes that breakdowns, horizons and comparisons use.
BREAKDOWN_K = 6
#: Number of agents and sums of metrics by name, ``[S]`` each.
Sums: TypeAlias = dict[str, NDArray[np.float32]]


def evaluate(
    predictor: Predictor,
    store: ScenarioStore,
    *,
    batch_size: int = 16,
    limit: int | None = None,
    ks: Sequence[int] = (1, 6),
    plausibility: bool = False,
    workers: int = 1,
    check_with_av2: bool = False,
    progress: bool = True,
) -> Evaluation:
    """Compute the metrics of a predictor over a split.

    Args:
        predictor: a model, a baseline, a predictions file or an ensemble; a
            :class:`~trajpred.predictors.derived.StreamedPredictor` for the metrics of updates, too.
        store: the split.
        batch_size: scenarios at once, in each process.
        limit: only the first ``limit`` scenarios.
        ks: for each k, evaluate the k most probable modes.
        plausibility: also compute plausibility and calibration, which takes longer.
        workers: as in :func:`~trajpred.predictors.forecast_store.forecast_store`.
        check_with_av2: also compute the metrics with av2's own functions, and compare.
        progress: show a progress bar.

    Raises:
        DataError: no scenario has a recorded future, scenarios differ in length, or the predictor forecasts
            no scored agent.
    """
    require(len(ks) > 0 and min(ks) > 0, "ks", "must be positive numbers")
    _ = store.lengths  # raises if there are several: errors after 3 s and after 6 s have no common mean
    computed_ks = sorted({*ks, BREAKDOWN_K})
    check = Av2Check(computed_ks) if check_with_av2 else None
    scores = Scores(computed_ks, plausibility, predictor.joint, check)
    start = time.monotonic()
    batches = forecast_store(
        predictor,
        store,
        labelled=True,
        batch_size=batch_size,
        limit=limit,
        workers=workers,
        progress=progress,
    )
    for scenarios, forecasts in batches:
        if scenarios:
            scores.add(scenarios, forecasts)
    if not scores.scenario_ids:
        raise DataError(_nothing_to_score(store), file=store.path)
    if not scores.agents:
        raise DataError(_nothing_forecast(predictor, store))
    result = _result(predictor, store, scores, ks)
    result.environment["wall_s"] = round(time.monotonic() - start, 1)
    if check is not None:
        result.av2.update(check.summary())
    return result


def _result(predictor: Predictor, store: ScenarioStore, scores: Scores, ks: Sequence[int]) -> Evaluation:
    """Collect the origin of the scores, their means, breakdowns and values per scenario."""
    names = [name for name in scores.names if _is_reported(name, ks)]
    metrics = {name: metric.compute for name, metric in METRICS.items()}
    return Evaluation(
        predictor=predictor.name,
        packages=foreign(metrics | code_of(predictor)),
        how=predictor.how,
        training=dict(predictor.training),
        split=store.split,
        half=store.half,
        observed_s=store.observed_s,
        store=store_facts(store.path),
        scenarios=len(scores.scenario_ids),
        missing=scores.missing,
        seconds=scores.seconds,
        metrics=scores.means(names),
        intervals={group: _intervals(scores.by_scenario(group), names) for group in GROUPS},
        calibration=scores.calibration.summary() if scores.calibration else {},
        worlds={group: means.means() for group, means in scores.worlds.items()},
        horizons=scores.horizons(),
        updates=scores.updates(),
        breakdowns={fact: scores.breakdown(fact) for fact in FACTS},
        per_scenario=_per_scenario(scores),
        per_agent=scores.by_agent(),
        environment=environment(),
    )


def _nothing_to_score(store: ScenarioStore) -> str:
    """Describe why no scenario can be scored: there is no future, or a model continued it.

    All scenarios of a split are continued, or none.
    """
    if len(store) == 0 or store[0].continued == 0:
        return f"split {store.split!r} has no scenario with a future to score"
    problem = f"no scenario of split {store.split!r} has a recorded future"
    return f"{problem}, and what a model continued is never scored: evaluate a split with recorded futures"


def _nothing_forecast(predictor: Predictor, store: ScenarioStore) -> str:
    """Describe that no scored agent was forecast, with the problems of predictions files."""
    problem = f"{predictor.name} forecasts no scored agent of split {store.split!r}"
    causes = reasons(predictor, store.split_ids)
    return f"{problem}: {causes}" if causes else problem


def _is_reported(column: str, ks: Sequence[int]) -> bool:
    """Return whether a column is reported: :data:`BREAKDOWN_K` may have been computed for breakdowns only."""
    metric = metric_of(column)
    if metric.kind != "displacement" or metric.ks:
        return True
    k = int(column.removeprefix(metric.name))
    return k in ks


def _per_scenario(scores: Scores) -> dict[str, list[Any]]:
    """Return ``scenario_id``, and by group the ``count`` of agents and their means, to 0.1 mm.

    Means without agents are NaN; scenarios without agents of any group are omitted.
    """
    sums = {group: scores.by_scenario(group) for group in PAIRED_GROUPS}
    rows = np.any([columns["count"] > 0 for columns in sums.values()], axis=0)
    table: dict[str, list[Any]] = {"scenario_id": list(compress(scores.scenario_ids, rows))}
    for group, columns in sums.items():
        count = columns["count"][rows].astype(np.float64)
        table[f"{group}/count"] = count.astype(int).tolist()
        for name in (*paired_columns(), *metric_names("streaming")):
            if name in columns:
                unknown = np.full(len(count), np.nan)
                mean = np.divide(columns[name][rows], count, out=unknown, where=count > 0)
                table[f"{group}/{name}"] = np.round(mean, 4).tolist()
    return table


def _intervals(sums: Sums, names: Sequence[str]) -> dict[str, list[float]]:
    """Compute intervals over scenarios of the means over agents, for metrics that all of them have."""
    rows = sums["count"] > 0
    complete = {}
    for name in names:
        if name in sums and np.isfinite(sums[name]).all():
            complete[name] = sums[name][rows]
    if not complete or rows.sum() < 2:
        return {}
    intervals = bootstrap_columns(complete, sums["count"][rows])
    return {name: [interval.low, interval.high] for name, interval in intervals.items()}
