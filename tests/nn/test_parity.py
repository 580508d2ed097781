"""Every parity vector at hand against our operators: one test per case.

``TRAJPRED_PARITY`` names the folder (default ``$TRAJPRED_SHARED/parity/open``). The few vectors that ship
with the repository have a test of their own, so that the count here is the count of cases.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.nn.parity.case import cases, check

SHARED = Path(os.environ.get("TRAJPRED_SHARED", Path(__file__).parents[3] / "shared"))
ROOT = Path(os.environ.get("TRAJPRED_PARITY", SHARED / "parity" / "open"))


@pytest.mark.skipif(not ROOT.is_dir(), reason=f"TRAJPRED_PARITY: no folder {ROOT}")
@pytest.mark.parametrize("path", cases(ROOT), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_vectors(path: Path) -> None:
    check(path)
