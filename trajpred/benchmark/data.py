"""Reading, preparing and loading scenarios beside av2's loaders, and the metrics beside av2's functions."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from trajpred.benchmark.model import make_model, training_step
from trajpred.benchmark.timing import median_ms, use_threads
from trajpred.graph.config import SceneConfig
from trajpred.graph.data_module import SceneDataset
from trajpred.metrics import agent_metrics, world_metrics
from trajpred.sources.argoverse2 import discover, read_map, read_scenario
from trajpred.store import ScenarioStore, prepare
from trajpred.store.codec import encode_row
from trajpred.store.sample import SAMPLE_NATIVE, SAMPLE_RAW
from trajpred.store.shards import write_shard

#: Scenarios of a shard.
SHARD = 256
#: Agents evaluated at once, about 16 scenarios of Argoverse 2.
CHUNK = 500
NAMES = ("minADE", "minFDE", "MR", "brier-minFDE", "brier-minADE")


@use_threads()
def data_figures(raw: Path | None, repeats: int) -> dict[str, float]:
    """Measure reading, preparing and loading: CPU ms and bytes, mean over scenarios.

    The sample's native scenarios are also measured without its windows of sensor logs, which are crowded.

    Args:
        raw: scenarios in Argoverse 2's layout, by default the sample.
    """
    raw = raw or SAMPLE_RAW
    folders = [folder for split in discover(raw).values() for folder in split]
    native = [folder for folder in folders if folder.name in SAMPLE_NATIVE]
    figures: dict[str, float] = {}
    for name, group in (("native", native), ("all", folders)):
        if group and (name == "native" or len(group) > len(native)):
            found = _reading(group, repeats) | _preparing(group, repeats) | _loading(group, repeats)
            figures |= {f"{name} {len(group)}: {what}": value for what, value in found.items()}
    return figures


def _mean(work: Callable[[Path], object], folders: list[Path], repeats: int) -> float:
    return statistics.mean(median_ms(partial(work, folder), repeats)[0] for folder in folders)


def _reading(folders: list[Path], repeats: int) -> dict[str, float]:
    """Measure the readers of trajpred and av2."""
    from av2.datasets.motion_forecasting.scenario_serialization import load_argoverse_scenario_parquet
    from av2.map.map_api import ArgoverseStaticMap

    def av2(folder: Path) -> object:
        tracks = load_argoverse_scenario_parquet(next(folder.glob("*.parquet")))
        return tracks, ArgoverseStaticMap.from_json(next(folder.glob("*.json")))

    ours, theirs = _mean(read_scenario, folders, repeats), _mean(av2, folders, repeats)
    return {
        "read tracks and map, ms": ours,
        "of which map, ms": _mean(lambda folder: read_map(next(folder.glob("*.json"))), folders, repeats),
        "av2 reads tracks and map, ms": theirs,
        "av2 / trajpred": theirs / ours,
    }


def _preparing(folders: list[Path], repeats: int) -> dict[str, float]:
    """Measure raw files to a shard, filled with these scenarios again and again, and its size."""
    rows = [encode_row(read_scenario(folder), heights=False) for folder in folders]
    full = [rows[i % len(rows)] for i in range(SHARD)]
    encode = _mean(lambda folder: encode_row(read_scenario(folder), heights=False), folders, repeats)
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, compression in (("", None), (", zstd", "zstd")):
            shard = Path(folder) / "shard.arrow"
            write = median_ms(partial(write_shard, shard, full, compression), 3)[0] / SHARD
            figures[f"prepare{name}, ms"] = encode + write
            figures[f"stored{name}, bytes"] = shard.stat().st_size / SHARD
    return figures


def _loading(folders: list[Path], repeats: int, batch_size: int = 32) -> dict[str, float]:
    """Measure store to batch (reading, features, edges) in one worker, beside a training step."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw" / "train"
        raw.mkdir(parents=True)
        for path in folders:
            (raw / path.name).symlink_to(path.resolve(), target_is_directory=True)
        rows = np.resize(np.arange(len(folders)), batch_size)
        for name, compression in (("", None), (", zstd", "zstd")):
            store = Path(folder) / f"store{compression}"
            prepare("argoverse2", raw.parent, store, workers=1, compression=compression, progress=False)
            data = SceneDataset(ScenarioStore(store, "train"), SceneConfig())
            cpu, _ = median_ms(partial(data.__getitem__, rows), repeats)
            figures[f"store to batch{name}, ms"] = cpu / batch_size
        step = training_step(make_model(None), data[rows[: batch_size // 2]], min(repeats, 3))[0] / (
            batch_size // 2
        )
    figures["training step per scenario, ms"] = step
    figures["training step / store to batch"] = step / figures["store to batch, ms"]
    return figures


@use_threads()
def metrics_figures(forecasts: int, repeats: int, agents: int = 10) -> dict[str, float]:
    """Measure all metrics at K = 6, of agents and of joint futures of ``agents`` each, beside av2's."""
    random = np.random.default_rng(0)
    target = random.normal(0, 30, (forecasts, 60, 2))
    trajectory = target[:, None] + random.normal(0, 2, (forecasts, 6, 60, 2))
    probability = random.dirichlet(np.ones(6), forecasts)
    scenes = forecasts // agents
    single = median_ms(lambda: _single(trajectory, probability, target), repeats)[0]
    worlds = median_ms(lambda: _worlds(trajectory, probability[:scenes], target, agents), repeats)[0]
    theirs = median_ms(lambda: _single_av2(trajectory, probability, target), 1)[0]
    their_worlds = median_ms(lambda: _worlds_av2(trajectory, probability[:scenes], target, agents), 1)[0]
    return {
        f"{forecasts} forecasts, ours, CPU ms": single,
        f"{forecasts} forecasts, av2 one by one, CPU ms": theirs,
        "av2 / ours": theirs / single,
        f"{scenes} worlds of {agents} agents, ours, CPU ms": worlds,
        f"{scenes} worlds of {agents} agents, av2 one by one, CPU ms": their_worlds,
        "worlds, av2 / ours": their_worlds / worlds,
    }


def _single(trajectory: np.ndarray, probability: np.ndarray, target: np.ndarray) -> None:
    valid = torch.ones(CHUNK, 60, dtype=torch.bool)
    parts = (torch.from_numpy(x).split(CHUNK) for x in (trajectory, probability, target))
    for path, p, truth in zip(*parts, strict=True):
        agent_metrics(path, p, truth, valid[: len(path)], ks=(6,), names=NAMES)


def _single_av2(trajectory: np.ndarray, probability: np.ndarray, target: np.ndarray) -> None:
    from av2.datasets.motion_forecasting.eval import metrics as av2

    for modes, p, truth in zip(trajectory, probability, target, strict=True):
        ade, fde = av2.compute_ade(modes, truth), av2.compute_fde(modes, truth)
        ade.min(), fde.min(), av2.compute_is_missed_prediction(modes, truth).all()
        av2.compute_brier_fde(modes, truth, p)[fde.argmin()]
        av2.compute_brier_ade(modes, truth, p)[ade.argmin()]


def _worlds(trajectory: np.ndarray, probability: np.ndarray, target: np.ndarray, agents: int) -> None:
    scene = torch.arange(CHUNK // agents).repeat_interleave(agents)
    for first in range(0, len(probability), CHUNK // agents):
        rows = slice(first * agents, first * agents + len(scene))
        p = torch.from_numpy(probability[first : first + CHUNK // agents])
        path, truth = (torch.from_numpy(x[rows]) for x in (trajectory, target))
        valid = torch.ones(len(path), 60, dtype=torch.bool)
        world_metrics(path, p, truth, valid, scene[: len(path)])


def _worlds_av2(trajectory: np.ndarray, probability: np.ndarray, target: np.ndarray, agents: int) -> None:
    from av2.datasets.motion_forecasting.eval import metrics as av2

    for i, p in enumerate(probability):
        rows = slice(i * agents, (i + 1) * agents)
        paths, truth = trajectory[rows], target[rows]
        best = av2.compute_world_fde(paths, truth).argmin()
        av2.compute_world_ade(paths, truth).min()
        av2.compute_world_brier_fde(paths, truth, p)[best]
        av2.compute_world_misses(paths, truth)[:, best].mean()
        av2.compute_world_collisions(paths)[:, best].mean()
