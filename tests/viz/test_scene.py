"""draw_scene: what is drawn is what the scenario and the forecast say, whatever parts they lack."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from av2.datasets.motion_forecasting.eval.metrics import compute_ade, compute_fde
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from trajpred.errors import DataError
from trajpred.forecast import Forecast
from trajpred.lane_map import MARK_TYPES, LaneMap, Ragged
from trajpred.object_sizes import TYPICAL_SIZE
from trajpred.scenario import Scenario
from trajpred.viz import draw_scene, save_scene
from trajpred.viz.agent_layer import OUTLINES
from trajpred.viz.furniture import focal_metrics, round_length
from trajpred.viz.labels import place_labels, same_place
from trajpred.viz.shapes import RECTANGLE, place, zebra_bars
from trajpred.viz.style import PROBABILITY_COLORS, PROBABILITY_NORM, mark_strokes

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


def test_colours_follow_probability_and_darken() -> None:
    scene = scenario()
    told = forecast(scene)
    figure = draw_scene(scene, told)
    figure.set_dpi(50)
    figure.canvas.draw()
    colors = artist(figure, "focal-modes").get_colors()
    np.testing.assert_allclose(colors, PROBABILITY_COLORS(PROBABILITY_NORM(np.sort(told.probability[0]))))
    luminance = colors[:, :3] @ [0.2126, 0.7152, 0.0722]
    distinct = np.diff(np.sort(told.probability[0])) > 0
    assert (np.diff(luminance)[distinct] < 0).all()


def test_tracks_choose_whose_futures_are_drawn() -> None:
    scene = scenario()
    told = forecast(scene)
    assert len(vertices(draw_scene(scene, told), "other-modes")) == 6
    figure = draw_scene(scene, told, tracks=["car", "bus"])
    assert len(artist(figure, "other-modes").get_paths()) == 0
    with pytest.raises(KeyError, match="nobody"):
        draw_scene(scene, told, tracks=["nobody"])


def test_forecast_of_another_scenario_is_refused() -> None:
    scene = scenario()
    with pytest.raises(DataError, match="forecast"):
        draw_scene(scene, replace(forecast(scene), scenario_id="other"))


def test_box_corners_closed_form() -> None:
    corners = place(RECTANGLE, np.array([[10.0, 20.0]]), np.array([np.pi / 6]), np.array([[4.0, 2.0]]))
    c, s = np.sqrt(3) / 2, 0.5
    expected = [
        [2 * c - s, 2 * s + c],
        [-2 * c - s, -2 * s + c],
        [-2 * c + s, -2 * s - c],
        [2 * c + s, 2 * s - c],
    ]
    np.testing.assert_allclose(corners[0] - [10.0, 20.0], expected)


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


def test_caption_metrics_are_those_of_av2() -> None:
    scene = scenario()
    told = forecast(scene)
    truth = scene.tracks.position[scene.focal, OBSERVED:]
    ade, fde = compute_ade(told.trajectory[0], truth).min(), compute_fde(told.trajectory[0], truth).min()
    metrics = focal_metrics(scene, told)
    assert metrics is not None
    assert metrics[:2] == (pytest.approx(ade), pytest.approx(fde)) and metrics[2] == (fde > 2.0)
    text = artist(draw_scene(scene, told), "metrics").get_text()
    assert f"minADE {ade:.2f} m" in text and f"minFDE {fde:.2f} m" in text


def test_minimum_ade_need_not_be_that_of_the_best_end() -> None:
    scene = Scenario.from_arrays(np.zeros((1, 6, 2)), num_observed=2)
    modes = np.zeros((1, 2, 4, 2))
    modes[0, 0, :, 0] = [9, 9, 9, 1]  # Ends well, ADE 7.
    modes[0, 1, :, 0] = [0, 0, 0, 3]  # Ends worse, ADE 0.75.
    told = Forecast.from_trajectories(
        scene.scenario_id, np.array(["0"]), modes, np.full((1, 2), 0.5),
        origin=np.zeros((1, 2)), origin_heading=np.zeros(1), step_s=0.1,
    )  # fmt: skip
    assert focal_metrics(scene, told) == (0.75, 1.0, False)


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


@pytest.mark.parametrize(
    ("name", "strokes"),
    [("SOLID_WHITE", ((0, False),)), ("DASHED_YELLOW", ((0, True),)), ("NONE", ((0, False),)),
     ("SOLID_DASH_WHITE", ((-1, False), (1, True))), ("DOUBLE_DASH_WHITE", ((-1, True), (1, True)))],
)  # fmt: skip
def test_mark_strokes(name: str, strokes: tuple[tuple[int, bool], ...]) -> None:
    assert mark_strokes(MARK_TYPES.index(name)) == strokes


def test_zebra_bars_cover_half_of_the_crossing() -> None:
    """Also where the second side runs against the first: bars must not twist."""
    edge1, edge2 = np.array([[0.0, 0.0], [12.0, 0.0]]), np.array([[12.0, 4.0], [0.0, 4.0]])
    bars = zebra_bars(edge1, edge2)
    x, y = bars[..., 0], bars[..., 1]
    area = np.abs((x * np.roll(y, -1, 1) - y * np.roll(x, -1, 1)).sum(1)) / 2
    assert area.sum() == pytest.approx(0.5 * 12 * 4)


def test_labels_overlap_neither_each_other_nor_their_anchors() -> None:
    anchor = np.array([[0.0, 0.0], [4.0, 1.0], [8.0, -1.0], [5.0, 6.0], [2.0, -5.0], [9.0, 4.0]])
    size = np.tile([18.0, 7.0], (6, 1))
    centre = place_labels(anchor, np.zeros(6), size, anchor)
    apart = np.abs(centre[:, None] - centre) >= size[0]
    assert (apart.any(-1) | np.eye(6, dtype=bool)).all()
    assert not (np.abs(centre[:, None] - anchor) < size[0] / 2).all(-1).any()


def test_modes_that_end_together_share_a_label() -> None:
    ends = np.array([[0.0, 0.0], [9.0, 0.0], [2.0, 0.0], [4.0, 0.0]])
    assert same_place(ends, within=3.0).tolist() == [0, 1, 0, 0]
    scene = scenario()
    told = forecast(scene)
    parked = replace(told, trajectory=np.repeat(told.trajectory[:, :, :1], FUTURE, axis=2))
    labels = draw_scene(scene, parked, radius_m=400.0).axes[0].findobj(lambda p: p.get_gid() == "probability")
    assert [label.get_text() for label in labels] == ["100%, 6 modes"]


def test_panels_of_a_figure() -> None:
    figure = Figure(figsize=(6, 3))
    panels: list[Axes] = list(figure.subplots(1, 2))
    scene = scenario(map=lane_map())
    for axes in panels:
        assert draw_scene(scene, forecast(scene), axes=axes) is figure
        assert axes.get_legend() is None
    assert figure.axes == panels


def test_legend_names_only_what_is_drawn() -> None:
    """No bicycle: it was lost before the last observed step; no forecast, no standing object."""
    legend = draw_scene(scenario()).axes[0].get_legend()
    assert legend is not None
    names = {text.get_text() for text in legend.get_texts()}
    agents = {"focal agent", "recording vehicle", "scored agent", "other agent", "pedestrian"}
    assert names == agents | {"history", "true future"}


def test_fullest_legend_leaves_room_for_the_colour_bar() -> None:
    kinds = ["vehicle", "vehicle", "pedestrian", "cyclist", "static"]
    scene = Scenario.from_arrays(
        np.zeros((5, OBSERVED + FUTURE, 2)), num_observed=OBSERVED, object_type=kinds,
        track_id=["car", "AV", "walker", "bike", "cone"], category=[3, 1, 2, 1, 1],
    )  # fmt: skip
    figure = draw_scene(scene, forecast(scene))
    legend = figure.axes[0].get_legend()
    assert legend is not None and len(legend.get_texts()) == 10
    bar = figure.axes[0].child_axes[0]
    figure.canvas.draw()
    label = min(part.get_window_extent().x0 for part in bar.texts + bar.get_xticklabels())
    assert legend.get_window_extent().x1 < label


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_save_in_new_folder(tmp_path: Path, suffix: str) -> None:
    target = tmp_path / "new" / f"scene.{suffix}"
    save_scene(draw_scene(scenario()), target, dpi=40)
    assert target.stat().st_size > 1000


@pytest.mark.parametrize(("metres", "expected"), [(9.9, 5.0), (20.0, 20.0), (60.0, 50.0), (0.3, 0.2)])
def test_round_length(metres: float, expected: float) -> None:
    assert round_length(metres) == pytest.approx(expected)


def test_imports_neither_torch_nor_pyplot() -> None:
    code = "import sys, trajpred.viz; assert not {'torch', 'matplotlib.pyplot'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
