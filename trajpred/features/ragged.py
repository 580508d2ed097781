"""Vectorised operations on rows that are grouped by scene, and on polylines of any length. NumPy only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.data.geometry import norm
from trajpred.data.ragged import Ragged


def starts(scene: NDArray[np.int64], scenes: int) -> NDArray[np.int64]:
    """Return ``[scenes + 1]``: scene s owns rows ``starts[s]:starts[s + 1]`` of the ascending ``scene``."""
    return np.searchsorted(scene, np.arange(scenes + 1)).astype(np.int64)


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
    """Pair every row of ``scene`` with every row of ``other`` of the same scene; both ascending.

    Returns the rows of both ``[pairs]``, the first ascending, and ``[N]`` the first pair of each row.
    """
    start = np.searchsorted(other, scene)
    count = np.searchsorted(other, scene, side="right") - start
    begin = np.cumsum(count) - count
    row = np.repeat(np.arange(len(scene)), count)
    return row, np.arange(len(row)) + (start - begin)[row], begin


def rows_around(
    scene: NDArray[np.int64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    other: NDArray[np.int64],
    position: NDArray[np.floating[Any]],
    margin: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Return the rows ``[N]`` whose boxes touch the box around all others ``[M]`` of their scene.

    Only these need a comparison with each of the others: a map may be that of a city. A box reaches from
    ``low`` to ``high`` ``[N, 2]``, that around the others a ``margin`` ``[M, 1]`` beyond each ``position``.
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
    """Return the rows of the ``wanted`` ids, which are unique within a scene only; -1 where there is none."""
    unique, code = np.unique(ids, return_inverse=True)
    if not len(unique):
        return np.full(len(wanted), -1)
    # Scene and rank of the id make one integer key, however large the ids are.
    key = scene * len(unique) + code
    order = np.argsort(key)
    ascending = key[order]
    rank = np.minimum(np.searchsorted(unique, wanted), len(unique) - 1)
    wanted_key = wanted_scene * len(unique) + rank
    place = np.minimum(np.searchsorted(ascending, wanted_key), len(key) - 1)
    exists = (unique[rank] == wanted) & (ascending[place] == wanted_key)
    return np.where(exists, order[place], -1)


def resample(lines: Ragged, points: int) -> NDArray[np.float64]:
    """Interpolate ``points`` points at equal distances along each of M polylines, both ends included.

    Returns ``[M, points, 2]``; heights are ignored, and polylines without points give zeros.
    """
    out = np.zeros((len(lines), points, 2))
    filled = np.flatnonzero(lines.lengths > 0)
    if not len(filled):
        return out
    xy = lines.values[:, :2]
    start = lines.offsets[filled]
    end = lines.offsets[filled + 1] - 1
    # One arc length over all polylines, separated by gaps of 1 m, so that one interpolation covers them all.
    gap = np.zeros(len(xy))
    gap[1:] = norm(np.diff(xy, axis=0))
    gap[start] = 1.0
    arc = np.cumsum(gap)
    length = arc[end] - arc[start]
    along = arc[start, None] + length[:, None] * np.linspace(0, 1, points)
    out[filled] = interpolate(along, arc, xy)
    return out


def interpolate(
    at: NDArray[np.float64], arc: NDArray[np.float64], xy: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the points ``[..., 2]`` at the lengths ``at`` ``[...]`` of a line ``xy`` ``[Q, 2]``."""
    # np.interp takes a single column; x and y as the parts of a complex one need one search instead of two.
    line = np.ascontiguousarray(xy, np.float64).view(np.complex128)[:, 0]
    points = np.interp(at, arc, line)
    return points.view(np.float64).reshape(*at.shape, 2)
