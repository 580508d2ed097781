"""What tests of map files share."""

from __future__ import annotations

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
