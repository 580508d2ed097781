"""Speed of every stage, measured in one run on real scenarios and reported as ratios where there is a rival.

Shared machines stretch wall times; process CPU time on one thread is what compares.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Batch

from trajpred.graph.dataset import build_graph
from trajpred.graph.scene_graph import SceneConfig
from trajpred.model import LitForecaster
from trajpred.sources.argoverse2 import discover, read_map, read_scenario

#: The model that ``tools/train.py`` trains by default.
DEFAULT_MODEL: dict[str, Any] = {
    "encoder": {"class_path": "trajpred.model.SceneEncoder"},
    "decoder": {"class_path": "trajpred.model.ModeDecoder"},
}


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


def forecasting(
    folder: Path, batch_sizes: Sequence[int] = (1, 16, 32), repeats: int = 10
) -> dict[str, float]:
    """The default model on one scenario, all agents predicted, repeated to fill batches; one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model = LitForecaster.build(DEFAULT_MODEL)
    scenario = read_scenario(folder)
    graph = build_graph(scenario, SceneConfig())
    prepare_cpu, _ = median_ms(lambda: build_graph(scenario, SceneConfig()), repeats)
    results: dict[str, float] = {
        "parameters (M)": sum(p.numel() for p in model.parameters()) / 1e6,
        "agents": graph["agent"].num_nodes,
        "lanes": graph["lane"].num_nodes,
        "scenario to graph, CPU ms": prepare_cpu,
    }
    for size in batch_sizes:
        batch = Batch.from_data_list([graph] * size)
        model.eval()
        with torch.inference_mode():
            cpu, wall = median_ms(partial(model, batch), repeats)
        results |= {f"forward, batch {size}, CPU ms": cpu, f"forward, batch {size}, wall ms": wall}
        results[f"forward, batch {size}, scenes/s"] = 1e3 * size / cpu

    batch = Batch.from_data_list([graph] * 16)
    model.train()

    def step() -> None:
        model.zero_grad()
        model.losses(batch)["loss"].backward()

    cpu, wall = median_ms(step, repeats)
    torch.set_num_threads(threads)
    return results | {"training step, batch 16, CPU ms": cpu, "training step, batch 16, wall ms": wall}
