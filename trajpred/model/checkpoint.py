"""What a checkpoint holds, and how a model is made from it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar
from zipfile import is_zipfile

import torch
from jsonargparse import ArgumentError, ArgumentParser
from torch import Tensor, nn

from trajpred.errors import DataError

#: Where a checkpoint keeps the model's config.
CONFIG = "trajpred_config"
Model = TypeVar("Model", bound=nn.Module)


def read_checkpoint(checkpoint: str | Path) -> dict[str, Any]:
    """The content of a checkpoint, read without unpickling code. Raises: DataError."""
    path = Path(checkpoint)
    if not path.is_file():
        raise DataError("no such checkpoint", file=path)
    if not is_zipfile(path):
        raise DataError("is no checkpoint, or one cut short", file=path)
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make an unpickler raise anything at all
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"is no readable checkpoint ({reason})", file=path) from None
    if not isinstance(content, dict) or not content.get(CONFIG) or "state_dict" not in content:
        raise DataError("is no trajpred checkpoint", file=path, field=CONFIG)
    return content


def build(kind: type[Model], config: dict[str, Any]) -> Model:
    """A ``kind`` from plain values, as they stand in a YAML config and in a checkpoint. Raises: DataError."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--model", type=kind, required=True)
    try:
        built: Model = parser.instantiate(parser.parse_object({"model": config})).model
    except ArgumentError as error:
        raise DataError(f"is no model config ({error})", field="model") from None
    return built


def load_weights(model: Model, weights: dict[str, Tensor], checkpoint: str | Path) -> Model:
    """``model`` with the ``weights`` of ``checkpoint``, in evaluation mode. Raises: DataError."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise DataError(f"weights do not fit the model ({error})", file=checkpoint) from None
    return model.eval()
