"""One row's values <-> few bytes.

Neighbouring points and steps resemble each other, so differences are small, and the first byte of each is
nearly always the same: taking differences and laying equal bytes side by side lets zstd halve the size again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Bytes per value, in the order in which a packed row holds them.
_SIZES = (1, 2, 4, 8)


def pack(parts: Sequence[NDArray[Any]]) -> bytes:
    """The ``P`` arrays ``[n]`` or ``[n, width]`` in one string: P counts n (int32), then four groups.

    A group joins the arrays whose values take 1, 2, 4 or 8 bytes, as integers; differences to the value two
    places before (x to x, y to y) modulo the range; of these first all lowest bytes, then the next.
    """
    counts = np.array([len(part) for part in parts], "<i4")
    groups = [
        np.concatenate([np.zeros(0, f"<i{size}"), *(_whole(part) for part in parts if part.itemsize == size)])
        for size in _SIZES
    ]
    return b"".join([counts.tobytes(), *(_shuffled(group) for group in groups)])


def _whole(part: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(part).reshape(-1).view(f"<i{part.itemsize}")


def _shuffled(values: NDArray[Any]) -> bytes:
    steps = values.copy()
    steps[2:] -= values[:-2]
    return steps.view(np.uint8).reshape(len(values), values.itemsize).T.tobytes()


def unpack(data: Any, kinds: Sequence[tuple[np.dtype[Any], int]]) -> list[NDArray[Any]]:
    """The arrays that :func:`pack` joined, of these types and widths. Raises: ValueError if it is cut."""
    counts = np.frombuffer(data, "<i4", len(kinds)).astype(np.int64)
    values = counts * [width for _, width in kinds]
    sizes = np.array([kind.itemsize for kind, _ in kinds])
    if (counts < 0).any() or counts.size * 4 + values @ sizes != len(data):
        raise ValueError("a packed row does not have the length that it states")
    parts: dict[int, NDArray[Any]] = {}
    start = counts.size * 4
    for size in _SIZES:
        own = np.flatnonzero(sizes == size)
        ends = np.cumsum(values[own])
        total = int(ends[-1])
        group = _unshuffled(np.frombuffer(data, np.uint8, total * size, start), size)
        start += total * size
        for i, stop, count in zip(own.tolist(), ends.tolist(), values[own].tolist(), strict=True):
            kind, width = kinds[i]
            part = group[stop - count : stop].view(kind)
            parts[i] = part if width == 1 else part.reshape(-1, width)
    return [parts[i] for i in range(len(kinds))]


def _unshuffled(data: NDArray[np.uint8], size: int) -> NDArray[Any]:
    steps = np.empty((len(data) // size, size), np.uint8)
    for place, plane in enumerate(data.reshape(size, -1)):
        steps[:, place] = plane
    values = steps.reshape(-1).view(f"<i{size}")
    for half in (values[0::2], values[1::2]):
        np.add.accumulate(half, out=half)
    return values
