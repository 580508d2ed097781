"""DataError, the only exception for invalid input, and the checks that raise it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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
#: Maximum number of characters that a message quotes of a value, and of a whole message.
MAX_QUOTED, MAX_MESSAGE = 80, 1_000


class DataError(ValueError):
    """Invalid input, reported with the file and field at fault.

    Args:
        message: what is wrong, in one sentence.
        file, field: the file or scenario, and the column, key or array at fault, where known.

    Example:
        >>> print(DataError("must be positive", file="config.yaml", field="steps"))
        config.yaml, field 'steps': must be positive
    """

    def __init__(self, message: str, *, file: str | Path | None = None, field: str | None = None) -> None:
        # Messages quoted from libraries may contain line breaks and whole values.
        self.message, self.file, self.field = shortened(" ".join(message.splitlines())), file, field
        super().__init__(self.message, file, field)

    def __str__(self) -> str:
        where = [shortened(str(self.file))] if self.file is not None else []
        where += [f"field {shortened(self.field)!r}"] if self.field is not None else []
        return f"{', '.join(where)}: {self.message}" if where else self.message

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
    simple = value is None or isinstance(value, (int, float))
    return repr(value) if simple else f"a {type(value).__name__}"


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


def require_finite(values: NDArray[Any], field: str) -> None:
    """Raise :class:`DataError` about ``field`` if a value is NaN or infinite."""
    import numpy as np

    require(bool(np.isfinite(values).all()), field, "contains a non-finite value")


def as_array(values: ArrayLike, dtype: Any, field: str, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Copy ``values`` to an array.

    Raises: DataError on ragged lists, values that are not numbers, and shapes other than ``shape``.
    """
    import numpy as np

    try:
        array = np.array(values, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"is not an array of numbers ({error})", field=field) from None
    if shape is not None:
        require_shape(array, shape, field)
    return array


def is_name(text: str) -> bool:
    """Return whether ``text`` is printable and neither empty nor longer than :data:`MAX_NAME`."""
    return 0 < len(text) <= MAX_NAME and text.isprintable()


def require_names(names: Iterable[str], field: str) -> None:
    """Raise :class:`DataError` about ``field`` unless all names are printable and not empty or too long.

    NumPy removes NUL from the end of a string, and line ends would break tables and messages.
    """
    for name in names:
        require(is_name(name), field, f"must be 1 to {MAX_NAME} printable characters, is {quoted(name)}")


def as_names(values: Sequence[str], field: str) -> NDArray[np.str_]:
    """Copy the names of tracks to an array ``[M]``.

    Raises: DataError if one is invalid, or the array would exceed :data:`MAX_CHARACTERS`.
    """
    import numpy as np

    require_names(values, field)
    longest = max(map(len, values), default=0)
    require(longest * len(values) <= MAX_CHARACTERS, field, f"contains a string of {longest} characters")
    return np.array(values, np.str_)


def within(values: NDArray[Any], size: int) -> bool:
    """Return whether every entry is an index into a table of ``size`` rows."""
    return bool(((values >= 0) & (values < size)).all())


def encode(names: Sequence[Any], known: tuple[str, ...], field: str) -> NDArray[np.int8]:
    """Return the index ``[M]`` of each name in ``known``. Raises: DataError on an unknown name."""
    import numpy as np

    index = {name: i for i, name in enumerate(known)}
    try:
        return np.array([index[name] for name in names], np.int8)
    except (KeyError, TypeError):
        unknown = next(name for name in names if name not in known)
        raise DataError(
            f"unknown value {shortened(repr(unknown), MAX_QUOTED)}; known: {', '.join(known)}", field=field
        ) from None
