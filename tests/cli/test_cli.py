"""The tools as a user runs them, on the shipped sample."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import yaml
from matplotlib.image import imread

from tests.conftest import ROOT, SAMPLE
from trajpred.cli import benchmark as benchmark_tools
from trajpred.cli.main import _spell_out, main
from trajpred.cli.visualize import visualize
from trajpred.model import Forecaster

SMALL = [
    "--model.encoder.init_args.dim=16",
    "--model.encoder.init_args.heads=2",
    "--model.encoder.init_args.layers=1",
    "--model.decoder.init_args.dim=16",
    "--model.decoder.init_args.heads=2",
    "--model.decoder.init_args.propose_layers=1",
    "--trainer.accelerator=cpu",
    "--trainer.enable_progress_bar=false",
]
#: The curves of each group while training, and what an evaluation tells of one.
CURVES = {f"{name}{k}" for name in ("minADE", "minFDE", "MR", "brier-minFDE") for k in (1, 6)}
FOCAL = {"count", "average heading error6", "final heading error6"} | {
    f"{name}{k}"
    for name in ("minADE", "minFDE", "MR", "brier-minFDE", "brier-minADE", "ADE-of-best-FDE")
    for k in (1, 6)
}


def run(tool: str, *args: object) -> int:
    """Exit code of a tool."""
    with pytest.raises(SystemExit) as stop:
        main(tool, [str(arg) for arg in args])
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "store with spaces"
    assert run("prepare", "--source", "argoverse2", "--raw", SAMPLE, "--store", folder, "--workers", 1) == 0
    return folder


@pytest.fixture(scope="module")
def trained(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run of a small model."""
    runs = tmp_path_factory.mktemp("runs")
    args = ["--trainer.max_epochs=2", "--trainer.check_val_every_n_epoch=1", "--data.workers=0"]
    where = [f"--data.store={store}", f"--trainer.logger.init_args.save_dir={runs}"]
    assert run("train", *SMALL, *args, *where) == 0
    return runs / "forecaster" / "version_0"


