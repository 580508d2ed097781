"""A small synthetic scene with a forecast, and access to what a picture of it contains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from trajpred.data.forecast import Forecast
from trajpred.data.lane_map import MARK_TYPES, LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario

#: Far from the origin, as city coordinates are.
ORIGIN = np.array([7000.0, -3000.0])
#: Number of observed steps.
OBSERVED = 20
#: Number of future steps.
FUTURE = 30


def in_city(points: list[list[float]]) -> np.ndarray:
    """Move ``points`` ``[P, 2]`` relative to ``ORIGIN`` to the city frame."""
    return ORIGIN + np.array(points)


BARE = [in_city([[-50, -2], [90, -2]]), in_city([[90, 2], [-50, 2]])]


def make_map() -> LaneMap:
    """Two neighbouring lanes with marks on their shared boundary, a crossing and a drivable area."""
    x = np.array([-60.0, 0.0, 60.0])
    rows = {y: ORIGIN + np.stack((x, np.full(3, y)), -1) for y in (-4.0, -2.0, 0.0, 2.0, 4.0)}
    dashed = MARK_TYPES.index("DASHED_WHITE")
    solid = MARK_TYPES.index("DOUBLE_SOLID_YELLOW")
    return LaneMap(
        lane_id=np.arange(2),
        centerline=Ragged.from_rows([rows[-2.0], rows[2.0][::-1]], 2),
        is_intersection=np.array([False, True]),
        left_boundary=Ragged.from_rows([rows[0.0], rows[0.0][::-1]], 2),
        right_boundary=Ragged.from_rows([rows[-4.0], rows[4.0][::-1]], 2),
        left_mark=np.array([dashed, dashed], np.int8),
        right_mark=np.array([solid, 0], np.int8),
        crossing_id=np.array([5]),
        crossing_edge1=Ragged.from_rows([in_city([[10, -5], [10, 5]])], 2),
        crossing_edge2=Ragged.from_rows([in_city([[14, 5], [14, -5]])], 2),
        drivable_area_id=np.array([6]),
        drivable_area=Ragged.from_rows([in_city([[-60, -5], [-60, 5], [60, 5], [60, -5]])], 2),
    )


def make_scenario(steps: int = OBSERVED + FUTURE, map: Any = None) -> Scenario:
    """A car at 8 m/s (focal), a pedestrian that appears late, the ego, a bus, a cyclist lost early."""
    t = np.arange(steps)[:, None] * 0.1
    velocity = np.array([[8.0, 0.5], [0.0, 1.3], [7.0, 0.0], [-6.0, 0.0], [3.0, 0.0]])
    start = np.array([[0.0, -2.0], [12.0, -9.0], [-14.0, -2.0], [30.0, 2.0], [-5.0, -5.0]])
    position = ORIGIN + start[:, None] + velocity[:, None] * t
    position[1, :10] = np.nan
    position[4, OBSERVED - 5 :] = np.nan
    return Scenario.from_arrays(
        position,
        num_observed=OBSERVED,
        object_type=["vehicle", "pedestrian", "vehicle", "bus", "cyclist"],
        track_id=["car", "walker", "AV", "bus", "bike"],
        category=[3, 2, 1, 1, 1],
        map=map,
    )


def make_forecast(scene: Scenario, names: tuple[str, ...] = ("car", "walker")) -> Forecast:
    """Six modes that turn by different angles, equally likely for all tracks, probabilities in no order."""
    tracks = scene.tracks
    last = scene.num_observed - 1
    rows = [tracks.index(name) for name in names]
    turn = np.deg2rad([10.0, -20.0, 0.0, 30.0, -5.0, 20.0])
    direction = np.stack((np.cos(turn), np.sin(turn)), -1)
    away = np.arange(1, FUTURE + 1)[:, None] * 0.8 * direction[:, None]
    origin = tracks.position[rows, last]
    return Forecast.from_trajectories(
        scene.scenario_id,
        np.array(names),
        origin[:, None, None] + away,
        np.tile([0.1, 0.3, 0.25, 0.05, 0.2, 0.1], (len(names), 1)),
        origin=origin,
        origin_heading=tracks.heading[rows, last],
        step_s=scene.step_s,
    )


def with_scales(forecast: Forecast, ahead: float = 0.5, left: float = 0.2) -> Forecast:
    """Add the same Laplace scales at every step."""
    return replace(forecast, scale=np.broadcast_to([ahead, left], forecast.trajectory.shape))


def marginal(forecast: Forecast) -> Forecast:
    """Give every track probabilities of its own."""
    rolled = [np.roll(p, i) for i, p in enumerate(forecast.probability)]
    return replace(forecast, probability=np.stack(rolled))


def artists(figure: Figure, gid: str) -> list[Any]:
    """Return the artists with ``gid`` on the first axes."""
    parts: list[Artist] = figure.axes[0].findobj(lambda part: part.get_gid() == gid)
    return parts


def lines(figure: Figure, gid: str) -> np.ndarray:
    """Return the lines of the one collection with ``gid``; of modes without their borders."""
    [collection] = artists(figure, gid)
    paths = collection.get_paths()
    if gid in ("focal-modes", "other-modes"):
        paths = paths[1::2]
    return np.stack([path.vertices for path in paths])


def legend_of(figure: Figure) -> list[str]:
    """Return the texts of the legend, of whichever axes."""
    legend = next(axes.get_legend() for axes in figure.axes if axes.get_legend())
    return [entry.get_text() for entry in legend.get_texts()]


def text(figure: Figure, gid: str) -> str:
    [artist] = artists(figure, gid)
    return str(artist.get_text())
