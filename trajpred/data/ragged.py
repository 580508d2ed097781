"""Rows of varying length in one array, such as a map's polylines, and rows grouped by scene."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.data.checks import as_array
from trajpred.data.geometry import norm
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
        cls, rows: Sequence[ArrayLike], width: int | None = None, dtype: Any = np.float64, name: str = "rows"
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
        """Select ``rows``, in any order, possibly repeated."""
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


def evenly_spaced(lines: Ragged, points: int) -> NDArray[np.float64]:
    """Interpolate ``points`` points at equal distances along each of M polylines, both ends included.

    Returns ``[M, points, 2]``; heights are ignored, and polylines without points give zeros.
    """
    out = np.zeros((len(lines), points, 2))
    filled = np.flatnonzero(lines.lengths > 0)
    if not len(filled):
        return out
    xy = lines.values[:, :2]
    first = lines.offsets[filled]
    last = lines.offsets[filled + 1] - 1
    arc = arc_over_lines(xy, first)
    length = arc[last] - arc[first]
    along = arc[first, None] + length[:, None] * np.linspace(0, 1, points)
    out[filled] = interpolate(along, arc, xy)
    return out


def arc_over_lines(xy: NDArray[np.float64], first: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return one arc length ``[Q]`` over polylines that follow each other in ``xy`` ``[Q, 2]``.

    It grows by a metre before each polyline, which begin at the rows ``first``, so that a single
    interpolation serves all of them.
    """
    step = np.ones(len(xy))
    step[1:] = norm(np.diff(xy, axis=0))
    step[first] = 1.0
    return np.cumsum(step)


def interpolate(
    at: NDArray[np.float64], arc: NDArray[np.float64], xy: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the points ``[..., 2]`` at the lengths ``at`` ``[...]`` of a line ``xy`` ``[Q, 2]``."""
    # np.interp takes a single column; x and y as a complex number need one search instead of two.
    line = np.ascontiguousarray(xy, np.float64).view(np.complex128)[:, 0]
    points = np.interp(at, arc, line)
    return points.view(np.float64).reshape(*at.shape, 2)


def rank_in_scene(scene: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the rows of each scene 0, 1, 2 …; ``scene`` ``[N]`` is ascending."""
    return np.arange(len(scene)) - np.searchsorted(scene, scene)


def smallest_in_scene(
    scene: NDArray[np.int64], count: int, *keys: NDArray[np.float64 | np.bool_]
) -> NDArray[np.int64]:
    """Select the ``count`` smallest rows of each scene by ``keys``, most significant first; ascending."""
    order = np.lexsort((*reversed(keys), scene))
    return np.sort(order[rank_in_scene(scene[order]) < count])


def pairs_in_scenes(
    scene: NDArray[np.int64], other: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Pair every row of ``scene`` with every row of ``other`` in the same scene; both ascending.

    Returns the rows of both ``[pairs]``, the first ascending, and ``[N]`` the first pair of each row.
    """
    first_other = np.searchsorted(other, scene)
    others = np.searchsorted(other, scene, side="right") - first_other  # of the same scene
    first_pair = np.cumsum(others) - others
    row = np.repeat(np.arange(len(scene)), others)
    number = np.arange(len(row)) - first_pair[row]  # of each pair among those of its row
    return row, first_other[row] + number, first_pair


def rows_around(
    scene: NDArray[np.int64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    other: NDArray[np.int64],
    position: NDArray[np.floating[Any]],
    margin: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Return which rows ``[N]`` have boxes that touch the box around all positions ``[M]`` of their scene.

    Only these need a comparison with each position: a map may cover a city. A box reaches from ``low`` to
    ``high`` ``[N, 2]``, the box around the positions a ``margin`` ``[M, 1]`` beyond each ``position``.
    """
    scenes = 1 + int(max(scene.max(initial=-1), other.max(initial=-1)))
    others_low = np.full((scenes, 2), np.inf)
    others_high = np.full((scenes, 2), -np.inf)
    np.minimum.at(others_low, other, position - margin)
    np.maximum.at(others_high, other, position + margin)
    touching = (high >= others_low[scene]) & (low <= others_high[scene])
    return np.flatnonzero(touching.all(axis=1))


def find_in_scenes(
    scene: NDArray[np.int64],
    ids: NDArray[np.int64],
    wanted_scene: NDArray[np.int64],
    wanted: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the rows of the ``wanted`` ids, which are unique only within a scene; -1 if there is none."""
    unique, code = np.unique(ids, return_inverse=True)
    if not len(unique):
        return np.full(len(wanted), -1)
    # Scene and id rank form one integer key, however large the ids are.
    key = scene * len(unique) + code
    order = np.argsort(key)
    ascending = key[order]
    rank = np.minimum(np.searchsorted(unique, wanted), len(unique) - 1)
    wanted_key = wanted_scene * len(unique) + rank
    place = np.minimum(np.searchsorted(ascending, wanted_key), len(key) - 1)
    exists = (unique[rank] == wanted) & (ascending[place] == wanted_key)
    return np.where(exists, order[place], -1)
