"""Locate checkpoints: models that ship with the package (``NAME.pt``, card ``NAME.md``), and runs.

Every ``.pt`` file in this folder is listed. This module does not import torch.
"""

from __future__ import annotations

import filecmp
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
#: Folder of the checkpoints within the folder of a run.
CHECKPOINTS = "checkpoints"
#: The best checkpoint of a run.
BEST = "best.ckpt"
#: The checkpoint to resume a run from.
LAST = "last.ckpt"

#: Licence of the weights in this folder, which were learned from Argoverse 1.
LICENCE = "CC BY-NC-SA 4.0, non-commercial use only"
#: Its terms, for everything that contains such weights.
LICENCE_FILE = FOLDER / "LICENSE"


def list_models() -> list[str]:
    """List the names of the models that ship with the package, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.pt"))


def names() -> str:
    """Return the names of all shipped models as one string, for messages."""
    return ", ".join(list_models()) or "none"


def locate(checkpoint: str | Path) -> Path:
    """Return the file of a checkpoint: a path, the name of a shipped model, or the folder of a run.

    A run's folder, or its checkpoint folder, stands for ``best.ckpt``, or ``last.ckpt`` if that is missing.
    Other paths are returned unchanged, even if they do not exist.
    """
    if str(checkpoint) in list_models():
        return FOLDER / f"{checkpoint}.pt"
    path = Path(checkpoint)
    if not path.is_dir():
        return path
    for folder in (path / CHECKPOINTS, path):
        for name in (BEST, LAST):
            if (folder / name).is_file():
                return folder / name
    return path


def licence_of(checkpoint: str | Path, training: Mapping[str, Any]) -> str:
    """Return the licence of shipped weights; empty for others.

    It also covers copies of their files, and models fine-tuned from them in one or several trainings.

    Args:
        training: facts of the checkpoint's training.
    """
    if training.get("licence") or training.get("weights") in list_models():
        return LICENCE
    file = locate(checkpoint)
    for name in list_models():
        if file.is_file() and filecmp.cmp(file, FOLDER / f"{name}.pt", shallow=False):
            return LICENCE
    return ""
