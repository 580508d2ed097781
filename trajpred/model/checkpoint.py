"""What a checkpoint holds, and how a model is made from it again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar
from zipfile import ZIP_STORED, BadZipFile, ZipFile, is_zipfile

import torch
from jsonargparse import ArgumentError, ArgumentParser
from torch import Tensor, nn

from trajpred.errors import DataError
from trajpred.model import pretrained

#: Where a checkpoint keeps the model's config.
CONFIG = "trajpred_config"
#: Where it keeps how the model was trained (:class:`trajpred.training.training_record.TrainingRecord`).
TRAINING = "trajpred_training"
#: Where it keeps what was fitted to its forecasts afterwards (:mod:`trajpred.evaluation.calibrate`).
CALIBRATION = "trajpred_calibration"
Model = TypeVar("Model", bound=nn.Module)


def read_checkpoint(checkpoint: str | Path) -> dict[str, Any]:
    """The content of a checkpoint, or of weights that ship, read without unpickling code.

    Raises: DataError.
    """
    path = pretrained.locate(checkpoint)
    if not path.is_file():
        raise DataError(f"no such checkpoint; weights that ship: {pretrained.listed()}", file=path)
    try:
        if not is_zipfile(path):
            raise DataError("is no checkpoint, or one cut short", file=path)
        require_whole(path)
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except DataError:
        raise
    except UnpicklingError:
        problem = "is no readable checkpoint, or holds code, which is never run"
        raise DataError(problem, file=path) from None
    except Exception as error:  # damaged bytes make an unpickler raise anything at all
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"is no readable checkpoint ({reason})", file=path) from None
    if not isinstance(content, dict) or CONFIG not in content or "state_dict" not in content:
        raise DataError("is no trajpred checkpoint", file=path, field=CONFIG)
    for name, right in _looks(content).items():
        if not right:
            raise DataError("is not what trajpred writes", file=path, field=name)
    for name in _class_paths(content[CONFIG]):
        module = name.rpartition(".")[0]
        if module.partition(".")[0] != "trajpred" and module not in sys.modules:
            problem = f"asks for the class {name!r}: no module is imported for a checkpoint; import it before"
            raise DataError(problem, file=path, field=CONFIG)
    return content


def require_whole(path: Path) -> None:
    """Look at every checksum of a checkpoint, which torch does not.

    Raises: BadZipFile if it is damaged, or unpacks to more than it is; OSError.
    """
    with ZipFile(path) as file:
        entries = file.infolist()
        if any(entry.compress_type != ZIP_STORED for entry in entries):
            raise BadZipFile("compressed, as no checkpoint is")
        if sum(entry.file_size for entry in entries) > path.stat().st_size:
            raise BadZipFile("damaged: its parts are larger than the file")
        damaged = file.testzip()
    if damaged is not None:
        raise BadZipFile(f"damaged: {damaged}")


def _class_paths(config: Any) -> Iterator[str]:
    """Every class that a model is built of."""
    if isinstance(config, dict):
        for name, value in config.items():
            yield from [str(value)] if name == "class_path" else _class_paths(value)
    elif isinstance(config, list):
        for value in config:
            yield from _class_paths(value)


def _largest(config: Any) -> int:
    """The largest whole number that the parts of a model are made with."""
    if isinstance(config, dict):
        parts = [
            config[name] for name in ("encoder", "decoder", "init_args") if name in config
        ] or config.values()
        return max(map(_largest, parts), default=0)
    return config if isinstance(config, int) else 0


def _most(state: dict[str, Tensor]) -> int:
    """What none exceeds in a model with these weights: a damaged number of layers would be built for ever."""
    return max(1_000, len(state), *(size for x in state.values() for size in x.shape))


def _looks(content: dict[str, Any]) -> dict[str, bool]:
    """For each thing that is read of a checkpoint, whether it looks like it."""
    state, fitted = content["state_dict"], content.get(CALIBRATION, {})
    weights_named = isinstance(state, dict) and all(
        isinstance(name, str) and isinstance(x, Tensor) for name, x in state.items()
    )
    config, training = content[CONFIG], content.get(TRAINING, {})
    reached = [content.get(name) for name in ("epoch", "global_step")] if "epoch" in content else []
    return {
        CONFIG: isinstance(config, dict) and bool(config),
        "state_dict": weights_named,
        f"sizes in {CONFIG}": not weights_named or _largest(config) <= _most(state),
        TRAINING: isinstance(training, dict),
        "epoch": all(isinstance(steps, int) for steps in reached),
        CALIBRATION: isinstance(fitted, dict) and (not fitted or _is_fitted(fitted)),
    }


def _is_fitted(values: dict[str, Any]) -> bool:
    temperature = values.get("temperature", 1.0)
    return isinstance(temperature, float) and 0 < temperature < inf and isinstance(values.get("regions"), str)


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
    except DataError:
        raise
    except Exception as error:  # constructors of all kinds, given values of any kind
        reason = error if isinstance(error, ArgumentError) else f"{type(error).__name__}: {error}"
        raise DataError(f"is no model config ({reason})", field="model") from error
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
