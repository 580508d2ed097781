"""Speed and memory of every stage, as reported in docs/results/speed.md.

``python tools/benchmark.py --help`` explains it. On shared machines, CPU times on one thread are comparable.
"""

from __future__ import annotations

import pickle
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from cyclopts import App
from cyclopts.types import PositiveInt
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.nn import TransformerConv as PyGTransformerConv

from trajpred.data.batch import ScenarioBatch, concatenate
from trajpred.data.geometry import Pose, norm
from trajpred.data.plain import read_yaml
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.features.config import SceneConfig
from trajpred.features.scene_graph import SceneBatch, build_batch, edge_features, scene_features
from trajpred.nn import EdgeBias, Edges, GraphAttention, Layout, PaddedAttention
from trajpred.sources import SOURCES
from trajpred.sources.argoverse2 import archive_of, read_archive, read_scenario
from trajpred.store import ScenarioStore, prepare
from trajpred.store.format import encode_row
from trajpred.store.jobs import write_shard
from trajpred.store.sample import ROOT, SAMPLE_RAW
from trajpred.training.data_module import SceneDataset
from trajpred.training.lit_forecaster import LitForecaster

#: Native scenarios of the sample, and its most crowded one, cut from a sensor log.
NATIVE = SAMPLE_RAW / "val" / "0a1e6f0a-1817-4a98-b02e-db8c9327d151"
CROWDED = SAMPLE_RAW / "val" / "24974b9d-e379-5c70-af2a-d86881ce0ded"
#: The default model.
DEFAULT = ROOT / "configs" / "model" / "small.yaml"
#: Scenes per training step, and scenarios of a shard.
STEP = 16
SHARD = 256

Figures: TypeAlias = dict[str, float]
app = App(name="benchmark", help="Measure speed and memory.")


def main() -> None:
    """Print the figures of a command."""
    try:
        command, bound, _ = app.parse_args(sys.argv[1:])
        figures: Figures = command(*bound.args, **bound.kwargs)
        for name, value in figures.items():
            print(f"{name:64s} {value:10.2f}")
    except (DataError, OSError) as error:
        sys.exit(f"error: {error}")


# --------------------------------------------------------------------------------------- time and memory


@contextmanager
def use_threads(count: int = 1) -> Iterator[None]:
    """Compute with ``count`` threads in this context; CPU times are comparable with one."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def median_ms(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Measure ``work``: median CPU and wall time in milliseconds."""
    work()  # warms up
    times = [time_ms(work) for _ in range(repeats)]
    cpu, wall = np.median(times, axis=0).tolist()
    return cpu, wall


def time_ms(work: Callable[[], object]) -> tuple[float, float]:
    """Measure ``work`` once: CPU and wall time in milliseconds."""
    cpu_start = time.process_time()
    wall_start = time.perf_counter()
    work()
    cpu_s = time.process_time() - cpu_start
    wall_s = time.perf_counter() - wall_start
    return 1e3 * cpu_s, 1e3 * wall_s


# ------------------------------------------------------------------------------------------------ model


@app.command
def model(
    *, scenario: Path = NATIVE, model: Path = DEFAULT, repeats: PositiveInt = 10, threads: PositiveInt = 1
) -> Figures:
    """Measure the forward pass and a training step on one real scenario, all agents predicted.

    Args:
        scenario: Folder of an Argoverse 2 scenario, which is repeated to fill batches.
        model: A YAML file in configs/model; the weights are random.
        repeats: Number of runs; their median is reported.
        threads: CPU threads; with several, compare wall times.
    """
    scene = read_scenario(scenario)
    forecaster = make_model(model)
    graph = build_batch([scene], forecaster.scene)
    with use_threads(threads):
        cpu, _ = median_ms(partial(build_batch, [scene], forecaster.scene), repeats)
        figures = {
            "parameters (M)": sum(weights.numel() for weights in forecaster.parameters()) / 1e6,
            "agents": graph["agent"].num_nodes,
            "lanes": graph["lane"].num_nodes,
            "scenario to graph, CPU ms": cpu,
        }
        figures |= _stages(forecaster, scene, repeats)
        figures |= _times(forecaster, scene, repeats)
    return figures


