"""Atomic files: whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from trajpred.files import atomic_file


def test_a_file_appears_whole_or_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text("before")
    with pytest.raises(RuntimeError), atomic_file(path) as unfinished:
        unfinished.write_text("half")
        assert path.read_text() == "before" and unfinished.parent == path.parent
        raise RuntimeError
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]
    with atomic_file(path) as unfinished:
        unfinished.write_text("after")
    assert path.read_text() == "after" and list(tmp_path.iterdir()) == [path]
