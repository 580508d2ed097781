"""Arithmetic on rows that lie scene by scene, for all scenes at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def starts(scene: NDArray[np.int64], scenes: int) -> NDArray[np.int64]:
    """``[scenes + 1]``: scene s has the rows ``starts[s]:starts[s + 1]`` of ``scene`` ``[N]``, ascending."""
    return np.searchsorted(scene, np.arange(scenes + 1)).astype(np.int64)


def place_within(scene: NDArray[np.int64]) -> NDArray[np.int64]:
    """``[N]``: 0, 1, 2 … anew in every scene of the ascending ``scene`` ``[N]``."""
    return np.arange(len(scene)) - np.searchsorted(scene, scene)


def smallest(
    scene: NDArray[np.int64], count: int, *keys: NDArray[np.float64 | np.bool_]
) -> NDArray[np.int64]:
    """Rows of the ``count`` smallest of each scene by ``keys`` (the first one decides), in their order."""
    order = np.lexsort((*reversed(keys), scene))
    return np.sort(order[place_within(scene[order]) < count])


def pairs(
    scene: NDArray[np.int64], other: NDArray[np.int64], scenes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Every row of ``scene`` with every row of ``other`` of the same scene; both ascending.

    Returns:
        The rows of both ``[pairs]``, the first ascending, and ``[N]`` where each of its rows begins.
    """
    start = starts(other, scenes)
    count = np.diff(start)[scene]
    begin = np.cumsum(count) - count
    row = np.repeat(np.arange(len(scene)), count)
    return row, np.arange(len(row)) - (begin - start[scene])[row], begin
