"""Reading, preparing and loading scenarios beside av2's loaders."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from trajpred.benchmark.model import make_model, training_step
from trajpred.benchmark.timing import median_ms, use_threads
from trajpred.features.config import SceneConfig
from trajpred.sources import SOURCES
from trajpred.sources.argoverse2 import read_archive, read_scenario
from trajpred.store import ScenarioStore, prepare
from trajpred.store.format import encode_row
from trajpred.store.sample import SAMPLE_NATIVE, SAMPLE_RAW
from trajpred.store.shards import write_shard
from trajpred.training.data_module import SceneDataset

#: Scenarios of a shard.
SHARD = 256


@use_threads()
def data_figures(raw: Path | None, repeats: int) -> dict[str, float]:
    """Measure reading, preparing and loading: CPU ms and bytes, mean over scenarios.

    The sample's native scenarios are also measured without its windows of sensor logs, which are crowded.

    Args:
        raw: scenarios in Argoverse 2's layout, by default the sample.
        repeats: measurements of each figure.
    """
    raw = raw or SAMPLE_RAW
    folders: list[Path] = []
    for scenarios in SOURCES["argoverse2"].scenarios(raw).values():
        folders += [scenario.path for scenario in scenarios]
    native = [folder for folder in folders if folder.name in SAMPLE_NATIVE]
    groups: dict[str, list[Path]] = {}
    if native:
        groups["native"] = native
    if len(folders) > len(native):
        groups["all"] = folders
    figures: dict[str, float] = {}
    for name, group in groups.items():
        measured = _reading(group, repeats) | _preparing(group, repeats) | _loading(group, repeats)
        for what, value in measured.items():
            figures[f"{name} {len(group)}: {what}"] = value
    return figures


def _mean(work: Callable[[Path], object], folders: list[Path], repeats: int) -> float:
    """Return the mean over ``folders`` of the median CPU time of ``work``, in ms."""
    times = []
    for folder in folders:
        cpu, _ = median_ms(partial(work, folder), repeats)
        times.append(cpu)
    return statistics.mean(times)


def _reading(folders: list[Path], repeats: int) -> dict[str, float]:
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


def _preparing(folders: list[Path], repeats: int) -> dict[str, float]:
    """Measure raw files to a shard, filled with these scenarios again and again, and its size."""

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


def _loading(folders: list[Path], repeats: int, batch_size: int = 32) -> dict[str, float]:
    """Measure store to batch (reading, features, edges) in one worker, beside a training step."""
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
        step_ms, _ = training_step(make_model(None), data.load(rows[:half]), min(repeats, 3))
        step_ms /= half
    return {
        "store to batch, ms": load_ms,
        "training step per scenario, ms": step_ms,
        "training step / store to batch": step_ms / load_ms,
    }
