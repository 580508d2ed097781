"""Choose the focal tracks of the windows of a log: all of them different."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from trajpred.tracks import OBJECT_TYPES

#: Number of windows whose focal tracks are chosen together.
_TOGETHER = 4
_PEDESTRIAN = OBJECT_TYPES.index("pedestrian")
_BUS = OBJECT_TYPES.index("bus")


def assign_focal_tracks(rank: NDArray[np.float64], object_type: NDArray[np.int8]) -> list[int]:
    """Choose a focal track for each window of a log from the ranks ``[W, A]``; -1 where none qualifies.

    No track is focal twice. One window takes a pedestrian or bus, where one qualifies; the others take the
    tracks with the largest sum of ranks, four windows at a time.
    """
    focal = [-1] * len(rank)
    # Columns of no track, so that each of the windows has a choice.
    rank = np.pad(rank, ((0, 0), (0, _TOGETHER)), constant_values=-1.0)
    rare = np.isin(object_type, [_PEDESTRIAN, _BUS])
    best = np.where(rare, rank[:, : len(rare)], -1.0)
    if best.max() >= 0:
        number, walker = divmod(int(best.argmax()), best.shape[1])
        focal[number] = walker
        rank[:, walker] = -1.0
    rest = [number for number in range(len(rank)) if focal[number] < 0]
    for first in range(0, len(rest), _TOGETHER):
        numbers = rest[first : first + _TOGETHER]
        for number, row in zip(numbers, _best_assignment(rank[numbers]), strict=True):
            if rank[number, row] >= 0:
                focal[number] = row
        taken = [row for row in focal if row >= 0]
        rank[:, taken] = -1.0
    return focal


def _best_assignment(rank: NDArray[np.float64]) -> tuple[int, ...]:
    """Choose a column for each row of ``rank`` ``[N, A]``, all distinct, with the largest sum."""
    rows = np.arange(len(rank))
    options = [np.argsort(-values)[:_TOGETHER].tolist() for values in rank]
    distinct = [columns for columns in product(*options) if len(set(columns)) == len(columns)]
    return max(distinct, key=lambda columns: rank[rows, columns].sum())
