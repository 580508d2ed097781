"""Where checkpoints are: models that ship with the package (``NAME.pt``, card ``NAME.md``), and runs.

Every ``.pt`` file in this folder is listed. This module does not import torch.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
#: In the folder of a run: the folder of its checkpoints, the best one, and the one to resume from.
CHECKPOINTS, BEST, LAST = "checkpoints", "best.ckpt", "last.ckpt"

#: Licence of the weights in this folder, which were learned from Argoverse 1.
LICENCE = "CC BY-NC-SA 4.0, non-commercial use only"


def list_models() -> list[str]:
    """List the names of the models that ship with the package, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.pt"))


def names() -> str:
    """Return the names of all shipped models as one string, for messages."""
    return ", ".join(list_models()) or "none"


def locate(checkpoint: str | Path) -> Path:
    """Return the file of a checkpoint: a path, the name of a shipped model, or the folder of a run.

    A run's folder, or that of its checkpoints, stands for ``best.ckpt``, without one for ``last.ckpt``. Other
    paths are returned as they are, whether they exist or not.
    """
    if str(checkpoint) in list_models():
        return FOLDER / f"{checkpoint}.pt"
    path = Path(checkpoint)
    found = (path / folder / name for folder in (CHECKPOINTS, "") for name in (BEST, LAST))
    return next((file for file in found if file.is_file()), path) if path.is_dir() else path


def licence_of(checkpoint: str | Path) -> str:
    """Return the licence of weights that ship with the package; empty for other checkpoints."""
    if locate(checkpoint).parent == FOLDER:
        return LICENCE
    return ""
