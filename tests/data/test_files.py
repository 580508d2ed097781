"""Atomic files; stages and bars in a file: lines that can be read, before and after the work."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from trajpred.data import files
from trajpred.data.files import atomic_file, require_writable


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


def test_the_longest_names_are_written(tmp_path: Path) -> None:
    """255 bytes; the temporary name is longer, and must not end within a letter."""
    for name in ("x" * 255, "é" * 127, "雨" * 85, "x雨" * 63):
        with atomic_file(tmp_path / name) as unfinished:
            unfinished.write_text(name)
        assert (tmp_path / name).read_text() == name
    assert len([*tmp_path.iterdir()]) == 4


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


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes, and links not for everyone")
@pytest.mark.parametrize("mode", [None, 0o600, 0o666], ids=str)
def test_a_link_stays_and_its_file_is_made_or_keeps_its_mode(tmp_path: Path, mode: int | None) -> None:
    target, link = tmp_path / "data" / "results.json", tmp_path / "link.json"
    if mode is not None:
        target.parent.mkdir()
        target.write_text("before")
        target.chmod(mode)
    link.symlink_to(Path("data") / target.name)
    require_writable(link)
    with atomic_file(link) as unfinished:
        unfinished.write_text("after")
    assert link.is_symlink()
    assert target.read_text() == "after"
    assert mode in (None, stat.S_IMODE(target.stat().st_mode))
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="the system does not name open files")
def test_an_open_file_is_written_directly(tmp_path: Path) -> None:
    """As with ``--out /dev/fd/1 > out.txt``: what is written to the open file later is not lost."""
    path = tmp_path / "out.txt"
    with path.open("w") as file:
        with atomic_file(f"/dev/fd/{file.fileno()}") as unfinished:
            unfinished.write_text("results\n")
        assert os.fstat(file.fileno()).st_ino == path.stat().st_ino
    assert path.read_text() == "results\n"


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


def test_a_loop_prints_whole_lines_where_no_one_watches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in files.progress_bar(range(1000), desc="scoring", unit=" scenarios"):
        pass
    first, last = capsys.readouterr().err.splitlines()
    assert "0/1000" in first
    assert "1000/1000" in last
    assert "\r" not in first + last
    monkeypatch.setattr(files, "LINE_S", 0.0)
    for _ in files.progress_bar(range(3), miniters=1):
        pass
    assert [f"{count}/3 " in line for count, line in enumerate(capsys.readouterr().err.splitlines()[:4])]
    list(files.progress_bar(range(3), shown=False))
    assert capsys.readouterr().err == ""


def test_a_stage_is_announced_before_it_begins_and_ends_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with files.stage("tracing"):
        assert capsys.readouterr().err == "tracing … "
    assert capsys.readouterr().err.endswith(" s\n")
    with pytest.raises(ValueError), files.stage("checking"):
        raise ValueError
    assert capsys.readouterr().err == "checking … \n"
