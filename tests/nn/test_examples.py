"""The examples in the docstrings and on the operators' page run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import trajpred.nn

ROOT = Path(trajpred.nn.__file__).parent
MODULES = sorted(
    ".".join(("trajpred.nn", *path.relative_to(ROOT).with_suffix("").parts)) for path in ROOT.rglob("*.py")
)


@pytest.mark.parametrize("name", [name for name in MODULES if "__init__" not in name])
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert not result.failed


def test_page() -> None:
    page = ROOT.parents[1] / "docs" / "concepts" / "operators.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted
    assert not result.failed
