"""Plain values, as in configs and checkpoints: numbers, strings, None, and lists and dicts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import Any

import yaml

from trajpred.data.files import require_file
from trajpred.errors import DataError, quoted

#: Maximum number of values in a file.
MAX_VALUES = 100_000


def require_plain(content: Any, largest: int) -> None:
    """Raise :class:`DataError` unless all values are plain and finite, and integers at most ``largest``."""
    for value in _all_values(content, _parts_of_value):
        kind = type(value)
        if kind not in (dict, list, tuple, str, int, float, bool, NoneType):
            raise DataError(f"has a value of type {kind.__name__}")
        if (kind is int and abs(value) > largest) or (kind is float and not isfinite(value)):
            raise DataError(f"has a number that is out of range: {quoted(value)}")


def read_yaml(file: Path) -> Any:
    """Read a YAML file. Raises: DataError if it is missing, not YAML, or has too many values."""
    require_file(file)
    try:
        text = file.read_text("utf-8")
        for _ in _all_values(yaml.compose(text, yaml.SafeLoader), _parts_of_node):
            pass  # count before copying: an alias stands for everything it names
        return yaml.safe_load(text)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=file) from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DataError(f"is not YAML: line {line}: {error.problem}", file=file) from None
    except DataError as error:
        raise error.located(file) from None
    except (RecursionError, ValueError) as error:
        raise DataError(f"cannot be read ({error})", file=file) from None


def _all_values(root: Any, parts: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
    """Yield ``root`` and all its ``parts``, recursively; a shared part once for each parent.

    Raises: DataError if there are more than :data:`MAX_VALUES`, for example if one contains itself.
    """
    pending = [root]
    count = 0
    while pending:
        value = pending.pop()
        count += 1
        if count > MAX_VALUES:
            raise DataError(f"has more than {MAX_VALUES:,} values, or contains itself")
        yield value
        pending += parts(value)


def _parts_of_value(value: Any) -> Iterable[Any]:
    if type(value) is dict:
        return [*value, *value.values()]
    return value if type(value) in (list, tuple) else []


def _parts_of_node(node: yaml.Node | None) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return chain.from_iterable(node.value)
    return node.value if isinstance(node, yaml.SequenceNode) else []
