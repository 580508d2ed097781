"""``trajpred info`` recognises what it is given."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.conftest import SAMPLE, error_of, output_of, rejects, run
from tests.integrations.map_files import town
from trajpred.cli.info import describe
from trajpred.model.checkpoint import CONFIG, read_checkpoint
from trajpred.store import ScenarioStore


def test_stores_and_scenarios(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    title, rows = describe(str(store))
    assert title == f"Store {store}"
    assert rows["source"] == "argoverse2"
    assert rows["train"].startswith("10 scenarios, 50 + 60 steps, ")
    assert rows["train"].endswith(" MB")
    scenario = ScenarioStore(store, "val")[0]
    title, rows = describe(scenario.scenario_id[:8], store)
    assert title == f"Scenario {scenario.scenario_id}"
    assert rows["split"] == "val"
    assert rows["time"] == "50 + 60 steps of 0.1 s"
    assert rows["focal"].endswith(scenario.focal_id)
    raw = SAMPLE / "val" / scenario.scenario_id
    of_file = describe(str(raw))[1]
    assert of_file["source"] == "argoverse2"
    assert of_file.keys() - {"source"} == rows.keys() - {"split", "store"}
    for name in ("city", "time", "scored", "focal"):
        assert of_file[name] == rows[name]
    assert describe(str(SAMPLE))[1]["val"] == "5 scenarios"
    assert scenario.scenario_id in output_of(capsys, "info", scenario.scenario_id[:8], "--store", store)


def test_a_store_without_training_scenarios_has_none_that_were_continued(tmp_path: Path) -> None:
    raw, store = tmp_path / "raw", tmp_path / "store"
    scenario = next((SAMPLE / "val").iterdir())
    shutil.copytree(scenario, raw / "val" / scenario.name)
    teacher = ["--continue-s", "1", "--teacher", "argoverse-nano"]
    assert run("prepare", "--raw", raw, "--store", store, "--workers", "1", *teacher) == 0
    assert describe(str(store))[1].keys() == {"source", "val"}


def test_checkpoints_results_and_predictions(trained: Path, store: Path, tmp_path: Path) -> None:
    shipped = describe("argoverse-nano")[1]
    assert shipped["steps"] == "20 + 60 of 0.1 s"
    assert shipped["model"].endswith("M parameters")
    assert "7,377 scenarios of argoverse1" in shipped["training"]
    assert shipped["recipe"] == "argoverse-nano"
    of_run = describe(str(trained))[1]
    assert of_run == describe(str(trained / "checkpoints" / "best.ckpt"))[1]
    assert "for 2 epochs, " in of_run["training"]
    assert "best.ckpt" in of_run["file"]
    results = describe(str(trained / "evaluation.json"))[1]
    assert "constant_velocity" in results
    assert "5 scenarios of val, focal agents: minADE1 3.89" in str(results)
    options = ["--checkpoint", "constant_velocity", "--store", store, "--out", tmp_path / "twice.json"]
    assert run("stress", *options, "--observe-s", "3", "4") == 0
    assert len(describe(str(tmp_path / "twice.json"))[1]) == 2
    out = tmp_path / "p.parquet"
    assert run("predict", "--checkpoint", "constant_velocity", "--store", store, "--out", out) == 0
    predictions = describe(str(out))[1]
    assert predictions["scenarios"].startswith("5, ")
    assert predictions["steps"] == "60"


def test_a_model_of_ones_own_classes_is_described_without_them(tmp_path: Path) -> None:
    content = read_checkpoint("argoverse-nano")
    content[CONFIG]["decoder"]["class_path"] = "elsewhere.OwnDecoder"
    torch.save(content, tmp_path / "own.ckpt")
    rows = describe(str(tmp_path / "own.ckpt"))[1]
    shipped = describe("argoverse-nano")[1]
    assert rows["model"] == "SceneEncoder with OwnDecoder, 0.2 M parameters"
    assert rows["futures"] == shipped["futures"]
    assert rows["steps"] == shipped["steps"]


def test_folders_like_those_of_a_data_set_are_none(tmp_path: Path) -> None:
    """A Sensor log has the same split folders as Argoverse 2's scenarios."""
    log = tmp_path / "train" / "0a1b2c3d"
    log.mkdir(parents=True)
    (log / "annotations.feather").write_bytes(b"")
    rejects("is not a store, ", describe, str(tmp_path), None)
    assert describe(str(SAMPLE), None)[1]["source"] == "argoverse2"


def test_a_map_is_described_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "town.xodr"
    out = tmp_path / "town.png"
    path.write_bytes(town())
    title, rows = describe(str(path))
    assert title == f"Map {path}"
    assert rows["format"] == "OpenDRIVE"
    assert rows["crossings"] == 1
    assert rows["lanes"].startswith("11 segments (8 VEHICLE, 3 BIKE), 0.1")
    assert rows["faults"] == "none"
    apart = town().replace(b'x="49.58851"', b'x="59.58851"', 1)
    path.write_bytes(apart)
    assert describe(str(path))[1]["faults"] == "1 successors begin more than 0.1 m away, up to 10.0 m"
    assert run("visualize", "--raw", path, "--out", out) == 0
    assert Image.open(out).size == (1080, 1207)
    assert str(out) in capsys.readouterr().out
    for command in ("visualize", "explore"):
        error = error_of(capsys, command, "--raw", path, "--half", "deciding")
        assert "--half: selects from a split of a store" in error
    options = ["--checkpoint", "constant_velocity", "--out", out]
    assert "is drawn alone" in error_of(capsys, "visualize", "--raw", path, *options)
