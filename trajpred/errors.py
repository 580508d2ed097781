"""DataError, the only exception for invalid input, and the checks that raise it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line reports errors before NumPy is loaded
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

#: Maximum number of characters in an array of strings: NumPy reserves the longest length for each of them.
MAX_CHARACTERS = 2**24
#: Maximum number of characters of the name of a scenario, track or city.
MAX_NAME = 256
#: Maximum number of characters that a message quotes of a value.
MAX_QUOTED = 80
#: Maximum number of characters of a message.
MAX_MESSAGE = 1_000


class DataError(ValueError):
    """Invalid input, reported with the file and field at fault.

    Args:
        message: what is wrong, in one sentence.
        file: the file or scenario at fault, where known.
        field: the column, key or array at fault, where known.

    Example:
        >>> print(DataError("must be positive", file="config.yaml", field="steps"))
        config.yaml, field 'steps': must be positive
    """

    def __init__(self, message: str, *, file: str | Path | None = None, field: str | None = None) -> None:
        # Messages quoted from libraries may contain line breaks and whole values.
        one_line = " ".join(message.splitlines())
        self.message = shortened(one_line)
        self.file = file
        self.field = field
        super().__init__(self.message, file, field)

    def __str__(self) -> str:
        places: list[str] = []
        if self.file is not None:
            places.append(shortened(str(self.file)))
        if self.field is not None:
            places.append(f"field {shortened(self.field)!r}")
        if not places:
            return self.message
        return f"{', '.join(places)}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return partial(DataError, file=self.file, field=self.field), (self.message,)

    def located(self, file: str | Path) -> DataError:
        """Return the same error with ``file`` filled in, unless a file is already named."""
        return DataError(self.message, file=self.file or file, field=self.field)


def shortened(text: str, limit: int = MAX_MESSAGE) -> str:
    """Cut the middle out of a text of more than ``limit`` characters."""
    if len(text) <= limit:
        return text
    return f"{text[: limit * 3 // 4]} … ({len(text)} characters) … {text[-limit // 4 :]}"


def quoted(value: object) -> str:
    """Return a short representation of a value of any type and size, for messages."""
    if isinstance(value, str):
        return repr(shortened(value, MAX_QUOTED))
    if isinstance(value, int) and abs(value) >= 2**63:
        return "an integer of more than 64 bits"
    if value is None or isinstance(value, (int, float)):
        return repr(value)
    return f"a {type(value).__name__}"


def require(condition: bool, field: str, message: str) -> None:
    """Raise :class:`DataError` about ``field`` unless ``condition`` holds."""
    if not condition:
        raise DataError(message, field=field)


def require_not_negative(**values: float) -> None:
    """Raise :class:`DataError` about the first of the named values that is negative or not finite."""
    for name, value in values.items():
        require(0 <= value < math.inf, name, f"must be 0 or more and finite, is {value}")


def require_shape(values: NDArray[Any], shape: tuple[int, ...], field: str) -> None:
    """Raise :class:`DataError` about ``field`` unless the array has the given shape."""
    require(values.shape == shape, field, f"must have shape {shape}, has {values.shape}")


def require_finite(values: NDArray[Any], field: str, used: NDArray[np.bool_] | None = None) -> None:
    """Raise :class:`DataError` about ``field`` if a value is NaN or infinite.

    Args:
        used: ``[A, T]``, the steps of ``values`` ``[A, T, ...]`` that matter, by default all.
    """
    import numpy as np

    finite = np.isfinite(values)
    if used is None:
        require(bool(finite.all()), field, "contains a non-finite value")
        return
    finite = finite.all(axis=tuple(range(2, finite.ndim)))
    require_rows((finite | ~used).all(axis=1), field, "contains a non-finite value at a valid step")


def require_rows(correct: ArrayLike, field: str, message: str) -> None:
    """Raise :class:`DataError` about ``field`` that names the first rows of ``[M]`` that are not correct."""
    import numpy as np

    rows = np.flatnonzero(np.logical_not(correct)).tolist()
    if not rows:
        return
    if len(rows) == 1:
        raise DataError(f"{message}: row {rows[0]}", field=field)
    names = ", ".join(str(row) for row in rows[:3])
    if len(rows) > 3:
        names += f" and {len(rows) - 3} more"
    raise DataError(f"{message}: rows {names}", field=field)


def as_array(values: ArrayLike, dtype: Any, field: str, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Copy ``values`` to an array: those of NumPy or another package, or lists of numbers or of arrays.

    Masked values become NaN, and tensors lose their gradient. Nothing is rounded: booleans are True, False, 1
    or 0, and integers whole numbers.

    Raises: DataError on ragged lists, values that are not numbers or would change, and shapes other than
        ``shape``.
    """
    import numpy as np

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
    """Return one number of Python, NumPy or torch. Raises: DataError if it is none."""
    import numpy as np

    try:
        array = as_array(value, np.float64, field)
    except DataError:
        array = np.zeros(1)
    if array.ndim or value is None or isinstance(value, (str, bytes)):
        raise DataError(f"must be a number, is {quoted(value)}", field=field)
    return float(array)


