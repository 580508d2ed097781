"""What tests of maps share, and the fixtures of the onboard tests, for replays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.onboard.conftest import *  # noqa: F403
from trajpred import LaneMap, read_map


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., LaneMap]:
    """Write the content of a map file and read it."""

    def load(content: bytes, **options: object) -> LaneMap:
        path = tmp_path / "map.xml"
        path.write_bytes(content)
        return read_map(path, **options)  # type: ignore[arg-type]

    return load
