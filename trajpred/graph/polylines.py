"""Polylines of any length -> a fixed number of points, all at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import norm
from trajpred.lane_map import Ragged


def resample(lines: Ragged, points: int) -> NDArray[np.float64]:
    """``points`` points at equal distances along each polyline, its ends included.

    Args:
        lines: M polylines, ``[N, 2]`` or ``[N, 3]`` (heights are left aside).

    Returns:
        ``[M, points, 2]``; zeros for polylines without points.
    """
    out = np.zeros((len(lines), points, 2))
    filled = np.flatnonzero(lines.lengths > 0)
    if not len(filled):
        return out
    xy = lines.values[:, :2]
    start, end = lines.offsets[filled], lines.offsets[filled + 1] - 1
    # One arc length over all polylines, a metre's gap before each: a single interpolation serves them all.
    gap = np.zeros(len(xy))
    gap[1:] = norm(np.diff(xy, axis=0))
    gap[start] = 1.0
    arc = np.cumsum(gap)
    along = arc[start, None] + (arc[end] - arc[start])[:, None] * np.linspace(0, 1, points)
    out[filled] = np.stack((np.interp(along, arc, xy[:, 0]), np.interp(along, arc, xy[:, 1])), -1)
    return out
