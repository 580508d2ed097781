"""Checkpoints that are written whole or not at all, and which one a run goes on from."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import pytorch_lightning as pl
import torch

from tests.conftest import ROOT
from trajpred.errors import DataError
from trajpred.model import Forecaster
from trajpred.model.checkpoint import read_checkpoint
from trajpred.training.checkpoint_io import AtomicCheckpointIO, newest_checkpoint


def content(step: int) -> dict[str, Any]:
    return {"trajpred_config": {"step": step}, "state_dict": {"w": torch.full((2000,), float(step))}}


def save(path: Path, *steps: int) -> None:
    for step in steps:
        AtomicCheckpointIO().save_checkpoint(content(step), path)


def step_of(path: Path) -> int:
    step: int = read_checkpoint(path)["trajpred_config"]["step"]
    return step


def test_the_last_one_leaves_its_predecessor(tmp_path: Path) -> None:
    save(tmp_path / "new" / "last.ckpt", 1, 2, 3)
    save(tmp_path / "new" / "best.ckpt", 1, 2)
    found = {path.name: step_of(path) for path in (tmp_path / "new").iterdir()}
    assert found == {"last.ckpt": 3, "previous.ckpt": 2, "best.ckpt": 2}


def test_content_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    did, fsync, replace = [], os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: (did.append("fsync"), fsync(file))[1])
    monkeypatch.setattr(Path, "replace", lambda a, b: (did.append(f"{a.name} {b.name}"), replace(a, b))[1])
    save(tmp_path / "best.ckpt", 1)
    assert did[:2] == ["fsync", "x"]
    assert did[2:] == ([] if sys.platform == "win32" else ["fsync"])


def test_a_full_disk_costs_nothing_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    save(tmp_path / "last.ckpt", 1, 2)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path / "last.ckpt", 3)
    assert {path.name: step_of(path) for path in tmp_path.iterdir()} == {"last.ckpt": 2, "previous.ckpt": 1}


#: Saves without end.
ENDLESS = """
import sys
from itertools import count
from pathlib import Path
from tests.training.test_checkpoint_io import save
for step in count():
    save(Path(sys.argv[1]), step)
"""


def test_a_kill_at_any_time_leaves_whole_ones(tmp_path: Path) -> None:
    path, environment = (
        tmp_path / "last.ckpt",
        {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    writer = subprocess.Popen([sys.executable, "-c", ENDLESS, str(path)], env=environment)
    while not (tmp_path / "previous.ckpt").is_file():
        assert writer.poll() is None
        time.sleep(0.01)
    writer.kill()
    writer.wait()
    assert newest_checkpoint(tmp_path)[0] == path
    # The same one between the two renamings.
    assert step_of(path) - step_of(tmp_path / "previous.ckpt") in (0, 1)


def test_the_last_one_is_never_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even between the two renamings, with second names for files or without."""
    path, replace = tmp_path / "last.ckpt", Path.replace

    def ending(old: Path, new: Path) -> None:
        replace(old, new)
        raise KeyboardInterrupt

    def no_second_names(*_: object) -> None:
        raise OSError(errno.EPERM, "no second names")

    save(path, 1, 2)
    for link in (os.link, no_second_names):
        monkeypatch.setattr(os, "link", link)
        with monkeypatch.context() as ended, pytest.raises(KeyboardInterrupt):
            ended.setattr(Path, "replace", ending)
            save(path, 3)
        assert step_of(path) == step_of(tmp_path / "previous.ckpt") == 2
    save(path, 3)
    assert [step_of(tmp_path / name) for name in ("last.ckpt", "previous.ckpt")] == [3, 2]


def test_a_damaged_one_does_not_push_out_the_previous_one(tmp_path: Path) -> None:
    last = tmp_path / "last.ckpt"
    save(last, 1, 2)
    last.write_bytes(last.read_bytes()[:-50])
    assert newest_checkpoint(tmp_path)[0].name == "previous.ckpt"
    save(last, 2)
    assert [step_of(tmp_path / name) for name in ("last.ckpt", "previous.ckpt")] == [2, 1]


