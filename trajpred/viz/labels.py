"""Where to write short labels so that they cover neither each other nor what they label."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trajpred.geometry import direction, unit_vector
from trajpred.viz.shapes import Floats

#: Directions tried, in radians from the preferred one, and gaps from anchor to label in points.
TURNS = np.deg2rad([0, 25, -25, 50, -50, 75, -75, 105, -105, 140, -140, 180])
GAPS = np.array([5.0, 12.0, 20.0, 30.0, 42.0])
#: What it costs to cover a label, an anchor, a point; and per point of gap, per radian of turn. A line is
#: still read when a piece of it is covered, a marker is not.
COST_LABEL, COST_ANCHOR, COST_POINT, COST_GAP, COST_TURN = 1000.0, 20.0, 3.0, 0.5, 1.5


def place_labels(anchor: Floats, away: Floats, size: Floats, obstacles: Floats) -> Floats:
    """Centres ``[M, 2]`` for labels, chosen greedily in the order given.

    Args:
        anchor: ``[M, 2]`` points (1/72 inch), what each label belongs to.
        away: ``[M]`` radians, the direction in which each would best lie.
        size: ``[M, 2]`` width and height of each label, points.
        obstacles: ``[O, 2]`` points that should stay visible.
    """
    placed = np.zeros((0, 2))
    for i in range(len(anchor)):
        centres, cost = _candidates(anchor[i], away[i], size[i])
        reach = (size[i] + size[: len(placed)]) / 2 + 1.0
        total = cost + COST_LABEL * _covered(centres, placed, reach)
        total += COST_ANCHOR * _covered(centres, anchor, size[i] / 2 + 1.0)
        total += COST_POINT * _covered(centres, obstacles, size[i] / 2 + 1.0)
        best = np.argmin(total)
        placed = np.concatenate((placed, centres[best : best + 1]))
    return placed


def _covered(centres: Floats, points: Floats, reach: Floats) -> NDArray[np.int64]:
    """``[C]`` how many of ``points`` ``[M, 2]`` lie within ``reach`` of each of ``centres`` ``[C, 2]``."""
    return (np.abs(centres[:, None] - points) < reach).all(axis=-1).sum(axis=1)


def _candidates(anchor: Floats, away: float, size: Floats) -> tuple[Floats, Floats]:
    """Possible centres ``[C, 2]`` of one label, and what each costs by itself ``[C]``."""
    gap, turn = (grid.ravel() for grid in np.meshgrid(GAPS, TURNS))
    ray = unit_vector(away + turn)
    # From the anchor to the label's centre when its border lies `gap` away along the ray.
    half = np.min(size / 2 / np.maximum(np.abs(ray), 1e-9), axis=1)
    return anchor + ray * (gap + half)[:, None], COST_GAP * gap + COST_TURN * np.abs(turn)


def percent(probability: float) -> str:
    """``probability`` as a short label; never "0%" for what is merely unlikely."""
    return "<1%" if 0 < probability < 0.005 else f"{probability:.0%}"


def text_size(text: str, font_size: float) -> tuple[float, float]:
    """Width and height of a line of ``text`` in points, estimated: no renderer is needed to lay it out."""
    return 0.62 * font_size * len(text), 1.05 * font_size


def final_direction(line: Floats, shortest: float) -> float:
    """Heading in radians of the last ``shortest`` units of ``line`` ``[P, 2]``; 0 if it is not that long."""
    distance = np.abs(line - line[-1]).max(axis=1)
    far = np.flatnonzero(distance >= shortest)
    return float(direction(line[-1] - line[far[-1]])) if len(far) else 0.0


def same_place(anchor: Floats, within: float) -> NDArray[np.int64]:
    """``[M]`` for each of ``anchor`` ``[M, 2]`` the first one that lies ``within`` of it, often itself."""
    near = np.abs(anchor[:, None] - anchor).max(axis=-1) < within
    first = near.argmax(axis=1)
    # The first may itself belong to an earlier one: a chain is one place.
    for _ in range(len(anchor)):
        first = first[first]
    return first
