"""Speed of every stage, measured in one run on real scenarios and reported as ratios where there is a rival.

Shared machines stretch wall times; process CPU time on one thread is what compares.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn
from torch_geometric.nn import TransformerConv as PyGTransformerConv

from trajpred.geometry import Pose
from trajpred.graph.edge_features import edge_features
from trajpred.graph.config import SceneConfig
from trajpred.graph.scene_graph import build_batch
from trajpred.model import LitForecaster
from trajpred.nn import (
    DenseRelation,
    EdgeBias,
    EdgeRelation,
    GATEncoder,
    GraphAttention,
    PaddedAttention,
    Padding,
    flatten_stars,
)
from trajpred.sources.argoverse2 import discover, read_map, read_scenario

#: The model that ``tools/train.py`` trains by default.
DEFAULT_MODEL: dict[str, Any] = {
    "encoder": {"class_path": "trajpred.model.SceneEncoder"},
    "decoder": {"class_path": "trajpred.model.ModeDecoder"},
}


@contextmanager
def one_thread() -> Iterator[None]:
    """CPU time of several threads adds up and says little; one thread compares."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def median_ms(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median one-thread CPU time and median wall time of ``work``, milliseconds."""
    work()
    cpu, wall = [], []
    for _ in range(repeats):
        start, began = time.process_time(), time.perf_counter()
        work()
        cpu.append(time.process_time() - start)
        wall.append(time.perf_counter() - began)
    return 1e3 * statistics.median(cpu), 1e3 * statistics.median(wall)


@one_thread()
def reading(raw: Path, repeats: int = 10) -> dict[str, float]:
    """Parse every scenario below ``raw`` with our reader and with av2's: mean over scenarios, CPU ms."""
    from av2.datasets.motion_forecasting.scenario_serialization import load_argoverse_scenario_parquet
    from av2.map.map_api import ArgoverseStaticMap

    folders = [folder for split in discover(raw).values() for folder in split]

    def mean(read: Callable[[Path], object]) -> float:
        return statistics.mean(median_ms(partial(read, folder), repeats)[0] for folder in folders)

    def av2_tracks(folder: Path) -> object:
        return load_argoverse_scenario_parquet(next(folder.glob("*.parquet")))

    def av2_map(folder: Path) -> object:
        return ArgoverseStaticMap.from_json(next(folder.glob("*.json")))

    ours, our_map = mean(read_scenario), mean(lambda folder: read_map(next(folder.glob("*.json"))))
    tracks, lanes = mean(av2_tracks), mean(av2_map)
    return {
        "scenarios": len(folders),
        "trajpred, tracks and map": ours,
        "trajpred, map alone": our_map,
        "av2, tracks": tracks,
        "av2, map": lanes,
        "ratio av2 / trajpred": (tracks + lanes) / ours,
    }


@one_thread()
def core(
    nodes: int = 130, neighbors: int = 32, batch_sizes: Sequence[int] = (1, 32), repeats: int = 10
) -> dict[str, float]:
    """Our default attention (edges and dense) beside PyG's TransformerConv and plain dense attention.

    d = 128, 8 heads; every node of a scene hears its nearest neighbours. Ours and PyG's get relative-pose
    features per edge (PyG projects them to keys and values, ours to a bias); plain dense attention knows no
    positions: a floor. One thread, CPU ms, forward and forward with backward.
    """
    results: dict[str, float] = {}
    for size in batch_sizes:
        cases = _core_cases(nodes, neighbors, size)
        for name, (module, inputs) in cases.items():
            parameters = list(module.parameters())

            def both(run: Callable[..., Tensor] = module, given: tuple[Any, ...] = inputs) -> None:
                torch.autograd.grad(run(*given).square().sum(), parameters)  # noqa: B023

            with torch.inference_mode():
                results[f"batch {size}, {name}, forward"] = median_ms(partial(module, *inputs), repeats)[0]
            results[f"batch {size}, {name}, forward + backward"] = median_ms(both, repeats)[0]
        for kind in ("forward", "forward + backward"):
            ours = results[f"batch {size}, trajpred dense, {kind}"]
            for rival in ("PyG TransformerConv", "plain dense"):
                results[f"batch {size}, {rival} / trajpred dense, {kind}"] = (
                    results[f"batch {size}, {rival}, {kind}"] / ours
                )
    return results | _stars(repeats)


