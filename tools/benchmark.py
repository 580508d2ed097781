"""Speed and memory of every stage, as reported in docs/results/speed.md.

``python tools/benchmark.py --help`` explains it. On shared machines, CPU times on one thread are comparable.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from cyclopts import App
from cyclopts.types import PositiveInt
from torch import Tensor, nn
from torch_geometric.nn import TransformerConv as PyGTransformerConv

from tools.benchmark_onboard import onboard
from trajpred.data.batch import ScenarioBatch
from trajpred.data.geometry import Pose
from trajpred.data.plain import read_yaml
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.features.config import SceneConfig
from trajpred.features.scene_graph import SceneBatch, build_batch, edge_features, scene_features
from trajpred.nn import EdgeBias, Edges, GraphAttention, Layout, PaddedAttention
from trajpred.sources import SOURCES
from trajpred.sources.argoverse2 import read_archive, read_scenario
from trajpred.store import ScenarioStore, prepare
from trajpred.store.format import encode_row
from trajpred.store.jobs import write_shard
from trajpred.store.sample import ROOT, SAMPLE_RAW
from trajpred.training.data_module import SceneDataset
from trajpred.training.lit_forecaster import LitForecaster

#: A native scenario of the sample.
NATIVE = SAMPLE_RAW / "val" / "0a1e6f0a-1817-4a98-b02e-db8c9327d151"
#: The default model.
DEFAULT = ROOT / "configs" / "model" / "small.yaml"
#: Scenes per training step, and scenarios of a shard.
STEP = 16
SHARD = 256

Figures: TypeAlias = dict[str, float]
app = App(name="benchmark", help="Measure speed and memory.")
app.command(onboard)


def main() -> None:
    """Run the command that the arguments name, and print its figures."""
    try:
        command, bound, _ = app.parse_args(sys.argv[1:])
        figures: Figures = command(*bound.args, **bound.kwargs) or {}  # --help has none
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

    Forward, and forward with backward, on scenes of 130 nodes with 128 channels and 8 heads; every node has
    edges from its 32 nearest neighbours. Both graph layers get relative-pose features per edge (PyG projects
    them to keys and values, trajpred to a bias); plain dense attention has no positions and is the lower
    bound.

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
    """Measure reading a scenario with trajpred and with av2."""
    from av2.datasets.motion_forecasting.scenario_serialization import load_argoverse_scenario_parquet
    from av2.map.map_api import ArgoverseStaticMap

    def read_with_av2(folder: Path) -> object:
        tracks = load_argoverse_scenario_parquet(next(folder.glob("*.parquet")))
        return tracks, ArgoverseStaticMap.from_json(next(folder.glob("*.json")))

    def read_map(folder: Path) -> object:
        return read_archive(next(folder.glob("*.json")))

    trajpred_ms = _mean(read_scenario, folders, repeats)
    av2_ms = _mean(read_with_av2, folders, repeats)
    return {
        "read tracks and map, ms": trajpred_ms,
        "of which map, ms": _mean(read_map, folders, repeats),
        "av2 reads tracks and map, ms": av2_ms,
        "av2 / trajpred": av2_ms / trajpred_ms,
    }


def _preparing(folders: list[Path], repeats: int) -> Figures:
    """Measure encoding these scenarios and writing a full shard of them: ms and bytes per scenario."""

    def encode(folder: Path) -> dict[str, Any]:
        return encode_row(read_scenario(folder), heights=False)

    rows = [encode(folder) for folder in folders]
    shard_rows = list(islice(cycle(rows), SHARD))
    encode_ms = _mean(encode, folders, repeats)
    with tempfile.TemporaryDirectory() as temporary:
        shard = Path(temporary) / "shard.arrow"
        shard_ms, _ = median_ms(partial(write_shard, shard, shard_rows), 3)
        shard_bytes = shard.stat().st_size
    return {"prepare, ms": encode_ms + shard_ms / SHARD, "stored, bytes": shard_bytes / SHARD}


def _loading(folders: list[Path], repeats: int) -> Figures:
    """Measure loading a batch (reading, features, edges) in one process, beside a training step."""
    batch_size = 32
    with tempfile.TemporaryDirectory() as temporary:
        raw = Path(temporary) / "raw" / "train"
        raw.mkdir(parents=True)
        for path in folders:
            (raw / path.name).symlink_to(path.resolve(), target_is_directory=True)
        rows = np.resize(np.arange(len(folders)), batch_size)
        store = Path(temporary) / "store"
        prepare("argoverse2", raw.parent, store, workers=1, progress=False)
        data = SceneDataset(ScenarioStore(store, "train"), SceneConfig())
        batch_ms, _ = median_ms(partial(data.load, rows), repeats)
        half = batch_size // 2
        half_step_ms, _ = training_step(make_model(DEFAULT), data.load(rows[:half]), min(repeats, 3))
    load_ms = batch_ms / batch_size
    step_ms = half_step_ms / half
    return {
        "store to batch, ms": load_ms,
        "training step per scenario, ms": step_ms,
        "training step / store to batch": step_ms / load_ms,
    }


if __name__ == "__main__":
    main()
