"""Reports contain the evaluation's own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from trajpred.errors import DataError
from trajpred.evaluation import Evaluation, evaluate
from trajpred.evaluation.report import (
    CONVENTIONS,
    beside,
    change_tables,
    degradation,
    show,
    tables,
    to_markdown,
)
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore


@pytest.fixture(scope="module")
def result(store_path: Path) -> Evaluation:
    store = ScenarioStore(store_path, "val")
    return evaluate(load_predictor("constant_velocity"), store, plausibility=True, progress=False)


def test_cells_are_the_numbers_of_the_evaluation(result: Evaluation) -> None:
    first, second, *_ = tables(result)
    assert first.title.endswith("K = 1")
    assert second.title.endswith("K = 6")
    rows = {row[0]: row[1:] for row in second.rows}
    assert {"minADE6", "final heading error6", "infeasible", "ECE"} <= rows.keys()
    for name in rows.keys() & result.metrics["all"].keys():
        for cell, (group, means) in zip(rows[name], result.metrics.items(), strict=True):
            bounds = result.intervals[group].get(name)
            interval = " [{:.2f}, {:.2f}]".format(*bounds) if bounds else ""
            assert cell == (f"{means[name]:.2f}" if name in means else "-") + interval
    assert all("[" in cell for cell in rows["minFDE6"])


def test_breakdowns_contain_the_parts_that_have_agents(result: Evaluation) -> None:
    titles = [one.title for one in tables(result, ["speed", "class"], ["all"])]
    assert titles[-2:] == ["all agents by speed (m/s)", "all agents by class"]
    assert len(tables(result, ["all"])) == len(tables(result)) + len(result.breakdowns)
    with pytest.raises(DataError, match="'colour' is none of class, city, manoeuvre, speed, neighbours"):
        tables(result, ["colour"])
    [focal] = tables(result, ["class"], ["focal"])[-1:]
    [every] = tables(result, ["class"], ["all"])[-1:]
    assert sum(int(row[1]) for row in focal.rows) == result.scenarios
    assert {row[0] for row in focal.rows} < {row[0] for row in every.rows}


def scaled(metrics: Mapping[str, Mapping[str, float]], factor: float) -> dict[str, dict[str, float]]:
    """Multiply the means of every group."""
    result: dict[str, dict[str, float]] = {}
    for group, means in metrics.items():
        result[group] = {name: factor * value for name, value in means.items()}
    return result


def test_a_model_is_beside_its_baseline_in_every_main_metric(result: Evaluation) -> None:
    table = beside(replace(result, metrics=scaled(result.metrics, 0.5)), result)
    assert table.head[2] == "constant velocity"
    assert [row[0] for row in table.rows][:2] == [
        "minADE1",
        "minFDE1",
    ]
    for name, *cells in table.rows:
        each = [result.metrics[group][name] for group in ("focal", "scored", "moving")]
        assert cells == [f"{value:.2f}" for one in each for value in (one / 2, one)]
    alone = replace(result, metrics=result.metrics | {"scored": result.metrics["focal"]})
    assert len(beside(alone, alone).head) == 5, "Argoverse 1 scores the focal agent only"


def test_the_worst_scenarios_come_first_and_unknown_values_do_not(result: Evaluation) -> None:
    ids = result.per_scenario["scenario_id"]
    errors = [float(number) for number in range(len(ids))]
    errors[-1] = float("nan")
    one = replace(result, per_scenario={**result.per_scenario, "focal/minFDE6": errors})
    assert list(one.worst("minFDE6", 2).items()) == [(ids[-2], errors[-2]), (ids[-3], errors[-3])]


def test_changes_are_listed_by_scenario(result: Evaluation) -> None:
    other = {**result.per_scenario, "focal/minFDE6": list(result.per_scenario["focal/minFDE6"])}
    other["focal/minFDE6"][0] += 5.0
    other["focal/minFDE6"][1] -= 1.0
    moving = result.metrics["moving"]["count"]
    total, better, worse = change_tables([result], [replace(result, per_scenario=other)], 3, ("a", "b"))
    agents = f"{result.scenarios} focal and {moving} moving agents that both predict"
    assert total.title == f"b against a, {agents}"
    means = {row[0]: row[1:] for row in total.rows}
    assert means["focal minADE6"] == means["moving minFDE6"] == ["+0.000"] * 3
    assert means["focal minFDE6"][0] == f"{4 / result.scenarios:+.3f}"
    assert better.rows == [[result.per_scenario["scenario_id"][1], "-1.00"]]
    assert worse.rows == [[result.per_scenario["scenario_id"][0], "+5.00"]]


def test_degradation_is_relative_to_the_first(result: Evaluation) -> None:
    worlds = scaled({"scored": result.worlds["scored"]}, 3)
    worse = replace(result, metrics=scaled(result.metrics, 2), worlds=worlds)
    scored, worlds = degradation([result, worse], ["scored"])
    assert [cell.split()[-1] for cell in scored.rows[1][2:]] == ["(+100%)"] * 4
    assert "(+200%)" in worlds.rows[1][2]
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
    for table, group in zip(ahead, ("moving", "all"), strict=True):
        for second, agents, *cells in table.rows:
            means = result.horizons[second][group]
            expected = [f"{means[name]:.2f}" if name in means else "-" for name in table.head[2:]]
            assert int(agents) == means["count"]
            assert cells == expected
    everyone = result.horizons["6 s"]["all"]
    assert {"off-road futures", "infeasible futures", "standing drift"} < everyone.keys()
    plain = [one for one in tables(replace(result, horizons={})) if "by seconds ahead" in one.title]
    assert plain == []


def test_a_removed_input_has_its_paired_change(result: Evaluation) -> None:
    """A variant with 0.5 m more in every scenario: the change and both bounds are 0.5 m."""
    worse = {**result.per_scenario}
    for column in ("focal/minFDE6", "moving/minFDE6"):
        worse[column] = [None if x is None else x + 0.5 for x in worse[column]]
    variant = replace(result, predictor="blind", per_scenario=worse)
    fewer = {**result.per_scenario, "moving/count": [0] * len(worse["moving/count"])}
    other = replace(result, predictor="short", per_scenario=fewer)
    found = [one for one in degradation([result, variant, other], ["moving", "all"]) if "change" in one.title]
    [table] = found
    assert table.title == "moving agents, change of the minFDE6 without an input"
    assert table.rows == [["blind", "+0.500", "+0.500", "+0.500"]]
