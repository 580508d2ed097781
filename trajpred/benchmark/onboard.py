"""An onboard bundle beside PyTorch in the same run; its size, start-up and memory."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trajpred.benchmark.timing import own_process, time_ms, use_threads
from trajpred.geometry import norm
from trajpred.onboard.bundle import FUSED, Bundle
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.onboard.replay import detections
from trajpred.onboard.stream import StreamingForecaster
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.scenario import Scenario
from trajpred.sources.argoverse2 import read_scenario
from trajpred.store.sample import SAMPLE_RAW
from trajpred.tracks import Tracks

#: Scenarios of the sample: a native one, and the most crowded of those cut from sensor logs.
NATIVE, CROWDED = "0a1e6f0a-1817-4a98-b02e-db8c9327d151", "24974b9d-e379-5c70-af2a-d86881ce0ded"
#: Agents of the crowded one after duplication.
MANY = 103
#: A vehicle's process: starts, then streams updates, without torch.
_PROCESS = """
import json, sys, time
began, used = time.perf_counter(), time.process_time()
from trajpred.onboard.forecaster import OnboardForecaster
forecaster = OnboardForecaster(sys.argv[1], threads=int(sys.argv[2]))
start = [time.perf_counter() - began, time.process_time() - used]
import pickle
from itertools import islice
from pathlib import Path
from trajpred.onboard.replay import drive_on_repeat, resident_mb
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
    forecaster, predictor = OnboardForecaster(bundle, threads=threads), CheckpointPredictor(checkpoint)
    predictor.device, predictor.model = torch.device("cpu"), predictor.model.cpu()
    native, crowded = (read_scenario(SAMPLE_RAW / "val" / name) for name in (NATIVE, CROWDED))
    figures = {"bundle without the fused graph, MB": _size_mb(forecaster.bundle)}
    with use_threads(threads):
        for scenario in (native, crowded, with_duplicates(crowded, MANY)):
            figures |= _beside_pytorch(forecaster, predictor, scenario, repeats)
    return figures | _processes(bundle, threads, {"native": native, "crowded": crowded})


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
    spent = np.array([[time_ms(run) for run in runs.values()] for _ in range(repeats + 1)])
    figures: dict[str, float] = {}
    for kind, (cpu, wall) in zip(runs, spent[1:].transpose(1, 2, 0), strict=True):  # the first warms up
        p50, p95 = np.percentile(wall, (50, 95)).tolist()
        figures |= {f"{name}: {kind}, wall p50 ms": p50, f"{name}: {kind}, wall p95 ms": p95}
        figures[f"{name}: {kind}, CPU ms"] = float(np.median(cpu))
    return figures


def _size_mb(bundle: Bundle) -> float:
    """Return the size without the fused graph, which repeats the others."""
    sizes = [one["bytes"] for name, one in bundle.info["files"].items() if name != f"{FUSED}.onnx"]
    return float(sum(sizes)) / 1e6


def _processes(bundle: Path, threads: int, scenarios: dict[str, Scenario]) -> dict[str, float]:
    """Measure start-up and memory while streaming, in separate processes without torch."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, scenario in scenarios.items():
            file = Path(folder) / name
            file.write_bytes(pickle.dumps(scenario))
            wall, cpu, memory = own_process(_PROCESS, bundle, threads, file)
            figures |= {"start-up, wall s": wall, "start-up, CPU s": cpu}
            figures[f"memory after 100 updates, {name}, MB"] = memory
    return figures
