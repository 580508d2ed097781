"""Results as files, and the tables made from them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trajpred.errors import DataError
from trajpred.evaluation import Evaluation, by_recipe, read_results, write_results
from trajpred.evaluation.table import format_intervals, format_origin, format_recipes

STORE = {"source": "argoverse1", "config": "0123", "scenarios": {"train": 7377, "val": 2}}
MACHINE = {
    "trajpred": "0.1.0",
    "commit": 40 * "a",
    "dirty": False,
    "torch": "2.13",
    "cpu": "Xeon",
    "threads": 2,
}


def result(name: str, fde: tuple[float, float], **training: Any) -> Evaluation:
    """Two scenarios with these focal minFDE6."""
    metrics = {"focal": {"count": 2, "minFDE6": sum(fde) / 2}}
    brier = [value + 0.5 for value in fde]
    each = {"scenario_id": ["x", "y"], "minADE6": [1.0, 1.0], "minFDE6": list(fde), "brier-minFDE6": brier}
    return Evaluation(name, "val", 2, {"focal": 0}, metrics, each, training, STORE, MACHINE)


def seeds() -> list[Evaluation]:
    facts = {"recipe": "small", "store": STORE, "environment": {**MACHINE, "dirty": True, "gpu": "H200"}}
    return [
        result(f"small/version_{i}/best", (1.0 + i, 2.0), **facts, seed=i, steps=100, epochs=3, wall_s=120.0)
        for i in range(3)
    ]


def cells(table: str) -> dict[str, dict[str, str]]:
    """The cells of a Markdown table by row and column."""
    head, _, *rows = ([c.strip() for c in line.strip("|").split("|")] for line in table.splitlines())
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def test_files_hold_everything(tmp_path: Path) -> None:
    for given in (seeds(), seeds()[0]):
        write_results(tmp_path / "a.json", given)
        assert read_results(tmp_path / "a.json") == (given if isinstance(given, list) else [given])


def test_files_are_plain_json_with_what_is_kept_per_scenario_on_one_line(tmp_path: Path) -> None:
    write_results(tmp_path / "a.json", seeds()[0])
    text = (tmp_path / "a.json").read_text()
    found = json.loads(text)
    assert found["training"]["seed"] == 0 and found["store"]["scenarios"]["train"] == 7377
    [line] = [line for line in text.splitlines() if line.startswith('"per_scenario"')]
    assert json.loads("{" + line.rstrip(",") + "}") == {"per_scenario": found["per_scenario"]}


@pytest.mark.parametrize("content", ["", "{", "[3]", '"text"', '{"predictor": "a"}', "[[]]"])
def test_what_is_no_result_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(DataError, match=r"bad\.json: is no result of tools/evaluate\.py"):
        read_results(tmp_path / "bad.json")
    with pytest.raises(DataError, match="absent"):
        read_results(tmp_path / "absent.json")


def test_another_version_is_not_misread(tmp_path: Path) -> None:
    write_results(tmp_path / "a.json", seeds()[0])
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "old.json").write_text(text.replace('"schema": 3', '"schema": 2'))
    with pytest.raises(DataError, match=r"old\.json, field 'schema': is version 2 .* reads 3: score again"):
        read_results(tmp_path / "old.json")


def test_numbers_that_are_not_finite_are_null_in_the_file_and_nan_when_read(tmp_path: Path) -> None:
    write_results(tmp_path / "a.json", result("lost", (math.nan, math.inf)))
    found = json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    assert found["per_scenario"]["minFDE6"] == [None, None]
    [read] = read_results(tmp_path / "a.json")
    assert all(math.isnan(value) for value in read.focal("minFDE6").values())
    assert "nan" in format_recipes(by_recipe([read]))


def test_the_same_training_asked_in_another_way_is_another_recipe() -> None:
    one = seeds()[0]
    assert [*by_recipe([one, replace(one, how="mirrored"), replace(one, how="joint")])] == [
        "small",
        "small, mirrored",
        "small, joint",
    ]
    tuned = replace(one, training={**one.training, "weights": "argoverse1-small"}, how="mirrored")
    assert tuned.recipe == "small, from argoverse1-small, mirrored"


def test_a_group_that_results_do_not_tell_of_is_named() -> None:
    with pytest.raises(DataError, match="of scored agents"):
        format_recipes(by_recipe(seeds()), "scored")


def test_a_recipe_is_one_line_with_mean_and_range_over_its_seeds() -> None:
    base = result("constant_velocity", (4.0, 6.0))
    table = cells(format_recipes(by_recipe([base, *seeds(), base])))
    assert list(table) == ["constant_velocity", "small, 3 seeds"]
    # Means of two scenarios: (1 + 2) / 2, (2 + 2) / 2, (3 + 2) / 2.
    assert table["small, 3 seeds"]["minFDE6"] == "2.00 (1.50\N{EN DASH}2.50)"
    assert table["constant_velocity"]["minFDE6"] == "5.00" and table["constant_velocity"]["MR6"] == "-"


def test_differences_are_from_the_first_recipe() -> None:
    table = cells(format_intervals(by_recipe([result("base", (4.0, 6.0)), *seeds()])))
    # Of two scenarios a resample takes the one, the other, or both: the bounds are the extremes.
    assert table["small, 3 seeds"]["minFDE6"] == "2.00 [2.00, 2.00]"
    assert table["small, 3 seeds"]["minFDE6 against base"] == "-3.00 [-4.00, -2.00]"
    assert table["base"]["minFDE6"] == "5.00 [4.00, 6.00]" and table["base"]["minFDE6 against base"] == "-"


def test_the_origin_tells_seeds_data_machine_and_code() -> None:
    told = format_origin(seeds())
    for part in (
        "seeds 0, 1, 2;",
        "7,377 scenarios of argoverse1",
        "minutes 2;",
        "on H200, Xeon (2 threads)",
    ):
        assert part in told
    assert "starting with" not in told
    tuned = replace(seeds()[0], training={**seeds()[0].training, "weights": "argoverse1-small"})
    assert "starting with argoverse1-small; epochs 3;" in format_origin([tuned])
    assert "code trajpred 0.1.0, aaaaaaaaaa with changes, torch 2.13" in told
    assert format_origin([result("base", (1.0, 2.0))]) == "scored by trajpred 0.1.0, aaaaaaaaaa, torch 2.13"


def test_what_does_not_belong_in_one_table_is_refused() -> None:
    one, two, _ = seeds()
    with pytest.raises(DataError, match="one recipe, small, and one seed"):
        by_recipe([one, replace(two, training=one.training)])
    with pytest.raises(DataError, match="different data: val of argoverse1"):
        by_recipe([one, replace(two, split="train")])
    with pytest.raises(DataError, match="no results"):
        by_recipe([])
