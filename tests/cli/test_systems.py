"""Every system of ``configs/model``: it trains, and its checkpoint is evaluated, exported and scored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import SAMPLE, run
from tests.model.systems import each_config, small_settings
from trajpred.data.batch import ScenarioBatch
from trajpred.onboard import OnboardEncoder
from trajpred.store import ScenarioStore

#: A run of one step.
ONE_STEP = (
    "--trainer.max_steps=1 --trainer.accelerator=cpu --trainer.limit_val_batches=1 --data.batch_size=2 "
    "--trainer.enable_progress_bar=false --data.workers=0 --pictures.scenes=0"
)


@pytest.fixture(scope="module")
def small_store(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the two smallest scenes of each split."""
    folder = tmp_path_factory.mktemp("small")
    for split in ("train", "val"):
        scenes = ScenarioStore(store, split)
        for row in scenes.sizes[0].argsort()[:2]:
            name = scenes.scenario_ids[row]
            shutil.copytree(SAMPLE / split / name, folder / "raw" / split / name)
    assert run("prepare", "--raw", folder / "raw", "--store", folder / "store", "--workers", 1) == 0
    return folder / "store"


def trained(path: Path, store: Path, folder: Path) -> Path:
    """Train the system of a config file, with small sizes, for a step; return the folder of the run."""
    settings = folder / "settings.yaml"
    settings.write_text(yaml.safe_dump({"model": small_settings(path, layers=1)}))
    runs = f"--trainer.logger.init_args.save_dir={folder}"
    assert run("train", "--config", settings, f"--data.store={store}", runs, *ONE_STEP.split()) == 0
    return folder / "forecaster" / "version_0"


def evaluated(checkpoint: Path, store: Path) -> dict[str, Any]:
    """Evaluate a checkpoint or bundle with the command; return its results."""
    out = checkpoint.parent / "results.json"
    assert run("evaluate", "--checkpoint", checkpoint, "--store", store, "--workers", 1, "--out", out) == 0
    results: dict[str, Any] = json.loads(out.read_text())
    return results


@each_config
def test_every_config_trains_a_step_and_its_checkpoint_is_evaluated(
    path: Path, small_store: Path, tmp_path: Path
) -> None:
    folder = trained(path, small_store, tmp_path)
    results = evaluated(folder / "checkpoints" / "last.ckpt", small_store)
    assert results["training"]["steps"] == 1
    reported, *_ = json.loads((folder / "evaluation.json").read_text())
    assert results["metrics"]["all"] == pytest.approx(reported["metrics"]["all"], abs=1e-4)


@pytest.mark.slow
@each_config
def test_every_config_is_exported_scored_and_replayed(path: Path, store: Path, tmp_path: Path) -> None:
    checkpoint = trained(path, store, tmp_path) / "checkpoints" / "last.ckpt"
    bundle = tmp_path / "bundle"
    export = ["export", "--checkpoint", checkpoint, "--store", store, "--limit", 2, "--out"]
    assert run(*export, bundle) == 0
    of_checkpoint = evaluated(checkpoint, store)["metrics"]["all"]
    assert evaluated(bundle, store)["metrics"]["all"] == pytest.approx(of_checkpoint, abs=1e-3)
    assert run("replay", "--bundle", bundle, "--store", store) == 0
    fixed = ["--max-agents", 64, "--max-lanes", 256, "--part", "encoder"]
    assert run(*export, tmp_path / "encoder", *fixed) == 0
    scene = ScenarioBatch.of([ScenarioStore(store, "val")[0]])
    assert OnboardEncoder(tmp_path / "encoder").encode(scene).agent.shape == (64, 16)
