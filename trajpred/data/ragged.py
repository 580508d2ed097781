"""The ragged array: rows of varying length in one array, such as the polylines of a map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.data.checks import as_array
from trajpred.errors import quoted, require, require_rows


@dataclass(frozen=True)
class Ragged:
    """``M`` rows of varying length in one array: row i is ``values[offsets[i]:offsets[i + 1]]``.

    Attributes:
        values: ``[N, ...]``; polylines are ``[N, 2]``, or ``[N, 3]`` with heights.
        offsets: ``[M + 1]`` int64, from 0 to N.

    Example:
        >>> [row.tolist() for row in Ragged.from_rows([[1, 2], [], [3]], dtype=int)]
        [[1, 2], [], [3]]
    """

    values: NDArray[Any]
    offsets: NDArray[np.int64]

    @classmethod
    def from_rows(
        cls,
        rows: Sequence[ArrayLike],
        width: int | None = None,
        dtype: Any = np.float64,
        name: str = "rows",
    ) -> Ragged:
        """Concatenate ``rows`` of ``width`` columns (None for rows of scalars).

        Raises: DataError about ``name`` if a row has another shape.
        """
        shape = (0,) if width is None else (0, width)
        empty = np.zeros(shape, dtype)
        arrays = [empty]
        require(hasattr(rows, "__iter__"), name, f"must be a list of rows, is {quoted(rows)}")
        for number, row in enumerate(rows):
            array = as_array(row, dtype, name)
            if not array.size:
                array = empty
            fits = array.ndim == empty.ndim and array.shape[1:] == empty.shape[1:]
            require(fits, name, f"contains a row of the wrong shape {array.shape}: row {number}")
            arrays.append(array)
        lengths = [len(array) for array in arrays[1:]]
        return cls.from_lengths(np.concatenate(arrays), lengths)

    @classmethod
    def from_lengths(cls, values: NDArray[Any], lengths: ArrayLike) -> Ragged:
        """Split ``values`` into consecutive rows of the given ``lengths`` ``[M]``."""
        ends = np.cumsum(np.asarray(lengths, np.int64), dtype=np.int64)
        return cls(values, np.concatenate((np.zeros(1, np.int64), ends)))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[Any]:
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows, {self.values.dtype}{list(self.values.shape)})"

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """Select ``rows``, in any order and also repeatedly."""
        lengths = self.lengths[rows]
        new_start = np.cumsum(lengths) - lengths
        shift = self.offsets[rows] - new_start
        index = np.repeat(shift, lengths) + np.arange(lengths.sum())
        return Ragged.from_lengths(self.values[index], lengths)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Row lengths ``[M]``."""
        return np.diff(self.offsets)

    def validate(self, name: str, rows: int | None = None, shortest: int = 0) -> None:
        """Raise :class:`DataError` unless there are ``rows`` finite rows of at least ``shortest`` entries."""
        require(rows is None or len(self) == rows, name, f"must have {rows} rows, has {len(self)}")
        require(int(self.offsets[-1]) == len(self.values), name, "offsets do not end at the last value")
        require_rows(self.lengths >= shortest, name, f"contains a row shorter than {shortest}")
        wrong = np.nonzero(~np.isfinite(self.values))[0]
        finite = np.ones(len(self), np.bool_)
        finite[np.searchsorted(self.offsets, wrong, side="right") - 1] = False
        require_rows(finite, name, "contains a non-finite value")
