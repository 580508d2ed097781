"""The notebooks in docs/tutorials run, and are kept with their outputs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
each = pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def count_pictures(notebook: Any) -> int:
    count = 0
    for cell in code_cells(notebook):
        count += sum("image/png" in output.get("data", {}) for output in cell["outputs"])
    return count


@each
def test_is_kept_with_its_outputs(path: Path) -> None:
    cells = code_cells(json.loads(path.read_text(encoding="utf-8")))
    order = [cell["execution_count"] for cell in cells]
    assert order == [*range(1, len(cells) + 1)], "not run from the start"
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert len(outputs) >= len(cells) / 2
    assert all(output["output_type"] != "error" for output in outputs)
    assert path.stat().st_size < 1_000_000
    assert str(ROOT) not in path.read_text(encoding="utf-8")


@pytest.mark.slow
@each
def test_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, with the commands of this environment, and with as many outputs as kept."""
    client = pytest.importorskip("nbclient", reason="needs the extra docs")
    read = pytest.importorskip("nbformat").read
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook, kept = read(shutil.copy(path, tmp_path), 4), read(path, 4)
    for cell in notebook.cells:  # a row of one core minute instead of ten
        cell.source = cell.source.replace("--seeds 0", "--seeds 0 --minutes 1")
    client.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert count_pictures(notebook) == count_pictures(kept)
