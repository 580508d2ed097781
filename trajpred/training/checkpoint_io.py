"""Checkpoints on disk: written whole or not at all, with one to fall back on."""

from __future__ import annotations

import os
import shutil
import sys
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO
from pytorch_lightning.utilities import rank_zero_only

from trajpred.errors import DataError
from trajpred.model.checkpoint import read_checkpoint, verify_archive

#: In the folder of a run: where its checkpoints lie, the one to resume from, and the one that this replaced.
FOLDER, LAST, PREVIOUS = "checkpoints", "last.ckpt", "previous.ckpt"


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place, has it brought to disk, then renames it.

    Whatever ends the process or the machine, a file of the name asked for is a whole one, and one that was
    there still is. The last but one whole ``last.ckpt`` stays as ``previous.ckpt``. Raises: OSError if the
    disk is full; what was there stays.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        path, content = Path(path), BytesIO()
        torch.save(checkpoint, content)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".unfinished-{path.name}")
        try:
            with unfinished.open("wb") as file:
                file.write(content.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            if path.name == LAST and _is_whole(path):
                _copy(path, path.with_name(PREVIOUS))
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        _sync(path.parent)


def _is_whole(path: Path) -> bool:
    try:
        verify_archive(path)
    except (OSError, BadZipFile):
        return False
    return True


def _copy(path: Path, to: Path) -> None:
    """The same file under a second name, without a moment in which it has none."""
    second = to.with_name(f".unfinished-{to.name}")
    second.unlink(missing_ok=True)
    try:
        os.link(path, second)
    except OSError:  # some file systems know no second names
        shutil.copyfile(path, second)
        with second.open("rb+") as file:
            os.fsync(file.fileno())
    second.replace(to)


def _sync(folder: Path) -> None:
    """Bring the names in ``folder`` to disk. Windows has no way to."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def newest_good(given: Path) -> tuple[Path, dict[str, Any]]:
    """The checkpoint to go on from, and its content.

    Args:
        given: a checkpoint, or the folder of a run, of which the last one is meant. Where ``last.ckpt`` is
            missing or damaged ``previous.ckpt`` steps in, and a line says so.

    Raises: DataError if there is none, or it is damaged.
    """
    path = _checkpoints(given) / LAST if given.is_dir() else given
    try:
        return path, read_checkpoint(path)
    except DataError as error:
        previous = path.with_name(PREVIOUS)
        if path.name != LAST or not previous.is_file():
            raise
        content = read_checkpoint(previous)
        _warn(f"warning: {error}; goes on from {previous} instead")
        return previous, content


def _checkpoints(run: Path) -> Path:
    return run / FOLDER if (run / FOLDER).is_dir() else run


@rank_zero_only
def _warn(text: str) -> None:
    print(text, file=sys.stderr)
