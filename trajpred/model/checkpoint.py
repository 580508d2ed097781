"""What a checkpoint holds, and how a model is made from it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar
from zipfile import is_zipfile

import torch
from jsonargparse import ArgumentError, ArgumentParser
from torch import Tensor, nn

from trajpred import weights
from trajpred.errors import DataError

#: Where a checkpoint keeps the model's config.
CONFIG = "trajpred_config"
#: Where it keeps how the model was trained (:class:`trajpred.training_record.TrainingRecord`).
TRAINING = "trajpred_training"
#: Where it keeps what was fitted to its forecasts afterwards (:mod:`trajpred.evaluation.calibrate`).
CALIBRATION = "trajpred_calibration"
Model = TypeVar("Model", bound=nn.Module)


def read_checkpoint(checkpoint: str | Path) -> dict[str, Any]:
    """The content of a checkpoint, or of weights that ship, read without unpickling code.

    Raises: DataError.
    """
    path = weights.locate(checkpoint)
    if not path.is_file():
        raise DataError(f"no such checkpoint; weights that ship: {weights.listed()}", file=path)
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


def training_of(content: dict[str, Any]) -> dict[str, Any]:
    """How the model of a checkpoint was trained; without a record, how far at least."""
    reached = {"epoch": content["epoch"] + 1, "steps": content["global_step"]} if "epoch" in content else {}
    return {**reached, **content.get(TRAINING, {})}


def build(kind: type[Model], config: dict[str, Any]) -> Model:
    """A ``kind`` from plain values, as they stand in a YAML config and in a checkpoint. Raises: DataError."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--model", type=kind, required=True)
    try:
        built: Model = parser.instantiate(parser.parse_object({"model": config})).model
    except ArgumentError as error:
        raise DataError(f"is no model config ({error})", field="model") from None
    return built


def load_weights(model: Model, state: dict[str, Tensor], checkpoint: str | Path) -> Model:
    """``model`` with the weights ``state`` of ``checkpoint``, in evaluation mode. Raises: DataError.

    The model keeps its own float32: weights kept in half precision are cast as they are copied.
    """
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise DataError(f"weights do not fit the model ({error})", file=checkpoint) from None
    return model.eval()


def load_fitting(model: nn.Module, state: dict[str, Tensor], checkpoint: str | Path) -> list[str]:
    """Give ``model`` those weights of ``state`` that it has too, in the same shape: where fine-tuning starts.

    Returns:
        Names of the model's weights that stay as they were (of another horizon, for example).

    Raises: DataError if not even half of the weights fit: then this is another model.
    """
    own = model.state_dict()
    fitting = {name: x for name, x in state.items() if name in own and own[name].shape == x.shape}
    if 2 * len(fitting) < len(own):
        problem = f"{len(fitting)} of the model's {len(own)} weights fit: it was trained with other settings"
        raise DataError(problem, file=checkpoint)
    model.load_state_dict(fitting, strict=False)
    return [name for name in own if name not in fitting]


def below(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The weights whose names start with ``prefix``, named without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
