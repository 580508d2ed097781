"""Build models from the plain values of a file: known classes, arguments checked by type and range."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import is_dataclass
from math import isfinite, prod
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from trajpred import model as models
from trajpred.errors import DataError, quoted, require
from trajpred.features.config import MAX_SIZE

#: Limits on the plain values of a checkpoint: values in total, values within values, characters of a string.
MAX_VALUES, MAX_DEPTH, MAX_TEXT = 100_000, 32, 1_000_000
Model = TypeVar("Model", bound=nn.Module)


def plain(values: Any, field: str) -> Any:
    """Copy numbers, strings, None, and lists, tuples and dicts of them.

    Raises: DataError if there is anything else, or more or deeper values than a checkpoint has.
    """
    left = MAX_VALUES

    def copied(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        require(left > 0 and depth <= MAX_DEPTH, field, "has too many or too deep values, or contains itself")
        if type(value) is dict:
            names = all(type(name) in (str, int) for name in value)
            require(names, field, "has a key that is neither text nor an integer")
            return {copied(name, depth): copied(one, depth + 1) for name, one in value.items()}
        if type(value) in (list, tuple):
            return type(value)(copied(one, depth + 1) for one in value)
        if type(value) is str:
            require(len(value) <= MAX_TEXT, field, f"has a text of {len(value)} characters")
        elif type(value) is int:
            require(abs(value) < 2**63, field, "has an integer of more than 64 bits")
        else:
            known = type(value) in (float, bool, NoneType)
            require(known, field, f"has a value of type {type(value).__name__}")
        return value

    return copied(values, 0)


def build(cls: type[Model], config: dict[str, Any], state: dict[str, Tensor] | None = None) -> Model:
    """Build a ``cls``, or the subclass of it under ``class_path``, from the values of a config or checkpoint.

    Args:
        config: arguments of ``cls``, or ``{"class_path": …, "init_args": {…}}``. Nothing is imported for a
            class path: it names a class of ``trajpred.model``, or a subclass of ``TokenEncoder`` or
            ``SceneDecoder`` that this process has defined, by its module or a package above it.
        state: weights that will be loaded; the model may not be much larger.

    Raises: DataError naming the argument that is unknown, missing, or of the wrong type or range.
    """
    sizes = [size for x in (state or {}).values() for size in x.shape]
    builder = _Builder(max([MAX_SIZE, *sizes]))
    try:
        with nullcontext() if state is None else _SizeLimit(state):
            model: Model = builder.module(cls, config, "model")
    except DataError:
        raise
    except Exception as error:  # any constructor, with any values
        problem = f"is not a model config ({type(error).__name__}: {error})"
        raise DataError(problem, field="model") from error
    return model


class _SizeLimit(TorchDispatchMode):
    """Refuse to allocate many more tensors, or much larger ones, than the weights of a checkpoint.

    The margins are for buffers that are not saved, and for intermediate values of constructors.
    """

    def __init__(self, state: dict[str, Tensor]) -> None:
        super().__init__()
        self.tensors = 1_000 + 10 * len(state)
        self.values = 10_000_000 + 4 * sum(x.numel() for x in state.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shape = args[0] if args else None
        if isinstance(shape, list) and all(isinstance(size, int) for size in shape):  # a new tensor
            self.tensors, self.values = self.tensors - 1, self.values - prod(shape)
            small = self.tensors > 0 and self.values > 0
            require(small, "model", "describes a much larger model than the checkpoint's weights")
        return func(*args, **(kwargs or {}))


class _Builder:
    """Convert plain values to the types of the arguments they are for; integers up to ``largest``."""

    def __init__(self, largest: int) -> None:
        self.largest = largest

    def module(self, cls: type[Any], config: Any, field: str) -> Any:
        """Build ``cls``, or the subclass that ``config`` chooses, or a dataclass."""
        require(isinstance(config, dict), field, f"must be a mapping, is {quoted(config)}")
        if "class_path" in config:
            others = [str(name) for name in config if name not in ("class_path", "init_args")]
            require(not others, field, f"has unknown entries: {', '.join(others)}")
            cls, config = _known_class(config["class_path"], cls, field), config.get("init_args", {})
            return self.module(cls, config, f"{field}.init_args")
        try:
            hints = get_type_hints(cls.__init__)
        except Exception:  # a user's annotations may name anything
            hints = {}
        parameters = list(inspect.signature(cls).parameters.values())
        if (operator := getattr(cls, "options_of", None)) is not None:
            hints = get_type_hints(operator.__init__) | hints
            known = {p.name for p in parameters}
            own = inspect.signature(operator).parameters.values()
            parameters = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
            parameters += [p for p in own if p.name not in known and p.default is not p.empty]
        names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        others = sorted(str(name) for name in config if name not in names)
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        require(takes_all or not others, field, f"has unknown entries: {', '.join(others)}")
        needed = [p.name for p in parameters if p.name in names and p.default is p.empty]
        missing = [name for name in needed if name not in config]
        require(not missing, field, f"lacks {', '.join(missing)}")
        values = {name: self.value(hints.get(name), x, f"{field}.{name}") for name, x in config.items()}
        return cls(**values)

    def value(self, kind: Any, value: Any, field: str) -> Any:
        """Check ``value`` for an argument annotated as ``kind``; unknown annotations take any plain value."""
        origin, choices = get_origin(kind), get_args(kind)
        if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, nn.Module)):
            chosen = is_dataclass(kind) or (isinstance(value, dict) and "class_path" in value)
            require(chosen, field, f"must be a mapping with a class_path, is {quoted(value)}")
            return self.module(kind, value, field)
        if origin in (Union, UnionType):
            return self._any_of(choices, value, field)
        if origin is Literal:
            require(value in choices, field, f"must be one of {choices}, is {quoted(value)}")
        elif kind in (bool, str, NoneType):
            require(type(value) is kind, field, f"must be a {kind.__name__}, is {quoted(value)}")
        elif kind is int:
            require(type(value) is int, field, f"must be an integer, is {quoted(value)}")
        elif kind is float:
            require(type(value) in (int, float), field, f"must be a number, is {quoted(value)}")
        for number in _numbers(value):
            limit = self.largest if isinstance(number, int) else float("inf")
            require(isfinite(number) and abs(number) <= limit, field, f"is out of range: {quoted(number)}")
        return value

    def _any_of(self, kinds: tuple[Any, ...], value: Any, field: str) -> Any:
        problem = DataError("has no type", field=field)
        for kind in kinds:
            try:
                return self.value(kind, value, field)
            except DataError as error:
                problem = error
        raise problem


def _numbers(value: Any) -> Iterator[int | float]:
    """Yield all numbers of plain values."""
    if isinstance(value, (list, tuple, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _numbers(one)
    elif isinstance(value, (int, float)):
        yield value


def _known_class(path: Any, base: type[nn.Module], field: str) -> type[nn.Module]:
    """Find the subclass of ``base`` that ``path`` names, without importing anything but trajpred's own."""
    package, _, name = path.rpartition(".") if isinstance(path, str) else ("", "", "")
    if f"{package}.".startswith("trajpred.model.") and name in models.__all__:
        getattr(models, name)  # imports its module
    known, found = [base], []
    for cls in known:
        known += [one for one in cls.__subclasses__() if one not in known]
        if cls.__name__ == name and f"{cls.__module__}.".startswith(f"{package}."):
            found.append(cls)
    problem = (
        f"names the class {quoted(path)}, which is no {base.__name__} of trajpred; import its module first"
    )
    require(bool(found), field, problem)
    return found[-1]  # of several with this name, the latest definition
