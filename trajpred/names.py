"""Names of scenarios, tracks, cities and types: their conversion and the limits that they must keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.arrays import row_of
from trajpred.errors import MAX_QUOTED, DataError, quoted, require, shortened

#: Maximum number of characters in an array of strings: NumPy reserves the longest length for each of them.
MAX_CHARACTERS = 2**24
#: Maximum number of characters of the name of a scenario, track or city.
MAX_NAME = 256


def as_name(value: Any, field: str) -> str:
    """Return the name of a scenario, track, city or type as text.

    Args:
        value: text, bytes in UTF-8, a number, or a NumPy scalar or tensor of these.

    Raises: DataError if it is missing (None, NaN, masked), a collection, or other bytes.
    """
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        is_masked = value is np.ma.masked
        value = None if is_masked else value.item()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise DataError("contains bytes that are not UTF-8", field=field) from None
    collection = isinstance(value, (Mapping, Set, list, tuple)) or hasattr(value, "shape")
    if collection or value is None or not _equals_itself(value):
        raise DataError(f"must be text or a number, is {quoted(value)}", field=field)
    return str(value)


def _equals_itself(value: Any) -> bool:
    """Return False for NaN and the missing values of pandas, one of which has no truth value."""
    try:
        return bool(value == value)
    except TypeError:
        return False


def is_name(text: object) -> bool:
    """Return whether ``text`` is text, printable and neither empty nor longer than :data:`MAX_NAME`."""
    return isinstance(text, str) and 0 < len(text) <= MAX_NAME and text.isprintable()


def require_names(names: Iterable[str], field: str) -> None:
    """Raise :class:`DataError` about ``field`` unless all names are printable and not empty or too long.

    NumPy removes NUL from the end of a string, and line ends would break tables and messages.
    """
    for name in names:
        require(is_name(name), field, f"must be 1 to {MAX_NAME} printable characters, is {quoted(name)}")


def listed_names(values: Iterable[Any], field: str) -> list[str]:
    """Return names as text, see :func:`as_name`.

    Raises:
        DataError: ``values`` are not a list of names.
    """
    is_text = isinstance(values, (str, bytes))  # which is a sequence of its letters
    is_list = hasattr(values, "__iter__") and getattr(values, "ndim", 1) == 1
    require(is_list and not is_text, field, f"must be a list of names, is {quoted(values)}")
    return [as_name(value, field) for value in values]


def as_names(values: Iterable[Any], field: str, count: int | None = None) -> NDArray[np.str_]:
    """Copy ``count`` names (None for any number) to an array ``[M]``.

    Raises: DataError if one is invalid, or the array would exceed :data:`MAX_CHARACTERS`.
    """
    names = listed_names(values, field)
    require(count in (None, len(names)), field, f"must have {count} entries, has {len(names)}")
    require_names(names, field)
    longest = max((len(name) for name in names), default=0)
    require(longest * len(names) <= MAX_CHARACTERS, field, f"contains a string of {longest} characters")
    return np.array(names, np.str_)


def encode(names: Sequence[Any], categories: tuple[str, ...], field: str) -> NDArray[np.int8]:
    """Return the index ``[M]`` of each name in ``categories``.

    Raises:
        DataError: a name is not among them.
    """
    index = row_of(categories)
    try:
        return np.array([index[name] for name in names], np.int8)
    except (KeyError, TypeError):
        unknown = next(name for name in names if name not in categories)
        problem = f"unknown value {shortened(repr(unknown), MAX_QUOTED)}"
        raise DataError(f"{problem}; known: {', '.join(categories)}", field=field) from None
