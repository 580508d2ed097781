"""Evaluations made up for tests of results and comparisons."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from trajpred.evaluation import Evaluation

STORE = {"source": "argoverse1", "config": "0123", "scenarios": {"train": 7377, "val": 2}}
CODE = {"trajpred": "0.1.0", "commit": 40 * "a", "dirty": False}
MACHINE = {**CODE, "torch": "2.13", "cpu": "Xeon", "threads": 2}


def result(name: str, fde: tuple[float, float], **training: Any) -> Evaluation:
    """Return an evaluation of two scenarios with these focal minFDE6."""
    metrics = {"focal": {"count": 2, "minFDE6": sum(fde) / 2}}
    columns = {
        "scenario_id": ["x", "y"],
        "count": [1, 1],
        "ids": [7, 8],
        "minADE6": [1.0, 1.0],
        "minFDE6": list(fde),
        "brier-minFDE6": [fde[0] + 0.5, fde[1] + 0.5],
    }
    per_scenario = dict.fromkeys(("focal", "moving"), pa.table(columns))
    return Evaluation(name, "val", 2, {"focal": 0}, metrics, per_scenario, training, STORE, MACHINE)


def seeds() -> list[Evaluation]:
    """Return the results of three seeds of a recipe."""
    facts = {
        "recipe": "small",
        "store": STORE,
        "environment": MACHINE | {"dirty": True, "gpu": "H200"},
        "steps": 100,
        "epochs": 3,
        "wall_s": 120.0,
    }
    return [result(f"small/version_{seed}/best", (1.0 + seed, 2.0), **facts, seed=seed) for seed in range(3)]
