"""Convert array-likes and names from any library, or raise DataError."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.errors import MAX_QUOTED, DataError, quoted, require, require_shape, shortened

T = TypeVar("T")
#: Kinds of arrays that are not real numbers: complex numbers, dates, durations, structures.
_NOT_REAL = "cMmV"


def row_of(values: Iterable[T]) -> dict[T, int]:
    """Map each value, such as a track id, to its row; duplicates to the last."""
    return {value: row for row, value in enumerate(values)}


def as_array(values: ArrayLike, dtype: Any, field: str, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Copy ``values`` to an array, from an array of any package or a list of numbers or arrays.

    Masked values become NaN, and tensors lose their gradient. Nothing is rounded: booleans must be True,
    False, 1 or 0, and integers whole numbers.

    Raises: DataError for ragged lists, values that are not numbers or would change, and shapes other than
        ``shape``.
    """
    try:
        array = _converted(_plain(values), np.dtype(dtype))
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        kinds = {"b": "True and False", "i": "whole numbers"}
        kind = kinds.get(np.dtype(dtype).kind, "numbers")
        raise DataError(f"is not an array of {kind} ({error})", field=field) from None
    if shape is not None:
        require_shape(array, shape, field)
    return array


def as_number(value: ArrayLike, field: str) -> float:
    """Return a number from Python, NumPy or torch. Raises: DataError for anything else: True, None, text."""
    refusal = DataError(f"must be a number, is {quoted(value)}", field=field)
    try:
        plain = np.asarray(_plain(value))
        number = as_array(plain, np.float64, field)
    except (DataError, TypeError, ValueError, RuntimeError):
        raise refusal from None
    if number.ndim or value is None or plain.dtype.kind in "bSU":
        raise refusal
    return float(number)


def as_whole_number(value: ArrayLike, field: str) -> int:
    """Return a whole number. Raises: DataError for anything else."""
    number = as_number(value, field)
    require(number.is_integer(), field, f"must be a whole number, is {number}")
    return int(number)


def _plain(values: Any) -> Any:
    """Replace masked values by NaN and tensors by arrays, also in lists.

    Raises: TypeError for complex numbers, dates, durations and structures.
    """
    if isinstance(values, (list, tuple)):
        return [_plain(value) for value in values]
    if hasattr(values, "detach"):
        values = _without_gradient(values)
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        values = values.data
        if mask.any():
            values = np.where(mask, np.nan, values)
    if isinstance(values, (np.ndarray, np.generic)) and values.dtype.kind in _NOT_REAL:
        raise TypeError(f"values are {values.dtype}")
    return values


def _without_gradient(tensor: Any) -> NDArray[Any]:
    """Return a tensor's values; NumPy has no bfloat16."""
    values = tensor.detach().cpu()
    if "bfloat16" in str(values.dtype):
        values = values.float()
    return values.numpy()


def _converted(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Copy plain values to an array of ``dtype``. Raises: ValueError if one of them would change."""
    if dtype.kind not in "biu":
        return np.array(values, dtype)
    # Keep the values of lists: in an array of one type, text and numbers would look alike.
    kind = object if isinstance(values, list) else None
    array = np.asarray(values, kind)
    if array.dtype.kind == "b":
        return array.astype(dtype)
    if array.dtype.kind in "OUS":
        convert = _boolean if dtype.kind == "b" else _whole
        items = [convert(value) for value in array.ravel().tolist()]
        return np.array(items, dtype).reshape(array.shape)
    with np.errstate(invalid="ignore"):
        converted = array.astype(dtype)
    changed = converted != array
    if changed.any():
        raise ValueError(f"contains {array[changed].flat[0]}")
    return converted


def _boolean(value: Any) -> bool:
    if isinstance(value, (str, bytes)) or value not in (0, 1):
        raise ValueError(f"contains {quoted(value)}")
    return bool(value)


def _whole(value: Any) -> int:
    number = int(value)
    if not isinstance(value, (str, bytes)) and number != value:
        raise ValueError(f"contains {quoted(value)}")
    return number


#: Largest array of strings (total characters): NumPy reserves the longest length for each string.
MAX_CHARACTERS = 2**24
#: Longest name of a scenario, track or city (characters).
MAX_NAME = 256


def as_name(value: Any, field: str) -> str:
    """Return the name of a scenario, track, city or type as text.

    Args:
        value: text, UTF-8 bytes, a number, or a NumPy scalar or tensor of these.

    Raises: DataError if it is missing (None, NaN, masked), a collection, or not UTF-8.
    """
    if type(value) is str:
        return value
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = None if value is np.ma.masked else value.item()
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
    """Return False for NaN and pandas' missing values, one of which has no truth value."""
    try:
        return bool(value == value)
    except TypeError:
        return False


def is_name(text: object) -> bool:
    """Return whether ``text`` is a printable string of 1 to :data:`MAX_NAME` characters."""
    return isinstance(text, str) and 0 < len(text) <= MAX_NAME and text.isprintable()


def require_names(names: Iterable[str], field: str) -> None:
    """Raise :class:`DataError` about ``field`` unless every name :func:`is_name`.

    NumPy strips NUL from the end of strings, and line breaks would break tables and messages.
    """
    for name in names:
        require(is_name(name), field, f"must be 1 to {MAX_NAME} printable characters, is {quoted(name)}")


def listed_names(values: Iterable[Any], field: str) -> list[str]:
    """Return names as text, see :func:`as_name`.

    Raises:
        DataError: ``values`` is not a list of names.
    """
    is_text = isinstance(values, (str, bytes))  # text is a sequence of its letters
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
