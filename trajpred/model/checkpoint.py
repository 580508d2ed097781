"""Read, check and build from checkpoints: a model's config, its weights, and the facts of its training."""

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

#: Key of the model's config in a checkpoint.
CONFIG = "trajpred_config"
#: Key of the facts of its training (:class:`trajpred.training.record.TrainingRecord`).
TRAINING = "trajpred_training"
#: Key of what was fitted to its forecasts afterwards (:mod:`trajpred.evaluation.calibrate`).
CALIBRATION = "trajpred_calibration"
Model = TypeVar("Model", bound=nn.Module)


def read_checkpoint(checkpoint: str | Path) -> dict[str, Any]:
    """Read the content of a checkpoint, or of weights that ship, without unpickling code.

    Raises: DataError if the file is missing, damaged, or not a trajpred checkpoint, or if its config names a
        class of a module that has not been imported.
    """
    path = pretrained.locate(checkpoint)
    if not path.is_file():
        raise DataError(f"no such checkpoint; shipped weights: {pretrained.names()}", file=path)
    try:
        if not is_zipfile(path):
            raise DataError("is not a checkpoint, or is truncated", file=path)
        verify_archive(path)
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except DataError:
        raise
    except UnpicklingError:
        problem = "is not a readable checkpoint, or contains code, which is never executed"
        raise DataError(problem, file=path) from None
    except Exception as error:  # damaged bytes make an unpickler raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"is not a readable checkpoint ({reason})", file=path) from None
    if not isinstance(content, dict) or CONFIG not in content or "state_dict" not in content:
        raise DataError("is not a trajpred checkpoint", file=path, field=CONFIG)
    for name, valid in _valid_parts(content).items():
        if not valid:
            raise DataError("is not in the format that trajpred writes", file=path, field=name)
    for name in _class_paths(content[CONFIG]):
        module = name.rpartition(".")[0]
        if module.partition(".")[0] != "trajpred" and module not in sys.modules:
            problem = f"names the class {name!r}, whose module a checkpoint may not import; import it first"
            raise DataError(problem, file=path, field=CONFIG)
    return content


def verify_archive(path: Path) -> None:
    """Verify all checksums of a checkpoint, which ``torch.load`` does not.

    Raises: BadZipFile if it is damaged, compressed, or unpacks to more than its own size; OSError.
    """
    with ZipFile(path) as file:
        entries = file.infolist()
        if any(entry.compress_type != ZIP_STORED for entry in entries):
            raise BadZipFile("compressed, which checkpoints are not")
        if sum(entry.file_size for entry in entries) > path.stat().st_size:
            raise BadZipFile("damaged: its parts are larger than the file")
        damaged = file.testzip()
    if damaged is not None:
        raise BadZipFile(f"damaged: {damaged}")


def _class_paths(config: Any) -> Iterator[str]:
    """Yield all class paths of a model config."""
    if isinstance(config, dict):
        for name, value in config.items():
            yield from [str(value)] if name == "class_path" else _class_paths(value)
    elif isinstance(config, list):
        for value in config:
            yield from _class_paths(value)


def _largest_size(config: Any) -> int:
    """Return the largest integer among the constructor arguments of a model's parts."""
    if isinstance(config, dict):
        parts = [config[name] for name in ("encoder", "decoder", "init_args") if name in config]
        return max(map(_largest_size, parts or config.values()), default=0)
    return config if isinstance(config, int) else 0


def _valid_parts(content: dict[str, Any]) -> dict[str, bool]:
    """Return for each part of a checkpoint whether it has the right form."""
    state, calibration = content["state_dict"], content.get(CALIBRATION, {})
    is_state = isinstance(state, dict) and all(
        isinstance(name, str) and isinstance(x, Tensor) for name, x in state.items()
    )
    # A damaged size in the config could take all memory.
    limit = max(1_000, len(state), *(size for x in state.values() for size in x.shape)) if is_state else 0
    config, training = content[CONFIG], content.get(TRAINING, {})
    progress = [content.get(name) for name in ("epoch", "global_step")] if "epoch" in content else []
    return {
        CONFIG: isinstance(config, dict) and bool(config),
        "state_dict": is_state,
        f"sizes in {CONFIG}": not is_state or _largest_size(config) <= limit,
        TRAINING: isinstance(training, dict),
        "epoch": all(isinstance(steps, int) for steps in progress),
        CALIBRATION: isinstance(calibration, dict) and (not calibration or _is_calibration(calibration)),
    }


def _is_calibration(values: dict[str, Any]) -> bool:
    temperature = values.get("temperature", 1.0)
    return isinstance(temperature, float) and 0 < temperature < inf and isinstance(values.get("regions"), str)


def training_facts(content: dict[str, Any]) -> dict[str, Any]:
    """Return how the model of a checkpoint was trained; without a record, at least its epoch and steps."""
    reached = {"epoch": content["epoch"] + 1, "steps": content["global_step"]} if "epoch" in content else {}
    return {**reached, **content.get(TRAINING, {})}


def build(cls: type[Model], config: dict[str, Any]) -> Model:
    """Build a ``cls`` from plain values, as in a YAML config and in a checkpoint. Raises: DataError."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--model", type=cls, required=True)
    try:
        model: Model = parser.instantiate(parser.parse_object({"model": config})).model
    except DataError:
        raise
    except Exception as error:  # any constructor, with any values
        reason = error if isinstance(error, ArgumentError) else f"{type(error).__name__}: {error}"
        raise DataError(f"is not a model config ({reason})", field="model") from error
    return model


def load_weights(model: Model, state: dict[str, Tensor], checkpoint: str | Path) -> Model:
    """Load the weights ``state`` of ``checkpoint`` into ``model`` and return it in evaluation mode.

    Weights in half precision are cast to the model's float32. Raises: DataError if they do not fit.
    """
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise DataError(f"weights do not fit the model ({error})", file=checkpoint) from None
    return model.eval()


def load_matching(model: nn.Module, state: dict[str, Tensor], checkpoint: str | Path) -> list[str]:
    """Load the weights of ``state`` whose name and shape ``model`` has too, to start fine-tuning.

    Returns:
        Names of the model's weights that were not loaded (because of another horizon, for example).

    Raises: DataError if less than half of the weights match.
    """
    own = model.state_dict()
    matching = {name: x for name, x in state.items() if name in own and own[name].shape == x.shape}
    if 2 * len(matching) < len(own):
        problem = f"{len(matching)} of the model's {len(own)} weights fit: it was trained with other settings"
        raise DataError(problem, file=checkpoint)
    model.load_state_dict(matching, strict=False)
    return [name for name in own if name not in matching]


def weights_below(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Select the weights whose names start with ``prefix``, and remove it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