def make_model(config: Path) -> LitForecaster:
    """Build the model of a YAML file in configs/model with random weights.

    Raises:
        DataError: the file contains no model.
    """
    content = read_yaml(config)
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise DataError("contains no model; give a file of configs/model", file=config)
    return LitForecaster.build(read_yaml(DEFAULT)["model"] | content["model"])


@torch.no_grad()
def _stages(model: LitForecaster, scenario: Scenario, repeats: int) -> Figures:
    """Measure the stages of one forecast in CPU ms; count the forward pass's operator calls, also nested."""
    model.eval()
    encoder = model.forecaster.encoder
    batch = build_batch([scenario], model.scene)
    stages: dict[str, Callable[[], object]] = {
        "features": partial(scene_features, ScenarioBatch.of([scenario]), model.scene.features),
        "encoding": partial(encoder.encode, batch),
        "decoding": partial(model.forecaster.decoder, encoder.encode(batch), batch),
    }
    figures: Figures = {}
    for name, stage in stages.items():
        cpu, _ = median_ms(stage, repeats)
        figures[f"one scene, {name}, CPU ms"] = cpu
    with torch.profiler.profile() as calls:
        model.forecaster(batch)
    operators = [event for event in calls.key_averages() if event.key.startswith("aten::")]
    figures["one scene, calls of operators"] = sum(event.count for event in operators)
    return figures


def _times(model: LitForecaster, scenario: Scenario, repeats: int) -> Figures:
    """Measure forward passes of several batch sizes, and a training step."""
    figures: Figures = {}
    for size in (1, STEP, 32):
        batch = build_batch([scenario] * size, model.scene)
        model.eval()
        with torch.no_grad():
            cpu, wall = median_ms(partial(model.forecaster, batch), repeats)
        name = f"forward, batch {size}"
        figures[f"{name}, CPU ms"] = cpu
        figures[f"{name}, wall ms"] = wall
        figures[f"{name}, scenes/s of CPU time"] = 1e3 * size / cpu
        figures[f"{name}, scenes/s"] = 1e3 * size / wall
    batch = build_batch([scenario] * STEP, model.scene)
    cpu, wall = training_step(model, batch, repeats)
    figures[f"training step, batch {STEP}, CPU ms"] = cpu
    figures[f"training step, batch {STEP}, wall ms"] = wall
    return figures


def training_step(model: LitForecaster, batch: SceneBatch, repeats: int) -> tuple[float, float]:
    """Measure a forward and backward pass with all losses: median CPU and wall ms."""
    model.train()

    def step() -> None:
        model.zero_grad()
        model.losses(batch)["loss"].backward()

    return median_ms(step, repeats)


# ------------------------------------------------------------------------------------------------- core


@app.command
@use_threads()
def core(*, repeats: PositiveInt = 10) -> Figures:
    """Compare the default attention with PyG's TransformerConv and plain dense attention: one thread, CPU ms.

    130 nodes of 128 channels, 32 edges into each from its nearest neighbours, 8 heads; forward, and forward
    with backward. Both graph layers get relative-pose features per edge (PyG projects them to keys and
    values, trajpred to a bias); plain dense attention has no positions and is the lower bound.

    Args:
        repeats: Number of runs; their median is reported.
    """
    figures: Figures = {}
    for size in (1, 32):
        for name, (module, inputs) in _core_cases(size).items():
            with torch.no_grad():  # poses cache their results, also for the backward pass
                cpu, _ = median_ms(partial(module, *inputs), repeats)
            figures[f"batch {size}, {name}, forward"] = cpu
            cpu, _ = median_ms(partial(_forward_and_backward, module, inputs), repeats)
            figures[f"batch {size}, {name}, forward + backward"] = cpu
    return figures


