"""Results as JSON files, and their origin: git, the machine and the store."""

from __future__ import annotations

import inspect
import json
import math
import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import trajpred
from tests.conftest import ROOT
from tests.evaluation.made_results import result, seeds
from trajpred import __version__
from trajpred.errors import DataError
from trajpred.evaluation import by_recipe, evaluate, format_table, read_results, write_results
from trajpred.evaluation.results import commit, cpu_model, environment
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


def test_published_results_are_read() -> None:
    paths = sorted((ROOT / "datasets" / "argoverse1" / "results").rglob("*.json"))
    read = [one for path in paths for one in read_results(path)]
    table = format_table(read, "moving")
    assert len(paths) >= 8
    assert "argoverse-nano | " in table
    assert "constant_velocity | " in table


@pytest.mark.parametrize("content", ["", "{", "[3]", '"text"', '{"predictor": "a"}', "[[]]"])
def test_other_files_are_rejected_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(DataError, match=r"bad\.json: is not a result of trajpred evaluate"):
        read_results(tmp_path / "bad.json")


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
    ],
)
def test_fields_of_another_version_or_type_are_named(tmp_path: Path, old: str, new: str, field: str) -> None:
    write_results(tmp_path / "a.json", seeds()[0])
    text = (tmp_path / "a.json").read_text()
    assert old in text
    (tmp_path / "bad.json").write_text(text.replace(old, new))
    with pytest.raises(DataError, match=r"bad\.json") as error:
        read_results(tmp_path / "bad.json")
    assert error.value.field == field


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


def git(folder: Path, *command: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    done = subprocess.run(["git", *who, "-C", folder, *command], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_commit_and_changes_of_the_package_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert commit(package) == {}, "no repository"
    git(tmp_path, "init")
    assert commit(package) == {}, "another repository"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "results.json").write_text("{}")
    assert commit(package) == {"commit": head, "dirty": False}
    (package / "new.py").write_text("")
    assert commit(package) == {"commit": head, "dirty": True}
    default = inspect.signature(commit).parameters["package"].default
    assert default == Path(trajpred.__file__).parent, "the whole package by default"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(package) == {}, "no git"


def test_environment_is_plain_values(tmp_path: Path) -> None:
    found = environment()
    assert found["trajpred"] == __version__
    assert found["threads"] == torch.get_num_threads()
    torch.save(found, tmp_path / "facts.pt")
    assert torch.load(tmp_path / "facts.pt", weights_only=True) == found
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n")
    assert cpu_model(tmp_path / "cpuinfo") == "Some CPU @ 2 GHz"
    assert cpu_model(tmp_path / "none")
