"""Constructed scenarios with features that the sample lacks, and the files of a store."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trajpred.data.lane_map import LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario

ORIGIN = np.array([1e7, -1e7])
#: Options of ``prepare``; the 16 scenarios of the sample make 1 + 4 + 2 shards.
OPTIONS: dict[str, Any] = {"workers": 1, "shard_size": 3, "progress": False}


def made(**changes: Any) -> Scenario:
    """Return two tracks with gaps and a map of two lanes, far from the origin."""
    rng = np.random.default_rng(0)
    position = ORIGIN + np.cumsum(rng.normal(size=(2, 12, 2)), axis=1)
    position[0, 2] = position[1, 5:] = np.nan
    lanes = [ORIGIN + rng.normal(scale=100, size=(points, 2)) for points in (2, 7)]
    inputs = {"position": position, "num_observed": 8, "map": lanes}
    return Scenario.from_arrays(**(inputs | changes))


def shard(split: Path, number: int = 0) -> Path:
    """Return a shard of a split; its name ends with a checksum."""
    [path] = split.glob(f"shard-{number:05}-*.arrow")
    return path


def index(split: Path) -> Path:
    """Return the index of a split; its name ends with a checksum."""
    [path] = split.glob("index-*.arrow")
    return path


def flip(path: Path) -> None:
    """Change a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def full_map() -> LaneMap:
    """Return a map with every element, heights, and 64-bit ids."""
    lines = Ragged.from_rows([[[0, 0, 1.5], [5, 0, -2]], [[5, 0, 3], [6, 1, 3], [7, 1, 3]]], 3)
    lanes = LaneMap.from_centerlines(
        [[[0, 0], [1, 0]]] * 2, lane_id=[2**62, -(2**62)], successors=[[7], [8, 9]]
    )
    return replace(
        lanes,
        centerline=lines,
        left_boundary=lines,
        is_intersection=np.array([True, False]),
        lane_type=np.array([1, 2], np.int8),
        left_mark=np.array([14, 3], np.int8),
        left_neighbor=np.array([2**61, -1]),
        crossing_id=np.array([2**60]),
        crossing_edge1=Ragged.from_rows([[[0, 0, 1], [1, 1, 1]]], 3),
        crossing_edge2=Ragged.from_rows([[[0, 1, 1], [1, 2, 1]]], 3),
        drivable_area_id=np.array([5]),
        drivable_area=Ragged.from_rows([[[0, 0, 9], [1, 1, 9], [0, 1, 9]]], 3),
    )


def stamps(store: Path) -> dict[str, tuple[int, int]]:
    """Return inode and modification time of each file, which change whenever it is written."""
    files = {path: path.stat() for path in store.rglob("*") if path.is_file() and path.name != ".lock"}
    return {str(path.relative_to(store)): (stat.st_ino, stat.st_mtime_ns) for path, stat in files.items()}


def changed(store: Path, before: dict[str, tuple[int, int]]) -> set[str]:
    """Return the names of the files written since, without checksums."""
    return {unsigned(name) for name, stamp in stamps(store).items() if stamp != before.get(name)}


def unsigned(name: str) -> str:
    """Remove the checksum of a name."""
    return re.sub(r"-[0-9a-f]{8}\.arrow$", ".arrow", name)


def manifest(store: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((store / "manifest.json").read_text())
    return content


def only(raw: Path, split: str) -> Path:
    """Copy one split of ``raw``."""
    target = raw.with_name(f"only {split}")
    shutil.copytree(raw / split, target / split)
    return target
