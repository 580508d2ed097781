"""Read and check checkpoints: a model's config, its weights, and the facts of its training."""

from __future__ import annotations

from itertools import accumulate
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

#: Key of the model's config in a checkpoint.
CONFIG = "trajpred_config"
#: Key of the facts of its training (:class:`trajpred.training.record.TrainingRecord`).
TRAINING = "trajpred_training"
#: Key of what was fitted to its forecasts afterwards (:mod:`trajpred.evaluation.calibrate`).
CALIBRATION = "trajpred_calibration"
#: Parts with plain values; the config is also checked when the model is built.
PLAIN = (CONFIG, TRAINING, CALIBRATION)
#: Types of weights and buffers.
DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool}
DTYPES |= {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def read_checkpoint(checkpoint: str | Path) -> dict[str, Any]:
    """Read the content of a checkpoint, or of weights that ship, without unpickling code.

    Raises: DataError if the file is missing, damaged, or not a trajpred checkpoint.
    """
    path = pretrained.locate(checkpoint)
    if not path.is_file():
        what = "a folder without checkpoints" if path.is_dir() else "no such checkpoint"
        raise DataError(f"{what}; shipped weights: {pretrained.names()}", file=path)
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
    try:
        content |= {name: plain(content[name], name) for name in PLAIN if name in content}
    except DataError as error:
        raise error.located(path) from None
    for name, valid in _valid_parts(content).items():
        if not valid:
            raise DataError("is not in the format that trajpred writes", file=path, field=name)
    _require_state(content["state_dict"], path)
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


def _require_state(state: Any, file: Path) -> None:
    """Check that ``state`` has ordinary tensors by name, which take no more memory than their file has bytes.

    Raises: DataError.
    """
    is_state = isinstance(state, dict) and all(isinstance(name, str) for name in state)
    if not is_state or not all(map(_is_ordinary, state.values())):
        raise DataError("must be ordinary tensors by name", file=file, field="state_dict")
    # A view can repeat few bytes without end. Weights may be shared by two layers.
    unpacked = sum(x.numel() * x.element_size() for x in state.values())
    if unpacked > 2 * file.stat().st_size:
        raise DataError("unpacks to more than the size of the file", file=file, field="state_dict")


def _is_ordinary(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and not (value.is_nested or value.is_quantized)
        and (value.layout, value.device.type, value.dtype in DTYPES) == (torch.strided, "cpu", True)
    )


def _valid_parts(content: dict[str, Any]) -> dict[str, bool]:
    """Return for each part of a checkpoint whether it has the right form."""
    training, calibration = content.get(TRAINING, {}), content.get(CALIBRATION, {})
    progress = [content.get(name) for name in ("epoch", "global_step")] if "epoch" in content else []
    return {
        CONFIG: isinstance(content[CONFIG], dict) and bool(content[CONFIG]),
        TRAINING: isinstance(training, dict),
        "epoch": all(type(steps) is int and 0 <= steps < 2**53 for steps in progress),
        CALIBRATION: isinstance(calibration, dict) and (not calibration or _is_calibration(calibration)),
    }


def _is_calibration(values: dict[str, Any]) -> bool:
    temperature = values.get("temperature", 1.0)
    return isinstance(temperature, float) and 0 < temperature < inf and isinstance(values.get("regions"), str)


def training_facts(content: dict[str, Any]) -> dict[str, Any]:
    """Return how the model of a checkpoint was trained; without a record, at least its epoch and steps."""
    reached = {"epoch": content["epoch"] + 1, "steps": content["global_step"]} if "epoch" in content else {}
    return {**reached, **content.get(TRAINING, {})}


def load_model(cls: type[Model], config: Any, state: dict[str, Tensor], checkpoint: str | Path) -> Model:
    """Build a ``cls`` from ``config`` with the weights ``state`` of ``checkpoint``, in evaluation mode.

    Weights in half precision are cast to the model's float32. Raises: DataError if the config is invalid, or
    the weights do not fit it or are not finite.
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


def load_matching(model: nn.Module, state: dict[str, Tensor], checkpoint: str | Path) -> list[str]:
    """Load the weights of ``state`` whose name and shape ``model`` has too, to start fine-tuning.

    Returns:
        Names of the modules none of whose weights were loaded, and of single weights that were not (because
        of another horizon, for example).

    Raises: DataError if less than half of the weights match, or one is not finite.
    """
    own = model.state_dict()
    matching = {name: x for name, x in state.items() if name in own and own[name].shape == x.shape}
    if 2 * len(matching) < len(own):
        problem = f"{len(matching)} of the model's {len(own)} weights fit: it was trained with other settings"
        raise DataError(problem, file=checkpoint)
    model.load_state_dict(matching, strict=False)
    _require_finite(model, checkpoint)
    parts = {name: [*accumulate(name.split("."), "{}.{}".format)] for name in own}
    loaded = {part for name in matching for part in parts[name]}
    new = (next(p for p in parts[name] if p not in loaded) for name in own if name not in matching)
    return list(dict.fromkeys(new))


def _require_finite(model: nn.Module, checkpoint: str | Path) -> None:
    wrong = [name for name, x in model.named_parameters() if not x.isfinite().all()]
    wrong += [name for name, x in model.named_buffers() if x.isnan().any()]  # masks may be infinite
    if wrong:
        raise DataError(f"weights are not finite: {', '.join(wrong[:3])}", file=checkpoint)


def weights_below(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Select the weights whose names start with ``prefix``, and remove it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
