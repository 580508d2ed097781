"""What part of the world a picture shows, and in which colours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.scenario import Scenario
from trajpred.viz.shapes import Floats
from trajpred.viz.style import LIGHT, Theme

#: A standing agent still gets some surroundings.
SMALLEST_RADIUS_M = 28.0
#: Room around what has to be seen, for end markers and labels.
MARGIN = 1.15


@dataclass(frozen=True)
class View:
    """A square window on the city frame.

    Attributes:
        centre: ``[2]`` metres, city frame.
        radius: half the side, metres.
        points_per_metre: scale of the picture, in typographic points (1/72 inch).
        theme: its colours.
    """

    centre: Floats
    radius: float
    points_per_metre: float
    theme: Theme = LIGHT

    def metres(self, points: float) -> float:
        """The length in the world of ``points`` on paper."""
        return points / self.points_per_metre

    def to_paper(self, position: Floats) -> Floats:
        """City positions ``[..., 2]`` in points from the centre of the picture."""
        return (position - self.centre) * self.points_per_metre

    def holds(self, position: Floats, margin: float = 0.0) -> NDArray[np.bool_]:
        """Whether ``position`` ``[..., 2]`` is in the window, enlarged by ``margin`` metres."""
        inside = np.abs(position - self.centre) <= self.radius + margin
        return np.asarray(inside.all(axis=-1), np.bool_)

    def touches(self, line: Floats) -> bool:
        """Whether the bounding box of ``line`` ``[P, 2]`` meets the window; False for less than 2 points."""
        if len(line) < 2:
            return False
        low, high = line.min(axis=0) - self.centre, line.max(axis=0) - self.centre
        return bool((low <= self.radius).all() and (high >= -self.radius).all())

    def seen(self, lines: Iterable[Floats]) -> list[Floats]:
        """Those of ``lines`` that touch the window."""
        return [line for line in lines if self.touches(line)]


def focal_centre(scenario: Scenario) -> Floats:
    """``[2]`` last observed position of the focal track."""
    row = scenario.focal
    centre: Floats = scenario.tracks.position[row, scenario.last_seen[row]]
    return centre


def fit_radius(scenario: Scenario, forecast: Forecast | None) -> float:
    """Metres around the focal agent that hold its history, its future and its forecasts."""
    tracks, row = scenario.tracks, scenario.focal
    extent = [tracks.position[row][tracks.valid[row]]]
    if forecast is not None:
        extent.append(forecast.trajectory[forecast.track_id == scenario.focal_id].reshape(-1, 2))
    reach = float(np.abs(np.concatenate(extent) - focal_centre(scenario)).max())
    return max(SMALLEST_RADIUS_M, MARGIN * reach + 3.0)


def frame(
    scenario: Scenario,
    forecast: Forecast | None,
    radius_m: float | None,
    side_points: float,
    theme: Theme = LIGHT,
) -> View:
    """The view on ``scenario`` for a square picture whose side measures ``side_points``."""
    require(radius_m is None or radius_m > 0, "radius_m", f"must be above 0, is {radius_m}")
    radius = fit_radius(scenario, forecast) if radius_m is None else radius_m
    return View(focal_centre(scenario), radius, side_points / (2 * radius), theme)
