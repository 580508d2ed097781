"""Reports contain the evaluation's own numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from trajpred.errors import DataError
from trajpred.evaluation import Evaluation, evaluate
from trajpred.evaluation.report import (
    CONVENTIONS,
    Table,
    change_tables,
    degradation,
    show,
    tables,
    to_markdown,
)
from trajpred.evaluation.table import FACTS, members
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore


@pytest.fixture(scope="module")
def result(store_path: Path) -> Evaluation:
    store = ScenarioStore(store_path, "val")
    return evaluate(load_predictor("constant_velocity"), store, plausibility=True, progress=False)


def test_cells_are_the_numbers_of_the_evaluation(result: Evaluation) -> None:
    first, second, *others = tables(result, ["all"], ["focal", "moving"])
    assert first.title.endswith("K = 1")
    assert second.title.endswith("K = 6")
    rows = {row[0]: row[1:] for row in second.rows}
    assert {"minADE6", "final heading error6", "infeasible", "ECE"} <= rows.keys()
    for name in rows.keys() & result.metrics["all"].keys():
        for cell, means in zip(rows[name], result.metrics.values(), strict=True):
            assert cell.split(" [")[0] == (f"{means[name]:.2f}" if name in means else "-")
    for table in (first, second, *others):
        counts = {"agents", "scenarios", "incomplete", "actors"}
        for row in table.rows:
            cells = [text for name, text in zip(table.head[1:], row[1:], strict=True) if name not in counts]
            # Without an interval: of one scenario, or all agree.
            assert all(re.fullmatch(r"-|-?\d+\.\d\d( \[.*\])?", cell) for cell in cells), (table.title, row)
        assert any("[" in cell for row in table.rows for cell in row) or len(table.rows) < 2


def titled(title: str, found: Sequence[Table]) -> Table:
    """Return the only table of this title."""
    matching = [one for one in found if one.title == title]
    assert len(matching) == 1
    return matching[0]


def test_breakdowns_contain_the_parts_that_have_agents(result: Evaluation) -> None:
    titles = [one.title for one in tables(result, ["speed", "class"], ["all"])]
    assert titles[-2:] == ["all agents by speed (m/s)", "all agents by class"]
    assert len(tables(result, ["all"], ["all"])) == len(tables(result, groups=["all"])) + len(FACTS)
    with pytest.raises(DataError, match="'colour' is none of class, city, manoeuvre, speed, neighbours"):
        tables(result, ["colour"])
    focal = titled("focal agents by class", tables(result, ["class"], ["focal"]))
    every = titled("all agents by class", tables(result, ["class"], ["all"]))
    assert sum(int(row[1]) for row in focal.rows) == result.scenarios
    assert {row[0] for row in focal.rows} < {row[0] for row in every.rows}


def test_the_worst_scenarios_come_first_and_unknown_values_do_not(result: Evaluation) -> None:
    focal = result.per_scenario["focal"]
    ids = focal["scenario_id"].to_pylist()
    errors = [float(number) for number in range(len(ids))]
    errors[-1] = float("nan")
    place = focal.schema.get_field_index("minFDE6")
    one = replace(result, per_scenario={"focal": focal.set_column(place, "minFDE6", pa.array(errors))})
    assert list(one.worst("minFDE6", 2).items()) == [(ids[-2], errors[-2]), (ids[-3], errors[-3])]


def changed(result: Evaluation, name: str, change: Sequence[float]) -> Evaluation:
    """The same evaluation with a ``change`` of the minFDE6 of the agents of each scenario."""
    assert result.agents is not None
    scene = result.agents["scenario_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    errors = pc.add(result.agents["minFDE6"], pa.array(np.array(change, np.float32)[scene]))
    field = result.agents.schema.field("minFDE6")
    agents = result.agents.set_column(result.agents.schema.get_field_index("minFDE6"), field, errors)
    return replace(result, predictor=name, agents=agents)


def test_changes_are_listed_by_scenario(result: Evaluation) -> None:
    ids = result.per_scenario["focal"]["scenario_id"].to_pylist()
    moving = result.metrics["moving"]["count"]
    other = changed(result, "b", [5.0, -1.0, 0.0, 0.0, 0.0])
    total, better, worse = change_tables([result], [other], ("a", "b"))
    agents = f"{result.scenarios} focal and {moving} moving agents that both predict"
    assert total.title == f"b against a, {agents}"
    means = {row[0]: row[1:] for row in total.rows}
    assert means["focal minADE6"] == means["moving MR6"] == ["+0.000"] * 3
    assert means["focal minFDE6"][0] == f"{4 / result.scenarios:+.3f}"
    assert better.rows == [[ids[1], "-1.00"]]
    assert worse.rows == [[ids[0], "+5.00"]]


def test_files_that_share_no_focal_agent_are_compared_by_the_moving_ones(result: Evaluation) -> None:
    other = changed(result, "b", [5.0, -1.0, 0.0, 0.0, 0.0])
    before = replace(result, agents=None, per_scenario={"moving": result.per_scenario["moving"]})
    after = replace(other, agents=None, per_scenario={"moving": other.per_scenario["moving"]})
    total, *_ = change_tables([before], [after], ("a", "b"))
    assert total.title == f"b against a, {result.metrics['moving']['count']} moving agents that both predict"
    assert {row[0].split()[0] for row in total.rows} == {"moving"}


def test_less_input_has_its_paired_change(result: Evaluation) -> None:
    """A variant with 0.5 m more in every scenario: the change and both bounds are 0.5 m."""
    variant = changed(result, "blind", [0.5] * 5)
    moving, joint = degradation([result, variant], ["moving"])
    assert moving.title == "moving agents, perturbed scenarios"
    assert moving.rows[0][-1] == "-"
    assert moving.rows[1][-1] == "+0.50 [+0.50, +0.50]"
    before = float(moving.rows[0][3].split(" [")[0])
    after = float(moving.rows[1][3].split(" [")[0])
    assert after - before == pytest.approx(0.5, abs=0.011)
    assert joint.title == "blind: joint futures"
    assert not [*degradation([result], ["focal"])]


def test_output_into_a_pipe_is_markdown(result: Evaluation, capsys: pytest.CaptureFixture[str]) -> None:
    shown = tables(result)
    show(shown)
    output = capsys.readouterr().out
    assert output == to_markdown(shown) + "\n"
    assert CONVENTIONS in output


def test_seconds_ahead_have_a_table_for_the_groups_and_all_agents(result: Evaluation) -> None:
    ahead = [one for one in tables(result, groups=["moving"]) if "by seconds ahead" in one.title]
    assert [one.title.split()[0] for one in ahead] == ["moving", "all"]
    assert result.agents is not None
    for table, group in zip(ahead, ("moving", "all"), strict=True):
        assert {"off-road futures", "final heading error6", "standing drift"} < {*table.head}
        agents = members(result.agents, group)
        for second, count, *cells in table.rows:
            ending = f"_{second[0]}s"
            assert int(count) == len(agents) - agents[f"minFDE6{ending}"].null_count
            for name, cell in zip(table.head[2:], cells, strict=True):
                mean = pc.mean(agents[name + ending]).as_py()
                assert cell.split(" [")[0] == ("-" if mean is None else f"{mean:.2f}"), (second, name)
