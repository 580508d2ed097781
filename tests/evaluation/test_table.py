"""Bootstrap intervals against the laws of means, and comparisons of recipes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

from tests.conftest import rejects
from tests.evaluation.made_results import result, seeds
from trajpred.data.splits import GROUPS
from trajpred.errors import DataError
from trajpred.evaluation import Evaluation, bootstrap, by_recipe, compare, format_table
from trajpred.evaluation.recipes import interval_table, most_changed
from trajpred.evaluation.report import to_markdown
from trajpred.evaluation.results import read_results, write_results
from trajpred.evaluation.table import EVERY, agent_field, change, resampled, summary
from trajpred.metrics import columns_of, headline


def scored(
    values: NDArray[np.float64],
    name: str = "a",
    order: NDArray[np.int64] | None = None,
    count: NDArray[np.int64] | None = None,
) -> Evaluation:
    """An evaluation with these minFDE6 of focal and ``count`` moving agents, the scenarios in ``order``."""
    rows = np.arange(len(values)) if order is None else order
    per_scenario: dict[str, pa.Table] = {}
    for group, agents in {"focal": np.ones(len(values), int), "moving": count}.items():
        if agents is not None:
            columns = {"scenario_id": [f"s{i}" for i in rows], "count": agents[rows], "ids": agents[rows]}
            table = pa.table({**columns, "minFDE6": values[rows]})
            per_scenario[group] = table.filter(pc.field("count") > 0)
    return Evaluation(name, "val", len(values), {}, {}, per_scenario)


def test_interval_of_a_mean_is_that_of_the_normal_approximation() -> None:
    values = np.random.default_rng(1).gamma(2, 1, 2000)
    found = bootstrap(values)
    half = 1.959964 * values.std() / np.sqrt(len(values))
    assert found.mean == pytest.approx(values.mean())
    # 10,000 resamples leave about 2 % of the half width to chance.
    bounds = (values.mean() - half, values.mean() + half)
    assert (found.low, found.high) == pytest.approx(bounds, abs=0.05 * half)


def test_interval_of_a_fraction_is_that_of_the_binomial_law() -> None:
    n, p = 40, 0.3
    sums = resampled((np.arange(n) < p * n).astype(float)[:, None], resamples=50_000)[:, 0] / n
    draws = np.random.default_rng(5).binomial(n, p, 500_000) / n
    expected = np.quantile(draws, (0.025, 0.975))
    assert np.quantile(sums, (0.025, 0.975)) == pytest.approx(expected, abs=1e-9)


def test_bounds_are_possible_values() -> None:
    """Three scenes say little, so that intervals are wide: not beyond what a fraction or an error can be."""
    facts = {"scenario_id": ["a", "b", "c"], "count": [1, 1, 1], "ids": [1, 2, 3]}
    values = {"MR6": [1.0, 1.0, 0.0], "minFDE6": [9.0, 0.1, 0.1], "minFDE1": [9.0, 9.0, 9.0]}
    table = pa.table(facts | values)
    columns = {column.title: column for column in columns_of("displacement")}
    cells = summary(table, columns=[columns["MR6"], columns["minFDE6"]])[EVERY]
    missed = cells[columns["MR6"]].interval
    error = cells[columns["minFDE6"]].interval
    assert (missed.low, missed.high) == (0.0, 1.0)
    assert error.low == 0.0
    assert error.high > 9.0
    few = Evaluation("few", "val", 3, {}, {}, {"focal": table})
    compared = interval_table({"few": [few]})
    shown = dict(zip(compared.head, compared.rows[0], strict=True))
    assert shown["MR6"] == f"{missed}" == "0.67 [0.00, 1.00]"
    assert shown["minFDE6"] == f"{error}"
    assert shown["minFDE1"] == "9.00"


def test_differences_are_paired_by_scenario() -> None:
    random = np.random.default_rng(2)
    hard, gain = random.gamma(1, 3, 600), random.normal(0.1, 0.2, 600)
    a, b = scored(hard), scored(hard + gain, "b", random.permutation(600))
    found = compare([a], [b])
    half = 1.959964 * gain.std() / np.sqrt(600)
    bounds = (-gain.mean() - half, -gain.mean() + half)
    assert found.mean == pytest.approx(-gain.mean())
    assert (found.low, found.high) == pytest.approx(bounds, abs=0.1 * half)
    assert found.high < 0 < bootstrap(hard).high - bootstrap(hard + gain).low


def test_agents_of_a_group_count_the_same_and_whole_scenarios_are_drawn() -> None:
    random = np.random.default_rng(6)
    count, easy = random.integers(0, 12, 800), random.gamma(2, 1, 800)
    gain = random.normal(0.3, 0.2, 800)
    a, b = scored(easy, count=count), scored(easy + gain, "b", random.permutation(800), count)
    found, mean = compare([b], [a], group="moving"), np.average(gain, weights=count)
    # The delta method: the variance of a ratio of sums over independent scenarios.
    half = 1.959964 * np.sqrt(((count * (gain - mean)) ** 2).sum()) / count.sum()
    assert found.mean == pytest.approx(mean)
    assert (found.low, found.high) == pytest.approx((mean - half, mean + half), abs=0.1 * half)
    fewer = scored(easy, "c", count=np.maximum(count - 1, 0))
    with pytest.raises(DataError, match="c and a predict different moving agents: compare their tables"):
        compare([fewer], [a], group="moving")


def test_seeds_are_averaged_in_every_scenario() -> None:
    random = np.random.default_rng(3)
    one, two, base = random.normal(2, 1, (3, 50))
    both = [scored(one), scored(two, order=random.permutation(50))]
    assert compare(both, [scored(base)]) == compare([scored((one + two) / 2)], [scored(base)])


def test_resamples_depend_on_the_seed_only() -> None:
    sums = np.random.default_rng(4).normal(size=(37, 2))
    whole = resampled(sums, resamples=250)
    assert whole.shape == (250, 2)
    assert np.array_equal(resampled(sums, resamples=250), whole)
    assert np.allclose(resampled(sums[:, 1:], resamples=250), whole[:, 1:]), "the same draws for all columns"
    assert not np.array_equal(resampled(sums, resamples=250, seed=1), whole)


def by_agent(rows: dict[str, tuple[str, float]], name: str) -> Evaluation:
    """An evaluation of focal agents, given as minFDE6 by track and scenario, all of them moving."""
    fields = [agent_field(column) for column in headline()]
    columns: dict[str, Any] = {
        "scenario_id": [scenario for scenario, _ in rows.values()],
        "track_id": [track.partition(" ")[0] for track in rows],
    }
    columns |= dict.fromkeys((*GROUPS, "predicted"), [True] * len(rows))
    known = pa.table(columns)
    errors = pa.array([value for _, value in rows.values()], pa.float32())
    for field in fields:
        known = known.append_column(field, errors)
    return Evaluation.of_tables(known, None, predictor=name, split="val", scenarios=2)


def test_agents_are_paired_by_scenario_and_track_whatever_their_order(tmp_path: Path) -> None:
    """Numbers that fit are no pairs: both predict two agents of x, of which one is the same."""
    first = by_agent({"1": ("x", 1.0), "2": ("x", 2.0), "1 of y": ("y", 5.0)}, "a")
    second = by_agent({"1 of y": ("y", 4.0), "3": ("x", 90.0), "2": ("x", 1.5)}, "b")
    found = change([first], [second], "moving")
    assert found.agents == 2
    assert found.metrics["minFDE6"].mean == pytest.approx((0.5 + 1.0) / 2)
    assert found.by_scenario == pytest.approx({"x": 0.5, "y": 1.0})
    write_results(tmp_path / "both.parquet", [first, second])
    assert change(*([one] for one in read_results(tmp_path / "both.parquet")), "moving") == found
    apart = by_agent({"9": ("x", 1.0)}, "c")
    rejects("a and c predict no moving agent in common", change, [first], [apart], "moving")


def test_changes_are_the_largest_in_either_direction() -> None:
    before, after = scored(np.array([1.0, 2.0, 3.0, 4.0])), scored(np.array([1.5, 1.0, 3.0, 0.5]))
    improved, degraded = most_changed([before], [after], 2)
    assert improved == pytest.approx({"s3": -3.5, "s1": -1.0})
    assert [*improved] == ["s3", "s1"]
    assert degraded == pytest.approx({"s0": 0.5})


def test_incomparable_results_are_rejected() -> None:
    a, (one, two, _) = scored(np.ones(5)), seeds()
    short = replace(a, seconds=[3.0, 6.0])
    long = replace(a, seconds=[6.0, 6.0])
    for message, wrong in {
        "b predicts no focal agent": lambda: compare([a], [scored(np.ones(0), "b")]),
        "a and a have no minADE6 of the same agents": lambda: compare([a], [a], "minADE6"),
        "scored over 3 and 6 s: compare models with equal horizons": lambda: compare([short], [long]),
        "values": lambda: bootstrap([]),
        "but are small with one seed": lambda: by_recipe([one, replace(two, training=one.training)]),
        "different data: val of argoverse1": lambda: by_recipe([one, replace(two, split="train")]),
        "no results given": lambda: by_recipe([]),
        "of scored agents": lambda: format_table(by_recipe(seeds()), "scored"),
    }.items():
        rejects(message, wrong)


def cells(table: str) -> dict[str, dict[str, str]]:
    """The cells of a Markdown table by row and column."""
    lines = [re.split(r" *\| *", line.strip("| ")) for line in table.splitlines()]
    return {row[0]: dict(zip(lines[0], row, strict=True)) for row in lines[2:]}


def test_recipes_are_rows_with_the_range_over_seeds_and_differences_from_the_first() -> None:
    base: Any = result("base", (4.0, 6.0))
    recipes = by_recipe([base, *seeds(), base])
    compared = interval_table(recipes)
    assert compared.title.startswith("2 focal agents that all predict")
    table, intervals = cells(format_table(recipes)), cells(to_markdown([compared], "").split("\n\n")[1])
    assert list(table) == list(intervals) == ["base", "small, 3 seeds"]
    # Means of two scenarios: (1 + 2) / 2, (2 + 2) / 2, (3 + 2) / 2.
    assert table["small, 3 seeds"]["minFDE6"] == "2.00 (1.50\N{EN DASH}2.50)"
    assert table["base"]["minFDE6"] == "5.00"
    assert table["base"]["MR6"] == "-"
    assert cells(format_table([base]))["base"] == table["base"]
    assert intervals["small, 3 seeds"]["minFDE6"] == "2.00"
    assert intervals["small, 3 seeds"]["minFDE6 against base"] == "-3.00 [-10.01, +4.01]"
    assert intervals["base"]["minFDE6 against base"] == "-"


def test_runs_of_one_name_are_told_apart_by_their_folders() -> None:
    first, second, _ = seeds()
    twin = replace(second, training=first.training)
    base: Any = result("base", (4.0, 6.0))
    both = [first, twin, base, base]
    runs = [Path(f"runs/small/version_{number}/evaluation.json") for number in (0, 1, 0, 1)]
    recipes = by_recipe(both, runs)
    assert list(recipes) == ["small (runs/small/version_0)", "small (runs/small/version_1)", "base"]
    [_, row, _] = interval_table(recipes).rows
    # (2, 2) against (1, 2): in metres, by scenario; two say little of what a third would be.
    assert row[-1] == "+0.50 [-3.00, +4.00]"
    files = [Path(name) for name in ("a.json", "b.json", "a.json", "b.json")]
    assert list(by_recipe(both, files)) == ["small (a.json)", "small (b.json)", "base"]
    rejects("but are small with one seed", by_recipe, both, [Path("both.json")] * 4)
    again = [replace(one, metrics=second.metrics) for one in (first, second)]
    places = [Path(f"{folder}/small_{seed}.json") for folder in ("mine", "theirs") for seed in (0, 1)]
    assert by_recipe([first, second, *again], places)["small (mine)"] == [first, second]