def _stars(repeats: int, targets: int = 64) -> dict[str, float]:
    """The article's stars of 9 nodes: one after the other, as it is often coded, and flattened."""
    encoder = GATEncoder(64, heads=4, layers=2).eval()
    flat, one = flatten_stars(torch.full((targets,), 8)), flatten_stars(torch.tensor([8]))
    x = torch.randn(len(flat.batch), 64)

    def loop() -> None:
        for star in x.split(9):
            encoder(star, one.edge_index, one.target_index)

    with torch.inference_mode():
        slow = median_ms(loop, repeats)[0]
        fast = median_ms(partial(encoder, x, flat.edge_index, flat.target_index), repeats)[0]
    return {f"{targets} stars, loop": slow, "flattened": fast, "loop / flattened": slow / fast}


class _WithBias(nn.Module):
    """Our attention, its bias computed from edge features in every call as PyG's class does with its own."""

    def __init__(self, dim: int, heads: int, channels: int, dense: tuple[Padding, Padding] | None) -> None:
        super().__init__()
        self.attention, self.bias = GraphAttention(dim, heads), EdgeBias(channels, heads)
        self.dense = dense

    def forward(self, x: Tensor, index: Tensor, features: Tensor, poses: Pose[Tensor]) -> Tensor:
        edges = EdgeRelation(index, self.bias(features), len(x), len(x), (poses, poses))
        relation = edges if self.dense is None else DenseRelation.of(edges, *self.dense)
        return self.attention(x, x, relation)


def _core_cases(nodes: int, neighbors: int, scenes: int) -> dict[str, tuple[nn.Module, tuple[Any, ...]]]:
    torch.manual_seed(0)
    dim, heads, count = 128, 8, scenes * nodes
    poses = Pose(60 * torch.rand(count, 2), 6 * torch.rand(count))
    place = poses.position.unflatten(0, (scenes, nodes))
    near = torch.cdist(place, place).topk(neighbors, largest=False).indices
    sender = (near + nodes * torch.arange(scenes)[:, None, None]).flatten()
    receiver = torch.arange(count).repeat_interleave(neighbors)
    features = edge_features(poses[sender], poses[receiver], torch.zeros_like(sender), 1)
    index, x = torch.stack((sender, receiver)), torch.randn(count, dim)
    padding = Padding(torch.arange(count), scenes, nodes)
    channels = features.shape[1]
    pyg = PyGTransformerConv(dim, dim // heads, heads, edge_dim=channels)
    return {
        "trajpred edges": (_WithBias(dim, heads, channels, None), (x, index, features, poses)),
        "trajpred dense": (_WithBias(dim, heads, channels, (padding, padding)), (x, index, features, poses)),
        "PyG TransformerConv": (pyg, (x, index, features)),
        "plain dense": (PaddedAttention(dim, heads), (x.unflatten(0, (scenes, nodes)),)),
    }


@one_thread()
def forecasting(
    folder: Path, config: Path | None = None, batch_sizes: Sequence[int] = (1, 16, 32), repeats: int = 10
) -> dict[str, float]:
    """The model of ``config`` (None: the default) on one scenario, repeated to fill batches; one thread."""
    chosen = yaml.safe_load(config.read_text())["model"] if config else {}
    model = LitForecaster.build({**DEFAULT_MODEL, **chosen})
    scenario = read_scenario(folder)
    graph = build_batch([scenario], SceneConfig())
    prepare_cpu, _ = median_ms(lambda: build_batch([scenario], SceneConfig()), repeats)
    results: dict[str, float] = {
        "parameters (M)": sum(p.numel() for p in model.parameters()) / 1e6,
        "agents": graph["agent"].num_nodes,
        "lanes": graph["lane"].num_nodes,
        "scenario to graph, CPU ms": prepare_cpu,
    }
    for size in batch_sizes:
        batch = build_batch([scenario] * size, SceneConfig())
        model.eval()
        with torch.inference_mode():
            cpu, wall = median_ms(partial(model, batch), repeats)
        results |= {f"forward, batch {size}, CPU ms": cpu, f"forward, batch {size}, wall ms": wall}
        results[f"forward, batch {size}, scenes/s"] = 1e3 * size / cpu

    batch = build_batch([scenario] * 16, SceneConfig())
    model.train()

    def step() -> None:
        model.zero_grad()
        model.losses(batch)["loss"].backward()

    cpu, wall = median_ms(step, repeats)
    return results | {"training step, batch 16, CPU ms": cpu, "training step, batch 16, wall ms": wall}
