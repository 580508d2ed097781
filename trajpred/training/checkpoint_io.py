"""Checkpoints on disk: written completely or not at all, with a previous one to fall back on."""

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
from trajpred.files import atomic_file, sync
from trajpred.model.checkpoint import read_checkpoint, verify_archive
from trajpred.model.pretrained import CHECKPOINTS, LAST, list_models

#: In the folder of a run, beside :data:`LAST`: the one before that.
PREVIOUS = "previous.ckpt"


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write checkpoints atomically, and keep the previous ``last.ckpt`` as ``previous.ckpt``.

    If the process or the machine stops at any time, a file with a checkpoint's name is complete and the files
    that existed before are unchanged. Raises: OSError if the disk is full.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        path, content = Path(path), BytesIO()
        torch.save(checkpoint, content)  # to memory: torch reports a full disk as RuntimeError
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as unfinished:
            unfinished.write_bytes(content.getbuffer())
            sync(unfinished)
            if path.name == LAST and _is_complete(path):
                with atomic_file(path.with_name(PREVIOUS)) as previous:
                    try:
                        os.link(path, previous)
                    except OSError:  # links are not supported
                        shutil.copyfile(path, previous)


def _is_complete(path: Path) -> bool:
    try:
        verify_archive(path)
    except (OSError, BadZipFile):
        return False
    return True


def newest_checkpoint(given: Path) -> tuple[Path, dict[str, Any]]:
    """Return the checkpoint to resume from, and its content.

    Args:
        given: a checkpoint, or the folder of a run, which stands for its ``last.ckpt``. If ``last.ckpt`` is
            missing or damaged, ``previous.ckpt`` is used and a warning printed.

    Raises: DataError if there is none, or it is damaged.
    """
    folder = given / CHECKPOINTS if (given / CHECKPOINTS).is_dir() else given
    path = folder / LAST if given.is_dir() else given
    previous = path.with_name(PREVIOUS)
    has_previous = path.name == LAST and previous.is_file()
    if str(given) in list_models():
        problem = "holds weights only, which cannot be resumed: fine-tune them with --weights"
        raise DataError(problem, file=given)
    if not path.is_file() and not has_previous:
        problem = f"holds no {LAST} to resume from" if given.is_dir() else "no such run or checkpoint"
        raise DataError(f"{problem}; give the folder of a run, as runs/NAME/version_0", file=given)
    try:
        return path, read_checkpoint(path)
    except DataError as error:
        if not has_previous:
            raise
        content = read_checkpoint(previous)
        warn(f"{error}; resumes from {previous} instead")
        return previous, content


@rank_zero_only
def warn(text: str) -> None:
    """Print a warning, in the first process."""
    print(f"warning: {text}", file=sys.stderr)
