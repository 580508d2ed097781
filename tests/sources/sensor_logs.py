"""Sensor logs of Argoverse 2, copied and changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyarrow import feather

BOXES = "annotations.feather"
POSES = "city_SE3_egovehicle.feather"


def only_log(raw: Path) -> Path:
    [log] = (raw / "val").iterdir()
    return log


def change(file: Path, damage: Callable[[pa.Table], pa.Table]) -> None:
    feather.write_feather(damage(feather.read_table(file, memory_map=False)), str(file))
