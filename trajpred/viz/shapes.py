"""Outlines and polylines for drawing: pure geometry, no matplotlib."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import direction, norm, to_global

Floats = NDArray[np.float64]


def _ellipse(vertices: int) -> Floats:
    angle = np.linspace(0, 2 * np.pi, vertices, endpoint=False)
    return 0.5 * np.stack((np.cos(angle), np.sin(angle)), -1)


#: Outlines ``[V, 2]`` in a box of length 1 (x, ahead) and width 1 (y, left), counter-clockwise.
RECTANGLE = np.array([[0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]])
ELLIPSE = _ellipse(20)
LOZENGE = np.array([[0.5, 0.0], [0.1, 0.5], [-0.5, 0.35], [-0.5, -0.35], [0.1, -0.5]])
DIAMOND = np.array([[0.5, 0.0], [0.0, 0.5], [-0.5, 0.0], [0.0, -0.5]])
CHEVRON = np.array([[0.5, 0.0], [-0.5, 0.5], [-0.2, 0.0], [-0.5, -0.5]])


def place(outline: Floats, position: Floats, heading: Floats, size: Floats) -> Floats:
    """An outline at each pose, scaled to each size.

    Args:
        outline: ``[V, 2]`` in a unit box, such as :data:`RECTANGLE`.
        position: ``[A, 2]`` metres, centre of the box.
        heading: ``[A]`` radians.
        size: ``[A, 2]`` metres, (length, width).

    Returns:
        ``[A, V, 2]`` metres, in the frame of ``position``.
    """
    return to_global(outline * size[:, None], position[:, None], heading[:, None])


def offset_line(line: Floats, distance: float) -> Floats:
    """``line`` ``[P, 2]`` moved ``distance`` metres to its left."""
    along = np.gradient(line, axis=0)
    unit = along / np.maximum(norm(along), 1e-9)[:, None]
    return line + distance * np.stack((-unit[:, 1], unit[:, 0]), -1)


def arc_length(line: Floats) -> Floats:
    """``[P]`` metres from the start of ``line`` ``[P, 2]`` to each of its points."""
    return np.concatenate((np.zeros(1), np.cumsum(norm(np.diff(line, axis=0)))))


def points_along(line: Floats, distance: Floats) -> Floats:
    """Points ``[M, 2]`` of ``line`` ``[P, 2]`` at ``distance`` ``[M]`` metres from its start."""
    length = arc_length(line)
    return np.stack((np.interp(distance, length, line[:, 0]), np.interp(distance, length, line[:, 1])), -1)


def middle_pose(line: Floats) -> Floats:
    """``[3]``: x, y and heading halfway along ``line`` ``[P, 2]``."""
    half = arc_length(line)[-1] / 2
    before, centre, after = points_along(line, np.array([half - 0.5, half, half + 0.5]))
    return np.append(centre, direction(after - before))


def zebra_bars(edge1: Floats, edge2: Floats, pitch: float = 1.2) -> Floats:
    """The painted bars of a pedestrian crossing, from one long side to the other.

    Args:
        edge1, edge2: ``[P, 2]``, ``[Q, 2]`` metres, the two long sides.
        pitch: metres from one bar to the next; half of it is paint.

    Returns:
        ``[bars, 4, 2]`` corners, same frame.
    """
    second = same_direction(edge1, edge2)
    bars = max(1, round(arc_length(edge1)[-1] / pitch))
    share = (np.arange(bars)[:, None] + np.array([0.25, 0.75])) / bars
    sides = [points_along(e, share.ravel() * arc_length(e)[-1]).reshape(bars, 2, 2) for e in (edge1, second)]
    return np.concatenate((sides[0], sides[1][:, ::-1]), axis=1)


def same_direction(edge1: Floats, edge2: Floats) -> Floats:
    """``edge2`` ``[Q, 2]``, turned round if it runs against ``edge1``: or its polygon would cross itself."""
    against = float((edge1[-1] - edge1[0]) @ (edge2[-1] - edge2[0])) < 0
    return edge2[::-1] if against else edge2
