"""Build models from the plain values of a config or checkpoint; nothing that they name is imported."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, TypeVar, get_type_hints

from torch import nn

from trajpred import model as models
from trajpred.errors import DataError, quoted

#: Characters of the name of a module that is repeated in a message.
MAX_NAME = 80

Model = TypeVar("Model", bound=nn.Module)


def build(cls: type[Model], config: dict[str, Any]) -> Model:
    """Build a ``cls`` from its arguments as plain values.

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
    """Find the class that ``path`` names for an argument ``field`` of type ``kind``."""
    base: type[nn.Module] = kind if isinstance(kind, type) and issubclass(kind, nn.Module) else nn.Module
    package, _, name = path.rpartition(".") if isinstance(path, str) else ("", "", "")
    if f"{package}.".startswith("trajpred.model.") and name in models.__all__:
        getattr(models, name)  # imports its module
    namesakes = [cls for cls in _subclasses(base) if cls.__name__ == name]
    matching = [cls for cls in namesakes if f"{cls.__module__}.".startswith(f"{package}.")]
    if not matching:
        problem = f"names the class {quoted(path)}, which is not a known {base.__name__}"
        if package.replace(".", "_").isidentifier() and len(package) < MAX_NAME:
            problem += f"; its module is imported only on request: give --import {package}, or its file"
        raise DataError(problem, field=f"model.{field}")
    return matching[-1]  # of several with this name, the latest definition


def _subclasses(base: type[nn.Module]) -> list[type[nn.Module]]:
    """List ``base`` and its direct and indirect subclasses, breadth first."""
    classes = [base]
    for cls in classes:  # grows while it is read
        classes += [subclass for subclass in cls.__subclasses__() if subclass not in classes]
    return classes
