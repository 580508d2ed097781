"""The trained models that ship with the package: ``NAME.pt``, with the model card ``NAME.md``.

A file of weights is known by being here. Importing this does not import torch.
"""

from __future__ import annotations

from pathlib import Path

from trajpred.errors import DataError

FOLDER = Path(__file__).parent


def list_models() -> list[str]:
    """List the names of the models that ship with the package, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.pt"))


def listed() -> str:
    """The names in a sentence."""
    return ", ".join(list_models()) or "none"


def locate(checkpoint: str | Path) -> Path:
    """The file of a model that ships, if ``checkpoint`` is the name of one, else its path."""
    return FOLDER / f"{checkpoint}.pt" if str(checkpoint) in list_models() else Path(checkpoint)


def require_name(name: str) -> str:
    """``name``, if a model of that name ships. Raises: DataError that lists those which do."""
    if name not in list_models():
        raise DataError(f"no weights of this name ship with trajpred; known: {listed()}", file=name)
    return name
