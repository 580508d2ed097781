"""The window of a picture on the city frame, and how lines, polygons and labels are placed in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from trajpred.forecast import Forecast
from trajpred.geometry import unit_vector
from trajpred.scenario import Scenario
from trajpred.viz.style import LIGHT, Theme

#: A stationary agent still gets some surroundings (metres).
MIN_RADIUS_M = 28.0
#: Room around histories and futures for end markers and labels.
MARGIN = 1.15
#: Candidate positions of a label: turns from the preferred direction (radians), gaps to the anchor (points).
TURNS = np.deg2rad([0, 25, -25, 50, -50, 75, -75, 105, -105, 140, -140, 180])
GAPS = np.array([5.0, 12.0, 20.0, 30.0, 42.0])
#: Cost of covering a label or a point, per point of gap and per radian of turn.
LABEL_COST, POINT_COST, GAP_COST, TURN_COST = 1000.0, 3.0, 0.5, 1.5
#: An anchor weighs as much as this many points: lines stay readable where a piece is covered, markers do not.
ANCHOR_POINTS = 6


@dataclass(frozen=True)
class View:
    """A square window on the city frame.

    Example:
        >>> view = View(np.zeros(2), radius=50.0, points_per_metre=5.0)
        >>> view.contains(np.array([[49.0, 0.0], [51.0, 0.0]])).tolist()
        [True, False]
    """

    centre: np.ndarray  # [2] metres, city frame
    radius: float  # half the side, metres
    points_per_metre: float  # scale of the picture, in typographic points (1/72 inch)
    theme: Theme = LIGHT

    def metres(self, points: float) -> float:
        """Convert a length on paper to metres."""
        return points / self.points_per_metre

    def to_paper(self, position: np.ndarray) -> np.ndarray:
        """Convert city positions ``[..., 2]`` to points relative to the centre of the picture."""
        return (position - self.centre) * self.points_per_metre

    def contains(self, position: np.ndarray, margin: float = 0.0) -> np.ndarray:
        """Return whether ``position`` ``[..., 2]`` is in the window, enlarged by ``margin`` metres."""
        return (np.abs(position - self.centre) <= self.radius + margin).all(axis=-1)

    def touches(self, line: np.ndarray) -> bool:
        """Return whether the bounding box of ``line`` ``[P, 2]`` meets the window; False below 2 points."""
        if len(line) < 2:
            return False
        low, high = line.min(axis=0) - self.centre, line.max(axis=0) - self.centre
        return bool((low <= self.radius).all() and (high >= -self.radius).all())

    def visible(self, lines: Iterable[np.ndarray]) -> list[np.ndarray]:
        """Return the lines that touch the window."""
        return [line for line in lines if self.touches(line)]


def focal_position(scenario: Scenario) -> np.ndarray:
    """Return the last observed position ``[2]`` of the focal track."""
    row = scenario.focal
    return scenario.tracks.position[row, scenario.last_seen[row]]


def fit(scenario: Scenario, *forecasts: Forecast) -> tuple[np.ndarray, float]:
    """Return centre ``[2]`` and half the side of a square with the focal agent's history and all futures."""
    tracks, row = scenario.tracks, scenario.focal
    extent = [tracks.position[row][tracks.valid[row]]]
    extent += [one.trajectory[one.track_id == scenario.focal_id].reshape(-1, 2) for one in forecasts]
    points = np.concatenate(extent)
    low, high = points.min(axis=0), points.max(axis=0)
    return (low + high) / 2, max(MIN_RADIUS_M, MARGIN * float((high - low).max()) / 2 + 3.0)


def place_labels(
    anchors: np.ndarray, directions: np.ndarray, sizes: np.ndarray, obstacles: np.ndarray
) -> np.ndarray:
    """Choose the centres of labels greedily, in the given order; all lengths in points on paper.

    A label that would cover an earlier one wherever it goes is omitted.

    Args:
        anchors: ``[M, 2]`` what each label belongs to.
        directions: ``[M]`` radians, the preferred direction from anchor to label.
        sizes: ``[M, 2]`` width and height of each label.
        obstacles: ``[O, 2]`` points that should stay visible.

    Returns:
        ``[M, 2]`` centres, NaN of omitted labels.
    """
    gap, turn = (grid.ravel() for grid in np.meshgrid(GAPS, TURNS))
    points = np.concatenate((np.repeat(anchors, ANCHOR_POINTS, axis=0), obstacles))
    centres = np.zeros((0, 2))
    for anchor, along, size in zip(anchors, directions, sizes, strict=True):
        ray = unit_vector(along + turn)
        # From the anchor to the centre when the border of the label is `gap` away along the ray.
        half = np.min(size / 2 / np.maximum(np.abs(ray), 1e-9), axis=1)
        candidates = anchor + ray * (gap + half)[:, None]
        cost = GAP_COST * gap + TURN_COST * np.abs(turn)
        cost += POINT_COST * _count_within(candidates, points, size / 2 + 1.0)
        cost += LABEL_COST * _count_within(candidates, centres, (size + sizes[: len(centres)]) / 2 + 1.0)
        best = candidates[cost.argmin()] if cost.min() < LABEL_COST else np.full(2, np.nan)
        centres = np.concatenate((centres, best[None]))
    return centres


def _count_within(centres: np.ndarray, points: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Count the ``points`` ``[M, 2]`` within ``reach`` (x, y) of each of ``centres`` ``[C, 2]``."""
    return (np.abs(centres[:, None] - points) < reach).all(axis=-1).sum(axis=1)


def add_lines(axes: Axes, lines: Iterable[np.ndarray], layer: float, **look: Any) -> None:
    """Draw ``lines`` ``[P, 2]`` without changing the limits of ``axes``; ``look``: of a LineCollection."""
    axes.add_collection(LineCollection(list(lines), zorder=layer, **look), autolim=False)


def add_polygons(axes: Axes, polygons: Iterable[np.ndarray], layer: float, **look: Any) -> None:
    """Draw ``polygons`` ``[V, 2]`` likewise; ``look``: of a PolyCollection."""
    axes.add_collection(PolyCollection(list(polygons), zorder=layer, **look), autolim=False)


def percent(probability: float) -> str:
    """Format a probability as a short label; small positive values become "<1%", never "0%"."""
    return "<1%" if 0 < probability < 0.005 else f"{probability:.0%}"
