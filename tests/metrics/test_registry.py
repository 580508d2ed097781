"""The metric registry: a registered metric appears in tables, JSON, training curves and comparisons."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from tests.evaluation.predictors import Scattered
from trajpred.evaluation import evaluate, format_table, write_results
from trajpred.evaluation.report import tables
from trajpred.evaluation.table import agent_field, columns_in
from trajpred.metrics import METRICS, ForecastMetrics, Metric, columns_of, register
from trajpred.store import ScenarioStore


@pytest.fixture
def metric() -> Iterator[Metric]:
    """The median final error over the modes, in every table."""
    median = Metric("medianFDE", lambda errors: errors.final.median(1).values, "Median error", headline=(6,))
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
    result = evaluate(Scattered(), ScenarioStore(store_path, "val"), progress=False)
    write_results(tmp_path / "results.json", result)
    written = json.loads((tmp_path / "results.json").read_text())
    mean = written["metrics"]["focal"]["medianFDE6"]
    assert mean > written["metrics"]["focal"]["minFDE6"]
    assert result.agents is not None
    focal = result.agents.filter(pc.field("focal"))
    assert pc.mean(focal["medianFDE6_6s"]).as_py() == pytest.approx(mean)
    assert len(written["per_scenario"]["focal/medianFDE6"]) == written["scenarios"]
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


def test_no_name_is_read_for_its_k(metric: Metric) -> None:
    register(Metric("miss at 4", lambda errors: errors.final.amin(1), "Miss", ks=(2,)))
    [column] = [column for column in columns_of("displacement") if column.metric.name == "miss at 4"]
    field = agent_field(column._replace(ahead=3))
    assert field.name == "miss at 42_3s"
    assert columns_in(pa.schema([field]).empty_table()) == [column._replace(ahead=3)]
    del METRICS["miss at 4"]