def _forward_and_backward(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    output = module(*inputs)
    torch.autograd.grad(output.square().sum(), list(module.parameters()))


class _WithBias(nn.Module):
    """The default attention; its bias is computed in every call, as PyG's layer does with edge features."""

    def __init__(self, dim: int, heads: int, channels: int, layout: Layout, dense: bool) -> None:
        super().__init__()
        self.attention = GraphAttention(dim, heads)
        self.bias = EdgeBias(channels, heads)
        self.layout = layout
        self.dense = dense

    def forward(self, x: Tensor, index: Tensor, features: Tensor, poses: Pose[Tensor]) -> Tensor:
        bias = self.bias(features.T)
        edges = Edges(index, bias, self.layout, self.layout, (poses, poses), dense=self.dense)
        return self.attention(x, x, edges)


def _core_cases(scenes: int) -> dict[str, tuple[nn.Module, tuple[Any, ...]]]:
    """Build the layers to compare, by name, with the inputs of each for ``scenes`` scenes."""
    torch.manual_seed(0)
    dim = 128
    heads = 8
    nodes = 130
    neighbours = 32
    count = scenes * nodes
    poses = Pose(60 * torch.rand(count, 2), 6 * torch.rand(count))
    position = poses.position.unflatten(0, (scenes, nodes))
    nearest = torch.cdist(position, position).topk(neighbours, largest=False).indices
    first_node = nodes * torch.arange(scenes)[:, None, None]
    sender = (nearest + first_node).flatten()
    receiver = torch.arange(count).repeat_interleave(neighbours)
    index = torch.stack((sender, receiver))
    no_type = torch.zeros_like(sender)
    features = edge_features(poses[sender].rows, poses[receiver].rows, no_type, 1).T
    channels = features.shape[1]
    x = torch.randn(count, dim)
    layout = Layout.of_counts([nodes] * scenes)
    pyg = PyGTransformerConv(dim, dim // heads, heads, edge_dim=channels)
    edges = _WithBias(dim, heads, channels, layout, dense=False)
    dense = _WithBias(dim, heads, channels, layout, dense=True)
    plain = PaddedAttention(dim, num_attention_heads=heads)
    return {
        "trajpred edges": (edges, (x, index, features, poses)),
        "trajpred dense": (dense, (x, index, features, poses)),
        "PyG TransformerConv": (pyg, (x, index, features)),
        "plain dense": (plain, (x.unflatten(0, (scenes, nodes)),)),
    }


# ------------------------------------------------------------------------------------------------- data


@app.command
@use_threads()
def data(*, raw: Path = SAMPLE_RAW, repeats: PositiveInt = 10) -> Figures:
    """Compare reading, preparing and loading with av2's loaders and a training step: one thread, CPU ms.

    Means over scenarios; the sample's native scenarios are also measured without the crowded windows of
    sensor logs.

    Args:
        raw: Scenarios in Argoverse 2's layout.
        repeats: Number of runs; their median is reported.
    """
    folders: list[Path] = []
    for scenarios in SOURCES["argoverse2"].scenarios(raw).values():
        folders += [scenario.path for scenario in scenarios]
    # Native scenarios have random UUIDs (version 4) as ids, windows UUIDs made from names (5).
    native = [folder for folder in folders if re.match("[0-9a-f-]{14}4", folder.name)]
    groups = {"native": native, "all": folders}
    if len(folders) == len(native):
        del groups["all"]
    figures: Figures = {}
    for name, group in groups.items():
        if group:
            measured = _reading(group, repeats) | _preparing(group, repeats) | _loading(group, repeats)
            figures |= {f"{name} {len(group)}: {what}": value for what, value in measured.items()}
    return figures


def _mean(work: Callable[[Path], object], folders: list[Path], repeats: int) -> float:
    """Return the mean over ``folders`` of the median CPU time of ``work``, in ms."""
    times = []
    for folder in folders:
        cpu, _ = median_ms(partial(work, folder), repeats)
        times.append(cpu)
    return statistics.mean(times)


def _reading(folders: list[Path], repeats: int) -> Figures:
    """Measure the readers of trajpred and av2."""
    from av2.datasets.motion_forecasting.scenario_serialization import load_argoverse_scenario_parquet
    from av2.map.map_api import ArgoverseStaticMap

    def av2(folder: Path) -> object:
        tracks = load_argoverse_scenario_parquet(next(folder.glob("*.parquet")))
        return tracks, ArgoverseStaticMap.from_json(next(folder.glob("*.json")))

    def only_map(folder: Path) -> object:
        return read_archive(next(folder.glob("*.json")))

    ours = _mean(read_scenario, folders, repeats)
    theirs = _mean(av2, folders, repeats)
    return {
        "read tracks and map, ms": ours,
        "of which map, ms": _mean(only_map, folders, repeats),
        "av2 reads tracks and map, ms": theirs,
        "av2 / trajpred": theirs / ours,
    }


def _preparing(folders: list[Path], repeats: int) -> Figures:
    """Measure raw files -> shard, filled with these scenarios repeatedly, and its size."""

    def encode(folder: Path) -> dict[str, Any]:
        return encode_row(read_scenario(folder), heights=False)

    rows = [encode(folder) for folder in folders]
    full = list(islice(cycle(rows), SHARD))
    encode_ms = _mean(encode, folders, repeats)
    with tempfile.TemporaryDirectory() as temporary:
        shard = Path(temporary) / "shard.arrow"
        write_ms, _ = median_ms(partial(write_shard, shard, full), 3)
        size = shard.stat().st_size
    return {"prepare, ms": encode_ms + write_ms / SHARD, "stored, bytes": size / SHARD}


def _loading(folders: list[Path], repeats: int, batch_size: int = 32) -> Figures:
    """Measure store -> batch (reading, features, edges) in one worker, beside a training step."""
    with tempfile.TemporaryDirectory() as temporary:
        raw = Path(temporary) / "raw" / "train"
        raw.mkdir(parents=True)
        for path in folders:
            (raw / path.name).symlink_to(path.resolve(), target_is_directory=True)
        rows = np.resize(np.arange(len(folders)), batch_size)
        store = Path(temporary) / "store"
        prepare("argoverse2", raw.parent, store, workers=1, progress=False)
        data = SceneDataset(ScenarioStore(store, "train"), SceneConfig())
        load_ms, _ = median_ms(partial(data.load, rows), repeats)
        load_ms /= batch_size
        half = batch_size // 2
        step_ms, _ = training_step(make_model(DEFAULT), data.load(rows[:half]), min(repeats, 3))
        step_ms /= half
    return {
        "store to batch, ms": load_ms,
        "training step per scenario, ms": step_ms,
        "training step / store to batch": step_ms / load_ms,
    }


# ---------------------------------------------------------------------------------------------- onboard


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


@app.command
def onboard(
    *,
    bundle: list[Path],
    cpp: Path | None = None,
    repeats: PositiveInt = 200,
    rounds: PositiveInt = 3,
    threads: PositiveInt = 1,
) -> Figures:
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
    figures: Figures = {f"{path}, MB": _size_mb(path) for path in bundle}
    for agents in AGENTS:
        with tempfile.TemporaryDirectory() as folder:
            commands = _commands(bundle, _write_drive(crowded, agents, repeats, Path(folder)), cpp, threads)
            measured: dict[str, list[Figures]] = {name: [] for name in commands}
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
    from trajpred.integrations.replay import DriveLines, detections

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


def _measured(command: list[str]) -> Figures:
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
    from trajpred.onboard.bundle import FUSED, Bundle

    size = 0
    for name, facts in Bundle(path).info["files"].items():
        if name != f"{FUSED}.onnx":
            size += facts["bytes"]
    return size / 1e6


if __name__ == "__main__":
    main()
