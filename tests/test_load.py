"""Many scenarios need no more memory than few, as Linux reports in ``/proc``."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from tests.conftest import ROOT
from tests.model.small import saved
from tests.scenes import with_tracks
from tests.sources.argoverse2_files import sample_scene
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.evaluation import evaluate
from trajpred.predictors import load_predictor
from trajpred.predictors.predict import predict
from trajpred.sources import RawScenario, Source
from trajpred.store import ScenarioStore, prepare

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="no /proc")]
FEW, MANY = 5_000, 20_000
AGENTS, LANES = 4, 8


@cache
def scenarios() -> list[Scenario]:
    """Return the scenes of the sample with few agents and lanes."""
    return [reduced(sample_scene(i)) for i in range(10)]


def reduced(scenario: Scenario) -> Scenario:
    """Keep the focal agent, some visible ones, and some lanes."""
    visible = scenario.tracks.valid[:, scenario.num_observed - 1]
    others = np.flatnonzero(visible & (scenario.tracks.track_id != scenario.focal_id))
    rows = np.array([scenario.focal, *others[: AGENTS - 1]])
    return replace(
        with_tracks(scenario, rows),
        map=LaneMap.from_centerlines([line[:, :2] for line in scenario.map.centerline][:LANES]),
    )


def read(raw: RawScenario) -> Scenario:
    scenario = scenarios()[int(raw.name) % 10]
    return replace(scenario, scenario_id=raw.name)


def discover(raw: Path) -> dict[str, list[RawScenario]]:
    names = [f"{i:05d}" for i in range(MANY)]
    return {"test": [RawScenario(name, raw / name) for name in names]}


#: A source that repeats these scenarios, each under a name of its own.
SOURCE = Source(discover, read)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    raw, path = tmp_path_factory.mktemp("raw"), tmp_path_factory.mktemp("store")
    summary = prepare(f"{__name__}:SOURCE", raw, path, workers=1, progress=False)
    assert summary.scenarios == {"test": MANY}
    assert not any(summary.skipped.values())
    return path


def private_mb() -> float:
    """Return the private memory of this process in MB, without the store's pages in the system's cache."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Yield a list with the maximum of :func:`private_mb` so far, sampled every 20 ms."""
    peak, done = [private_mb()], threading.Event()

    def sample() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], private_mb())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield peak
    finally:
        done.set()
        sampler.join()


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


def measured_alone(*arguments: object) -> float:
    """Return what :func:`measure` measures in a new process."""
    script = f"import sys; from {__name__} import measure; print(*measure(*sys.argv[1:]))"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("model", ["constant_velocity", "checkpoint"])
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_memory_does_not_grow_with_the_number_of_scenarios(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, model: str
) -> None:
    """Except for the row of each agent, which an evaluation keeps: 0.9 kB.

    Its columns are 0.3 kB: 38 metrics of 4 bytes, six facts, two ids and a fourth of two rows of the scene's
    joint futures. Joining and summarising them takes as much again; the rest is what allocators hold back.
    """
    monkeypatch.chdir(ROOT)
    if command == "evaluate":
        # Arrow's own allocator holds back freed memory; how much depends on its release.
        monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "system")
    predictor = saved(tmp_path) if model == "checkpoint" else model
    out = tmp_path / "predictions.parquet"
    few = measured_alone(command, predictor, store, out, FEW)
    many = measured_alone(command, predictor, store, out, MANY)
    print(f"{command} with {model}: {few:.0f} MB for {FEW} scenarios, {many:.0f} for {MANY}")
    allowed = {"predict": 10.0, "evaluate": 0.9e-3 * AGENTS * (MANY - FEW)}
    assert many - few < allowed[command], f"{few:.0f} MB, then {many:.0f}"
    modes = 1 if model == "constant_velocity" else 6
    assert command == "evaluate" or pq.ParquetFile(out).metadata.num_rows == modes * MANY
