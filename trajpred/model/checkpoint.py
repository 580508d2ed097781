"""Read and check checkpoints: config, weights, training record; build models from configs."""

from __future__ import annotations

from dataclasses import is_dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar, get_type_hints
from zipfile import ZipFile, is_zipfile

import torch
from torch import Tensor, nn

from trajpred import model as models
from trajpred.data.plain import require_plain
from trajpred.errors import DataError, quoted
from trajpred.features.config import MAX_SIZE
from trajpred.model import pretrained

#: Key of the model's config in a checkpoint.
CONFIG = "trajpred_config"
#: Key of the training record (:class:`trajpred.training.record.TrainingRecord`).
TRAINING = "trajpred_training"
#: Key of the calibration (:mod:`trajpred.evaluation.calibrate`).
CALIBRATION = "trajpred_calibration"
#: Parts with plain values.
PLAIN = (CONFIG, TRAINING, CALIBRATION)
#: Largest integer that JSON and JavaScript represent exactly.
MAX_INTEGER = 2**53
#: Longest module name (characters) that a message repeats.
MAX_NAME = 80
#: Weights of each kind that a message names.
MAX_LISTED = 3

Model = TypeVar("Model", bound=nn.Module)


def read_checkpoint(checkpoint: str | Path) -> dict[str, Any]:
    """Read a checkpoint, or shipped weights, without unpickling code.

    Raises:
        DataError: if the file is missing, damaged, or not a trajpred checkpoint.
    """
    path = pretrained.locate(checkpoint)
    if path.is_dir():
        raise DataError(f"a folder without checkpoints; shipped weights: {pretrained.names()}", file=path)
    if not path.is_file():
        raise DataError(f"no such checkpoint; shipped weights: {pretrained.names()}", file=path)
    content = _unpickle(path)
    if not isinstance(content, dict) or CONFIG not in content or "state_dict" not in content:
        raise DataError("is not a trajpred checkpoint", file=path, field=CONFIG)
    state = content["state_dict"]
    if not isinstance(state, dict) or not all(map(_is_weight, state.items())):
        raise DataError("must be tensors by name", file=path, field="state_dict")
    sizes = [MAX_SIZE]
    for weight in state.values():
        sizes += weight.shape
    largest = {CONFIG: max(sizes)}
    for name in PLAIN:
        values = content.get(name, {})
        if not isinstance(values, dict):
            raise DataError("must be a dict", file=path, field=name)
        try:
            require_plain(values, largest.get(name, MAX_INTEGER))
        except DataError as error:
            raise DataError(error.message, file=path, field=name) from None
    for name in ("epoch", "global_step"):
        count = content.get(name, 0)
        if type(count) is not int or not 0 <= count < MAX_INTEGER:
            raise DataError("must be a number of epochs or steps", file=path, field=name)
    return content


def _is_weight(item: tuple[Any, Any]) -> bool:
    name, value = item
    return isinstance(name, str) and isinstance(value, Tensor)


