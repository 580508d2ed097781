"""An onboard bundle beside PyTorch in the same run; its size, start-up and memory."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trajpred.benchmark.timing import own_process, time_ms, use_threads
from trajpred.data.geometry import norm
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import Tracks
from trajpred.integrations.replay import detections
from trajpred.onboard.bundle import FUSED, Bundle
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.onboard.stream import StreamingForecaster
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.sources.argoverse2 import read_scenario
from trajpred.store.sample import SAMPLE_RAW

#: A native scenario of the sample.
NATIVE = "0a1e6f0a-1817-4a98-b02e-db8c9327d151"
#: The most crowded scenario of the sample, cut from a sensor log.
CROWDED = "24974b9d-e379-5c70-af2a-d86881ce0ded"
#: Agents of the crowded one after duplication.
MANY = 103
#: A vehicle's process: starts, then streams updates, without torch.
_PROCESS = """
import json, sys, time
wall_start = time.perf_counter()
cpu_start = time.process_time()
from trajpred.onboard.forecaster import OnboardForecaster
forecaster = OnboardForecaster(sys.argv[1], threads=int(sys.argv[2]))
start = [time.perf_counter() - wall_start, time.process_time() - cpu_start]
import pickle
from itertools import islice
from pathlib import Path
from trajpred.integrations.replay import drive_on_repeat, resident_mb
from trajpred.onboard.stream import StreamingForecaster
scenario = pickle.loads(Path(sys.argv[3]).read_bytes())
stream = StreamingForecaster(forecaster, scenario.map)
for seconds, seen in islice(drive_on_repeat(scenario), 100):
    stream.update(seconds, seen)
assert "torch" not in sys.modules
print(json.dumps([*start, resident_mb() or float("nan")]))
"""


def onboard_figures(bundle: Path, checkpoint: str, repeats: int, threads: int) -> dict[str, float]:
    """Measure a bundle beside its checkpoint: times in ms, sizes in MB, memory on Linux only."""
    forecaster = OnboardForecaster(bundle, threads=threads)
    predictor = CheckpointPredictor(checkpoint).to("cpu")
    native = read_scenario(SAMPLE_RAW / "val" / NATIVE)
    crowded = read_scenario(SAMPLE_RAW / "val" / CROWDED)
    figures = {"bundle without the fused graph, MB": _size_mb(forecaster.bundle)}
    with use_threads(threads):
        for scenario in (native, crowded, with_duplicates(crowded, MANY)):
            figures |= _beside_pytorch(forecaster, predictor, scenario, repeats)
    return figures | _processes(bundle, threads, {"native": native, "crowded": crowded})


def with_duplicates(scenario: Scenario, agents: int) -> Scenario:
    """Duplicate the most distant tracks, 3 m beside them, up to ``agents`` recently observed tracks."""
    tracks = scenario.tracks
    now = scenario.num_observed - 1
    seen = np.flatnonzero(tracks.valid[:, now])
    already = tracks.valid[:, max(0, now - 10) : now + 1].any(axis=1).sum()
    far = norm(tracks.position[seen, now] - tracks.position[scenario.focal, now])
    more = seen[np.argsort(-far, kind="stable")][: max(0, agents - already)]
    duplicates: dict[str, Any] = {name: values[more] for name, values in vars(tracks).items()}
    names = duplicates["track_id"].tolist()
    duplicates["track_id"] = np.array([f"{name}, duplicate" for name in names])
    valid = duplicates["valid"][..., None]
    duplicates["position"] = np.where(valid, duplicates["position"] + 3.0, 0.0)
    columns = {}
    for name, values in duplicates.items():
        columns[name] = np.concatenate((getattr(tracks, name), values))
    return replace(scenario, tracks=Tracks(**columns))


def _beside_pytorch(
    forecaster: OnboardForecaster, predictor: CheckpointPredictor, scenario: Scenario, repeats: int
) -> dict[str, float]:
    """Measure both in turn, so that other load on the machine affects both: ms of all threads."""
    stream = StreamingForecaster(forecaster, scenario.map)
    times = (scenario.timestamps_ns / 1e9)[: scenario.num_observed].tolist()
    for step, seconds in enumerate(times):
        stream.update(seconds, detections(scenario, step), targets=[])
    now = detections(scenario, len(times) - 1)
    name = f"{scenario.scenario_id[:8]}, {len(stream.update(times[-1], now).track_id)} agents"
    runs: dict[str, Callable[[], object]] = {
        "onboard": lambda: stream.update(times[-1], now),
        "PyTorch": lambda: predictor([scenario]),
    }
    times_ms: dict[str, list[tuple[float, float]]] = {kind: [] for kind in runs}
    for _ in range(repeats + 1):
        for kind, run in runs.items():
            times_ms[kind].append(time_ms(run))
    figures: dict[str, float] = {}
    for kind, pairs in times_ms.items():
        cpu, wall = np.array(pairs[1:]).T  # the first run warms up
        p50, p95 = np.percentile(wall, (50, 95)).tolist()
        figures[f"{name}: {kind}, wall p50 ms"] = p50
        figures[f"{name}: {kind}, wall p95 ms"] = p95
        figures[f"{name}: {kind}, CPU ms"] = float(np.median(cpu))
    return figures


def _size_mb(bundle: Bundle) -> float:
    """Return the size without the fused graph, which repeats the others."""
    size = 0
    for name, facts in bundle.info["files"].items():
        if name != f"{FUSED}.onnx":
            size += facts["bytes"]
    return size / 1e6


def _processes(bundle: Path, threads: int, scenarios: dict[str, Scenario]) -> dict[str, float]:
    """Measure start-up and memory while streaming, in separate processes without torch."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, scenario in scenarios.items():
            file = Path(folder) / name
            file.write_bytes(pickle.dumps(scenario))
            wall, cpu, memory = own_process(_PROCESS, bundle, threads, file)
            figures["start-up, wall s"] = wall
            figures["start-up, CPU s"] = cpu
            figures[f"memory after 100 updates, {name}, MB"] = memory
    return figures
