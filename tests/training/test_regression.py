"""The figures of what ships, on the shipped sample, are those of ``sample_metrics.json``.

Written anew with ``python -m tests.training.test_regression``, when a change is meant to move them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLE
from trajpred.evaluation import evaluate
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore, prepare

EXPECTED = Path(__file__).with_name("sample_metrics.json")
#: Baselines are float64 arithmetic; another processor rounds the model otherwise, and a neighbour may change.
TOLERANCE = {"constant_velocity": 1e-6, "lane_following": 1e-6, "argoverse-nano": 0.02}


def figures(name: str, store: Path) -> dict[str, dict[str, float | None]]:
    """All metrics on the validation split, of every group of agents."""
    metrics = evaluate(load_predictor(name), ScenarioStore(store, "val"), progress=False).metrics
    rounded = {}
    for group, values in metrics.items():
        rounded[group] = {key: _plain(value) for key, value in values.items()}
    return rounded


def _plain(value: Any) -> float | None:
    return None if value is None or value != value else round(float(value), 9)


@pytest.mark.parametrize("name", TOLERANCE)
def test_figures_on_the_sample_stay(name: str, store_path: Path) -> None:
    expected = json.loads(EXPECTED.read_text("utf-8"))[name]
    measured = figures(name, store_path)
    assert measured.keys() == expected.keys()
    assert len(expected["focal"]) > 8
    for group, values in expected.items():
        assert measured[group] == pytest.approx(values, abs=TOLERANCE[name]), group


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        prepare("argoverse2", SAMPLE, Path(folder), workers=1, progress=False)
        figures_of_all = {name: figures(name, Path(folder)) for name in TOLERANCE}
    EXPECTED.write_text(json.dumps(figures_of_all, indent=1) + "\n", encoding="utf-8", newline="\n")
