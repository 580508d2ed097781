"""Score a predictor on the labelled scenarios of a store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from trajpred.errors import DataError, require
from trajpred.evaluation.intervals import bootstrap_each
from trajpred.evaluation.judged import FACTS, Columns
from trajpred.evaluation.provenance import environment, store_facts
from trajpred.evaluation.results import Evaluation
from trajpred.evaluation.scores import Scores
from trajpred.metrics import METRICS, columns, metric_of
from trajpred.predictors.predictor import Predictor, in_batches
from trajpred.store import ScenarioStore


def evaluate(
    predictor: Predictor,
    store: ScenarioStore,
    *,
    batch_size: int = 16,
    limit: int | None = None,
    ks: Sequence[int] = (1, 6),
    beyond: bool = False,
    progress: bool = True,
) -> Evaluation:
    """Metrics of ``predictor`` over a split.

    Args:
        predictor: a model, a baseline or a predictions file.
        store: the split.
        batch_size: scenarios at once.
        limit: only the first so many scenarios of the split.
        ks: for each k, judge the k most probable modes.
        beyond: also judge what displacement does not tell, which takes longer.
        progress: show a bar.

    Raises: DataError if no scenario of it has a labelled future.
    """
    require(batch_size > 0, "batch_size", "must be positive")
    require(limit is None or limit > 0, "limit", "must be positive")
    require(len(ks) > 0 and min(ks) > 0, "ks", "must be positive numbers")
    # K = 6 is always looked at: breakdowns, horizons and comparisons tell of it.
    scores = Scores(sorted({*ks, 6}), beyond, getattr(predictor, "joint", False))
    scenarios, start = 0, time.monotonic()
    asked = range(len(store) if limit is None else min(limit, len(store)))
    with tqdm(total=len(asked), unit=" scenarios", desc=predictor.name, disable=not progress) as bar:
        for rows in in_batches(asked, batch_size):
            labelled = [s for s in (store[row] for row in rows) if s.has_future]
            if labelled:
                scores.add(labelled, predictor(labelled))
            scenarios += len(labelled)
            bar.update(len(rows))
    if not scenarios:
        raise DataError(f"split {store.split!r} has no scenario with a future to score", file=store.path)
    if not scores.judged:
        raise DataError(f"{predictor.name} says nothing about any judged track of split {store.split!r}")
    return Evaluation(
        predictor.name,
        store.split,
        scenarios,
        scores.missing,
        how=getattr(predictor, "how", ""),
        **_summary(scores, ks),
        training=predictor.training,
        store=store_facts(store.path),
        environment={**environment(), "wall_s": round(time.monotonic() - start, 1)},
    )


def _summary(scores: Scores, ks: Sequence[int]) -> dict[str, Any]:
    """What an :class:`Evaluation` says of all agents and scenes together."""
    asked = {str(k) for k in ks}
    names = [
        n
        for n in scores.names
        if n.removeprefix(metric_of(n).name) in asked or metric_of(n).ks or n in METRICS
    ]
    focal = scores.focal()
    return {
        "metrics": scores.means(names),
        "intervals": _intervals({name: focal[name] for name in names}),
        "calibration": scores.calibration.summary() if scores.calibration else {},
        "worlds": scores.worlds.means(),
        "horizons": scores.horizons(),
        "breakdowns": {fact: scores.breakdown(fact) for fact in FACTS},
        "per_scenario": _per_scenario(focal),
    }


def _intervals(focal: Columns) -> dict[str, list[float]]:
    """Of the means over focal agents, where each of them has a value."""
    known = {name: each for name, each in focal.items() if len(each) > 1 and np.isfinite(each).all()}
    found = bootstrap_each(known) if known else {}
    return {name: [interval.low, interval.high] for name, interval in found.items()}


def _per_scenario(focal: Columns) -> dict[str, list[Any]]:
    values = {name: np.round(focal[name].astype(np.float64), 4).tolist() for name in columns("breakdown")}
    return {"scenario_id": focal["scenario_id"].tolist(), **values}
