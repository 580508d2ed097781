"""Speed and memory of bundles in Python and C++: the command ``onboard`` of tools/benchmark.py."""

from __future__ import annotations

import pickle
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from cyclopts.types import PositiveInt
from numpy.typing import NDArray

from trajpred.data.batch import concatenate
from trajpred.data.geometry import norm
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.integrations.replay import DriveLines, detections
from trajpred.onboard.bundle import FUSED, Bundle
from trajpred.sources.argoverse2 import archive_of, read_scenario
from trajpred.store.sample import SAMPLE_RAW

#: The most crowded scenario of the sample, cut from a sensor log.
CROWDED = SAMPLE_RAW / "val" / "24974b9d-e379-5c70-af2a-d86881ce0ded"
#: Numbers of agents: the nearest tracks of the most crowded scenario, and duplicates for more.
AGENTS = (5, 27, 84, 128)
#: A vehicle's process: streams a drive without torch, and prints the same lines as trajpred_replay.
_PROCESS = """
import pickle, sys, time
from pathlib import Path
import numpy as np
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.onboard.stream import StreamingForecaster
lane_map, drive = pickle.loads(Path(sys.argv[3]).read_bytes())
stream = StreamingForecaster(OnboardForecaster(sys.argv[1], threads=int(sys.argv[2])), lane_map)
spent_ms = []
for seconds, seen in drive:
    start = time.process_time()
    stream.update(seconds, seen)
    spent_ms.append((time.process_time() - start) * 1e3)
assert "torch" not in sys.modules
print("CPU time p50, p99, ms", *np.percentile(spent_ms[1:], (50, 99)))
status = Path("/proc/self/status").read_text().split()
print("peak memory, MB", int(status[status.index("VmHWM:") + 1]) / 1e3)
"""


def onboard(
    *,
    bundle: list[Path],
    cpp: Path | None = None,
    repeats: PositiveInt = 200,
    rounds: PositiveInt = 3,
    threads: PositiveInt = 1,
) -> dict[str, float]:
    """Measure updates of bundles in Python and C++, with 5, 27, 84 and 128 agents: time, memory, allocations.

    A drive consists of the observed steps of the sample's most crowded scenario, with the last one repeated.
    Every round starts a process for each language and bundle in turn.

    Args:
        bundle: Bundles written by export, such as those of both models; repeat the option for each.
        cpp: Program trajpred_replay of the C++ library; without it, only Python is measured.
        repeats: Updates after the observed steps, with all agents: enough to determine the median.
        rounds: Number of processes of each kind.
        threads: Threads of onnxruntime.
    """
    crowded = read_scenario(CROWDED)
    figures: dict[str, float] = {f"{path}, MB": _size_mb(path) for path in bundle}
    for agents in AGENTS:
        with tempfile.TemporaryDirectory() as folder:
            commands = _commands(bundle, _write_drive(crowded, agents, repeats, Path(folder)), cpp, threads)
            measured: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
            for _ in range(rounds):
                for name, command in commands.items():
                    measured[name].append(_measured(command))
        for name, processes in measured.items():
            for figure in processes[0]:
                median = statistics.median(process[figure] for process in processes)
                figures[f"{name}, {agents} agents, {figure}"] = median
    return figures


def _commands(bundles: list[Path], drive: Path, cpp: Path | None, threads: int) -> dict[str, list[str]]:
    """Return each process's command by the name of its figures."""
    commands: dict[str, list[str]] = {}
    for bundle in bundles:
        in_python = [sys.executable, "-c", _PROCESS, str(bundle), str(threads), str(drive)]
        commands[f"{bundle}, Python"] = in_python
        if cpp is not None:
            lines = str(drive.with_suffix(".jsonl"))
            commands[f"{bundle}, C++"] = [str(cpp), str(bundle), lines, "--threads", str(threads)]
    return commands


def _write_drive(scenario: Scenario, agents: int, repeats: int, folder: Path) -> Path:
    """Write a drive with the nearest tracks for Python and, beside it, as lines for C++."""
    scenario = with_duplicates(scenario, agents)
    scenario = replace(scenario, tracks=scenario.tracks.take(_nearest_first(scenario)[:agents]))
    last = scenario.num_observed - 1
    steps = [*range(last + 1), *[last] * repeats]
    drive = [(number * scenario.step_s, detections(scenario, step)) for number, step in enumerate(steps)]
    file = folder / "drive.pickle"
    file.write_bytes(pickle.dumps((scenario.map, drive)))
    with DriveLines(file.with_suffix(".jsonl"), archive_of(scenario.map)) as lines:
        for seconds, detected in drive:
            lines.add(seconds, detected)
    return file


def _measured(command: list[str]) -> dict[str, float]:
    """Run a process that prints p50 and p99 of its CPU milliseconds, peak memory and, in C++, allocations.

    Raises:
        DataError: the process failed; with the last line of its output.
    """
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    spent = re.search(r"^CPU time p50, p99, ms +(\S+) (\S+)$", done.stdout, re.MULTILINE)
    memory = re.search(r"^peak memory, MB +(\S+)$", done.stdout, re.MULTILINE)
    if done.returncode or spent is None or memory is None:
        last_line = (done.stdout.strip().splitlines() or ["no message"])[-1]
        raise DataError(f"benchmark failed: {last_line}", file=command[0])
    figures = {"p50 ms": float(spent[1]), "p99 ms": float(spent[2]), "peak MB": float(memory[1])}
    allocations = re.search(r"^allocations p50 +(\S+)$", done.stdout, re.MULTILINE)
    if allocations is not None:
        figures["allocations"] = float(allocations[1])
    return figures


def with_duplicates(scenario: Scenario, agents: int) -> Scenario:
    """Duplicate the most distant tracks, 3 m aside, until ``agents`` are visible at the last step."""
    farthest_first = _nearest_first(scenario)[::-1]
    originals = scenario.tracks.take(farthest_first[: max(0, agents - len(farthest_first))])
    duplicates = replace(
        originals,
        track_id=np.char.add(originals.track_id, ", duplicate"),
        position=np.where(originals.valid[..., None], originals.position + 3.0, 0.0),
    )
    return replace(scenario, tracks=concatenate([scenario.tracks, duplicates]))


def _nearest_first(scenario: Scenario) -> NDArray[np.int64]:
    """Return the rows of tracks visible at the last step, by distance from the focal track."""
    tracks = scenario.tracks
    last = scenario.num_observed - 1
    seen = np.flatnonzero(tracks.valid[:, last])
    distance = norm(tracks.position[seen, last] - tracks.position[scenario.focal, last])
    return seen[np.argsort(distance, kind="stable")]


def _size_mb(path: Path) -> float:
    """Return the size of a bundle without the fused graph, which repeats the others."""
    size = 0
    for name, facts in Bundle(path).info["files"].items():
        if name != f"{FUSED}.onnx":
            size += facts["bytes"]
    return size / 1e6
