"""Read and check checkpoints: a model's config, its weights, and the facts of its training."""

from __future__ import annotations

from io import BytesIO
from math import inf
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile, is_zipfile

import torch
from torch import Tensor, nn

from trajpred.errors import DataError
from trajpred.model import pretrained
from trajpred.model.build import Model, build, plain
from trajpred.model.token_encoder import TokenEncoder

#: Key of the model's config in a checkpoint.
CONFIG = "trajpred_config"
#: Key of the facts of its training (:class:`trajpred.training.record.TrainingRecord`).
TRAINING = "trajpred_training"
#: Key of what was fitted to its forecasts afterwards (:mod:`trajpred.evaluation.calibrate`).
CALIBRATION = "trajpred_calibration"
#: Parts with plain values; the config is also checked when the model is built.
PLAIN = (CONFIG, TRAINING, CALIBRATION)
#: Limit of the numbers of epochs and steps, which JSON and JavaScript hold exactly.
MAX_STEPS = 2**53
#: Types of weights and buffers.
DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool}
DTYPES |= {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def read_checkpoint(checkpoint: str | Path) -> dict[str, Any]:
    """Read the content of a checkpoint, or of weights that ship, without unpickling code.

    Raises:
        DataError: if the file is missing, damaged, or not a trajpred checkpoint.
    """
    path = pretrained.locate(checkpoint)
    if not path.is_file():
        what = "a folder without checkpoints" if path.is_dir() else "no such checkpoint"
        raise DataError(f"{what}; shipped weights: {pretrained.names()}", file=path)
    content = _unpickle(path)
    if not isinstance(content, dict) or CONFIG not in content or "state_dict" not in content:
        raise DataError("is not a trajpred checkpoint", file=path, field=CONFIG)
    for name in PLAIN:
        if name in content:
            try:
                content[name] = plain(content[name], name)
            except DataError as error:
                raise error.located(path) from None
    for name, valid in _valid_parts(content).items():
        if not valid:
            raise DataError("is not in the format that trajpred writes", file=path, field=name)
    _require_state(content["state_dict"], path)
    return content


def _unpickle(path: Path) -> Any:
    """Load a file whose checksums are correct, without running code from it.

    Raises:
        DataError: if it is damaged, or no checkpoint.
    """
    try:
        if not is_zipfile(path):
            raise DataError("is not a checkpoint, or is truncated", file=path)
        return torch.load(verified(path), map_location="cpu", weights_only=True)
    except DataError:
        raise
    except UnpicklingError:
        problem = "is not a readable checkpoint, or contains code, which is never executed"
        raise DataError(problem, file=path) from None
    except Exception as error:  # damaged bytes make an unpickler raise anything
        lines = str(error).splitlines()
        reason = lines[0] if lines else type(error).__name__
        raise DataError(f"is not a readable checkpoint ({reason})", file=path) from None


def verified(path: Path) -> BytesIO:
    """Copy the archive of a checkpoint into memory after verifying all checksums, which torch does not.

    In a prepared file torch can find another archive than ``zipfile``; the copy has what was verified.

    Raises:
        BadZipFile: if it is damaged, compressed, begins with other bytes, or unpacks to more than its size.
        OSError: if it cannot be read.
    """
    copy = BytesIO()
    with ZipFile(path) as file, ZipFile(copy, "w") as archive:
        entries = file.infolist()
        if any(entry.compress_type != ZIP_STORED for entry in entries):
            raise BadZipFile("compressed, which checkpoints are not")
        if sum(entry.file_size for entry in entries) > path.stat().st_size:
            raise BadZipFile("damaged: its parts are larger than the file")
        if min((entry.header_offset for entry in entries), default=0) > 0:
            raise BadZipFile("other bytes before the archive")
        damaged = file.testzip()
        if damaged is not None:
            raise BadZipFile(f"damaged: {damaged}")
        for entry in entries:
            archive.writestr(entry.filename, file.read(entry))
    copy.seek(0)
    return copy


def _require_state(state: Any, file: Path) -> None:
    """Raise :class:`DataError` unless ``state`` has ordinary tensors by name, not larger than their file."""
    if not _is_state(state):
        raise DataError("must be ordinary tensors by name", file=file, field="state_dict")
    # A view can repeat few bytes without end. Weights may be shared by two layers.
    unpacked = sum(weight.nbytes for weight in state.values())
    if unpacked > 2 * file.stat().st_size:
        raise DataError("unpacks to more than the size of the file", file=file, field="state_dict")


def _is_state(state: Any) -> bool:
    """Return whether ``state`` is a dict of ordinary tensors by name."""
    if not isinstance(state, dict):
        return False
    return all(isinstance(name, str) and _is_ordinary(value) for name, value in state.items())


def _is_ordinary(value: Any) -> bool:
    """Return whether ``value`` is a dense tensor of numbers on the CPU."""
    if not isinstance(value, Tensor) or value.is_nested or value.is_quantized:
        return False
    return value.layout == torch.strided and value.device.type == "cpu" and value.dtype in DTYPES


def _valid_parts(content: dict[str, Any]) -> dict[str, bool]:
    """Return for each part of a checkpoint whether it has the right form."""
    config = content[CONFIG]
    training = content.get(TRAINING, {})
    calibration = content.get(CALIBRATION, {})
    return {
        CONFIG: isinstance(config, dict) and bool(config),
        TRAINING: isinstance(training, dict),
        "epoch": _is_progress(content),
        CALIBRATION: isinstance(calibration, dict) and (not calibration or _is_calibration(calibration)),
    }


def _is_progress(content: dict[str, Any]) -> bool:
    """Return whether epoch and steps, if a checkpoint holds them, are whole numbers in range."""
    if "epoch" not in content:
        return True
    for name in ("epoch", "global_step"):
        count = content.get(name)
        if type(count) is not int or not 0 <= count < MAX_STEPS:
            return False
    return True


def _is_calibration(values: dict[str, Any]) -> bool:
    temperature = values.get("temperature", 1.0)
    if not isinstance(temperature, float) or not 0 < temperature < inf:
        return False
    return isinstance(values.get("regions"), str)


def training_facts(content: dict[str, Any]) -> dict[str, Any]:
    """Return how the model of a checkpoint was trained; without a record, at least its epoch and steps."""
    facts = {}
    if "epoch" in content:
        facts["epoch"] = content["epoch"] + 1
        facts["steps"] = content["global_step"]
    facts.update(content.get(TRAINING, {}))
    return facts


def load_model(cls: type[Model], config: Any, state: dict[str, Tensor], checkpoint: str | Path) -> Model:
    """Build a ``cls`` from ``config`` with the weights ``state`` of ``checkpoint``, in evaluation mode.

    Weights in half precision are cast to the model's float32.

    Raises:
        DataError: if the config is invalid, or the weights do not fit it or are not finite.
    """
    try:
        model = build(cls, config, state)
    except DataError as error:
        raise error.located(checkpoint) from None
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise DataError(f"weights do not fit the model ({error})", file=checkpoint) from None
    _require_finite(model, checkpoint)
    return model.eval()


def load_encoder(checkpoint: str | Path) -> TokenEncoder:
    """Load the encoder of a checkpoint or of bundled weights, in evaluation mode.

    Raises:
        DataError: if the file is not a checkpoint with an encoder.
    """
    content = read_checkpoint(checkpoint)
    state = weights_below(content["state_dict"], "forecaster.encoder.")
    return load_model(TokenEncoder, content[CONFIG].get("encoder"), state, checkpoint)


def load_matching(model: nn.Module, state: dict[str, Tensor], checkpoint: str | Path) -> list[str]:
    """Load the weights of ``state`` whose name and shape ``model`` has too, to start fine-tuning.

    Returns:
        Names of the modules none of whose weights were loaded, and of single weights that were not (because
        of another horizon, for example).

    Raises:
        DataError: if less than half of the weights match, or one is not finite.
    """
    weights = model.state_dict()
    shapes = {name: weight.shape for name, weight in weights.items()}
    matching = {name: weight for name, weight in state.items() if weight.shape == shapes.get(name)}
    if 2 * len(matching) < len(weights):
        fitting = f"{len(matching)} of the model's {len(weights)} weights fit"
        raise DataError(f"{fitting}: it was trained with other settings", file=checkpoint)
    model.load_state_dict(matching, strict=False)
    _require_finite(model, checkpoint)
    loaded: set[str] = set()
    for name in matching:
        loaded.update(_modules_of(name))
    new = []
    for name in weights:
        if name not in matching:
            outermost = next(module for module in _modules_of(name) if module not in loaded)
            new.append(outermost)
    return list(dict.fromkeys(new))


def _modules_of(name: str) -> list[str]:
    """List the modules around a weight from the outermost on, and the weight: a, a.b, a.b.weight."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _require_finite(model: nn.Module, checkpoint: str | Path) -> None:
    """Raise :class:`DataError` if a weight is not finite, or a buffer NaN: masks may be infinite."""
    wrong = [name for name, weight in model.named_parameters() if not weight.isfinite().all()]
    wrong += [name for name, buffer in model.named_buffers() if buffer.isnan().any()]
    if wrong:
        raise DataError(f"weights are not finite: {', '.join(wrong[:3])}", file=checkpoint)


def weights_below(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Select the weights whose names start with ``prefix``, and remove it."""
    weights = {}
    for name, value in state.items():
        if name.startswith(prefix):
            weights[name.removeprefix(prefix)] = value
    return weights