def as_whole_number(value: ArrayLike, field: str) -> int:
    """Return one whole number. Raises: DataError if it is none."""
    number = as_number(value, field)
    require(number.is_integer(), field, f"must be a whole number, is {number}")
    return int(number)


def _plain(values: Any) -> Any:
    """Replace masked values by NaN and tensors by arrays, also in lists. Raises: TypeError if no number."""
    import numpy as np

    if isinstance(values, (list, tuple)):
        return [_plain(value) for value in values]
    if hasattr(values, "detach"):
        values = _without_gradient(values)
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        values = values.data
        if mask.any():
            values = np.where(mask, np.nan, values)
    if isinstance(values, (np.ndarray, np.generic)) and values.dtype.kind in "cMmV":
        raise TypeError(f"values are {values.dtype}")
    return values


def _without_gradient(tensor: Any) -> NDArray[Any]:
    """Return a tensor's values; NumPy has no bfloat16."""
    values = tensor.detach().cpu()
    if "bfloat16" in str(values.dtype):
        values = values.float()
    array: NDArray[Any] = values.numpy()
    return array


def _converted(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Copy plain values to an array of ``dtype``. Raises: ValueError if one of them would change."""
    import numpy as np

    if dtype.kind not in "biu":
        return np.array(values, dtype)
    # Of lists the values themselves: as an array of one type, texts and numbers would be alike.
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


def as_name(value: Any, field: str) -> str:
    """Return the name of a scenario, track, city or type as text.

    Args:
        value: text, bytes in UTF-8, a number, or a NumPy scalar or tensor of these.

    Raises: DataError if it is missing (None, NaN, masked), a collection, or other bytes.
    """
    import numpy as np

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
    import numpy as np

    names = listed_names(values, field)
    require(count in (None, len(names)), field, f"must have {count} entries, has {len(names)}")
    require_names(names, field)
    longest = max((len(name) for name in names), default=0)
    require(longest * len(names) <= MAX_CHARACTERS, field, f"contains a string of {longest} characters")
    return np.array(names, np.str_)


def within(values: NDArray[Any], size: int) -> bool:
    """Return whether every entry is an index into a table of ``size`` rows."""
    return bool(((values >= 0) & (values < size)).all())


def encode(names: Sequence[Any], categories: tuple[str, ...], field: str) -> NDArray[np.int8]:
    """Return the index ``[M]`` of each name in ``categories``.

    Raises:
        DataError: a name is not among them.
    """
    import numpy as np

    index = {category: code for code, category in enumerate(categories)}
    try:
        return np.array([index[name] for name in names], np.int8)
    except (KeyError, TypeError):
        unknown = next(name for name in names if name not in categories)
        problem = f"unknown value {shortened(repr(unknown), MAX_QUOTED)}"
        raise DataError(f"{problem}; known: {', '.join(categories)}", field=field) from None