def test_training_leaves_checkpoints_config_curves_and_pictures(trained: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert {path.name for path in (trained / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    config = yaml.safe_load((trained / "config.yaml").read_text())
    assert config["model"]["encoder"]["init_args"]["dim"] == 16
    assert config["model"]["decoder"]["init_args"]["horizon"] == 60
    events = EventAccumulator(str(trained)).Reload()
    assert {"train/loss", "val/loss", "train/grad_norm", "lr-AdamW/pg1"} <= set(events.Tags()["scalars"])
    for name in CURVES:
        values = [event.value for event in events.Scalars(f"val/focal/{name}")]
        assert len(values) == 2 and np.isfinite(values).all()
    assert events.Tags()["images"] == ["predictions"]


def test_the_table_at_the_end_is_what_evaluate_says(trained: Path, store: Path, tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "deep" / "out.json", trained / "checkpoints" / "best.ckpt"
    assert run("evaluate", "--checkpoint", checkpoint, "--store", store, "--split", "val", "--json", out) == 0
    again = json.loads(out.read_text())
    constant_velocity, model = json.loads((trained / "evaluation.json").read_text())
    assert again["scenarios"] == 5 and again["missing"] == {"focal": 0, "scored": 0, "all": 0}
    assert set(again["metrics"]) == {"focal", "scored", "all"} and set(again["metrics"]["focal"]) == FOCAL
    assert model["metrics"]["focal"] == pytest.approx(again["metrics"]["focal"], abs=1e-4)
    assert constant_velocity["metrics"]["focal"]["minFDE6"] == pytest.approx(11.51, abs=0.01)


def test_results_say_how_the_model_was_trained(trained: Path, store: Path, tmp_path: Path) -> None:
    constant_velocity, model = json.loads((trained / "evaluation.json").read_text())
    facts, reached = model["training"], torch.load(trained / "checkpoints" / "best.ckpt", weights_only=True)
    assert (facts["recipe"], facts["seed"], facts["epochs"], facts["batch_size"]) == ("forecaster", 0, 2, 4)
    assert (facts["epoch"], facts["steps"]) == (reached["epoch"] + 1, reached["global_step"])
    assert facts["store"]["scenarios"]["train"] == 10 and 0 < facts["wall_s"] < 600
    assert facts["environment"]["torch"] == torch.__version__ and constant_velocity["training"] == {}
    best, out = trained / "checkpoints" / "best.ckpt", tmp_path / "out.json"
    assert run("evaluate", "--checkpoint", best, "--store", store, "--json", out) == 0
    assert json.loads(out.read_text())["training"] == facts


def test_results_become_tables(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [trained / "evaluation.json", tmp_path / "turning.json"]
    assert run("evaluate", "--checkpoint", "constant_turn_rate", "--json", files[1]) == 0
    capsys.readouterr()
    assert run("compare", "--results", *files) == 0
    said = capsys.readouterr().out
    rows = re.findall(r"^\| +(\S+) \|.*\]", said, re.MULTILINE)
    assert rows == ["constant_velocity", "forecaster", "constant_turn_rate"]
    assert "- forecaster: seeds 0; trained on 10 scenarios of argoverse2" in said
    assert run("compare", "--results", files[0]) == 0 and run("compare", "--results", ROOT / "LICENSE") == 2


def test_the_last_validation_of_training_is_what_evaluate_says(trained: Path, store: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from trajpred.evaluation import evaluate
    from trajpred.predictors import load_predictor
    from trajpred.store import ScenarioStore

    predictor = load_predictor(trained / "checkpoints" / "last.ckpt")
    result = evaluate(predictor, ScenarioStore(store, "val"), batch_size=2, progress=False)
    events = EventAccumulator(str(trained)).Reload()
    for group, metrics in result.metrics.items():
        for name in CURVES:
            logged = events.Scalars(f"val/{group}/{name}")[-1].value
            assert metrics[name] == pytest.approx(logged, abs=1e-3), (group, name)


def test_a_run_can_be_repeated_from_its_own_config(trained: Path, tmp_path: Path) -> None:
    where = f"--trainer.logger.init_args.save_dir={tmp_path}"
    assert run("train", "--config", trained / "config.yaml", where) == 0
    weights = [
        Forecaster.load(run_folder / "checkpoints" / "last.ckpt").state_dict()
        for run_folder in (trained, tmp_path / "forecaster" / "version_0")
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


class StopAfter(pl.Callback):
    """Ctrl-C after so many epochs."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_train_epoch_start(self, trainer: pl.Trainer, *_: object) -> None:
        if trainer.current_epoch == self.epochs:
            raise KeyboardInterrupt


def test_a_stopped_run_goes_on_to_the_same_weights(trained: Path, tmp_path: Path) -> None:
    args = ["--config", trained / "config.yaml", f"--trainer.logger.init_args.save_dir={tmp_path}"]
    stop = "--trainer.callbacks=tests.cli.test_cli.StopAfter", "--trainer.callbacks.init_args.epochs=1"
    run("train", *args, *stop)
    last = tmp_path / "forecaster" / "version_0" / "checkpoints" / "last.ckpt"
    stopped = torch.load(last, weights_only=True)
    assert stopped["epoch"] == 0 and stopped["trajpred_training"]["epoch"] == 1
    stopped["trajpred_training"]["wall_s"] = 1000.0
    torch.save(stopped, last)
    assert run("train", *args, "--resume", last) == 0
    assert [path.name for path in (tmp_path / "forecaster").iterdir()] == ["version_0"]
    facts = torch.load(last, weights_only=True)["trajpred_training"]
    assert facts["epoch"] == 2 and facts["wall_s"] > 1000, "both runs together"
    weights = [Forecaster.load(path).state_dict() for path in (trained / "checkpoints" / "last.ckpt", last)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


class Poison(pl.Callback):
    """Spoils a weight before the first step of the second epoch."""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.current_epoch == 1:
            next(pl_module.parameters()).data.fill_(float("nan"))


def test_a_run_that_meets_nan_ends_with_one_sentence(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--config", trained / "config.yaml", f"--trainer.logger.init_args.save_dir={tmp_path}"]
    assert run("train", *args, "--trainer.callbacks=tests.cli.test_cli.Poison") == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    [sentence] = [line for line in said.splitlines() if line.startswith("error: ")]
    assert re.search(r"step 3 \(epoch 1\), not finite: weight forecaster\.\S+; scenarios: \w", sentence)
    last = Forecaster.load(tmp_path / "forecaster" / "version_0" / "checkpoints" / "last.ckpt")
    assert all(value.isfinite().all() for value in last.state_dict().values())


@pytest.mark.skipif(sys.platform == "win32", reason="pipes end otherwise")
def test_who_reads_may_have_seen_enough() -> None:
    """``tools/compare.py … | head``: no error, no traceback."""
    results = ROOT / "datasets" / "argoverse1" / "results" / "constant_velocity.json"
    command = [sys.executable, "-u", ROOT / "tools" / "compare.py", "--results", results]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tool:
        tool.stdout.close()
        assert tool.stderr.read() == "" and tool.wait() == 1


def test_averaged_weights_are_the_ones_that_are_validated_saved_and_resumed(
    trained: Path, store: Path, tmp_path: Path
) -> None:
    where = f"--trainer.logger.init_args.save_dir={tmp_path}"
    args = ["--config", trained / "config.yaml", "--config", ROOT / "configs" / "trainer" / "average.yaml"]
    assert run("train", *args, where) == 0
    checkpoints = tmp_path / "forecaster" / "version_0" / "checkpoints"
    content = torch.load(checkpoints / "last.ckpt", weights_only=True)
    plain = Forecaster.load(trained / "checkpoints" / "last.ckpt").state_dict()
    assert all(torch.equal(plain[name], content["current_model_state"][name]) for name in plain)
    assert not all(torch.equal(plain[name], content["state_dict"][name]) for name in plain)
    assert run("train", *args, "--resume", checkpoints / "last.ckpt", "--trainer.max_epochs=3") == 0


def test_resuming_another_model_is_refused(
    trained: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = trained / "checkpoints" / "last.ckpt"
    assert run("train", f"--data.store={store}", "--resume", last) == 2
    assert "other model settings" in capsys.readouterr().err


def test_training_starts_with_the_weights_of_another(
    trained: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = trained / "checkpoints" / "last.ckpt"
    still = ["--trainer.max_epochs=1", "--model.optimizer.learning_rate=1e-12"]
    where = [f"--data.store={store}", f"--trainer.logger.init_args.save_dir={tmp_path}"]
    assert run("train", *SMALL, *still, *where, "--weights", first) == 0
    assert "anew: none" in capsys.readouterr().out
    last = tmp_path / "forecaster" / "version_0" / "checkpoints" / "last.ckpt"
    before, after = (Forecaster.load(path).state_dict() for path in (first, last))
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)
    facts = torch.load(last, weights_only=True)["trajpred_training"]
    assert facts["weights"] == str(first) and facts["epoch"] == 1
    assert run("train", *SMALL, *where, "--weights", "argoverse1-small") == 2
    assert "it was trained with other settings" in capsys.readouterr().err
    config = last.parent.parent / "config.yaml"
    assert run("train", "--config", config, "--resume", last, "--trainer.max_epochs=2") == 0
    facts = torch.load(last, weights_only=True)["trajpred_training"]
    assert facts["weights"] == str(first) and facts["epoch"] == 2, "where it started stays known"


@pytest.mark.slow
def test_training_with_two_processes_ends_with_the_table(store: Path, tmp_path: Path) -> None:
    args = ["--trainer.max_epochs=1", "--trainer.devices=2", "--trainer.strategy=ddp"]
    where = [f"--data.store={store}", f"--trainer.logger.init_args.save_dir={tmp_path}"]
    tool = [sys.executable, ROOT / "tools" / "train.py", *SMALL, *args, *where]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(tool, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("All scored agents") == 1


def test_a_store_that_cannot_be_trained_on_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, store = tmp_path / "raw", tmp_path / "store"
    shutil.copytree(SAMPLE / "train" / "0000b0f9-99f9-4a1f-a231-5be9e4c523f7", raw / "train" / "0000b0f9")
    assert run("prepare", "--raw", raw, "--store", store, "--workers", 1) == 0
    assert "Training also needs: val" in capsys.readouterr().out
    assert run("train", "--data.store", store) == 2
    assert "no split 'val'" in capsys.readouterr().err


def test_prepare_loses_nothing_that_is_in_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, names = tmp_path / "store", sorted(path.name for path in (SAMPLE / "train").iterdir())[:2]
    for split, name in (("train", names[0]), ("val", names[0]), ("train", names[1])):
        shutil.copytree(SAMPLE / "train" / name, tmp_path / f"raw_{split}_{name[:8]}" / split / name)

    def prepare(folder: str, *more: str) -> int:
        return run("prepare", "--raw", tmp_path / folder, "--store", store, "--workers", 1, *more)

    assert prepare(f"raw_train_{names[0][:8]}") == 0 and prepare(f"raw_val_{names[0][:8]}") == 0
    manifest = json.loads((store / "manifest.json").read_text())
    assert set(manifest["splits"]) == {"train", "val"}
    assert prepare(f"raw_train_{names[1][:8]}") == 2
    assert "holds 1 scenarios that the raw data lack" in capsys.readouterr().err
    assert json.loads((store / "manifest.json").read_text()) == manifest
    assert prepare(f"raw_train_{names[1][:8]}", "--overwrite") == 0


def test_baselines_are_evaluated_like_models(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert run("evaluate", "--checkpoint", "constant_turn_rate", "--store", store, "--json", out) == 0
    assert json.loads(out.read_text())["predictor"] == "constant_turn_rate"


@pytest.mark.parametrize(
    "scenario", ["0a1e6f0a-1817-4a98-b02e-db8c9327d151", "0a0af725-fbc3-41de-b969-3be718f694e2"]
)
def test_visualize_draws_a_scenario_of_any_split(
    trained: Path, store: Path, tmp_path: Path, scenario: str
) -> None:
    bare, predicted = tmp_path / "bare", tmp_path / "predicted"
    checkpoint = trained / "checkpoints" / "best.ckpt"
    assert run("visualize", "--store", store, "--scenario", scenario, "--out", bare) == 0
    where = ["--store", store, "--scenario", scenario, "--out", predicted]
    assert run("visualize", *where, "--checkpoint", checkpoint) == 0
    pictures = [imread(folder / f"{scenario}.png") for folder in (bare, predicted)]
    assert pictures[0].shape == pictures[1].shape and min(pictures[0].shape[:2]) > 500
    assert (pictures[0] != pictures[1]).any()


def test_visualize_writes_one_page(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, folder = tmp_path / "deep" / "page.html", tmp_path / "folder"
    given = ["--store", store, "--format", "html", "--limit", 2]
    models = ["--checkpoint", "constant_velocity", "--against", "lane_following"]
    assert run("visualize", *given, *models, "--out", page) == 0
    assert run("visualize", *given, "--out", folder) == 0
    assert capsys.readouterr().out.split() == [str(page), str(folder / "page.html")]
    said = page.read_text()
    assert all(name in said for name in ("constant_velocity", "lane_following", 'id="scene-1"'))
    assert 'id="scene-2"' not in said and "lane_following" not in (folder / "page.html").read_text()
    assert run("visualize", *models) == 2 and "--format html" in capsys.readouterr().err
    assert run("visualize", *given, "--against", "lane_following") == 2
    assert "needs --checkpoint" in capsys.readouterr().err


def test_every_config_is_accepted(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configs = sorted((ROOT / "configs").rglob("*.yaml"))
    assert len(configs) >= 4
    for config in configs:
        assert run("train", "--config", config, f"--data.store={store}", "--print_config") == 0
        assert_within(yaml.safe_load(config.read_text()), yaml.safe_load(capsys.readouterr().out))


def assert_within(part: object, whole: object) -> None:
    """Every value that ``part`` sets stands in ``whole``."""
    if isinstance(part, dict):
        assert isinstance(whole, dict)
        for name, value in part.items():
            assert_within(value, whole[name])
    elif isinstance(part, list):
        assert isinstance(whole, list)
        for one, other in zip(part, whole, strict=True):
            assert_within(one, other)
    else:
        assert part == whole


@pytest.mark.parametrize(
    "tool",
    [
        "prepare",
        "train",
        "evaluate",
        "predict",
        "calibrate",
        "compare",
        "visualize",
        "export",
        "replay",
        "doctor",
        "benchmark",
    ],
)
def test_every_tool_has_help(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tool, "--help") == 0
    assert "usage" in capsys.readouterr().out


def test_tools_start_without_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("evaluate") == 0
    assert "constant_velocity" in capsys.readouterr().out
    for tool in ("download", "synthesize"):
        assert run(tool) == 2
        assert "--out" in capsys.readouterr().err


def test_predictions_are_written_scored_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The way of a user who has a file of predictions."""
    out, steady, ours = (tmp_path / name for name in ("p.parquet", "steady.json", "ours.json"))
    assert run("predict", "--checkpoint", "lane_following", "--out", out) == 0
    assert "5 tracks of 5 scenarios" in capsys.readouterr().out
    assert run("evaluate", "--json", steady, "--by", "class", "city", "--k", "1", "6") == 0
    assert run("evaluate", "--checkpoint", out, "--json", ours, "--markdown", tmp_path / "t" / "t.md") == 0
    said = capsys.readouterr().out
    assert "focal agents by class" in said and "tracks were not predicted" in said
    assert " minFDE6 |" in (tmp_path / "t" / "t.md").read_text()
    assert run("compare", "--results", steady, ours, "--scenes", "2") == 0
    said = capsys.readouterr().out
    assert "p.parquet against constant_velocity, 5 focal agents" in said
    assert "better minFDE6 than constant_velocity" in said
    pictures = [line.split() for line in said.splitlines() if "tools/visualize.py" in line]
    assert pictures and all(len(words) >= 8 and "STORE" in words for words in pictures)
    against = ["--against", "constant_velocity", "--scenes", "1", "--k", "1", "--group", "focal", "all"]
    assert run("evaluate", "--checkpoint", out, *against, "--by", "class", "--json", ours) == 0
    same = capsys.readouterr().out
    assert "K = 1" in same and "K = 6" not in same and "focal | all agents by class" in same
    change = re.compile(r"^\| +minFDE6 \|.*\|$", re.MULTILINE)
    assert change.findall(said)[-1] == change.findall(same)[-1], "as compare says of the two files"
    assert [one["predictor"] for one in json.loads(ours.read_text())] == ["p.parquet", "constant_velocity"]
    part = tmp_path / "part.parquet"
    assert run("predict", "--checkpoint", "lane_following", "--out", part, "--limit", "3") == 0
    assert run("evaluate", "--against", part) == 0
    told = capsys.readouterr().out
    assert (
        "part.parquet, 3 focal agents" in told
        and "part.parquet: " in told
        and "(scored: 38, focal: 2)" in told
    )
    assert run("evaluate", "--group", "some") == 2 and "none of focal, scored, all" in capsys.readouterr().err
    assert run("evaluate", "--checkpoint", out, "--limit", "2", "--strict") == 0
    capsys.readouterr()
    assert run("evaluate", "--checkpoint", out, "--split", "train", "--strict") == 2
    assert "says nothing about any judged track" in capsys.readouterr().err
    assert run("evaluate", "--ensemble", out, "--checkpoint", "lane_following", "--limit", "2") == 0
    assert "lane_following + p.parquet" in capsys.readouterr().out
    assert run("evaluate", "--checkpoint", out, "--perturb", "noise") == 2
    assert "not for predictions files" in capsys.readouterr().err


def test_models_are_calibrated_mirrored_and_disturbed(
    trained: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, out = trained / "checkpoints" / "last.ckpt", tmp_path / "calibrated.ckpt"
    given = ["--store", store, "--out", out, "--group", "all"]
    assert run("calibrate", "--checkpoint", checkpoint, *given) == 0
    assert "regions that promise 90% hold" in capsys.readouterr().out
    given = ["--checkpoint", out, "--store", store, "--limit", "2"]
    assert run("evaluate", *given, "--mirror", "--perturb", "noise", "--beyond") == 0
    said = capsys.readouterr().out
    for part in ("calibrated + calibrated, mirrored", ", noise |", " ECE |", " off-road |"):
        assert part in said, part
    merged = tmp_path / "merged.parquet"
    given = ["--checkpoint", checkpoint, "--store", store, "--mirror", "--limit", "2"]
    assert run("predict", *given, "--out", merged) == 0
    assert run("evaluate", *given, "--json", tmp_path / "direct.json") == 0
    given = ["--checkpoint", merged, "--store", store, "--limit", "2"]
    assert run("evaluate", *given, "--json", tmp_path / "file.json") == 0
    direct, file = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("direct", "file"))
    assert direct["how"] == "mirrored" and direct["training"]["recipe"] == "forecaster"
    for name in ("minADE6", "minFDE6", "brier-minFDE6"):
        assert direct["per_scenario"][name] == pytest.approx(file["per_scenario"][name], abs=1e-3), name


def test_ids_made_of_digits_stay_texts() -> None:
    given = ["--scenario", "22159", "0042", "--out", "x"]
    assert _spell_out(visualize, given) == ["--scenario", '["22159","0042"]', "--out", "x"]
    assert _spell_out(benchmark_tools.memory, ["--scenarios", "1", "20"]) == ["--scenarios", "[1,20]"]


@pytest.mark.parametrize("given", [["--scenarios", "10", "20"], ["--scenarios", "30"]])
def test_subcommands_take_lists(
    given: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("trajpred.benchmark.memory.memory_figures", lambda sizes, _: {"all": sum(sizes)})
    assert run("benchmark", "memory", *given) == 0
    assert capsys.readouterr().out.split() == ["all", "30.00"]


def test_a_bad_scenario_is_reported_skipped_and_fatal_only_when_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "raw"
    for name in ("0000b0f9-99f9-4a1f-a231-5be9e4c523f7", "0a0a2bb7-c4f4-44cd-958a-9ee15cb34aca"):
        shutil.copytree(SAMPLE / "train" / name, raw / "train" / name)
    next((raw / "train").glob("0000*/*.json")).unlink()
    args = ["--raw", raw, "--store", tmp_path / "store", "--workers", 1]
    assert run("prepare", *args) == 0
    said = capsys.readouterr()
    assert "1 scenarios, 1 skipped" in said.out
    assert re.search(r"0000b0f9.*log_map_archive_\*\.json is missing", said.err)
    assert run("prepare", *args, "--strict") == 1


@pytest.mark.parametrize(
    ("tool", "args", "says"),
    [
        ("train", ["--data.store", "nowhere"], "python tools/prepare.py"),
        ("train", ["--resume", str(ROOT / "LICENSE")], "is not a checkpoint"),
        ("evaluate", ["--store", "nowhere"], "python tools/prepare.py"),
        ("evaluate", ["--checkpoint", "nothing.ckpt"], "neither a checkpoint nor one of the baselines"),
        ("evaluate", ["--checkpoint", str(ROOT / "LICENSE")], "is not a checkpoint"),
        ("evaluate", ["--split", "test"], "no scenario with a future"),
        ("evaluate", ["--split", "training"], "no split 'training'"),
        ("visualize", ["--scenario", "unknown"], "no split holds scenario 'unknown'"),
        ("visualize", ["--scenario", "0012"], "no split holds scenario '0012'"),
        ("visualize", ["--scenario", "[ab, cd]"], "no split holds scenario 'ab'"),
        ("prepare", ["--source", "nuscenes"], "unknown source 'nuscenes'"),
        ("prepare", ["--raw", "nowhere"], "give --store too"),
        ("prepare", ["--raw", "nowhere", "--store", "nowhere"], "no such folder"),
        ("train", ["--model.decoder.init_args.horizon", "30"], "is 30, the data have 60"),
        ("train", ["--model.encoder.init_args.dim", "64"], "encoder has dim 64, decoder 128"),
        ("train", ["--data.batch_size", "0"], "must be positive"),
        ("train", ["--data.workers", "-1"], "must not be negative"),
        ("train", ["--data.augment.drop_lanes", "1.5"], "must be 0 to 1"),
        ("train", ["--model.scene.features.max_agents", "0"], "must be positive"),
        ("benchmark", ["data", "--repeats", "0"], "must be positive"),
        ("synthesize", ["--out", "nowhere", "--workers", "0"], "-1 for all cores"),
        ("synthesize", ["--out", "nowhere", "--steps", "1"], "must be 2 at least"),
        ("evaluate", ["--batch_size", "0"], "must be positive"),
        ("evaluate", ["--by", "colour"], "is none of class, city"),
        ("evaluate", ["--perturb", "fog"], "is none of no-map"),
        ("evaluate", ["--mirror"], "is for models"),
        ("evaluate", ["--checkpoint", "nothing.parquet"], "nothing.parquet"),
        ("predict", ["--agents", "scored"], "they need joint futures"),
        ("predict", ["--out", "predictions.csv"], "must end in .parquet"),
        ("visualize", ["--out", str(ROOT / "LICENSE")], "File exists"),
        ("visualize", ["--format", "html", "--radius_m", "20"], "is for pictures"),
    ],
)
def test_bad_arguments_get_one_sentence(
    tool: str, args: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tool, *args) == 2
    said = capsys.readouterr().err
    assert says in said and "Traceback" not in said


def test_the_examples_in_the_readme_run(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained, tmp_path / "runs" / "forecaster" / "version_0")
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    examples = [one for one in examples if "OnboardForecaster" not in one]  # tests/export/test_readme.py
    said: dict[str, Any] = {}
    exec("\n".join(examples), said)
    assert said["forecast"].trajectory.shape == (2, 6, 60, 2)
    assert said["tokens"].agent.shape == (2, 16) and said["tokens"].lane.shape == (1, 16)


def test_importing_trajpred_and_its_file_readers_does_not_import_torch() -> None:
    code = (
        "import sys, trajpred, trajpred.sources, trajpred.store, trajpred.graph.features, trajpred.cli.main\n"
    )
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
