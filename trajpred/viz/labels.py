"""Place labels beside their objects; ``page/static/labels.js`` is the counterpart for the page.

Lengths are points on paper (1/72 inch), relative to the centre of the scene, y up. A box ``[4]`` has the x
and y of its centre, and half its width and height.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from trajpred.data.geometry import norm, unit_vector
from trajpred.viz.view import View

#: Turns (degrees) from the preferred direction and gaps from an anchor to the border of its label, which
#: define the candidates; the space between labels and boxes; the costs of candidates.
PLACEMENT: dict[str, Any] = {
    "turns": [0, 25, -25, 50, -50, 75, -75, 105, -105, 140, -140, 180],
    "gaps": [5.0, 9.0, 14.0, 20.0, 30.0, 42.0, 56.0],
    "space": 1.0,
    # A label farther from its anchor than this, or with another mark as near as this, needs a leader line.
    "near": 10.0,
    "clear": 3.0,
    # Number of places at which the line is checked.
    "places": 6,
    "cost": {
        "gap": 0.5,  # per point
        "turn": 1.5,  # per radian
        "point": 3.0,
        "anchor": 18.0,  # lines stay readable if partly covered, markers do not
        "box": 1000.0,  # more than all others: a label that covers a box everywhere is omitted
        "line": 6.0,
        "stranger": 25.0,  # another mark is nearer than the anchor
        "crossed": 40.0,  # per box that the leader line crosses
    },
}
NO_BOXES = np.zeros((0, 4))


def place_labels(
    anchors: np.ndarray,
    directions: np.ndarray,
    sizes: np.ndarray,
    points: np.ndarray,
    blocked: np.ndarray = NO_BOXES,
    window: float = np.inf,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the centres of labels greedily, in the given order.

    Args:
        anchors: ``[M, 2]`` the point that each label belongs to.
        directions: ``[M]`` radians, the preferred direction from anchor to label.
        sizes: ``[M, 2]`` width and height of each label.
        points: ``[O, 2]`` that should stay visible.
        blocked: boxes ``[B, 4]`` that no label may cover.
        window: half the side of the scene, which no label may leave.

    Returns: centres ``[M, 2]``, NaN for labels that fit nowhere, which are omitted; and whether each label
        ``[M]`` needs a leader line to its anchor.
    """
    cost = PLACEMENT["cost"]
    gap_grid, turn_grid = np.meshgrid(PLACEMENT["gaps"], np.deg2rad(PLACEMENT["turns"]), indexing="ij")
    gap = gap_grid.ravel()
    turn = turn_grid.ravel()
    along = np.arange(1, PLACEMENT["places"] + 1) / PLACEMENT["places"]
    marks = np.concatenate((np.pad(anchors, ((0, 0), (0, 2))), blocked))
    placed = blocked
    centres = np.full((len(anchors), 2), np.nan)
    leaders = np.zeros(len(anchors), np.bool_)
    for label, (anchor, half) in enumerate(zip(anchors, sizes / 2, strict=True)):
        ray = unit_vector(directions[label] + turn)
        # From the label's border, `gap` away along the ray, to its centre.
        inside = np.min(half / np.maximum(np.abs(ray), 1e-9), axis=1)
        centre = anchor + ray * (gap + inside)[:, None]
        line = anchor + ray[:, None] * gap[:, None, None] * along[:, None]
        others = np.delete(marks, label, axis=0)
        nearest = _distances(centre, half, others).min(axis=1, initial=np.inf)
        needs_line = (gap > PLACEMENT["near"]) | (nearest < gap + PLACEMENT["clear"])
        crossed = (_distances(line, 0.0, placed) <= 0).any(axis=1).sum(axis=1)
        covered = (_distances(centre, half, placed) < PLACEMENT["space"]).sum(axis=1)
        outside = (np.abs(centre) + half > window).any(axis=1)
        total = cost["gap"] * gap + cost["turn"] * np.abs(turn)
        total += cost["point"] * _covered(centre, half, points)
        total += cost["anchor"] * _covered(centre, half, anchors)
        total += cost["box"] * (covered + outside)
        total += needs_line * (cost["line"] + cost["crossed"] * crossed)
        total += cost["stranger"] * (nearest < gap)
        best = int(total.argmin())
        if total[best] >= cost["box"]:
            continue
        centres[label] = centre[best]
        leaders[label] = needs_line[best]
        placed = np.concatenate((placed, np.concatenate((centre[best], half))[None]))
        if needs_line[best]:
            points = np.concatenate((points, line[best]))
    return centres, leaders


def _distances(centres: np.ndarray, half: np.ndarray | float, boxes: np.ndarray) -> np.ndarray:
    """Return the distance ``[..., B]`` between boxes of ``half`` a size at ``centres`` and ``boxes``."""
    apart = np.abs(centres[..., None, :] - boxes[:, :2]) - boxes[:, 2:] - half
    return norm(np.maximum(apart, 0.0)) + np.minimum(apart.max(axis=-1), 0.0)


def _covered(centres: np.ndarray, half: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Count the ``points`` ``[O, 2]`` under a label of ``half`` a size at each of ``centres`` ``[C, 2]``."""
    reach = half + PLACEMENT["space"]
    return (np.abs(centres[:, None] - points) < reach).all(axis=-1).sum(axis=1)


def text_size(text: str, points: float) -> tuple[float, float]:
    """Return width and height of ``text`` in a font of ``points``, without a renderer."""
    width, height, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=points), False)
    return width, max(height, 1.05 * points)


def boxes_of(shapes: Iterable[np.ndarray]) -> np.ndarray:
    """Return the box around each of ``shapes`` ``[V, 2]``."""
    bounds = [(shape.min(axis=0), shape.max(axis=0)) for shape in shapes]
    low, high = np.array(bounds).reshape(-1, 2, 2).swapaxes(0, 1)
    return np.concatenate(((low + high) / 2, (high - low) / 2), axis=1)


def boxes_on(axes: Axes, view: View) -> np.ndarray:
    """Return the boxes of texts already on ``axes``, and of removed road users."""
    bounds = [text.get_window_extent().get_points() for text in axes.texts]
    shapes = [(corners - axes.bbox.get_points().mean(axis=0)) * 72 / axes.figure.dpi for corners in bounds]
    for artist in axes.collections:
        if artist.get_gid() == "removed":
            shapes += [view.to_paper(np.asarray(path.vertices)) for path in artist.get_paths()]
    return boxes_of(shapes)
