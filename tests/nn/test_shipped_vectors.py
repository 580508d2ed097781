"""The parity vectors that ship with the repository: a bare clone proves every operator."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nn.parity.case import cases, check

VECTORS = Path(__file__).parent / "parity" / "vectors"


@pytest.mark.parametrize("path", cases(VECTORS), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_shipped_vectors(path: Path) -> None:
    check(path)
