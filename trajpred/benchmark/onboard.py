"""An onboard bundle beside PyTorch in the same run; its size, start-up and memory."""

from __future__ import annotations

import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trajpred.benchmark.timing import own_process, time_ms, use_threads
from trajpred.errors import require
from trajpred.geometry import norm
from trajpred.lane_map import LaneMap
from trajpred.onboard.bundle import FUSED, Bundle
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.onboard.replay import detections
from trajpred.onboard.stream import OnboardForecast, StreamingForecaster
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.scenario import Scenario, Tracks
from trajpred.sources.argoverse2 import read_scenario
from trajpred.store.sample import SAMPLE_RAW

#: Scenarios of the sample: a native one, and the most crowded of those cut from sensor logs.
NATIVE, CROWDED = "0a1e6f0a-1817-4a98-b02e-db8c9327d151", "24974b9d-e379-5c70-af2a-d86881ce0ded"
#: Agents of the crowded one after duplication.
MANY = 103
#: Number of first updates that are measured, each with an empty lane cache.
COLD = 5
#: A vehicle's process: starts, then streams updates, without torch.
_PROCESS = """
import json, sys, time
began, used = time.perf_counter(), time.process_time()
from trajpred.onboard.forecaster import OnboardForecaster
forecaster = OnboardForecaster(sys.argv[1], threads=int(sys.argv[2]))
start = [time.perf_counter() - began, time.process_time() - used]
import pickle
from pathlib import Path
from trajpred.onboard.replay import drive_on_repeat, resident_mb
from trajpred.onboard.stream import StreamingForecaster
scenario = pickle.loads(Path(sys.argv[3]).read_bytes())
stream, memory = StreamingForecaster(forecaster, scenario.map), []
marks = [int(count) for count in sys.argv[4].split(",")]
for count, (seconds, seen) in enumerate(drive_on_repeat(scenario), 1):
    stream.update(seconds, seen, seen.track_id[:int(sys.argv[5])] if int(sys.argv[5]) else None)
    if count in marks:
        memory.append(resident_mb() or float("nan"))
    if count == marks[-1]:
        break
assert "torch" not in sys.modules
print(json.dumps([*start, *memory]))
"""


def onboard_figures(
    bundle: Path, checkpoint: str, repeats: int, threads: int, updates: int
) -> dict[str, float]:
    """Measure a bundle beside its checkpoint: times in ms, sizes in MB, memory on Linux only."""
    require(repeats > 0, "repeats", "must be positive")
    require(updates >= 1000, "updates", "must be 1000 at least")
    forecaster, predictor = OnboardForecaster(bundle, threads=threads), CheckpointPredictor(checkpoint)
    predictor.device, predictor.model = torch.device("cpu"), predictor.model.cpu()
    native, crowded = (read_scenario(SAMPLE_RAW / "val" / name) for name in (NATIVE, CROWDED))
    figures = {"bundle without the fused graph, MB": _size_mb(forecaster.bundle)}
    with use_threads(threads):
        for scenario in (native, crowded, with_duplicates(crowded, MANY)):
            figures |= _beside_pytorch(forecaster, predictor, scenario, repeats)
    return figures | _processes(bundle, threads, updates, {"native": native, "crowded": crowded})


def with_duplicates(scenario: Scenario, agents: int) -> Scenario:
    """Duplicate the most distant tracks, 3 m beside them, up to ``agents`` recently observed tracks."""
    tracks, now = scenario.tracks, scenario.num_observed - 1
    seen = np.flatnonzero(tracks.valid[:, now])
    already = tracks.valid[:, max(0, now - 10) : now + 1].any(axis=1).sum()
    far = norm(tracks.position[seen, now] - tracks.position[scenario.focal, now])
    more = seen[np.argsort(-far, kind="stable")][: max(0, agents - already)]
    duplicates: dict[str, Any] = {name: values[more] for name, values in vars(tracks).items()}
    duplicates["track_id"] = np.array([f"{name}, duplicate" for name in duplicates["track_id"].tolist()])
    duplicates["position"] = np.where(duplicates["valid"][..., None], duplicates["position"] + 3.0, 0.0)
    whole = {name: np.concatenate((getattr(tracks, name), values)) for name, values in duplicates.items()}
    return replace(scenario, tracks=Tracks(**whole))