def _unpickle(path: Path) -> Any:
    """Load a file without running code from it; its checksums, which torch ignores, must have been verified.

    Raises:
        DataError: if it is damaged, or not a checkpoint.
    """
    try:
        if not is_zipfile(path):
            raise DataError("is not a checkpoint, or is truncated", file=path)
        require_undamaged(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except DataError:
        raise
    except UnpicklingError:
        problem = "is not a readable checkpoint, or contains code, which is never executed"
        raise DataError(problem, file=path) from None
    except Exception as error:  # damaged bytes make an unpickler raise anything
        lines = str(error).splitlines()
        reason = lines[0] if lines else type(error).__name__
        raise DataError(f"is not a readable checkpoint ({reason})", file=path) from None


def require_undamaged(path: Path) -> None:
    """Verify the checksums of all parts of a checkpoint.

    Raises:
        DataError, BadZipFile, OSError: if it is damaged, or cannot be read.
    """
    with ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise DataError(f"is not a readable checkpoint (damaged: {damaged})", file=path)


def training_facts(content: dict[str, Any]) -> dict[str, Any]:
    """Return how the model of a checkpoint was trained; without a record, at least its epoch and steps."""
    facts = {}
    if "epoch" in content:
        facts["epoch"] = content["epoch"] + 1
        facts["steps"] = content["global_step"]
    facts.update(content.get(TRAINING, {}))
    return facts


def load_weights(model: nn.Module, state: dict[str, Tensor], checkpoint: str | Path) -> None:
    """Load the weights ``state`` of ``checkpoint`` into a ``model``; half precision becomes float32.

    Raises:
        DataError: if they do not fit the model, or are not finite.
    """
    require_fitting(model, state, checkpoint)
    try:
        model.load_state_dict(state)
    except (RuntimeError, NotImplementedError) as error:
        raise DataError(f"weights do not fit the model ({error})", file=checkpoint) from None
    _require_finite(model, checkpoint)


def require_fitting(
    model: nn.Module, state: dict[str, Tensor], checkpoint: str | Path, complete: bool = True
) -> None:
    """Raise :class:`DataError` that counts and names the weights of ``state`` that do not fit ``model``.

    Args:
        complete: also count those that ``model`` has and ``state`` lacks.
    """
    shapes = _shapes(model)
    wrong: dict[str, list[str]] = {"missing": [], "surplus": [], "of another shape": []}
    for name, weight in state.items():
        if name not in shapes:
            wrong["surplus"].append(name)
        elif weight.shape != shapes[name]:
            wrong["of another shape"].append(name)
    if complete:
        wrong["missing"] += [name for name in shapes if name not in state]
    problems: list[str] = []
    for kind, names in wrong.items():
        if names:
            more = ", …" if len(names) > MAX_LISTED else ""
            problems.append(f"{len(names)} {kind} ({', '.join(names[:MAX_LISTED])}{more})")
    if problems:
        advice = "load it with the code that saved it, or rename its weights as the model does"
        problem = f"does not fit its model: {', '.join(problems)}"
        raise DataError(f"{problem}; {advice}", file=checkpoint, field="state_dict")


def matching(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Select the weights of ``state`` whose name and shape also occur in ``model``."""
    shapes = _shapes(model)
    return {name: weight for name, weight in state.items() if weight.shape == shapes.get(name)}


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in model.state_dict().items()}


def load_matching(
    model: nn.Module, state: dict[str, Tensor], checkpoint: str | Path
) -> tuple[list[str], list[str]]:
    """Load the :func:`matching` weights of ``state`` into ``model``, to start fine-tuning.

    Returns:
        Names of modules without any loaded weight, and of single weights not loaded (for example because of
        another horizon); and names of unused weights of ``state``.

    Raises:
        DataError: if a weight is not finite.
    """
    weights = matching(model, state)
    model.load_state_dict(weights, strict=False)
    _require_finite(model, checkpoint)
    loaded: set[str] = set()
    for name in weights:
        loaded.update(_modules_of(name))
    new: dict[str, None] = {}  # each once, in order
    for name in model.state_dict():
        if name not in weights:
            outermost = next(module for module in _modules_of(name) if module not in loaded)
            new[outermost] = None
    unused = [name for name in state if name not in weights]
    return list(new), unused


def _modules_of(name: str) -> list[str]:
    """List the modules around a weight, outermost first, and the weight: a, a.b, a.b.weight."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _require_finite(model: nn.Module, checkpoint: str | Path) -> None:
    """Raise :class:`DataError` if a weight is not finite, or a buffer NaN: masks may be infinite."""
    wrong = [name for name, weight in model.named_parameters() if not weight.isfinite().all()]
    wrong += [name for name, buffer in model.named_buffers() if buffer.isnan().any()]
    if wrong:
        raise DataError(f"weights are not finite: {', '.join(wrong[:MAX_LISTED])}", file=checkpoint)


def build(cls: type[Model], config: dict[str, Any]) -> Model:
    """Build a ``cls`` from arguments as plain values, as in configs and checkpoints.

    An argument that is a module is ``{"class_path": …, "init_args": {…}}``. Nothing is imported for a class
    path: it names a class of ``trajpred.model``, or a subclass of ``TokenEncoder``, ``SceneDecoder`` or any
    other module that this process has defined, by its module or a package above it.

    Raises:
        DataError: if a class is not known, or an argument is unknown, missing or wrong.
    """
    try:
        model: Model = _build(cls, config)
    except DataError:
        raise
    except Exception as error:  # any constructor, with any values
        problem = f"is not a model config ({type(error).__name__}: {error})"
        raise DataError(problem, field="model") from error
    return model


def _build(cls: type[Any], config: dict[str, Any]) -> Any:
    """Build a module or a dataclass from its arguments."""
    try:
        hints = get_type_hints(cls.__init__)
    except Exception:  # a user's annotations may name anything
        hints = {}
    arguments = {}
    for name, value in config.items():
        kind = hints.get(name)
        if isinstance(value, dict) and "class_path" in value:
            chosen = _known_class(value["class_path"], kind, name)
            value = _build(chosen, value.get("init_args", {}))
        elif isinstance(kind, type) and is_dataclass(kind):
            value = _build(kind, value)
        arguments[name] = value
    return cls(**arguments)


def _known_class(path: Any, kind: Any, field: str) -> type[nn.Module]:
    """Find the class named by ``path`` for an argument ``field`` of type ``kind``."""
    base: type[nn.Module] = nn.Module
    if isinstance(kind, type) and issubclass(kind, nn.Module):
        base = kind
    package, _, name = str(path).rpartition(".")
    if f"{package}.".startswith("trajpred.model.") and name in models.__all__:
        getattr(models, name)  # imports its module
    found: type[nn.Module] | None = None
    for cls in _subclasses(base):  # of several with this name, the latest definition
        if cls.__name__ == name and f"{cls.__module__}.".startswith(f"{package}."):
            found = cls
    if found is None:
        problem = f"names the class {quoted(path)}, which is not a known {base.__name__}"
        if package.replace(".", "_").isidentifier() and len(package) < MAX_NAME:
            problem += f"; its module is imported only on request: give --import {package}, or its file"
        raise DataError(problem, field=f"model.{field}")
    return found


def _subclasses(base: type[nn.Module]) -> list[type[nn.Module]]:
    """List ``base`` and its direct and indirect subclasses, breadth first."""
    classes = [base]
    for cls in classes:  # grows while it is read
        classes += [subclass for subclass in cls.__subclasses__() if subclass not in classes]
    return classes
