"""Predict, evaluate, compare and calibrate agree with each other."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.conftest import SAMPLE, error_of, output_of, run
from trajpred.evaluation import Evaluation, read_results
from trajpred.evaluation.agents import groups_of
from trajpred.store import ScenarioStore

COORDINATES = ("predicted_trajectory_x", "predicted_trajectory_y")
#: A scenario of Argoverse 2's own validation split.
NATIVE = "0a1e6f0a-1817-4a98-b02e-db8c9327d151"
CHANGE = re.compile(r"^\| +focal minFDE6 \|.*\|$", re.MULTILINE)


def test_predictions_are_written_scored_and_compared(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predictions = tmp_path / "p.parquet"
    baseline = tmp_path / "baseline.json"
    results = tmp_path / "results.json"
    table = tmp_path / "new" / "table.md"
    at = ["--store", store]
    assert run("predict", "--checkpoint", "lane_following", *at, "--out", predictions) == 0
    assert "5 tracks of 5 scenarios" in capsys.readouterr().out
    printed = output_of(capsys, "evaluate", *at, "--out", baseline, "--by", "class", "city")
    assert "focal agents by class" in printed
    printed = output_of(capsys, "evaluate", *at, "--checkpoint", predictions, "--out", results, table)
    missing = json.loads(results.read_text())["missing"]
    of_groups = f"focal: 0, scored: {missing['scored']}, moving: {missing['moving']}, all: {missing['all']}"
    assert f"p.parquet: agents without a forecast are not counted in any metric ({of_groups})." in printed
    assert table.read_text() in printed

    compared = output_of(capsys, "compare", "--results", baseline, results, "--scenes", "2")
    predictors = re.findall(r"^\| +(\S+) \|.*\]", compared, re.MULTILINE)
    assert predictors[:2] == ["constant_velocity", "p.parquet"]
    [command] = re.findall(r"^trajpred visualize .*", compared, re.MULTILINE)
    assert {"STORE", "CHECKPOINT", "AGAINST"} < set(command.split())

    options = ["--against", "constant_velocity", "--group", "focal", "all", "--by", "class", "--out", results]
    printed = output_of(capsys, "evaluate", *at, "--checkpoint", predictions, *options)
    assert "all agents by class" in printed
    changes = [CHANGE.findall(text)[-1].split() for text in (compared, printed)]
    assert changes[0] == changes[1], "the change that compare reports"
    first, second = json.loads(results.read_text())
    assert first["predictor"] == "p.parquet"
    assert second["predictor"] == "constant_velocity"

    _, *words = shlex.split(printed.splitlines()[-1])  # the command that the report ends with
    page = tmp_path / "changes.html"
    words[words.index("--out") + 1] = str(page)
    assert run(*words) == 0
    index = page.read_text("utf-8").split('id="index">')[1].split("</script>")[0]
    on_page = [scene["id"] for scene in json.loads(index)["scenes"]]
    assert on_page == re.findall(r"^\| ([0-9a-f-]{36}) \|", printed, re.MULTILINE)
    assert len(on_page) > 2


def test_a_predictions_file_of_worlds_is_used_with_joint(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--store", store]
    worlds = tmp_path / "worlds.parquet"
    scored = ["--agents", "scored", "--limit", "2"]
    assert run("predict", *at, "--joint", *scored, "--out", worlds) == 0
    for joint in ([], ["--joint"]):
        again = tmp_path / "again.parquet"
        assert run("predict", *at, "--checkpoint", worlds, *joint, *scored, "--out", again) == 0
    capsys.readouterr()
    assert run("evaluate", *at, "--checkpoint", again, "--joint", "--against", worlds, "--limit", "2") == 0
    assert "| scored |         2 |" in capsys.readouterr().out
    single = tmp_path / "single.parquet"
    assert run("predict", *at, "--out", single, "--limit", "2") == 0
    error = error_of(capsys, "evaluate", *at, "--joint", "--against", single)
    assert "single.parquet has no joint futures" in error


def test_updates_are_scored(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files: list[Path] = []
    for name in ("lane_following", "constant_velocity"):
        files += [tmp_path / f"{name}.json", tmp_path / f"{name}.parquet"]
        options = ["--every-s", "1", "--updates", "4", "--out", *files[-2:]]
        assert run("stress", "--store", store, "--checkpoint", name, *options) == 0
    printed = capsys.readouterr().out
    table = printed.split("every update")[1].split("**")[1]
    updates = re.findall(r"^\| +(\S+ s) \|.* (\S+) \|$", table, re.MULTILINE)
    assert [name for name, _ in updates] == ["2 s", "3 s", "4 s", "5 s"]
    assert updates[0][1] == "-", "no update precedes the first"
    change = pq.read_table(files[3])["probability change_after_3s"].drop_null().to_pylist()
    assert set(change) == {0.0}, "of a single mode"
    for pair in (files[0::2], files[1::2]):
        assert "mode displacement against lane_following" in output_of(capsys, "compare", "--results", *pair)


def test_the_tables_of_a_file_without_focal_tracks_are_reported(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--store", store]
    path = tmp_path / "others.parquet"
    table = tmp_path / "table.md"
    assert run("predict", *at, "--joint", "--agents", "scored", "--out", path) == 0
    rows = pq.read_table(path)
    focal = [scenario.focal_id for scenario in ScenarioStore(store, "val")]
    pq.write_table(rows.filter(~pc.field("track_id").isin(focal)), path)
    against = ["--against", "lane_following", "--out", table]
    out = output_of(capsys, "evaluate", *at, "--checkpoint", path, *against)
    assert re.search(r"others.parquet against lane_following, \d+ moving agents that both predict", out)
    assert "others.parquet: 5 scenarios, K = 6" in out
    assert "(focal: 5, " in out
    assert table.read_text() in out


def test_agents_of_both_are_compared(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two files with the same forecasts, each without another moving agent of every scene."""
    at = ["--store", store]
    whole = tmp_path / "whole.parquet"
    files = [tmp_path / "first.parquet", tmp_path / "last.parquet"]
    results = [tmp_path / "first results.parquet", tmp_path / "last results.parquet"]
    assert run("predict", *at, "--joint", "--agents", "scored", "--out", whole) == 0
    rows = pq.read_table(whole)
    names = list(zip(rows["scenario_id"].to_pylist(), rows["track_id"].to_pylist(), strict=True))
    left = 0
    omitted: dict[Path, set[tuple[str, str]]] = {path: set() for path in files}
    for scenario in ScenarioStore(store, "val"):
        groups = groups_of(scenario)
        moving = scenario.tracks.track_id[groups["moving"] & groups["scored"]].tolist()
        left += len(moving[1:-1])
        omitted[files[0]].update((scenario.scenario_id, name) for name in moving[:1])
        omitted[files[1]].update((scenario.scenario_id, name) for name in moving[-1:])
    for path, ids in omitted.items():
        pq.write_table(rows.filter(pa.array([name not in ids for name in names])), path)
    for path, result in zip(files, results, strict=True):
        assert run("evaluate", *at, "--checkpoint", path, "--out", result, result.with_suffix(".json")) == 0

    printed = output_of(capsys, "evaluate", *at, "--checkpoint", files[1], "--against", files[0])
    assert f" {left} moving agents that both predict" in printed
    changes = re.findall(r"^\| +(?:focal|moving) \S+ +\| +(\S+) \|", printed, re.MULTILINE)
    assert len(changes) > 6
    assert {*changes} == {"+0.000"}
    printed = output_of(capsys, "compare", "--results", *results)
    assert f"{left} moving agents that all predict" in printed
    assert re.findall(r"[+-]\d\.\d\d \[", printed) == ["+0.00 ["] * 6
    assert run("compare", "--results", *(result.with_suffix(".json") for result in results)) == 0
    assert "predict different moving agents: compare their tables" in capsys.readouterr().out