def _beside_pytorch(
    forecaster: OnboardForecaster, predictor: CheckpointPredictor, scenario: Scenario, repeats: int
) -> dict[str, float]:
    """Measure both alternately, so that other load on the machine affects both equally."""
    stream, batch = StreamingForecaster(forecaster, scenario.map), predictor._batch([scenario])
    times = (scenario.timestamps_ns / 1e9)[: scenario.num_observed].tolist()
    for step, seconds in enumerate(times):
        stream.update(seconds, detections(scenario, step), targets=[])
    now = detections(scenario, len(times) - 1)
    stages: Counter[str] = Counter()

    def update() -> OnboardForecast:
        return stream.update(times[-1], now)

    def cold() -> None:
        stream.set_map(scenario.map)
        update()

    name = f"{scenario.scenario_id[:8]}, {len(update().track_id)} agents"
    runs: dict[str, Callable[[], object]] = {
        "onboard": lambda: stages.update(update().stage_ms),
        "PyTorch": lambda: predictor([scenario]),
        "PyTorch forward": torch.inference_mode()(lambda: predictor.model(batch)),
    }
    figures = _alternately(name, runs, repeats)
    for stage in OnboardForecaster.STAGES:
        figures[f"{name}: onboard, {stage}, share of time"] = stages[stage] / stages.total()
    spent = []
    for _ in range(COLD):
        forecaster.lanes.set_map(LaneMap())
        spent.append(time_ms(cold))
    cpu, wall = np.median(spent, axis=0).tolist()
    figures |= {f"{name}: onboard, cold, wall ms": wall, f"{name}: onboard, cold, CPU ms": cpu}
    for rival in ("PyTorch", "PyTorch forward"):
        for what in ("wall p50 ms", "CPU ms"):
            ratio = figures[f"{name}: {rival}, {what}"] / figures[f"{name}: onboard, {what}"]
            figures[f"{name}: {rival} / onboard, {what.removesuffix(' ms')}"] = ratio
    return figures


def _alternately(name: str, runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Run each kind in turn: quantiles of the wall time and median CPU time of all threads, ms."""
    for run in runs.values():
        run()
    spent: dict[str, list[tuple[float, float]]] = {kind: [] for kind in runs}
    for _ in range(repeats):
        for kind, run in runs.items():
            spent[kind].append(time_ms(run))
    figures: dict[str, float] = {}
    for kind, each in spent.items():
        cpu, wall = np.array(each).T
        p50, p95 = np.percentile(wall, (50, 95)).tolist()
        figures |= {f"{name}: {kind}, wall p50 ms": p50, f"{name}: {kind}, wall p95 ms": p95}
        figures[f"{name}: {kind}, CPU ms"] = float(np.median(cpu))
    return figures


def _size_mb(bundle: Bundle) -> float:
    """Return the size without the fused graph, which repeats the others."""
    sizes = [one["bytes"] for name, one in bundle.info["files"].items() if name != f"{FUSED}.onnx"]
    return float(sum(sizes)) / 1e6


def _processes(bundle: Path, threads: int, updates: int, scenarios: dict[str, Scenario]) -> dict[str, float]:
    """Measure start-up and memory while streaming, in separate processes without torch."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, scenario in scenarios.items():
            file = Path(folder) / name
            file.write_bytes(pickle.dumps(scenario))
            wall, cpu, memory = _process(bundle, threads, file, [100], 0)
            figures |= {"start-up, wall s": wall, "start-up, CPU s": cpu}
            figures[f"memory after 100 updates, {name}, MB"] = memory
        early, late = _process(bundle, threads, Path(folder) / "native", [updates // 10, updates], 1)[2:]
    figures[f"memory after {updates // 10:,} updates, one target, MB"] = early
    figures[f"memory after {updates:,} updates, one target, MB"] = late
    return {name: figure for name, figure in figures.items() if not np.isnan(figure)}


def _process(bundle: Path, threads: int, scenario: Path, marks: Sequence[int], targets: int) -> list[float]:
    """Return start-up in wall and CPU seconds, then MB at ``marks``, NaN if unknown; 0 ``targets``: all."""
    return own_process(_PROCESS, bundle, threads, scenario, ",".join(map(str, marks)), targets)
