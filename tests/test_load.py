"""Long runs: memory and open files are those of a short one. Linux alone tells them, through ``/proc``."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import pytorch_lightning as pl
import torch

from tests.conftest import ROOT
from tests.footprint import highest, own_mb
from tests.graph.scenes import with_tracks
from tests.model.small import small_model
from trajpred.benchmark.timing import own_process
from trajpred.evaluation import evaluate
from trajpred.lane_map import LaneMap
from trajpred.predictors import load_predictor
from trajpred.predictors.predict import predict
from trajpred.scenario import Scenario
from trajpred.sources import Source
from trajpred.sources.synthetic import make_scenario
from trajpred.store import ScenarioStore, prepare

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="no /proc")]
#: Scenarios of each split.
SPLITS = {"train": 512, "val": 32, "test": 20_000}
FEW, MANY = 5_000, SPLITS["test"]
AGENTS, LANES = 4, 8
#: Steps of the long training at which its footprint is compared: the first validation, with its pictures,
#: files and workers, comes after 1,024.
EARLY, LATE = 1_500, 10_000


@cache
def block() -> list[Scenario]:
    """Synthetic traffic: of each scenario the focal agent, who else is seen now, and a few lanes."""
    return [_thinned(scenario) for scenario in (make_scenario(0, i) for i in range(16))]


def _thinned(scenario: Scenario) -> Scenario:
    seen = scenario.tracks.valid[:, scenario.num_observed - 1]
    others = np.flatnonzero(seen & (scenario.tracks.track_id != scenario.focal_id))
    rows = np.array([scenario.focal, *others[: AGENTS - 1]])
    return replace(
        with_tracks(scenario, rows),
        map=LaneMap.from_centerlines([line[:, :2] for line in scenario.map.centerline][:LANES]),
    )


def _read(path: Path) -> Scenario:
    scenarios = block()
    return replace(scenarios[int(path.name) % len(scenarios)], scenario_id=f"{path.parent.name}-{path.name}")


#: What ``prepare`` makes the store from: the scenarios of one block again and again, each by its own name.
SOURCE = Source(
    lambda raw: {split: [raw / split / f"{i:05d}" for i in range(count)] for split, count in SPLITS.items()},
    _read,
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    raw, path = tmp_path_factory.mktemp("raw"), tmp_path_factory.mktemp("store")
    summary = prepare(f"{__name__}:SOURCE", raw, path, workers=1, progress=False)
    assert summary.scenarios == SPLITS and not any(summary.skipped.values())
    return path


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, as Lightning would save it."""
    model, path = small_model(), tmp_path_factory.mktemp("model") / "tiny.ckpt"
    content = {"state_dict": model.state_dict()}
    model.on_save_checkpoint(content)
    torch.save(content, path)
    return path


def work(what: str, predictor: str, store: str, out: str, limit: str) -> list[float]:
    """In a process of its own: the most memory in MB that the first scenarios of the split need."""
    torch.set_num_threads(1)
    one = load_predictor(predictor)
    with highest() as most:
        if what == "predict":
            predict(one, Path(out), Path(store), "test", limit=int(limit), progress=False)
        else:
            evaluate(one, ScenarioStore(store, "test"), limit=int(limit), progress=False)
    return most


@pytest.mark.parametrize("model", ["constant_velocity", "checkpoint"])
@pytest.mark.parametrize("what", ["predict", "evaluate"])
def test_memory_of_four_times_as_many_scenarios(
    store: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, model: str
) -> None:
    """Predictions are written as they come. An evaluation keeps the values of each focal agent."""
    monkeypatch.chdir(ROOT)
    script = f"import sys; from {__name__} import work; print(work(*sys.argv[1:]))"
    predictor, out = checkpoint if model == "checkpoint" else model, tmp_path / "predictions.parquet"
    few, many = (own_process(script, what, predictor, store, out, count)[0] for count in (FEW, MANY))
    print(f"{what} with {model}: {few:.0f} MB for {FEW} scenarios, {many:.0f} for {MANY}")
    grown = {"predict": 10.0, "evaluate": 1e-3 * (MANY - FEW)}
    assert many - few < grown[what], f"{few:.0f} MB, then {many:.0f}"
    modes = 1 if model == "constant_velocity" else 6
    assert what == "evaluate" or pq.ParquetFile(out).metadata.num_rows == modes * MANY


class Footprint(pl.Callback):
    """Writes every 500 steps what the training holds: MB of its own and of its workers, open files."""

    def __init__(self, out: str) -> None:
        self.out = Path(out)
        self.found: dict[int, list[float]] = {}

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step % 500:
            return
        gc.collect()
        threads = Path("/proc/self/task").glob("*/children")
        workers = [child for thread in threads for child in thread.read_text().split()]
        files = len([*Path("/proc/self/fd").iterdir()])
        self.found[trainer.global_step] = [own_mb(), sum(map(own_mb, workers)), files]
        self.out.write_text(json.dumps(self.found))


@pytest.mark.parametrize("workers", [0, 1])
def test_ten_thousand_steps_leave_nothing_behind(store: Path, tmp_path: Path, workers: int) -> None:
    """Training as a user starts it, with curves, pictures, validation and checkpoints."""
    parts = ("encoder", "decoder")
    model = ["encoder.init_args.layers=1", "decoder.init_args.propose_layers=1"]
    model += [f"{part}.init_args.{x}" for part in parts for x in ("dim=16", "heads=2")]
    trainer = ["accelerator=cpu", f"max_steps={LATE}", "max_epochs=-1", "enable_progress_bar=false"]
    trainer += ["check_val_every_n_epoch=4", f"logger.init_args.save_dir={tmp_path}"]
    trainer += [f"callbacks={__name__}.Footprint", f"callbacks.init_args.out={tmp_path / 'found.json'}"]
    given = [*(f"--model.{x}" for x in model), *(f"--trainer.{x}" for x in trainer)]
    given += [f"--data.store={store}", "--data.batch_size=2", f"--data.workers={workers}"]
    here = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, ROOT / "tools" / "train.py", *given], env=here, check=True)
    found = json.loads((tmp_path / "found.json").read_text())
    print(f"{workers} workers: {found[str(EARLY)]} after {EARLY} steps, {found[str(LATE)]} after {LATE}")
    early, late = np.array(found[str(EARLY)]), np.array(found[str(LATE)])
    # Measured without workers: 421 to 435 MB from 1,500 steps to the last, up and down.
    assert ((late - early)[:2] < 20.0).all() and late[2] == early[2], found
