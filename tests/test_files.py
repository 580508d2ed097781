"""Atomic files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from trajpred.files import atomic_file


@pytest.mark.parametrize("flush", [True, False])
def test_a_file_is_replaced_completely_or_not_at_all(tmp_path: Path, flush: bool) -> None:
    path = tmp_path / "results.json"
    path.write_text("before")
    with pytest.raises(RuntimeError), atomic_file(path, flush) as unfinished:
        unfinished.write_text("half")
        assert path.read_text() == "before" and unfinished.parent == path.parent
        raise RuntimeError
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]
    with atomic_file(path, flush) as unfinished:
        unfinished.write_text("after")
    assert path.read_text() == "after" and list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_a_pipe_is_written_directly(tmp_path: Path) -> None:
    path, received = tmp_path / "pipe", list[str]()
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: received.append(path.read_text()), daemon=True)
    reader.start()
    with atomic_file(path) as unfinished:
        unfinished.write_text("results")
    reader.join(10)
    assert received == ["results"] and path.is_fifo()
