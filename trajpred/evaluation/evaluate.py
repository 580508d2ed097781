"""Score a predictor on the labelled scenarios of a store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from trajpred.errors import DataError, require
from trajpred.evaluation.beyond import SHARES, SPREADS
from trajpred.evaluation.judged import FACTS, GROUPS
from trajpred.evaluation.predictors import Predictor, in_batches
from trajpred.evaluation.results import Evaluation
from trajpred.evaluation.scores import PER_SCENARIO, SHORT, Columns, Scores, breakdown, group_means
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
    scores, scenarios, start = Scores(ks, beyond, getattr(predictor, "joint", False)), 0, time.monotonic()
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
        **_summary(scores),
        training=predictor.training,
        store=store_facts(store.path),
        environment={**environment(), "wall_s": round(time.monotonic() - start, 1)},
    )


def _summary(scores: Scores) -> dict[str, Any]:
    """What an :class:`Evaluation` says of all agents and scenes together."""
    columns = scores.agents()
    names = [f"{name}{k}" for k in scores.ks for name in AGENT_METRICS]
    names += [name for name in columns if "heading error" in name]
    ends = dict.fromkeys(name.split(" at ")[1] for name in columns if " at " in name)
    horizons = {end: [name for name in columns if name.endswith(f" at {end}")] for end in ends}
    names += [name for name in (*SHARES, *SPREADS) if name in columns]
    return {
        "metrics": group_means(columns, names),
        "calibration": scores.calibration.summary() if scores.calibration else {},
        "worlds": scores.worlds(),
        "horizons": {end: _plain(group_means(columns, each)) for end, each in horizons.items()},
        "breakdowns": {fact: breakdown(columns, fact, SHORT) for fact in FACTS},
        "per_scenario": _per_scenario(columns),
    }


def _plain(means: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Names without the horizon."""
    return {group: {k.split(" at ")[0]: v for k, v in each.items()} for group, each in means.items()}


def _per_scenario(columns: Columns) -> dict[str, list[Any]]:
    focal = columns[GROUPS[0]]
    known = [name for name in PER_SCENARIO if name in columns]
    values = {name: np.round(columns[name][focal].astype(np.float64), 4).tolist() for name in known}
    return {"scenario_id": columns["scenario_id"][focal].tolist(), **values}
