"""DataError, the only exception for invalid input, and the checks that raise it."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line reports errors before NumPy is loaded
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

#: Longest quotation of a value in a message (characters).
MAX_QUOTED = 80
#: Maximum number of characters of a message.
MAX_MESSAGE = 1_000


class DataError(ValueError):
    """Invalid input, reported with the file and field at fault.

    Args:
        message: what is wrong, in one sentence.
        file: the file or scenario at fault, if known.
        field: the column, key or array at fault, if known.

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
        """Return this error with ``file`` filled in, unless it already names a file."""
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
        used: ``[A, T]`` steps of ``values`` ``[A, T, ...]`` to check; by default all.
    """
    import numpy as np

    finite = np.isfinite(values)
    if used is None:
        require(bool(finite.all()), field, "contains a non-finite value")
        return
    finite = finite.all(axis=tuple(range(2, finite.ndim)))
    require_rows((finite | ~used).all(axis=1), field, "contains a non-finite value at a valid step")


def require_rows(correct: ArrayLike, field: str, message: str) -> None:
    """Raise :class:`DataError` about ``field`` that names the first incorrect rows of ``[M]``."""
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


def within(values: NDArray[Any], size: int) -> bool:
    """Return whether every entry indexes a table of ``size`` rows."""
    return bool(((values >= 0) & (values < size)).all())
