"""What is installed from a built wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.conftest import ROOT


@pytest.mark.slow
def test_a_wheel_holds_weights_and_their_cards(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "trajpred", copy / "trajpred", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("tiny.pt", "tiny.md"):
        (copy / "trajpred" / "weights" / name).write_text(name)
    build = [sys.executable, "-m", "pip", "wheel", copy, "--no-deps", "--no-build-isolation", "-w", tmp_path]
    done = subprocess.run(build, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    [wheel] = tmp_path.glob("*.whl")
    with ZipFile(wheel) as content:
        assert content.read("trajpred/weights/tiny.pt") == b"tiny.pt"
        assert {"trajpred/weights/tiny.md", "trajpred/weights/README.md"} <= set(content.namelist())
