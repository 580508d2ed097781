"""Rows of the leaderboard: the steps that a budget allows, what is resumed, what a row says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import ROOT, rejects
from tools import benchmark_row
from tools.benchmark_row import PROBES, REFERENCE_MS, Pace, core_seconds, reference_ms, score, table, train
from trajpred.errors import DataError
from trajpred.evaluation import evaluate, read_results
from trajpred.evaluation.table import compare
from trajpred.model.checkpoint import TRAINING, read_checkpoint
from trajpred.predictors import load_predictor
from trajpred.predictors.predict import predict
from trajpred.store import ScenarioStore

START_S = 31.1
STEP_S = 0.25


def made_up_seconds(words: Sequence[str], plugin: Path | None) -> float:
    return START_S + STEP_S * int(words[words.index("--trainer.max_steps") + 1])


def test_the_steps_fill_the_budget_of_the_reference_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark_row, "core_seconds", made_up_seconds)
    monkeypatch.setattr(benchmark_row, "reference_ms", lambda: 10.0)
    pace = Pace.measure([], None)
    steps = pace.affordable(600.0)
    budget_s = 600.0 * 10 / REFERENCE_MS
    assert START_S + STEP_S * steps <= budget_s < START_S + STEP_S * (steps + 1)
    assert pace.seconds(steps) <= 600 < pace.seconds(steps + 1)
    rejects("minutes': are too few to start", pace.affordable, 20.0)


def test_seeds_share_their_steps_and_finished_ones_are_skipped(
    monkeypatch: pytest.MonkeyPatch, store_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[list[str]] = []

    def core_seconds(words: Sequence[str], plugin: Path | None) -> float:
        trained.append(list(words))
        seconds = made_up_seconds(words, plugin)
        if "--seed_everything" not in words:
            return seconds
        run = tmp_path / "runs" / "row" / words[words.index("--trainer.logger.init_args.version") + 1]
        (run / "checkpoints").mkdir(parents=True, exist_ok=True)
        content = read_checkpoint("argoverse-nano")
        content[TRAINING]["steps"] = int(words[words.index("--trainer.max_steps") + 1])
        torch.save(content, run / "checkpoints" / "last.ckpt")
        return load * seconds

    monkeypatch.setattr(benchmark_row, "core_seconds", core_seconds)
    monkeypatch.setattr(benchmark_row, "reference_ms", lambda: 10.0)
    options: dict[str, Any] = {"store": store_path, "out": tmp_path, "half": "deciding"}
    load = 1.0
    train("row", "--config", "a.yaml", seeds=[0], **options)
    assert [words[-1] for words in trained[:-1]] == [str(steps) for steps in PROBES]
    load = 2.0  # other work slows this training down
    train("row", "--config", "a.yaml", seeds=[0, 1], **options)
    own = [words for words in trained if "--seed_everything" in words]
    assert [words[words.index("--seed_everything") + 1] for words in own] == ["0", "1"]
    for seed in (0, 1):
        [result] = read_results(tmp_path / f"row_{seed}.json")
        facts = result.training["benchmark"]
        assert facts["settings"] == ["--config", "a.yaml"]
        core_s = (1 + seed) * made_up_seconds(own[seed], None)
        assert facts["core_s"] == pytest.approx(core_s, abs=0.1)
        assert facts["scaled_s"] == pytest.approx(600, rel=1e-2)
        assert facts.get("timed_again", False) == (seed == 1)
        assert facts["parameters"] > 200_000
        assert result.half == "deciding"
    another = r"was trained for 10 minutes with --config a\.yaml; give another NAME"
    rejects(another, train, "row", "--config", "b.yaml", **options)
    rejects(another, train, "row", "--config", "a.yaml", minutes=60.0, **options)


def test_a_stopped_training_is_resumed_with_the_same_steps(
    monkeypatch: pytest.MonkeyPatch, store_path: Path, tmp_path: Path
) -> None:
    words = ["--config", str(ROOT / "configs" / "model" / "nano.yaml")]
    options: dict[str, Any] = {"seeds": [0], "store": store_path, "out": tmp_path, "half": "deciding"}
    started: list[list[str]] = []
    last = tmp_path / "runs" / "row" / "seed_0" / "checkpoints" / "last.ckpt"

    def stops(words: Sequence[str], plugin: Path | None) -> float:
        if "--seed_everything" not in words:
            return made_up_seconds(words, plugin)
        started.append(list(words))
        last.parent.mkdir(parents=True, exist_ok=True)
        content = read_checkpoint("argoverse-nano")
        content[TRAINING]["steps"] = int(words[words.index("--trainer.max_steps") + 1])
        torch.save(content, last)
        if len(started) < 4:
            raise DataError("stopped")
        return 100.0  # of the resumed part

    monkeypatch.setattr(benchmark_row, "core_seconds", stops)
    monkeypatch.setattr(benchmark_row, "reference_ms", lambda: REFERENCE_MS)
    rejects("stopped", train, "row", *words, **options)
    monkeypatch.setattr(benchmark_row, "reference_ms", lambda: 0.9 * REFERENCE_MS)
    rejects("stopped", train, "row", *words, **options)
    rejects("stopped", train, "row", *words, "--bf16", "true", **options)  # begins anew
    train("row", *words, "--bf16", "true", **options)
    steps = [int(call[call.index("--trainer.max_steps") + 1]) for call in started]
    resumes = [call[-1] if "--resume" in call else None for call in started]
    run = str(last.parent.parent)
    assert resumes == [None, run, None, run]
    assert steps[0] == steps[1] > steps[2] == steps[3]
    [result] = read_results(tmp_path / "row_0.json")
    facts = result.training["benchmark"]
    assert facts["scaled_s"] == pytest.approx(600, rel=1e-2)
    assert facts["timed_again"]
    assert result.training["steps"] == steps[3]


def test_a_table_ranks_rows_and_compares_each_with_the_one_above(
    store_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"steady": "constant_velocity", "lanes": "lane_following"}
    for name, checkpoint in names.items():
        score(name, checkpoint=checkpoint, store=store_path, out=tmp_path)
    capsys.readouterr()
    table(tmp_path / "steady.json", tmp_path / "lanes.json")
    *_, first, second = capsys.readouterr().out.splitlines()
    rows = [re.split(r" *\| *", line)[1:-1] for line in (first, second)]
    assert [row[0] for row in rows] == ["lanes", "steady"]
    steady = read_results(tmp_path / "steady.json")
    lanes = read_results(tmp_path / "lanes.json")
    difference = compare(steady, lanes, group="moving")
    assert rows[1][3].startswith(f"{difference.mean:+.2f}")
    assert rows[0][3] == ""
    assert "nan" not in first + second
    assert f"{lanes[0].metrics['focal']['minFDE6']:.2f}" in rows[0]
    assert lanes[0].missing["all"] == lanes[0].completed["all"] == 0


def test_a_row_says_what_its_file_lacks(
    store_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ScenarioStore(store_path, "val")
    path = tmp_path / "some.parquet"
    predict(load_predictor("lane_following"), rows, path, progress=False)  # the focal tracks alone
    steady = load_predictor("constant_velocity")
    score("some", checkpoint=str(path), store=store_path, half="reporting", out=tmp_path)
    table(tmp_path / "some.json")
    [row] = read_results(tmp_path / "some.json")
    whole = evaluate(steady, rows.halved("reporting"), progress=False)
    for group in ("focal", "scored", "all"):
        assert row.completed[group] == whole.metrics[group]["count"] - whole.metrics["focal"]["count"]
        assert row.metrics[group]["count"] == whole.metrics[group]["count"]
    counted = f"focal: 0, scored: {row.completed['scored']}"
    printed = capsys.readouterr().out
    assert f"some: agents without a forecast are scored at constant velocity ({counted}" in printed


@pytest.mark.slow
def test_the_time_of_a_training_is_that_of_its_processes(store_path: Path, tmp_path: Path) -> None:
    words = ["--config", str(ROOT / "configs" / "model" / "nano.yaml"), *benchmark_row.BUDGETED]
    words += ["--data.store", str(store_path), "--trainer.max_steps", "2", "--data.workers", "1"]
    words += ["--trainer.logger.init_args.save_dir", str(tmp_path)]
    assert 2 < core_seconds(words, None) < 100
    rejects("ended with", core_seconds, [*words, "--model.speed", "3"], None)
    assert 1 < reference_ms() < 1000
    assert torch.get_num_threads() >= 1
