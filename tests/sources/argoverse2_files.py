"""Scenes of the sample, cut short, and scenarios written as files of Argoverse 2."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.conftest import SAMPLE
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.sources.argoverse2 import TEXT, archive_of, discover, read_scenario
from trajpred.store import prepare


@cache
def sample_scene(index: int) -> Scenario:
    """Return a training scenario of the sample, with times that float64 holds exactly."""
    scenario = read_scenario(discover(SAMPLE)["train"][index].path)
    return replace(scenario, timestamps_ns=315_964_800 * 10**9 + 10**8 * np.arange(scenario.num_steps))


def short_scene(index: int = 0, steps: int = 10, observed: int = 5, tracks: int = 12) -> Scenario:
    """Return these steps around the last observed one, with the focal track and those nearest to it there."""
    window = sample_scene(index).window(observed, steps - observed)
    now = window.tracks.position[:, observed - 1]
    distance = np.hypot(*(now - now[window.focal]).T)
    distance[~window.tracks.valid[:, observed - 1]] = np.inf
    nearest = np.sort(np.argsort(distance, kind="stable")[:tracks])
    return replace(window, tracks=window.tracks.take(nearest)).validate()


def write_scenario(scenario: Scenario, folder: Path) -> None:
    """Write ``scenario_<id>.parquet`` and ``log_map_archive_<id>.json`` into a new or existing ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    name = scenario.scenario_id
    pq.write_table(scenario_table(scenario), folder / f"scenario_{name}.parquet", use_dictionary=list(TEXT))
    archive = json.dumps(archive_of(scenario.map, digits=None))
    (folder / f"log_map_archive_{name}.json").write_text(archive)


def short_store(folder: Path, split: str = "train", count: int = 3, **lengths: int) -> Path:
    """Write short scenes to ``folder/raw`` and return the store that is prepared from them."""
    for index in range(count):
        scenario = short_scene(index, **lengths)
        write_scenario(scenario, folder / "raw" / split / scenario.scenario_id)
    store = folder / "store"
    prepare("argoverse2", folder / "raw", store, workers=1, progress=False)
    return store


def scenario_table(scenario: Scenario) -> pa.Table:
    """Return one row per track and valid step, with Argoverse 2's columns and types."""
    tracks = scenario.tracks
    track, step = np.nonzero(tracks.valid)

    def constant(value: Any, dtype: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, dtype), len(track))

    x, y = tracks.position[track, step].T
    velocity_x, velocity_y = tracks.velocity[track, step].T
    return pa.table(
        {
            "observed": step < scenario.num_observed,
            "track_id": tracks.track_id[track].tolist(),
            "object_type": np.array(OBJECT_TYPES)[tracks.object_type[track]].tolist(),
            "object_category": tracks.category[track].astype(np.int64),
            "timestep": step,
            "position_x": x,
            "position_y": y,
            "heading": tracks.heading[track, step],
            "velocity_x": velocity_x,
            "velocity_y": velocity_y,
            "scenario_id": constant(scenario.scenario_id, pa.string()),
            "start_timestamp": constant(float(scenario.timestamps_ns[0]), pa.float64()),
            "end_timestamp": constant(float(scenario.timestamps_ns[-1]), pa.float64()),
            "num_timestamps": constant(scenario.num_steps, pa.int64()),
            "focal_track_id": constant(scenario.focal_id, pa.string()),
            "city": constant(scenario.city, pa.string()),
        }
    )
