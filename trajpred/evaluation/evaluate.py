"""Score a predictor on the labelled scenarios of a store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from trajpred.errors import DataError, require
from trajpred.evaluation.beyond import SHARES, SPREADS
from trajpred.evaluation.intervals import bootstrap_each
from trajpred.evaluation.judged import FACTS, GROUPS, Columns
from trajpred.evaluation.predictors import Predictor, in_batches
from trajpred.evaluation.results import Evaluation
from trajpred.evaluation.scores import SHORT, Scores, breakdown, group_means
from trajpred.metrics import AGENT_METRICS
from trajpred.provenance import environment, store_facts
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
    columns = scores.agents()
    names = [f"{name}{k}" for k in ks for name in AGENT_METRICS]
    names += [name for name in columns if "heading error" in name]
    names += [name for name in (*SHARES, *SPREADS) if name in columns]
    return {
        "metrics": group_means(columns, names),
        "intervals": _intervals(columns, [name for name in names if name in columns]),
        "calibration": scores.calibration.summary() if scores.calibration else {},
        "worlds": scores.worlds(),
        "horizons": {second: group_means(each, SHORT) for second, each in scores.horizons().items()},
        "breakdowns": {fact: breakdown(columns, fact) for fact in FACTS},
        "per_scenario": _per_scenario(columns),
    }


def _intervals(columns: Columns, names: Sequence[str]) -> dict[str, list[float]]:
    """Of the focal agents' means, where each agent has a value."""
    focal = columns[GROUPS[0]]
    if focal.sum() < 2:  # one scenario says nothing of others
        return {}
    values = {name: columns[name][focal] for name in names}
    known = {name: each for name, each in values.items() if np.isfinite(each).all()}
    found = bootstrap_each(known) if known else {}
    return {name: [interval.low, interval.high] for name, interval in found.items()}


def _per_scenario(columns: Columns) -> dict[str, list[Any]]:
    focal = columns[GROUPS[0]]
    values = {name: np.round(columns[name][focal].astype(np.float64), 4).tolist() for name in SHORT}
    return {"scenario_id": columns["scenario_id"][focal].tolist(), **values}
