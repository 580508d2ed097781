"""The metric registry: a registered metric appears in tables, JSON, training curves and comparisons."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest
import torch

from tests.evaluation.predictors import Scattered
from trajpred.errors import DataError
from trajpred.evaluation import evaluate, format_table, write_results
from trajpred.evaluation.report import tables
from trajpred.evaluation.table import columns_in
from trajpred.metrics import Column, ForecastMetrics, Metric, agent_metrics, register
from trajpred.store import ScenarioStore


@pytest.fixture
def metric(registries: None) -> Metric:
    """The median final error over the modes, in every table."""
    median = Metric("medianFDE", lambda errors: errors.final.median(1).values, "Median error", headline=(6,))
    similar_name = Metric("minADE in metres", lambda errors: errors.average.amin(1), "Average error")
    register(median)
    register(similar_name)
    return median


def test_registered_metrics_are_in_tables_and_json(metric: Metric, store_path: Path, tmp_path: Path) -> None:
    result = evaluate(Scattered(), ScenarioStore(store_path, "val"), progress=False)
    write_results(tmp_path / "results.json", result)
    written = json.loads((tmp_path / "results.json").read_text())
    mean = written["metrics"]["focal"]["medianFDE6"]
    assert mean > written["metrics"]["focal"]["minFDE6"]
    focal = result.agents.filter(pc.field("focal"))
    assert pc.mean(focal["medianFDE6_6s"]).as_py() == pytest.approx(mean)
    assert len(written["per_scenario"]["focal"]["medianFDE6"]) == written["scenarios"]
    _, main, horizons, *_ = tables(result)
    rows = {row[0]: row[1].split()[0] for row in main.rows}
    assert rows["minADE in metres6"] == rows["minADE6"]
    assert rows["medianFDE6"] == f"{mean:.2f}"
    assert "medianFDE6" in horizons.head
    assert "medianFDE6" in format_table([result])


def test_training_evaluates_a_metric_for_its_own_k(metric: Metric) -> None:
    register(replace(metric, ks=(3,), headline=(3,)))
    metrics = ForecastMetrics(groups=("all",))
    ahead = torch.stack((10 * torch.arange(6.0), torch.zeros(6)), 1)[None, :, None]
    metrics.update(ahead, torch.arange(6, 0, -1)[None] / 21, torch.zeros(1, 1, 2), torch.ones(1, 1).bool())
    means = metrics.compute()["all"]
    assert means["medianFDE3"] == 10.0
    assert "medianFDE1" not in means
    assert "medianFDE6" not in means


@pytest.mark.parametrize("returned", [torch.zeros(1, 6), torch.zeros(2), 0.5, None])
def test_a_metric_of_another_shape_is_named(metric: Metric, returned: object) -> None:
    wrong = replace(metric, compute=lambda errors: returned)
    path = torch.zeros(1, 6, 3, 2)
    with pytest.raises(DataError, match="metric 'medianFDE' of tests must return one value per agent"):
        agent_metrics(path, torch.ones(1, 6), path[:, 0], torch.ones(1, 3).bool(), columns=[Column(wrong, 6)])


@pytest.mark.parametrize("name", ["miss at 4", "minFDE6"])
def test_names_do_not_end_in_a_k(name: str) -> None:
    with pytest.raises(DataError, match=f"must not end in a digit.*{name!r}"):
        register(Metric(name, lambda errors: errors.final.amin(1)))


def test_names_are_not_those_of_other_columns(store_path: Path) -> None:
    agents = evaluate(Scattered(), ScenarioStore(store_path, "val"), plausibility=True, progress=False).agents
    metrics = {column.name for column in columns_in(agents)}
    others = {*agents.column_names} - metrics
    assert others >= {"speed", "moving", "track_id", "coordinates"}
    for name in others:
        with pytest.raises(DataError, match=f"trajpred has a metric '{name}' already"):
            register(Metric(name, lambda errors: errors.final.amin(1)))