def test_a_compressed_one_is_refused_before_it_unpacks(tmp_path: Path) -> None:
    """Its size says nothing of what it would take."""
    save(tmp_path / "best.ckpt", 1)
    with ZipFile(tmp_path / "best.ckpt") as plain, ZipFile(tmp_path / "packed.ckpt", "w") as packed:
        for entry in plain.infolist():
            packed.writestr(entry.filename, plain.read(entry), compress_type=ZIP_DEFLATED)
    with pytest.raises(DataError, match="compressed, which checkpoints are not"):
        read_checkpoint(tmp_path / "packed.ckpt")


def test_a_checkpoint_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class may be anybody's, as long as somebody else has imported it."""
    (tmp_path / "somebody.py").write_text("raise SystemExit('was run')")
    monkeypatch.syspath_prepend(tmp_path)
    content = read_checkpoint("argoverse2-demo")
    content["trajpred_config"]["encoder"]["class_path"] = "somebody.Encoder"
    torch.save(content, tmp_path / "own.ckpt")
    with pytest.raises(DataError, match=r"own\.ckpt, field 'trajpred_config': .*'somebody.Encoder'"):
        Forecaster.load(tmp_path / "own.ckpt")
    monkeypatch.setitem(sys.modules, "somebody", ModuleType("somebody"))
    assert read_checkpoint(tmp_path / "own.ckpt")


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """In a weight too, where torch itself would take any value."""
    save(tmp_path / "best.ckpt", 1)
    data = bytearray((tmp_path / "best.ckpt").read_bytes())
    data[data.index(torch.ones(500).numpy().tobytes()) + 1000] ^= 1
    (tmp_path / "best.ckpt").write_bytes(data)
    assert not torch.load(tmp_path / "best.ckpt", weights_only=True)["state_dict"]["w"].eq(1).all()
    with pytest.raises(DataError, match=r"damaged: \w+/data/0"):
        read_checkpoint(tmp_path / "best.ckpt")


@pytest.mark.parametrize("named", ["run", "run/checkpoints", "run/checkpoints/last.ckpt"])
@pytest.mark.parametrize("kept", [None, 0, 0.5, 0.99])
def test_the_previous_one_steps_in(
    tmp_path: Path, named: str, kept: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    save(last, 1, 2)
    assert newest_checkpoint(tmp_path / named)[0] == last and capsys.readouterr().err == ""
    if kept is None:
        last.unlink()
    else:
        last.write_bytes(last.read_bytes()[: int(kept * last.stat().st_size)])
    path, found = newest_checkpoint(tmp_path / named)
    assert path.name == "previous.ckpt" and found["trajpred_config"]["step"] == 1
    assert capsys.readouterr().err.startswith(f"warning: {last}: ")


def test_what_cannot_be_gone_on_from_is_refused(tmp_path: Path) -> None:
    best, last = tmp_path / "best.ckpt", tmp_path / "last.ckpt"
    save(best, 1)
    save(last, 1, 2)
    best.write_bytes(b"")
    with pytest.raises(DataError, match="best"):
        newest_checkpoint(best)  # the best one is not the same as an older one
    for path in (last, tmp_path / "previous.ckpt"):
        path.write_bytes(b"PK")
    with pytest.raises(DataError, match="previous"):
        newest_checkpoint(tmp_path)
    (tmp_path / "empty").mkdir()
    for nothing in ("empty", "absent"):
        with pytest.raises(DataError, match="no such checkpoint"):
            newest_checkpoint(tmp_path / nothing)


def test_a_checkpoint_of_another_lightning_program_is_refused(tmp_path: Path) -> None:
    class Other(pl.LightningModule):
        def configure_optimizers(self) -> None:
            return None

    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.strategy.connect(Other())
    trainer.save_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    with pytest.raises(DataError, match="is not a trajpred checkpoint"):
        newest_checkpoint(tmp_path)


def test_a_size_beyond_that_of_the_weights_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    content = read_checkpoint("argoverse2-demo")
    content["trajpred_config"]["encoder"]["init_args"]["layers"] = 2**62
    torch.save(content, tmp_path / "endless.ckpt")
    with pytest.raises(DataError, match="sizes in trajpred_config"):
        read_checkpoint(tmp_path / "endless.ckpt")
