"""What tests of sources share: maps that are written, and a copy of a Sensor log."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from trajpred import LaneMap


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., LaneMap]:
    def load(content: bytes, **options: object) -> LaneMap:
        path = tmp_path / "map.xml"
        path.write_bytes(content)
        return LaneMap.load(path, **options)  # type: ignore[arg-type]

    return load


@pytest.fixture
def logs(shared: Path) -> Path:
    return shared / "data/argoverse2/sensor"


@pytest.fixture
def raw(logs: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the validation log."""
    shutil.copytree(logs / "val", tmp_path / "raw/val")
    return tmp_path / "raw"
