"""Every parity vector at hand against our operators: one test per case.

``TRAJPRED_PARITY`` names the folder (default ``$TRAJPRED_SHARED/parity/open``); the few cases in
``tests/nn/parity/vectors`` run on any clone.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

from tests.nn.parity.case import Case

HERE = Path(__file__).parent / "parity" / "vectors"
SHARED = Path(os.environ.get("TRAJPRED_SHARED", Path(__file__).parents[3] / "shared"))
ROOT = Path(os.environ.get("TRAJPRED_PARITY", SHARED / "parity" / "open"))


def cases(root: Path) -> list[Path]:
    return sorted(root.glob("*/*.json"))


def check(path: Path) -> None:
    case = Case(path)
    importlib.import_module(f"tests.nn.parity.{case.layer}").check(case)
    assert not case.options.unread, f"options that the test does not know: {sorted(case.options.unread)}"


@pytest.mark.parametrize("path", cases(HERE), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_shipped_vectors(path: Path) -> None:
    check(path)


@pytest.mark.skipif(not ROOT.is_dir(), reason=f"TRAJPRED_PARITY: no folder {ROOT}")
@pytest.mark.parametrize("path", cases(ROOT), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_vectors(path: Path) -> None:
    check(path)
