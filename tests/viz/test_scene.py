"""Pictures contain what the scenario and the forecast contain, whatever parts are missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from tests.conftest import rejects
from tests.viz.scenes import (
    BARE,
    FUTURE,
    OBSERVED,
    artists,
    legend_of,
    lines,
    make_forecast,
    make_map,
    make_scenario,
    marginal,
    text,
)
from trajpred.data.forecast import Attention, Forecast
from trajpred.data.geometry import to_global
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES, TYPICAL_SIZE
from trajpred.viz import draw_scene, plot_scenario, save_scene
from trajpred.viz.agent_layer import RECTANGLE, agent_outlines
from trajpred.viz.overlays import WhatIf
from trajpred.viz.page.data import pack_scene
from trajpred.viz.style import LIGHT
from trajpred.viz.view import View


@pytest.fixture(scope="module")
def scene() -> Scenario:
    return make_scenario(map=make_map())


@pytest.fixture(scope="module")
def forecast(scene: Scenario) -> Forecast:
    return make_forecast(scene)


@pytest.fixture(scope="module")
def figure(scene: Scenario, forecast: Forecast) -> Figure:
    return draw_scene(scene, forecast)


@pytest.mark.parametrize(
    ("steps", "map", "names"),
    [(OBSERVED, None, None), (OBSERVED, BARE, ("car",)), (OBSERVED + FUTURE, make_map(), ("walker",))],
    ids=["nothing", "no future", "not focal"],
)
def test_missing_parts_are_omitted(steps: int, map: Any, names: tuple[str, ...] | None) -> None:
    scene = make_scenario(steps, map)
    figure = draw_scene(scene, make_forecast(scene, names) if names else None)
    figure.set_dpi(40)
    figure.canvas.draw()
    has_future = steps > OBSERVED
    assert len(artists(figure, "focal-truth")) == has_future == ("true future" in legend_of(figure))
    assert len(artists(figure, "focal-modes")) == (names == ("car",))


def limits(figure: Figure) -> np.ndarray:
    """Lower and upper bounds ``[2, 2]`` of x and of y."""
    return np.array([figure.axes[0].get_xlim(), figure.axes[0].get_ylim()])


def test_view_contains_the_futures_and_is_not_wider_than_needed(scene: Scenario, forecast: Forecast) -> None:
    far = replace(forecast, trajectory=forecast.trajectory * 1.02)  # city coordinates: moved by 140 m
    low, high = limits(draw_scene(scene, far)).T
    points = np.concatenate((scene.tracks.position[0], far.trajectory[0].reshape(-1, 2)))
    assert (points > low).all()
    assert (points < high).all()
    side = np.ptp(points, axis=0).max() * 1.15 + 6
    assert high - low == pytest.approx([side, side])
    low, high = limits(draw_scene(scene, forecast, what_if=WhatIf(("bus",), far))).T
    assert (points > low).all(), "both forecasts fit"
    assert (points < high).all(), "both forecasts fit"


def test_modes_and_truth_are_those_of_the_data(scene: Scenario, forecast: Forecast, figure: Figure) -> None:
    # By rising probability, so that the likeliest is on top and widest.
    order = np.argsort(forecast.probability[0], kind="stable")
    np.testing.assert_array_equal(lines(figure, "focal-modes"), forecast.trajectory[0, order])
    np.testing.assert_array_equal(lines(figure, "other-modes"), forecast.trajectory[1, order])
    [modes] = artists(figure, "focal-modes")
    np.testing.assert_allclose(modes.get_colors()[1::2], LIGHT.mode_colors(forecast.probability[0, order]))
    widths = np.array(modes.get_linewidths())
    border = widths[::2]
    width = widths[1::2]
    assert (np.diff(width) >= 0).all()
    assert (border > width).all()
    assert 1.2 < width[-1] / width[0] < 2.0
    [truth] = artists(figure, "focal-truth")
    np.testing.assert_array_equal(truth.get_xydata(), scene.tracks.position[scene.focal, OBSERVED:])
    labels = sorted(label.get_text() for label in artists(figure, "probability"))
    assert labels == sorted(f"{p:.0%}" for p in forecast.probability[0])


def test_tracks_select_whose_futures_are_drawn(scene: Scenario, forecast: Forecast) -> None:
    figure = draw_scene(scene, forecast, tracks=["car", "bus"])
    assert not artists(figure, "other-modes")[0].get_paths()
    assert len(artists(figure, "other-truth")) == 1
    with pytest.raises(KeyError, match="nobody"):
        draw_scene(scene, forecast, tracks=["nobody"])


def test_a_predicted_agent_is_hollow_where_it_was_last_seen(scene: Scenario) -> None:
    """The cyclist is lost five steps before the last observed one."""
    assert not artists(draw_scene(scene, make_forecast(scene)), "unseen")
    figure = draw_scene(scene, make_forecast(scene, ("car", "bike")), joint_mode=0)
    [lost] = artists(figure, "lost-agents")
    [path] = lost.get_paths()
    middle = np.asarray(path.vertices)[[1, 4]].mean(axis=0)
    row = scene.tracks.index("bike")
    assert np.linalg.norm(middle - scene.tracks.position[row, OBSERVED - 6]) < 2.0
    assert not lost.get_facecolors().size
    assert text(figure, "unseen") == "0.5 s ago"
    start, end = lines(figure, "links")[0]
    np.testing.assert_array_equal(start, scene.tracks.position[row, OBSERVED - 6])
    np.testing.assert_array_equal(end, lines(figure, "other-modes")[0, 0])


def test_a_joint_mode_is_one_mode_of_every_predicted_agent(scene: Scenario) -> None:
    joint = make_forecast(
        scene, ("car", "walker", "bus")
    )  # the bus is not scored, but part of the joint mode
    for rank, mode in ((0, 1), (1, 2)):
        figure = draw_scene(scene, joint, joint_mode=rank)
        np.testing.assert_array_equal(lines(figure, "focal-modes"), joint.trajectory[:1, mode])
        np.testing.assert_array_equal(lines(figure, "other-modes"), joint.trajectory[1:, mode])
        assert not artists(figure, "probability")
        [others] = artists(figure, "other-modes")
        # Straight on, the bus is 3.1 m beside the car and the pedestrian 5.5 m; turned by 20 degrees, 4.03 m.
        met = [to_hex(color) for color in others.get_colors()[1::2]].count(LIGHT.partners[0].lower())
        assert met == rank
    assert "joint mode 2 of 6 (25%)" in text(figure, "subtitle")


def test_invalid_arguments_are_rejected(scene: Scenario, forecast: Forecast, attention: Attention) -> None:
    what_if = WhatIf(("bus",), forecast)
    not_focal = WhatIf(("bus",), make_forecast(scene, ("walker",)))
    for match, arguments in (
        ("is not of scenario", {"forecast": replace(forecast, scenario_id="other")}),
        ("radius_m", {"radius_m": 0.0}),
        ("joint_mode", {"joint_mode": 0}),
        ("joint_mode", {"joint_mode": 6, "forecast": forecast}),
        ("joint_mode", {"joint_mode": 0, "forecast": marginal(forecast)}),
        ("must be light or dark, is 'sepia'", {"theme": "sepia"}),
        ("is not of scenario", {"attention": attention}),
        ("what_if", {"what_if": what_if}),
        ("combined with what_if", {"forecast": forecast, "what_if": what_if, "attention": attention}),
        ("combined with what_if", {"forecast": forecast, "what_if": what_if, "joint_mode": 0}),
        ("'car'", {"forecast": forecast, "what_if": not_focal}),
    ):
        rejects(match, draw_scene, scene, **arguments)


def test_known_sizes_are_drawn_in_pictures_and_on_the_page(scene: Scenario) -> None:
    """A truck of 12 by 2.5 m, and an agent of which only the length is known."""
    size = np.full((len(scene.tracks), 2), np.nan)
    size[0] = 12.0, 2.5
    size[1, 0] = 7.0
    tracks = replace(scene.tracks, size=size)
    scenario = replace(scene, tracks=tracks).validate()
    bodies, _ = agent_outlines(View(tracks.position[0, OBSERVED - 1], 50.0, 1e3), scenario, np.array([0]))
    sides = np.hypot(*np.diff(bodies[0], axis=0).T)
    np.testing.assert_allclose(sides, [12.0, 2.5, 12.0])
    typical = [TYPICAL_SIZE[OBJECT_TYPES[code]] for code in tracks.object_type]
    drawn = pack_scene(scenario, [])["size_m"]
    assert drawn == [[12.0, 2.5], [7.0, typical[1][1]], *map(list, typical[2:])]


def test_agents_are_drawn_where_last_observed(scene: Scenario, figure: Figure) -> None:
    """The focal car has its typical size; the agent that was lost before is omitted."""
    [body] = artists(figure, "focal-agent")
    corners = np.asarray(body.get_paths()[0].vertices)[:4]
    position = scene.tracks.position[:1, OBSERVED - 1]
    heading = scene.tracks.heading[:1, OBSERVED - 1]
    expected = to_global(RECTANGLE * np.array(TYPICAL_SIZE["vehicle"]), position[:, None], heading[:, None])
    np.testing.assert_allclose(corners, expected[0])
    [others] = artists(figure, "agents")
    assert isinstance(others, PolyCollection)
    vertices = [len(path.vertices) for path in others.get_paths()]
    assert len(vertices) == 3
    assert sorted(vertices)[1] <= 10 < sorted(vertices)[2], "one pedestrian, drawn round"


def test_unknown_types_point_where_they_go_and_are_round_while_they_stand() -> None:
    t = np.arange(OBSERVED)[:, None] * 0.1
    start = np.array([[0, 0], [10.0, 0], [0, 10.0]])
    velocity = np.array([[5.0, 0], [0, 3.0], [0, 0]])
    position = start[:, None] + velocity[:, None] * t
    scene = Scenario.from_arrays(position, num_observed=OBSERVED, object_type="unknown")
    figure = draw_scene(scene)
    [agents] = artists(figure, "agents")
    moving_path, standing_path = agents.get_paths()
    moving = np.asarray(moving_path.vertices)[:-1]
    standing = np.asarray(standing_path.vertices)[:-1]
    assert moving[:, 1].argmax() == 0, "pointing to the north"
    assert abs(moving[0, 0] - 10.0) < 0.01
    radius = np.linalg.norm(standing - [0, 10.0], axis=1)
    np.testing.assert_allclose(radius, 0.9, rtol=0.01)
    assert "unknown type" in legend_of(figure)


def test_histories_skip_missing_steps_and_fade_in(scene: Scenario) -> None:
    [histories] = artists(draw_scene(scene, radius_m=60.0), "histories")
    # Three tracks with 19 steps between 20 states, one that appears at step 10; the lost one is omitted.
    assert len(histories.get_paths()) == 3 * 19 + 9
    assert (np.diff(histories.get_colors()[-19:, 3]) > 0).all()


@pytest.mark.parametrize("name", ["$x^{", r"$\frac$", "$a$", "a$b"])
def test_names_are_text_not_mathematics(name: str, scene: Scenario, tmp_path: Path) -> None:
    ids = np.array([name, *scene.tracks.track_id[1:]])
    tracks = replace(scene.tracks, track_id=ids)
    odd = replace(scene, scenario_id=name, city=name, focal_id=name, tracks=tracks)
    forecast = make_forecast(odd, (name,))
    figure = draw_scene(odd, forecast, what_if=WhatIf((name,), forecast))
    save_scene(figure, tmp_path / "odd.png")
    assert name in text(figure, "title")
    assert f"without {name}:" in text(figure, "subtitle")


def test_plot_scenario_draws_on_pyplots_figure(scene: Scenario, forecast: Forecast) -> None:
    with matplotlib.rc_context({"backend": "agg"}):
        ax = plot_scenario(scene, forecast, theme="dark", radius_m=30.0)
        assert plt.gcf() is ax.figure
        centre = scene.tracks.position[scene.focal, OBSERVED - 1]
        assert np.mean(limits(ax.figure), axis=1) == pytest.approx(centre)
        assert np.ptp(limits(ax.figure), axis=1) == pytest.approx([60.0, 60.0])
        assert ax.figure.get_facecolor()[0] < 0.1, "the theme includes the figure"
        before = ax.get_xlim()
        ax.plot(*scene.tracks.position[0].T)
        assert ax.get_xlim() == before, "the view stays when more is drawn"
        plt.close("all")
