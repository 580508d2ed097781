"""The metric registry: a registered metric appears in tables, JSON, training curves and comparisons."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.evaluation.predictors import Scattered
from trajpred.errors import DataError
from trajpred.evaluation import evaluate, format_table, write_results
from trajpred.evaluation.report import tables
from trajpred.metrics import METRICS, ForecastMetrics, Metric, agent_metrics, metric_of, register
from trajpred.store import ScenarioStore

EVERYWHERE = ("training", "progress", "results", "interval", "breakdown", "side by side")


@pytest.fixture
def metric() -> Iterator[Metric]:
    """The median final error over the modes, in every table."""
    tables = dict.fromkeys(EVERYWHERE, (6,))
    median = Metric("medianFDE", lambda errors: errors.final.median(1).values, "Median error", tables=tables)
    similar_name = Metric("minADE in metres", lambda errors: errors.average.amin(1), "Average error")
    register(median)
    register(similar_name)
    yield median
    del METRICS[median.name]
    del METRICS[similar_name.name]


def test_registered_metric_appears_in_tables_and_json(
    metric: Metric,
    store_path: Path,
    tmp_path: Path,
) -> None:
    result = evaluate(Scattered(), ScenarioStore(store_path, "val"), ks=(6,), progress=False)
    write_results(tmp_path / "results.json", result)
    written = json.loads((tmp_path / "results.json").read_text())
    mean = written["metrics"]["focal"]["medianFDE6"]
    assert mean > written["metrics"]["focal"]["minFDE6"]
    assert written["horizons"]["6 s"]["focal"]["medianFDE6"] == pytest.approx(mean)
    assert len(written["per_scenario"]["focal/medianFDE6"]) == written["scenarios"]
    for intervals in written["intervals"].values():
        assert "medianFDE6" in intervals
    main, horizons, *_ = tables(result)
    rows = {row[0]: row[1].split()[0] for row in main.rows}
    assert rows["minADE in metres6"] == rows["minADE6"]
    assert rows["medianFDE6"] == f"{mean:.2f}"
    assert "medianFDE6" in horizons.head
    assert "medianFDE6" in format_table([result])


def test_training_evaluates_a_metric_for_its_own_k(metric: Metric) -> None:
    register(replace(metric, tables={"training": (3,)}))
    metrics = ForecastMetrics(groups=("all",))
    ahead = torch.stack((10 * torch.arange(6.0), torch.zeros(6)), 1)[None, :, None]
    metrics.update(ahead, torch.arange(6, 0, -1)[None] / 21, torch.zeros(1, 1, 2), torch.ones(1, 1).bool())
    means = metrics.compute()["all"]
    assert means["medianFDE3"] == 10.0
    assert "medianFDE1" not in means
    assert "medianFDE6" not in means
    with pytest.raises(DataError, match=r"have other K than ks: \(6,\)"):
        register(replace(metric, tables={"training": (3,)}, ks=(6,)))


@pytest.mark.parametrize("returned", [torch.zeros(1, 6), torch.zeros(2), 0.5, None])
def test_a_metric_of_another_shape_is_named(metric: Metric, returned: object) -> None:
    register(replace(metric, compute=lambda errors: returned))
    path = torch.zeros(1, 6, 3, 2)
    with pytest.raises(DataError, match="metric 'medianFDE' of tests must return one value per agent"):
        agent_metrics(path, torch.ones(1, 6), path[:, 0], torch.ones(1, 3).bool(), names=["medianFDE"])


def test_names_do_not_end_in_a_k() -> None:
    with pytest.raises(DataError, match=r"must not end in a digit.*'miss at 4'"):
        register(Metric("miss at 4", lambda errors: errors.final.amin(1), "Miss"))


def test_horizons_have_one_k() -> None:
    with pytest.raises(DataError, match="must have K = 6 in breakdown"):
        register(Metric("worst", lambda errors: errors.final, "Worst", tables={"breakdown": (1,)}))


def test_units_are_those_of_the_metric_s_name() -> None:
    assert metric_of("brier-minFDE6").unit == "m"
    assert metric_of("average heading error6").unit == "rad"
    assert metric_of("actorMR").per_actor
