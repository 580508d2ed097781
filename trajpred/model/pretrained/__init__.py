"""The trained models that ship with the package: ``NAME.pt``, with the model card ``NAME.md``.

Every ``.pt`` file in this folder is listed. This module does not import torch.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent


def list_models() -> list[str]:
    """List the names of the models that ship with the package, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.pt"))


def names() -> str:
    """Return the names of all shipped models as one string, for messages."""
    return ", ".join(list_models()) or "none"


def locate(checkpoint: str | Path) -> Path:
    """Return the file of a shipped model if ``checkpoint`` is its name, else ``checkpoint`` as a path."""
    return FOLDER / f"{checkpoint}.pt" if str(checkpoint) in list_models() else Path(checkpoint)
