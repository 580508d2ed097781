"""What tests of sources share: a copy of a Sensor log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def logs(shared: Path) -> Path:
    return shared / "data/argoverse2/sensor"


@pytest.fixture
def raw(logs: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the validation log."""
    shutil.copytree(logs / "val", tmp_path / "raw/val")
    return tmp_path / "raw"
