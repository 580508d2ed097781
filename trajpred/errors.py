"""The one error that bad input raises, and the checks that raise it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line reports errors before NumPy is loaded
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


class DataError(ValueError):
    """Input that cannot be used: says in which file, in which field, and what is wrong.

    Args:
        message: what is wrong, in one sentence.
        file: the file (or scenario) at fault, where known.
        field: the column, key or array at fault, where known.
    """

    def __init__(self, message: str, *, file: str | Path | None = None, field: str | None = None) -> None:
        # Messages quoted from libraries may run over several lines.
        self.message, self.file, self.field = " ".join(message.splitlines()), file, field
        super().__init__(self.message, file, field)

    def __str__(self) -> str:
        where = [str(self.file)] if self.file is not None else []
        where += [f"field {self.field!r}"] if self.field is not None else []
        return f"{', '.join(where)}: {self.message}" if where else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.message, self.file, self.field)

    def located(self, file: str | Path) -> DataError:
        """The same error, told of ``file`` (kept if one is already named)."""
        return DataError(self.message, file=self.file or file, field=self.field)


def _rebuild(message: str, file: str | Path | None, field: str | None) -> DataError:
    return DataError(message, file=file, field=field)


def require(condition: bool, field: str, message: str) -> None:
    """Raise :class:`DataError` with ``message`` about ``field`` unless ``condition`` holds."""
    if not condition:
        raise DataError(message, field=field)


def as_array(values: ArrayLike, dtype: Any, field: str) -> NDArray[Any]:
    """A copy of ``values`` as an array. Raises: :class:`DataError` on ragged lists and other non-numbers."""
    import numpy as np

    try:
        return np.array(values, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"is no array of numbers ({error})", field=field) from None


def within(values: NDArray[Any], size: int) -> bool:
    """Whether every entry is an index of a table with ``size`` rows."""
    return bool(((values >= 0) & (values < size)).all())


def encode(names: Sequence[Any], known: tuple[str, ...], field: str) -> NDArray[np.int8]:
    """Indices ``[M]`` of ``names`` in ``known``. Raises: :class:`DataError` on a name that is not there."""
    import numpy as np

    index = {name: i for i, name in enumerate(known)}
    try:
        return np.array([index[name] for name in names], np.int8)
    except (KeyError, TypeError):
        unknown = next(name for name in names if name not in known)
        raise DataError(f"unknown value {unknown!r}; known: {', '.join(known)}", field=field) from None
