"""The window of a picture on the city frame, and lines and polygons in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.lines import Line2D

from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.viz.style import LIGHT, Theme

#: Least half side (metres), which gives a stationary agent some surroundings.
MIN_RADIUS_M = 28.0
#: Room around histories and futures for end markers and labels.
MARGIN = 1.15


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
    """Return the centre ``[2]`` and half the side of a square around the focal track and ``forecasts``."""
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


def add_lines(axes: Axes, lines: Iterable[np.ndarray], layer: float, **look: Any) -> None:
    """Draw ``lines`` ``[P, 2]`` without changing the limits of ``axes``; ``look``: LineCollection options."""
    axes.add_collection(LineCollection(list(lines), zorder=layer, **look), autolim=False)


def add_polygons(axes: Axes, polygons: Iterable[np.ndarray], layer: float, **look: Any) -> None:
    """Draw ``polygons`` ``[V, 2]`` without changing the limits; ``look``: PolyCollection options."""
    axes.add_collection(PolyCollection(list(polygons), zorder=layer, **look), autolim=False)


def legend_marker(label: str, marker: Any, size: float, color: str, **look: Any) -> Line2D:
    """Return an entry for the legend: a marker of ``size`` points; ``look``: options of a Line2D."""
    return Line2D([], [], linestyle="none", label=label, marker=marker, markersize=size, color=color, **look)


def percent(probability: float) -> str:
    """Format a probability as a short label; small positive values become "<1%", not "0%"."""
    if 0 < probability < 0.005:
        return "<1%"
    return f"{probability:.0%}"
