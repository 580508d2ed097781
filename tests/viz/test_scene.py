"""draw_scene: what is drawn is what the scenario and the forecast say, whatever parts they lack."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from trajpred.viz.shapes import RECTANGLE, place

from trajpred.errors import DataError
from trajpred.forecast import Forecast
from trajpred.lane_map import MARK_TYPES, LaneMap, Ragged
from trajpred.scenario import TYPICAL_SIZE, Scenario
from trajpred.viz import draw_scene, save_scene
from trajpred.viz.agent_layer import OUTLINES

#: Far from the origin, as city coordinates are.
ORIGIN = np.array([7000.0, -3000.0])
OBSERVED, FUTURE = 20, 30


def at(points: list[list[float]]) -> np.ndarray:
    """``points`` ``[P, 2]`` seen from ``ORIGIN``, in the city frame."""
    return ORIGIN + np.array(points)


def lane_map() -> LaneMap:
    """Two neighbouring lanes with marks on their shared boundary, a crossing and drivable area."""
    x = np.array([-60.0, 0.0, 60.0])
    rows = {y: ORIGIN + np.stack((x, np.full(3, y)), -1) for y in (-4.0, -2.0, 0.0, 2.0, 4.0)}
    dashed, solid = MARK_TYPES.index("DASHED_WHITE"), MARK_TYPES.index("DOUBLE_SOLID_YELLOW")
    return replace(
        LaneMap.from_centerlines([rows[-2.0], rows[2.0][::-1]]),
        is_intersection=np.array([False, True]),
        left_boundary=Ragged.from_rows([rows[0.0], rows[0.0][::-1]], 2),
        right_boundary=Ragged.from_rows([rows[-4.0], rows[4.0][::-1]], 2),
        left_mark=np.array([dashed, dashed], np.int8),
        right_mark=np.array([solid, 0], np.int8),
        crossing_id=np.array([5]),
        crossing_edge1=Ragged.from_rows([at([[10, -5], [10, 5]])], 2),
        crossing_edge2=Ragged.from_rows([at([[14, 5], [14, -5]])], 2),
        drivable_area_id=np.array([6]),
        drivable_area=Ragged.from_rows([at([[-60, -5], [60, -5], [60, 5], [-60, 5]])], 2),
    )


def scenario(steps: int = OBSERVED + FUTURE, map: Any = None) -> Scenario:
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


def forecast(scene: Scenario, names: tuple[str, ...] = ("car", "walker")) -> Forecast:
    """Six modes that turn by different angles; probabilities in no order."""
    tracks, last = scene.tracks, scene.num_observed - 1
    rows = [tracks.index(name) for name in names]
    turn = np.deg2rad([10.0, -20.0, 0.0, 30.0, -5.0, 20.0])
    away = np.arange(1, FUTURE + 1)[:, None] * 0.8 * np.stack((np.cos(turn), np.sin(turn)), -1)[:, None]
    origin = tracks.position[rows, last]
    return Forecast.from_trajectories(
        scene.scenario_id,
        np.array(names),
        origin[:, None, None] + away,
        np.tile([0.1, 0.3, 0.25, 0.05, 0.2, 0.1], (len(rows), 1)),
        origin=origin,
        origin_heading=tracks.heading[rows, last],
        step_s=scene.step_s,
    )


def artist(figure: Figure, gid: str) -> Any:
    """The one artist of the first axes that carries ``gid``."""
    found = figure.axes[0].findobj(lambda part: part.get_gid() == gid)
    assert len(found) == 1, f"{len(found)} artists called {gid}"
    return found[0]


def vertices(figure: Figure, gid: str) -> np.ndarray:
    collection = artist(figure, gid)
    assert isinstance(collection, LineCollection)
    return np.stack([path.vertices for path in collection.get_paths()])


BARE = [at([[-50, -2], [90, -2]]), at([[90, 2], [-50, 2]])]


@pytest.mark.parametrize("map", [None, BARE, lane_map()], ids=["no map", "centrelines", "full map"])
@pytest.mark.parametrize("steps", [OBSERVED, OBSERVED + FUTURE], ids=["no future", "future"])
@pytest.mark.parametrize("names", [None, ("car", "walker"), ("walker",)], ids=["none", "both", "not focal"])
def test_draws_whatever_is_missing(map: Any, steps: int, names: tuple[str, ...] | None) -> None:
    scene = scenario(steps, map)
    figure = draw_scene(scene, forecast(scene, names) if names else None)
    figure.set_dpi(50)
    figure.canvas.draw()
    axes = figure.axes[0]
    future = axes.findobj(lambda part: part.get_gid() == "focal-truth")
    modes = axes.findobj(lambda part: part.get_gid() == "focal-modes")
    assert len(future) == (steps > OBSERVED)
    assert len(modes) == (names is not None and "car" in names)


def test_single_observed_step_and_single_mode() -> None:
    scene = Scenario.from_arrays(np.zeros((1, 3, 2)), num_observed=1)
    one = Forecast.from_trajectories(
        scene.scenario_id, np.array(["0"]), np.zeros((1, 1, 2, 2)), np.ones((1, 1)),
        origin=np.zeros((1, 2)), origin_heading=np.zeros(1), step_s=0.1,
    )  # fmt: skip
    draw_scene(scene, one).canvas.draw()


@pytest.mark.parametrize("radius", [None, 17.0])
def test_focal_agent_is_at_the_centre(radius: float | None) -> None:
    scene = scenario()
    axes = draw_scene(scene, forecast(scene), radius_m=radius).axes[0]
    limits = np.array([axes.get_xlim(), axes.get_ylim()])
    np.testing.assert_allclose(limits.mean(axis=1), scene.tracks.position[scene.focal, OBSERVED - 1])
    half = np.diff(limits)[:, 0] / 2
    assert half[0] == pytest.approx(half[1])
    if radius is not None:
        np.testing.assert_allclose(half, radius)


def test_default_radius_holds_history_future_and_forecasts() -> None:
    scene = scenario()
    told = forecast(scene)
    far = replace(told, trajectory=told.trajectory * 1.02)  # City coordinates: moved by 140 m.
    axes = draw_scene(scene, far).axes[0]
    ends = far.trajectory[0, :, -1]
    assert (ends[:, 0] < axes.get_xlim()[1]).all() and (ends[:, 1] > axes.get_ylim()[0]).all()


def test_focal_modes_are_the_forecast() -> None:
    scene = scenario()
    told = forecast(scene)
    drawn = vertices(draw_scene(scene, told), "focal-modes")
    # Rising probability, so that the likeliest lies on top; equal ones keep their order.
    order = np.argsort(told.probability[0], kind="stable")
    np.testing.assert_array_equal(drawn, told.trajectory[0, order])


def test_tracks_choose_whose_futures_are_drawn() -> None:
    scene = scenario()
    told = forecast(scene)
    assert len(vertices(draw_scene(scene, told), "other-modes")) == 6
    figure = draw_scene(scene, told, tracks=["car", "bus"])
    assert len(artist(figure, "other-modes").get_paths()) == 0
    with pytest.raises(KeyError, match="nobody"):
        draw_scene(scene, told, tracks=["nobody"])


def worlds(scene: Scenario, names: tuple[str, ...] = ("car", "walker", "bus")) -> Forecast:
    """The same probabilities for all: mode k of everyone is one future."""
    return forecast(scene, names)


def test_a_world_is_one_mode_of_everyone(tmp_path: Path) -> None:
    scene = scenario()
    told = worlds(scene)
    likeliest, second = (draw_scene(scene, told, world=rank) for rank in (0, 1))
    for figure, mode in ((likeliest, 1), (second, 2)):
        np.testing.assert_array_equal(vertices(figure, "focal-modes"), told.trajectory[:1, mode])
        # The bus is not judged, but part of the world.
        np.testing.assert_array_equal(vertices(figure, "other-modes"), told.trajectory[1:, mode])
        assert artist(figure, "probability").get_text() == f"{told.probability[0, mode]:.0%}"
    assert "world 2 of 6 by probability (25%)" in artist(second, "told").get_text()


def test_worlds_that_are_none_are_refused() -> None:
    scene = scenario()
    told = worlds(scene)
    marginal = replace(told, probability=np.stack((told.probability[0], *told.probability[1:, ::-1])))
    assert told.has_worlds and not marginal.has_worlds
    for forecasts, rank in ((marginal, 0), (told, 6), (told, -1), (None, 0)):
        with pytest.raises(DataError, match="world"):
            draw_scene(scene, forecasts, world=rank)


def test_likelier_modes_are_wider() -> None:
    scene = scenario()
    told = forecast(scene)
    for gid in ("focal-modes", "other-modes"):
        width = artist(draw_scene(scene, told), gid).get_linewidths()
        np.testing.assert_allclose(np.argsort(width, kind="stable"), np.arange(6))
        assert 1.2 < width[-1] / width[0] < 2.0


def test_forecast_of_another_scenario_is_refused() -> None:
    scene = scenario()
    with pytest.raises(DataError, match="forecast"):
        draw_scene(scene, replace(forecast(scene), scenario_id="other"))


def test_agents_drawn_are_those_seen_last() -> None:
    """The focal car as a box of its typical size; of the others all but the one lost before."""
    scene = scenario()
    figure = draw_scene(scene)
    body: PolyCollection = artist(figure, "focal-agent")
    corners = np.asarray(body.get_paths()[0].vertices)[:4]
    last = scene.tracks.position[:1, OBSERVED - 1], scene.tracks.heading[:1, OBSERVED - 1]
    np.testing.assert_allclose(corners, place(RECTANGLE, *last, np.array([TYPICAL_SIZE["vehicle"]]))[0])
    assert len(artist(figure, "agents").get_paths()) == 3
    pedestrian = [p for p in artist(figure, "agents").get_paths() if len(p.vertices) > 10]
    assert len(pedestrian) == 1 and len(OUTLINES["pedestrian"][0]) > 10


def test_history_skips_missing_steps_and_fades_in() -> None:
    scene = scenario()
    trails = artist(draw_scene(scene, radius_m=60.0), "histories")
    # Three tracks with 19 steps between 20 states, one that appears at step 10; the lost one has no agent.
    assert len(trails.get_paths()) == 3 * 19 + 9
    alpha = trails.get_colors()[-19:, 3]
    assert (np.diff(alpha) > 0).all()


def test_shared_boundary_is_drawn_once() -> None:
    """Twice and out of step, a dashed line would look solid."""
    axes = draw_scene(scenario(map=lane_map())).axes[0]
    shared = [
        path
        for part in axes.collections
        if isinstance(part, LineCollection) and part.get_gid() is None
        for path in part.get_paths()
        if len(path.vertices) == 3 and np.allclose(path.vertices[:, 1], ORIGIN[1])
    ]
    assert len(shared) == 1


def test_panels_of_a_figure() -> None:
    figure = Figure(figsize=(6, 3))
    panels: list[Axes] = list(figure.subplots(1, 2))
    scene = scenario(map=lane_map())
    for axes in panels:
        assert draw_scene(scene, forecast(scene), axes=axes) is figure
        assert axes.get_legend() is None
    assert figure.axes == panels


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_save_in_new_folder(tmp_path: Path, suffix: str) -> None:
    target = tmp_path / "new" / f"scene.{suffix}"
    save_scene(draw_scene(scenario()), target, dpi=40)
    assert target.stat().st_size > 1000


def test_imports_neither_torch_nor_pyplot() -> None:
    code = "import sys, trajpred.viz; assert not {'torch', 'matplotlib.pyplot'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
