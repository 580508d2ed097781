"""Build models from the plain values of a file: known classes, arguments checked by type and range."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, is_dataclass
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from torch import Tensor, nn
from torch.nn.modules import module as registration
from torch.nn.parameter import is_lazy

from trajpred import model as models
from trajpred.errors import DataError, quoted, require
from trajpred.features.config import MAX_SIZE

#: Limit on the number of plain values of a checkpoint.
MAX_VALUES = 100_000
#: Limit on values within values.
MAX_DEPTH = 32
#: Limit on the characters of a string.
MAX_TEXT = 1_000_000
#: Limit on the size of an integer.
MAX_INTEGER = 2**63
#: Kinds of parameters that have a name.
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
#: The kind of ``**kwargs``.
VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
Model = TypeVar("Model", bound=nn.Module)


def plain(values: Any, field: str) -> Any:
    """Copy numbers, strings, None, and lists, tuples and dicts of them.

    Raises:
        DataError: if there is anything else, or more or deeper values than a checkpoint has.
    """
    return _PlainCopy(field).copy(values, 0)


class _PlainCopy:
    """Copy plain values within the limits, counting them."""

    def __init__(self, field: str) -> None:
        self.field = field
        self.left = MAX_VALUES

    def copy(self, value: Any, depth: int) -> Any:
        self.left -= 1
        problem = "has too many or too deep values, or contains itself"
        require(self.left > 0 and depth <= MAX_DEPTH, self.field, problem)
        if type(value) is dict:
            return self._copy_dict(value, depth)
        if type(value) in (list, tuple):
            return type(value)(self.copy(item, depth + 1) for item in value)
        self._check(value)
        return value

    def _copy_dict(self, values: dict[Any, Any], depth: int) -> dict[Any, Any]:
        names = all(type(name) in (str, int) for name in values)
        require(names, self.field, "has a key that is neither text nor an integer")
        copied = {}
        for name, value in values.items():
            key = self.copy(name, depth)
            copied[key] = self.copy(value, depth + 1)
        return copied

    def _check(self, value: Any) -> None:
        """Raise :class:`DataError` unless ``value`` is a number, a string or None, within the limits."""
        if type(value) is str:
            require(len(value) <= MAX_TEXT, self.field, f"has a text of {len(value)} characters")
        elif type(value) is int:
            require(abs(value) < MAX_INTEGER, self.field, "has an integer of more than 64 bits")
        else:
            is_plain = type(value) in (float, bool, NoneType)
            require(is_plain, self.field, f"has a value of type {type(value).__name__}")


def build(cls: type[Model], config: dict[str, Any], state: dict[str, Tensor] | None = None) -> Model:
    """Build a ``cls``, or the subclass of it under ``class_path``, from the values of a config or checkpoint.

    Args:
        cls: class of the model, or a base class.
        config: arguments of ``cls``, or ``{"class_path": …, "init_args": {…}}``. Nothing is imported for a
            class path: it names a class of ``trajpred.model``, or a subclass of ``TokenEncoder`` or
            ``SceneDecoder`` that this process has defined, by its module or a package above it.
        state: weights that will be loaded; the model may not be much larger.

    Raises:
        DataError: that names the argument that is unknown, missing, or of the wrong type or range.
    """
    largest = MAX_SIZE
    limit: AbstractContextManager[Any] = nullcontext()
    if state is not None:
        limit = _size_limit(state)
        for weight in state.values():
            largest = max([largest, *weight.shape])
    builder = _Builder(largest)
    try:
        with limit:
            model: Model = builder.module(cls, config, "model")
    except DataError:
        raise
    except Exception as error:  # any constructor, with any values
        problem = f"is not a model config ({type(error).__name__}: {error})"
        raise DataError(problem, field="model") from error
    return model


@contextmanager
def _size_limit(state: dict[str, Tensor]) -> Iterator[None]:
    """Refuse models of many more modules, or of many more or larger tensors, than the weights ``state``.

    A tensor is counted when a module registers it, before it is initialised; one without a size yet gets it
    later, from the widths of others. The margins are for buffers that are not saved.
    """
    items_left = 1_000 + 10 * len(state)
    values_left = 10_000_000 + 4 * sum(weight.numel() for weight in state.values())

    def count(module: nn.Module, name: str, item: object) -> None:
        nonlocal items_left, values_left
        items_left -= 1
        if isinstance(item, Tensor) and not is_lazy(item):
            values_left -= item.numel()
        fits = items_left > 0 and values_left > 0
        require(fits, "model", "describes a much larger model than the checkpoint's weights")

    hooks = [
        registration.register_module_module_registration_hook(count),
        registration.register_module_parameter_registration_hook(count),
        registration.register_module_buffer_registration_hook(count),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Builder:
    """Convert plain values to the types of the arguments they are for; integers up to ``largest``."""

    def __init__(self, largest: int) -> None:
        self.largest = largest

    def module(self, cls: type[Any], config: Any, field: str) -> Any:
        """Build ``cls``, or the subclass that ``config`` chooses, or a dataclass."""
        require(isinstance(config, dict), field, f"must be a mapping, is {quoted(config)}")
        if "class_path" in config:
            unknown = [str(name) for name in config if name not in ("class_path", "init_args")]
            require(not unknown, field, f"has unknown entries: {', '.join(unknown)}")
            subclass = _class_of(config["class_path"], cls, field)
            return self.module(subclass, config.get("init_args", {}), f"{field}.init_args")
        signature = _Signature.of(cls)
        unknown = sorted(str(name) for name in config if name not in signature.names)
        require(signature.takes_all or not unknown, field, f"has unknown entries: {', '.join(unknown)}")
        missing = [name for name in signature.required if name not in config]
        require(not missing, field, f"lacks {', '.join(missing)}")
        arguments = {}
        for name, value in config.items():
            kind = signature.hints.get(name)
            arguments[name] = self.value(kind, value, f"{field}.{name}")
        return cls(**arguments)

    def value(self, kind: Any, value: Any, field: str) -> Any:
        """Check ``value`` for an argument annotated as ``kind``; unknown annotations take any plain value."""
        origin = get_origin(kind)
        choices = get_args(kind)
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
            in_range = isfinite(number)
            if isinstance(number, int):
                in_range = abs(number) <= self.largest
            require(in_range, field, f"is out of range: {quoted(number)}")
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
        items = value.values() if isinstance(value, dict) else value
        for item in items:
            yield from _numbers(item)
    elif isinstance(value, (int, float)):
        yield value


@dataclass
class _Signature:
    """The arguments of a class.

    Attributes:
        names: of all arguments that have one.
        required: those of them without a default.
        hints: annotations by name.
        takes_all: whether it has ``**kwargs`` of any names.
    """

    names: set[str]
    required: list[str]
    hints: dict[str, Any]
    takes_all: bool

    @classmethod
    def of(cls, target: type[Any]) -> _Signature:
        """Read the arguments of ``target``; ``**options`` stand for those of the class in ``options_of``."""
        try:
            hints = get_type_hints(target.__init__)
        except Exception:  # a user's annotations may name anything
            hints = {}
        parameters = dict(inspect.signature(target).parameters)
        operator = getattr(target, "options_of", None)
        if operator is not None:
            hints = get_type_hints(operator.__init__) | hints
            for name, option in inspect.signature(operator).parameters.items():
                if option.default is not option.empty:
                    parameters.setdefault(name, option)
        names: set[str] = set()
        required: list[str] = []
        takes_all = False
        for name, parameter in parameters.items():
            if parameter.kind is VAR_KEYWORD:
                takes_all = operator is None
            elif parameter.kind in NAMED:
                names.add(name)
                if parameter.default is parameter.empty:
                    required.append(name)
        return cls(names, required, hints, takes_all)


def _class_of(path: Any, base: type[nn.Module], field: str) -> type[nn.Module]:
    """Find the subclass of ``base`` that ``path`` names, without importing anything but trajpred's own."""
    package = ""
    name = ""
    if isinstance(path, str):
        package, _, name = path.rpartition(".")
    if f"{package}.".startswith("trajpred.model.") and name in models.__all__:
        getattr(models, name)  # imports its module
    namesakes = [cls for cls in _subclasses(base) if cls.__name__ == name]
    matching = [cls for cls in namesakes if f"{cls.__module__}.".startswith(f"{package}.")]
    what = f"names the class {quoted(path)}, which is no {base.__name__} of trajpred"
    require(bool(matching), field, f"{what}; import its module first")
    return matching[-1]  # of several with this name, the latest definition


def _subclasses(base: type[nn.Module]) -> list[type[nn.Module]]:
    """List ``base`` and its direct and indirect subclasses, breadth first."""
    classes = [base]
    for cls in classes:  # grows while it is read
        for subclass in cls.__subclasses__():
            if subclass not in classes:
                classes.append(subclass)
    return classes
