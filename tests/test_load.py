"""Long runs need no more memory and open files than short ones, as Linux reports in ``/proc``."""

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
from tests.footprint import peak_memory, private_mb
from tests.graph.scenes import with_tracks
from tests.model.small import small_model
from tests.training.command import tiny
from tools.synthesize import make_scenario
from trajpred.benchmark.timing import own_process
from trajpred.evaluation import evaluate
from trajpred.lane_map import LaneMap
from trajpred.predictors import load_predictor
from trajpred.predictors.predict import predict
from trajpred.scenario import Scenario
from trajpred.sources import Source
from trajpred.store import ScenarioStore, prepare

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="no /proc")]
#: Scenarios of each split.
SPLITS = {"train": 512, "val": 32, "test": 20_000}
FEW, MANY = 5_000, SPLITS["test"]
AGENTS, LANES = 4, 8
#: Steps of the long training at which memory is compared; the first validation, with its pictures, files and
#: workers, is at step 1,024.
EARLY, LATE = 1_500, 10_000


@cache
def scenarios() -> list[Scenario]:
    """Return 16 synthetic scenarios with few agents and lanes."""
    return [reduced(make_scenario(0, i)) for i in range(16)]


def reduced(scenario: Scenario) -> Scenario:
    """Keep the focal agent, some visible ones, and some lanes."""
    visible = scenario.tracks.valid[:, scenario.num_observed - 1]
    others = np.flatnonzero(visible & (scenario.tracks.track_id != scenario.focal_id))
    rows = np.array([scenario.focal, *others[: AGENTS - 1]])
    return replace(
        with_tracks(scenario, rows),
        map=LaneMap.from_centerlines([line[:, :2] for line in scenario.map.centerline][:LANES]),
    )


def read(path: Path) -> Scenario:
    scenario = scenarios()[int(path.name) % 16]
    return replace(scenario, scenario_id=f"{path.parent.name}-{path.name}")


#: A source that repeats these scenarios, each under a name of its own.
SOURCE = Source(
    lambda raw: {split: [raw / split / f"{i:05d}" for i in range(count)] for split, count in SPLITS.items()},
    read,
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    raw, path = tmp_path_factory.mktemp("raw"), tmp_path_factory.mktemp("store")
    summary = prepare(f"{__name__}:SOURCE", raw, path, workers=1, progress=False)
    assert summary.scenarios == SPLITS and not any(summary.skipped.values())
    return path


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model, saved as Lightning does."""
    model, path = small_model(), tmp_path_factory.mktemp("model") / "tiny.ckpt"
    content = {"state_dict": model.state_dict()}
    model.on_save_checkpoint(content)
    torch.save(content, path)
    return path


def measure(command: str, predictor: str, store: str, out: str, limit: str) -> list[float]:
    """Return the peak memory in MB of a command on the first scenarios; runs in a process of its own."""
    torch.set_num_threads(1)
    loaded = load_predictor(predictor)
    with peak_memory() as peak:
        if command == "predict":
            predict(loaded, ScenarioStore(store, "test"), Path(out), limit=int(limit), progress=False)
        else:
            evaluate(loaded, ScenarioStore(store, "test"), limit=int(limit), progress=False)
    return peak


@pytest.mark.parametrize("model", ["constant_velocity", "checkpoint"])
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_memory_does_not_grow_with_the_number_of_scenarios(
    store: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, model: str
) -> None:
    """Except for the values of each focal agent, which an evaluation keeps: 1 kB per scenario."""
    monkeypatch.chdir(ROOT)
    script = f"import sys; from {__name__} import measure; print(measure(*sys.argv[1:]))"
    predictor, out = checkpoint if model == "checkpoint" else model, tmp_path / "predictions.parquet"
    few, many = (own_process(script, command, predictor, store, out, count)[0] for count in (FEW, MANY))
    print(f"{command} with {model}: {few:.0f} MB for {FEW} scenarios, {many:.0f} for {MANY}")
    allowed = {"predict": 10.0, "evaluate": 1e-3 * (MANY - FEW)}
    assert many - few < allowed[command], f"{few:.0f} MB, then {many:.0f}"
    modes = 1 if model == "constant_velocity" else 6
    assert command == "evaluate" or pq.ParquetFile(out).metadata.num_rows == modes * MANY


class Footprint(pl.Callback):
    """Record every 500 steps the memory in MB of the training and of its workers, and its open files."""

    def __init__(self, out: str) -> None:
        self.out = Path(out)
        self.records: dict[int, list[float]] = {}

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step % 500:
            return
        gc.collect()
        threads = Path("/proc/self/task").glob("*/children")
        workers = [child for thread in threads for child in thread.read_text().split()]
        files = len([*Path("/proc/self/fd").iterdir()])
        self.records[trainer.global_step] = [private_mb(), sum(map(private_mb, workers)), files]
        self.out.write_text(json.dumps(self.records))


@pytest.mark.parametrize("workers", [0, 1])
def test_memory_does_not_grow_with_the_number_of_steps(store: Path, tmp_path: Path, workers: int) -> None:
    """In a training with curves, pictures, validation and checkpoints."""
    footprint = [f"--trainer.callbacks={__name__}.Footprint"]
    footprint += [f"--trainer.callbacks.init_args.out={tmp_path / 'footprint.json'}"]
    data = ["--data.batch_size=2", f"--data.workers={workers}", "--trainer.enable_progress_bar=false"]
    trainer = {
        "max_steps": LATE,
        "max_epochs": -1,
        "enable_progress_bar": "false",
        "check_val_every_n_epoch": 4,
    }
    args = tiny(store, tmp_path, *footprint, *data, **trainer)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, ROOT / "tools" / "train.py", *args], env=environment, check=True)
    records = json.loads((tmp_path / "footprint.json").read_text())
    early, late = (np.array(records[str(step)]) for step in (EARLY, LATE))
    print(f"{workers} workers: {early} after {EARLY} steps, {late} after {LATE}")
    # Without workers it varies between 421 and 435 MB after the first 1,500 steps.
    assert ((late - early)[:2] < 20.0).all() and late[2] == early[2], records
