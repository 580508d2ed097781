"""Checkpoints are written completely or not at all, and a run resumes from the newest complete one."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import rejects
from trajpred.model.checkpoint import CONFIG, read_checkpoint
from trajpred.training.checkpoint_io import AtomicCheckpointIO, BestCheckpoint, newest_checkpoint


def save(path: Path, *steps: int) -> None:
    for step in steps:
        weights = {"w": torch.full((2000,), float(step))}
        AtomicCheckpointIO().save_checkpoint({CONFIG: {"step": step}, "state_dict": weights}, path)


def step_of(path: Path) -> int:
    step: int = read_checkpoint(path)[CONFIG]["step"]
    return step


def steps(folder: Path) -> dict[str, int]:
    """Steps of all files of a folder by name."""
    return {path.name: step_of(path) for path in folder.iterdir()}


on_unix = pytest.mark.skipif(sys.platform == "win32", reason="links not for everyone on Windows")


@pytest.mark.parametrize("link", [False, pytest.param(True, marks=on_unix)])
def test_the_last_checkpoint_keeps_its_predecessor(tmp_path: Path, link: bool) -> None:
    last = tmp_path / "new" / "last.ckpt"
    if link:
        last.parent.mkdir()
        last.symlink_to(tmp_path / "weights.ckpt")
    save(last, 1, 2, 3)
    save(tmp_path / "new" / "best.ckpt", 1, 2)
    assert last.is_symlink() == link
    assert steps(last.parent) == {"last.ckpt": 3, "previous.ckpt": 2, "best.ckpt": 2}
    last.write_bytes(last.read_bytes()[:-50])
    save(last, 4)
    assert steps(last.parent)["previous.ckpt"] == 2, "a damaged one does not replace it"


def test_a_full_disk_leaves_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    save(tmp_path / "last.ckpt", 1, 2)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path / "last.ckpt", 3)
    assert steps(tmp_path) == {"last.ckpt": 2, "previous.ckpt": 1}


@pytest.mark.parametrize("links", [True, False])
def test_the_last_checkpoint_exists_between_the_two_renamings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    path = tmp_path / "last.ckpt"
    replace = Path.replace

    def stop_after(old: Path, new: Path) -> None:
        replace(old, new)
        raise KeyboardInterrupt

    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "links are not supported")

    save(path, 1, 2)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(Path, "replace", stop_after)
        save(path, 3)
    assert step_of(path) == step_of(tmp_path / "previous.ckpt") == 2
    save(path, 3)
    assert steps(tmp_path) == {"last.ckpt": 3, "previous.ckpt": 2}


@pytest.mark.parametrize("named", ["run", "run/checkpoints", "run/checkpoints/last.ckpt"])
@pytest.mark.parametrize("kept", [None, 0.99])
def test_the_previous_checkpoint_stands_in_for_a_damaged_one(
    tmp_path: Path, named: str, kept: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    save(last, 1, 2)
    assert newest_checkpoint(tmp_path / named)[0] == last
    assert capsys.readouterr().err == ""
    content = last.read_bytes()
    last.unlink()
    if kept:
        last.write_bytes(content[: int(kept * len(content))])
    path, checkpoint = newest_checkpoint(tmp_path / named)
    assert path.name == "previous.ckpt"
    assert checkpoint[CONFIG]["step"] == 1
    assert capsys.readouterr().err.startswith(f"warning: {last}: ")


def test_a_run_without_a_complete_checkpoint_is_rejected(tmp_path: Path) -> None:
    best = tmp_path / "best.ckpt"
    last = tmp_path / "last.ckpt"
    save(best, 1)
    save(last, 1, 2)
    best.write_bytes(b"")
    rejects("best", newest_checkpoint, best)  # which previous.ckpt does not stand in for
    for path in (last, tmp_path / "previous.ckpt"):
        path.write_bytes(b"PK")
    rejects("previous", newest_checkpoint, tmp_path)
    (tmp_path / "empty").mkdir()
    rejects("contains no last", newest_checkpoint, tmp_path / "empty")
    rejects("no such run", newest_checkpoint, tmp_path / "absent")


def best_of(folder: Path) -> BestCheckpoint:
    return BestCheckpoint(folder, "best", monitor="val/loss", enable_version_counter=False)


@pytest.mark.parametrize("kept", [True, False])
def test_a_moved_run_knows_its_best_checkpoint_if_it_is_there(tmp_path: Path, kept: bool) -> None:
    before = best_of(tmp_path / "before")
    path = str(tmp_path / "before" / "best.ckpt")
    before.best_k_models = {path: torch.tensor(1.5)}
    before.kth_best_model_path = path
    before.best_model_path = path
    before.best_model_score = torch.tensor(1.5)
    folder = tmp_path / "now"
    folder.mkdir()
    now = best_of(folder)
    if kept:
        (folder / "best.ckpt").touch()
        now.load_state_dict(before.state_dict())
        assert now.best_model_path == now.kth_best_model_path == str(folder / "best.ckpt")
        assert now.best_model_score == 1.5
        assert now.best_k_models == {str(folder / "best.ckpt"): 1.5}
    else:
        for callback in (now, best_of(tmp_path / "before")):  # also where it was lost from the same folder
            callback.load_state_dict(before.state_dict())
            assert (callback.best_k_models, callback.best_model_path) == ({}, "")
            assert callback.best_model_score is None
