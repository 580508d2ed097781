"""Atomic files."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from trajpred.data.files import atomic_file


@pytest.mark.parametrize("flush", [True, False])
def test_a_file_is_replaced_completely_or_not_at_all(tmp_path: Path, flush: bool) -> None:
    path = tmp_path / "results.json"
    path.write_text("before")
    with pytest.raises(RuntimeError), atomic_file(path, flush) as unfinished:
        unfinished.write_text("half")
        assert path.read_text() == "before"
        assert unfinished.parent == path.parent
        raise RuntimeError
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    with atomic_file(path, flush) as unfinished:
        unfinished.write_text("after")
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_reported_with_the_file_and_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "results.json"
    path.write_text("before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught, atomic_file(path) as unfinished:
        unfinished.write_text("after")
    assert caught.value.filename == str(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_a_pipe_is_written_directly(tmp_path: Path) -> None:
    path, received = tmp_path / "pipe", list[str]()
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: received.append(path.read_text()), daemon=True)
    reader.start()
    with atomic_file(path) as unfinished:
        unfinished.write_text("results")
    reader.join(10)
    assert received == ["results"]
    assert path.is_fifo()


def test_success_removes_abandoned_files_of_the_same_target(tmp_path: Path) -> None:
    names = [f".unfinished-0123456{i}-{name}" for i, name in enumerate(("a.json", "a.json", "b.json"))]
    for name in names:
        (tmp_path / name).touch()
    for name in (names[0], names[2]):
        os.utime(tmp_path / name, times=(0, 0))
    with atomic_file(tmp_path / "a.json") as unfinished:
        unfinished.touch()
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", *names[1:]}, "a recent one may be in use"
