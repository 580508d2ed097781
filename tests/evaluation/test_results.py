"""Results as files, their origin, and reports that contain the evaluation's own numbers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.conftest import rejects
from tests.evaluation.made_results import result, seeds
from trajpred.errors import DataError
from trajpred.evaluation import Evaluation, by_recipe, evaluate, format_table, read_results, write_results
from trajpred.evaluation.recipes import change_tables
from trajpred.evaluation.report import CONVENTIONS, Table, degradation, show, tables, to_markdown
from trajpred.evaluation.table import FACTS, members
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore


def test_files_contain_everything_and_values_per_scenario_on_one_line(tmp_path: Path) -> None:
    for given in (seeds(), seeds()[0]):
        write_results(tmp_path / "a.json", given)
        assert read_results(tmp_path / "a.json") == (given if isinstance(given, list) else [given])
    text = (tmp_path / "a.json").read_text()
    found = json.loads(text)
    assert found["schema"] == 6
    assert found["training"]["seed"] == 0
    line = next(line for line in text.splitlines() if line.startswith('"per_scenario"'))
    assert json.loads("{" + line.rstrip(",") + "}") == {"per_scenario": found["per_scenario"]}


@pytest.mark.parametrize("content", ["", "{", "[3]", '"text"', '{"predictor": "a"}', "[[]]"])
def test_other_files_are_rejected_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    rejects(r"bad\.json: is not a result of trajpred evaluate", read_results, tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('"schema": 6', '"schema": 5', "schema"),
        ('"minFDE6": 1.5', '"minFDE6": "1.5"', "metrics"),
        ('"seconds": []', '"seconds": [3.0]', "seconds"),
        ('"minFDE6": [1.0, 2.0]', '"minFDE6": [1.0]', "per_scenario"),
        ('"minFDE6": [1.0, 2.0]', '"minFDE6": [1.0, "2"]', "per_scenario"),
        ('"ids": [7, 8]', '"ids": [7, 8.5]', "per_scenario"),
        ('"count": [1, 1]', '"count": [1, null]', "per_scenario"),
        ('"count": [1, 1]', '"counts": [1, 1]', "per_scenario"),
        ('"ids": [7, 8]', f'"ids": [7, {10**30}]', "per_scenario"),
        ('"scenario_id": ["x", "y"]', '"scenario_id": ["x", "x"]', "per_scenario"),
        ('"torch": "2.13"', '"torch": 2', "torch"),
        ('"scenarios": 2', '"scenarios": null', "scenarios"),
        ('"completed": {}', '"completed": {"all": 3, "scenarios": 0}', "completed"),
        ('"many_modes": {}', '"many_modes": {"abc": 3}', "many_modes"),
    ],
)
def test_fields_of_another_version_or_type_are_named(tmp_path: Path, old: str, new: str, field: str) -> None:
    write_results(tmp_path / "a.json", seeds()[0])
    text = (tmp_path / "a.json").read_text()
    assert old in text
    (tmp_path / "bad.json").write_text(text.replace(old, new))
    error = rejects(r"bad\.json", read_results, tmp_path / "bad.json")
    assert error.field == field


def test_non_finite_numbers_are_null_in_the_file_and_nan_when_read(tmp_path: Path) -> None:
    write_results(tmp_path / "a.json", result("lost", (math.nan, math.inf)))
    found = json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    assert found["per_scenario"]["focal"]["minFDE6"] == [None, None]
    [read] = read_results(tmp_path / "a.json")
    assert all(math.isnan(value) for value in read.by_scenario("minFDE6").values())
    assert "nan" in format_table(by_recipe([read]))


def test_the_table_of_agents_is_what_its_summary_summarises(store_path: Path, tmp_path: Path) -> None:
    """Read by pandas, and as a result: the means, and the values that are compared, are those of the rows."""
    store = ScenarioStore(store_path, "val")
    found = [
        evaluate(load_predictor(name), store, progress=False)
        for name in ("lane_following", "constant_velocity")
    ]
    path = tmp_path / "evaluation.parquet"
    write_results(path, found)
    agents = pd.read_parquet(path)
    for one in found:
        rows = agents[(agents["predictor"] == one.predictor) & agents["moving"]]
        means = rows[["minADE6", "minFDE6", "MR1"]].astype(float).mean()
        assert means.to_dict() == pytest.approx({name: one.metrics["moving"][name] for name in means.index})
        by_scenario = rows.groupby("scenario_id")["minFDE6"].mean().to_dict()
        assert by_scenario == pytest.approx(one.by_scenario("minFDE6", "moving"), abs=6e-5)
    for read, one in zip(read_results(path), found, strict=True):
        assert replace(read, agents=None) == replace(one, agents=None, scenes=None)
    (tmp_path / "other.parquet").write_bytes(b"PAR1")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "foreign.parquet")
    whole = pq.read_table(path)
    moving = whole.column_names.index("moving")
    pq.write_table(whole.set_column(moving, "moving", whole["city"]), tmp_path / "retyped.parquet")
    pq.write_table(whole.drop_columns(["track_id"]), tmp_path / "without.parquet")
    for name in ("other", "foreign", "retyped", "without"):
        with pytest.raises(DataError, match=f"{name}.parquet: is not a result of trajpred evaluate"):
            read_results(tmp_path / f"{name}.parquet")


@pytest.fixture(scope="module")
def steady(store_path: Path) -> Evaluation:
    store = ScenarioStore(store_path, "val")
    return evaluate(load_predictor("constant_velocity"), store, plausibility=True, progress=False)


def test_cells_are_the_numbers_of_the_evaluation(steady: Evaluation) -> None:
    first, second, *others = tables(steady, ["all"], ["focal", "moving"])
    assert first.title.endswith("K = 1")
    assert second.title.endswith("K = 6")
    rows = {row[0]: row[1:] for row in second.rows}
    assert {"minADE6", "final heading error6", "infeasible", "ECE"} <= rows.keys()
    for name in rows.keys() & steady.metrics["all"].keys():
        for cell, means in zip(rows[name], steady.metrics.values(), strict=True):
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


def test_breakdowns_contain_the_parts_that_have_agents(steady: Evaluation) -> None:
    titles = [one.title for one in tables(steady, ["speed", "class"], ["all"])]
    assert titles[-2:] == ["all agents by speed (m/s)", "all agents by class"]
    assert len(tables(steady, ["all"], ["all"])) == len(tables(steady, groups=["all"])) + len(FACTS)
    rejects("'colour' is not one of class, city, manoeuvre, speed, neighbours", tables, steady, ["colour"])
    focal = titled("focal agents by class", tables(steady, ["class"], ["focal"]))
    every = titled("all agents by class", tables(steady, ["class"], ["all"]))
    assert sum(int(row[1]) for row in focal.rows) == steady.scenarios
    assert {row[0] for row in focal.rows} < {row[0] for row in every.rows}


def test_the_worst_scenarios_come_first_and_unknown_values_do_not(steady: Evaluation) -> None:
    focal = steady.per_scenario["focal"]
    ids = focal["scenario_id"].to_pylist()
    errors = [float(number) for number in range(len(ids))]
    errors[-1] = float("nan")
    place = focal.schema.get_field_index("minFDE6")
    one = replace(steady, per_scenario={"focal": focal.set_column(place, "minFDE6", pa.array(errors))})
    assert list(one.worst("minFDE6", 2).items()) == [(ids[-2], errors[-2]), (ids[-3], errors[-3])]


def changed(steady: Evaluation, name: str, change: Sequence[float]) -> Evaluation:
    """The same evaluation with a ``change`` of the minFDE6 of the agents of each scenario."""
    scene = steady.agents["scenario_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    errors = pc.add(steady.agents["minFDE6"], pa.array(np.array(change, np.float32)[scene]))
    field = steady.agents.schema.field("minFDE6")
    agents = steady.agents.set_column(steady.agents.schema.get_field_index("minFDE6"), field, errors)
    return replace(steady, predictor=name, agents=agents)


def test_changes_are_listed_by_scenario(steady: Evaluation) -> None:
    ids = steady.per_scenario["focal"]["scenario_id"].to_pylist()
    moving = steady.metrics["moving"]["count"]
    other = changed(steady, "b", [5.0, -1.0, 0.0, 0.0, 0.0])
    total, better, worse = change_tables([steady], [other], ("a", "b"))
    agents = f"{steady.scenarios} focal and {moving} moving agents that both predict"
    assert total.title == f"b against a, {agents}"
    means = {row[0]: row[1:] for row in total.rows}
    assert means["focal minADE6"] == means["moving MR6"] == ["+0.000"] * 3
    assert means["focal minFDE6"][0] == f"{4 / steady.scenarios:+.3f}"
    assert better.rows == [[ids[1], "-1.00"]]
    assert worse.rows == [[ids[0], "+5.00"]]


def test_files_that_share_no_focal_agent_are_compared_by_the_moving_ones(steady: Evaluation) -> None:
    other = changed(steady, "b", [5.0, -1.0, 0.0, 0.0, 0.0])
    before = replace(steady, agents=None, per_scenario={"moving": steady.per_scenario["moving"]})
    after = replace(other, agents=None, per_scenario={"moving": other.per_scenario["moving"]})
    total, *_ = change_tables([before], [after], ("a", "b"))
    assert total.title == f"b against a, {steady.metrics['moving']['count']} moving agents that both predict"
    assert {row[0].split()[0] for row in total.rows} == {"moving"}


def test_less_input_has_its_paired_change(steady: Evaluation) -> None:
    """A variant with 0.5 m more in every scenario: the change and both bounds are 0.5 m."""
    variant = changed(steady, "blind", [0.5] * 5)
    moving, joint = degradation([steady, variant], ["moving"])
    assert moving.title == "moving agents, perturbed scenarios"
    assert moving.rows[0][-1] == "-"
    assert moving.rows[1][-1] == "+0.50 [+0.50, +0.50]"
    before = float(moving.rows[0][3].split(" [")[0])
    after = float(moving.rows[1][3].split(" [")[0])
    assert after - before == pytest.approx(0.5, abs=0.011)
    assert joint.title == "blind: joint futures"
    assert not [*degradation([steady], ["focal"])]


def test_output_into_a_pipe_is_markdown(steady: Evaluation, capsys: pytest.CaptureFixture[str]) -> None:
    shown = tables(steady)
    show(shown)
    output = capsys.readouterr().out
    assert output == to_markdown(shown) + "\n"
    assert CONVENTIONS in output


def test_seconds_ahead_have_a_table_for_the_groups_and_all_agents(steady: Evaluation) -> None:
    ahead = [one for one in tables(steady, groups=["moving"]) if "by seconds ahead" in one.title]
    assert [one.title.split()[0] for one in ahead] == ["moving", "all"]
    for table, group in zip(ahead, ("moving", "all"), strict=True):
        assert {"off-road futures", "final heading error6", "standing drift"} < {*table.head}
        agents = members(steady.agents, group)
        for second, count, *cells in table.rows:
            ending = f"_{second[0]}s"
            assert int(count) == len(agents) - agents[f"minFDE6{ending}"].null_count
            for name, cell in zip(table.head[2:], cells, strict=True):
                mean = pc.mean(agents[name + ending]).as_py()
                assert cell.split(" [")[0] == ("-" if mean is None else f"{mean:.2f}"), (second, name)
