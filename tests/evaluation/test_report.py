"""Reports: every number that is shown is the evaluation's, in a terminal and in Markdown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.graph.conftest import store_path  # noqa: F401
from trajpred.errors import DataError
from trajpred.evaluation import Evaluation, evaluate
from trajpred.evaluation.report import CONVENTIONS, changed, show, tables, to_markdown
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore


@pytest.fixture
def result(store_path: Path) -> Evaluation:  # noqa: F811
    store = ScenarioStore(store_path, "val")
    return evaluate(load_predictor("constant_velocity"), store, beyond=True, progress=False)


def test_cells_are_the_numbers(result: Evaluation) -> None:
    first, second, *_ = tables(result)
    assert first.title.endswith("K = 1") and second.title.endswith("K = 6")
    for row in [row for row in second.rows if row[0] in result.metrics["all"]]:
        shown = [means.get(row[0]) for means in result.metrics.values()]
        assert [row[1], *row[3:]] == ["-" if value is None else f"{value:.2f}" for value in shown]
        if row[0] in result.intervals:
            low, high = result.intervals[row[0]]
            assert row[2] == f"[{low:.2f}, {high:.2f}]" and low <= result.metrics["focal"][row[0]] <= high
    assert {"minADE6", "minFDE6", "MR6", "brier-minFDE6", "minFDE1"} <= result.intervals.keys()
    assert "minADE6" in [row[0] for row in second.rows]


def test_breakdowns_are_named_by_their_beginning(result: Evaluation) -> None:
    names = [one.title for one in tables(result, ["speed", "class"], ["all"])]
    assert names[-2:] == ["all agents by speed (m/s)", "all agents by class"]
    assert len(tables(result, ["all"])) == len(tables(result)) + len(result.breakdowns)
    with pytest.raises(DataError, match="'colour' is none of class, city, manoeuvre, speed, neighbours"):
        tables(result, ["colour"])


def test_parts_without_agents_of_the_group_are_left_out(result: Evaluation) -> None:
    [focal] = tables(result, ["class"], ["focal"])[-1:]
    [every] = tables(result, ["class"], ["all"])[-1:]
    assert sum(int(row[1]) for row in focal.rows) == result.scenarios
    assert {row[0] for row in focal.rows} < {row[0] for row in every.rows}


def test_groups_stand_side_by_side(result: Evaluation) -> None:
    [table] = tables(result, ["class"], ["focal", "all"])[-1:]
    assert table.title == "focal | all agents by class"
    metrics = ["agents", "minFDE6", "MR6"]
    assert table.head == ["", *(f"{group} {name}" for group in ("focal", "all") for name in metrics)]
    parts = result.breakdowns["class"]
    vehicle = next(row for row in table.rows if row[0] == "vehicle")
    assert vehicle[1] == str(parts["vehicle"]["focal"]["count"])
    assert vehicle[5] == f"{parts['vehicle']['all']['minFDE6']:.2f}"


def test_what_changed_is_told_scenario_by_scenario(result: Evaluation) -> None:
    worse = {**result.per_scenario, "minFDE6": list(result.per_scenario["minFDE6"])}
    worse["minFDE6"][0] += 5.0
    worse["minFDE6"][1] -= 1.0
    total, better, bad = changed([result], [replace(result, per_scenario=worse)], 3, ("a", "b"))
    assert total.title == f"b against a, {result.scenarios} focal agents"
    means = {row[0]: row[1:] for row in total.rows}
    assert means["minADE6"] == ["+0.000"] * 3 and means["minFDE6"][0] == f"{4 / result.scenarios:+.3f}"
    assert better.rows == [[result.per_scenario["scenario_id"][1], "-1.00"]]
    assert bad.rows == [[result.per_scenario["scenario_id"][0], "+5.00"]]


def test_into_a_pipe_goes_markdown(result: Evaluation, capsys: pytest.CaptureFixture[str]) -> None:
    shown = tables(result)
    show(shown)
    said = capsys.readouterr().out
    assert (
        said == to_markdown(shown) + "\n" and CONVENTIONS in said and "| minFDE6 |" in said.replace("  ", "")
    )
