"""The window of a picture on the city frame, and how lines, polygons and labels are placed in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.lines import Line2D

from trajpred.data.forecast import Forecast
from trajpred.data.geometry import unit_vector
from trajpred.data.scenario import Scenario
from trajpred.viz.style import LIGHT, Theme

#: A stationary agent still gets some surroundings (metres).
MIN_RADIUS_M = 28.0
#: Room around histories and futures for end markers and labels.
MARGIN = 1.15
#: Candidate positions of a label: turns from the preferred direction (radians).
TURNS = np.deg2rad([0, 25, -25, 50, -50, 75, -75, 105, -105, 140, -140, 180])
#: Candidate positions of a label: gaps to the anchor (points).
GAPS = np.array([5.0, 12.0, 20.0, 30.0, 42.0])
#: Cost of covering a label.
LABEL_COST = 1000.0
#: Cost of covering a point.
POINT_COST = 3.0
#: Cost of a gap, per point.
GAP_COST = 0.5
#: Cost of a turn, per radian.
TURN_COST = 1.5
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
        low = line.min(axis=0) - self.centre
        high = line.max(axis=0) - self.centre
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
    tracks = scenario.tracks
    row = scenario.focal
    parts = [tracks.position[row][tracks.valid[row]]]
    for forecast in forecasts:
        modes = forecast.trajectory[forecast.track_id == scenario.focal_id]
        parts.append(modes.reshape(-1, 2))
    points = np.concatenate(parts)
    low = points.min(axis=0)
    high = points.max(axis=0)
    centre = (low + high) / 2
    radius = MARGIN * float((high - low).max()) / 2 + 3.0
    return centre, max(MIN_RADIUS_M, radius)


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
    gap_grid, turn_grid = np.meshgrid(GAPS, TURNS)
    gap = gap_grid.ravel()
    turn = turn_grid.ravel()
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
        best = np.full(2, np.nan)
        if cost.min() < LABEL_COST:
            best = candidates[cost.argmin()]
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


def legend_marker(label: str, marker: Any, size: float, color: str, **look: Any) -> Line2D:
    """Return an entry for the legend: a marker of ``size`` points; ``look``: of a Line2D."""
    return Line2D([], [], linestyle="none", label=label, marker=marker, markersize=size, color=color, **look)


def percent(probability: float) -> str:
    """Format a probability as a short label; small positive values become "<1%", never "0%"."""
    if 0 < probability < 0.005:
        return "<1%"
    return f"{probability:.0%}"