def test_results_say_that_six_of_twelve_modes_are_scored(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six improbable modes beside those of lane following, anywhere in the file, change no error."""
    at = ["--store", store]
    six = tmp_path / "six.parquet"
    twelve = tmp_path / "twelve.parquet"
    assert run("predict", "--checkpoint", "lane_following", *at, "--agents", "all", "--out", six) == 0
    modes = pq.read_table(six).to_pandas()
    tracks = len(modes) // 6
    modes["probability"] = 0.1 + 0.3 * modes["probability"]
    away = modes[COORDINATES[0]].map(lambda steps: steps + 1.0)
    decoys = modes.assign(**{"probability": 0.1 / 6, COORDINATES[0]: away})
    pd.concat([decoys, modes]).to_parquet(twelve)
    results: list[Evaluation] = []
    cut = f"twelve.parquet: {tracks} tracks have 12 modes, of which metrics of K = 6 use the 6 most probable"
    for path in six, twelve:
        summary = path.with_suffix(".json")
        assert run("evaluate", *at, "--checkpoint", path, "--out", summary) == 0
        results += read_results(summary)
    output = capsys.readouterr()
    assert output.out.count(cut) == 1
    assert cut not in output.err
    assert [result.many_modes for result in results] == [{}, {"12": tracks}]
    for name in ("minADE6", "minFDE6", "MR6", "minFDE1"):
        assert results[1].metrics["all"][name] == pytest.approx(results[0].metrics["all"][name], abs=1e-6)


def test_gaps_in_a_file_are_reported(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = tmp_path / "part.parquet"
    at = ["--store", store]
    assert run("predict", "--checkpoint", "lane_following", *at, "--out", part, "--limit", "3") == 0
    printed = output_of(capsys, "evaluate", *at, "--against", part)
    assert "velocity against part.parquet, 3 focal and " in printed
    counted = "agents without a forecast are not counted in any metric (focal: 2, scored: 38,"
    assert f"part.parquet: {counted}" in printed
    assert "part.parquet: faults: 2 times like scenario" in printed
    assert run("evaluate", *at, "--checkpoint", part, "--limit", "2", "--check-with-av2") == 0
    assert "nan" not in capsys.readouterr().out
    assert run("evaluate", *at, "--checkpoint", part, "--check-with-av2") == 1
    assert "part.parquet: 3 of 5 scenarios, K = 6" in capsys.readouterr().out
    assert run("evaluate", *at, "--checkpoint", part, "--split", "train") == 2
    error = error_of(capsys, "stress", *at, "--checkpoint", part, "--observe-s", "1")
    assert "--observe-s: scenarios cannot be changed for predictions files" in error
    without = ["--without", "nearest", "--out", tmp_path / "page.html"]
    error = error_of(capsys, "visualize", *at, "--checkpoint", part, *without)
    assert "--without: needs a model or a baseline" in error, "the page would say that nothing changes"


@pytest.fixture(scope="module")
def predicted(store: Path) -> Path:
    """The focal tracks by lane following."""
    path = store.parent / "predicted.parquet"
    assert run("predict", "--checkpoint", "lane_following", "--store", store, "--out", path) == 0
    return path


@pytest.mark.parametrize(
    ("columns", "change", "reason"),
    [
        (("probability",), lambda probability: 2 * probability, "probabilities that sum to 2, not to 1"),
        (COORDINATES, lambda steps: steps[:25], "25 steps are predicted instead of 60"),
        (("track_id",), lambda name: f"T{name}", r"track T\w+ is not in the scenario"),
        (("scenario_id",), lambda name: name[1:], "is not in this split"),
    ],
    ids=["sum", "steps", "tracks", "scenarios"],
)
def test_a_file_that_is_wrong_throughout_gets_the_reason(
    columns: Sequence[str],
    change: Callable[[Any], object],
    reason: str,
    predicted: Path,
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "wrong.parquet"
    rows = pq.read_table(predicted).to_pydict()
    for name in columns:
        rows[name] = [change(value) for value in rows[name]]
    pq.write_table(pa.table(rows), path)
    error = error_of(capsys, "evaluate", "--checkpoint", path, "--store", store)
    assert error.startswith("error: wrong.parquet forecasts no scored agent of split 'val'"), error
    assert re.search(f"5 times like .*: {reason}", error), error


def test_the_test_split_with_futures_is_scored_by_seconds_of_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A native validation scenario put under ``test``: all numbers are those of the validation split."""
    raw = tmp_path / "raw"
    store = tmp_path / "store"
    for split in ("val", "test"):
        shutil.copytree(SAMPLE / "val" / NATIVE, raw / split / NATIVE)
    assert run("prepare", "--source", "argoverse2", "--raw", raw, "--store", store) == 0
    capsys.readouterr()
    printed = []
    for split in ("val", "test"):
        options = ["--split", split, "--joint", "--group", "focal", "scored", "--history", "1", "3"]
        assert run("stress", "--store", store, "--checkpoint", "argoverse-nano", *options) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert re.findall(r"history of (\d) s: joint futures", printed[1]) == ["1", "3"]
    by_history = printed[1].split("**scored agents, perturbed scenarios**")[1].split("**")[0]
    assert re.findall(r"history of (\d) s \|", by_history) == ["1", "3"]
