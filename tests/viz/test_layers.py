"""What each layer draws, against closed forms: marks and crossings, bands, attention, what-if."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import shapely
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from tests.conftest import rejects
from tests.viz.scenes import (
    FUTURE,
    OBSERVED,
    ORIGIN,
    artists,
    legend_of,
    lines,
    make_forecast,
    make_map,
    make_scenario,
    text,
    with_scales,
)
from trajpred.data.forecast import Attention
from trajpred.data.lane_map import MARK_TYPES, LaneMap
from trajpred.data.scenario import Scenario
from trajpred.predictors.baselines import lane_following
from trajpred.viz import WhatIf, draw_lane_map, draw_scene, legend_alone
from trajpred.viz.forecast_layer import CAP, band_outlines, lateral_band
from trajpred.viz.map_layer import boundaries, crossings, lane_line, offset_line, zebra_bars
from trajpred.viz.overlays import MIN_STRENGTH, mean_shift
from trajpred.viz.style import LIGHT
from trajpred.viz.view import View


def area(polygon: np.ndarray) -> float:
    local = polygon - polygon[0]
    x = local[:, 0]
    y = local[:, 1]
    return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def test_shared_boundary_is_drawn_once_and_paint_wins() -> None:
    """Drawn twice and out of step, a dashed line would look solid; intersections have no unpainted edges.

    Double lines are offset away from their lane.
    """
    lanes = make_map()
    lines, marks = boundaries(View(ORIGIN, 100.0, 1.0), lanes)
    names = np.array(MARK_TYPES)[marks].tolist()
    assert sorted(names) == ["DASHED_WHITE", "DOUBLE_SOLID_YELLOW"]
    dashed = lines[names.index("DASHED_WHITE")]
    double = lines[names.index("DOUBLE_SOLID_YELLOW")]
    assert (dashed[:, 1] - ORIGIN[1] == 0.0).all()
    assert (double[:, 1] - ORIGIN[1] == -4.0).all()
    # The lane lies at -2, to the right of its boundary at -4 as returned; side +1 is away from it.
    np.testing.assert_allclose(offset_line(double, 0.5)[:, 1] - ORIGIN[1], -4.5)
    assert not boundaries(View(ORIGIN + 500.0, 100.0, 1.0), lanes)[0], "out of view"


def test_bars_cover_half_of_a_crossing_whose_sides_run_in_opposite_directions() -> None:
    lanes = make_map()
    edge1 = np.array([[0.0, 0.0], [12.0, 0.0]])
    edge2 = np.array([[12.0, 4.0], [0.0, 4.0]])
    painted = sum(abs(area(bar)) for bar in zebra_bars(edge1, edge2))
    assert painted == pytest.approx(0.5 * 12 * 4)
    [outline], bars = crossings(View(ORIGIN, 100.0, 1.0), lanes)
    assert abs(area(outline)) == pytest.approx(40.0)
    assert len(bars) == 8
    np.testing.assert_allclose(lane_line(lanes, 2) - ORIGIN, [[12.0, -5.0], [12.0, 5.0]])


def test_a_map_alone_shows_links_ends_and_its_largest_part() -> None:
    """Two lanes that follow each other, and a single one 2 km away; a figure has the width of a column."""
    lines = [[[0, 0], [50, 0]], [[50, 0], [90, 0]], [[2000, 0], [2050, 0]]]
    lanes = LaneMap.from_centerlines(lines, successors=[[1], [], []])
    figure = draw_lane_map(lanes, title="town", frame="UTM zone 32N")
    [link] = artists(figure, "link to a successor")
    [end] = artists(figure, "end without successor")
    np.testing.assert_array_equal(link.get_xydata(), [[50, 0]])
    np.testing.assert_array_equal(end.get_xydata(), [[90, 0]])
    assert text(figure, "title") == "town · the largest of 2 parts"
    assert text(figure, "subtitle") == "UTM zone 32N · middle at x = 45.0 m, y = 0.0 m"
    legend = legend_alone(figure)
    assert legend.get_figheight() < 1
    assert not artists(legend, "title")[0].get_visible()
    far = draw_lane_map(lanes, center=(2025.0, 0.0), radius_m=60.0)
    np.testing.assert_array_equal(artists(far, "end without successor")[0].get_xydata(), [[2050, 0]])
    column = draw_lane_map(lanes, title="town", width_mm=85.0)
    assert column.get_figwidth() * 25.4 == pytest.approx(85.0)
    assert artists(column, "title")[0].get_fontsize() == artists(figure, "title")[0].get_fontsize()
    plain = draw_lane_map(lanes, title="town", width_mm=85.0, plain=True)
    assert plain.get_figheight() == pytest.approx(plain.get_figwidth())
    assert not artists(plain, "title")
    assert plain.axes[0].get_legend() is None


@pytest.fixture(scope="module")
def scene() -> Scenario:
    return make_scenario()


@pytest.mark.parametrize(("turn", "scale"), [(0.0, 0.2), (np.pi / 2, 0.5), (np.pi, 0.2)])
def test_band_holds_80_percent_across_the_mode(scene: Scenario, turn: float, scale: float) -> None:
    """P(|x| < w) = 1 - exp(-w / b), with the scale of the axis that lies across the mode."""
    forecast = with_scales(make_forecast(scene), ahead=0.5, left=0.2)
    heading = np.full_like(forecast.heading, scene.tracks.heading[0, OBSERVED - 1] + turn)
    width = lateral_band(scene, replace(forecast, heading=heading))[0]
    np.testing.assert_allclose(1 - np.exp(-width / scale), 0.8)


def test_band_surrounds_its_mode_and_is_drawn(scene: Scenario) -> None:
    forecast = with_scales(make_forecast(scene), 0.4, 0.4)
    outlines = band_outlines(scene, forecast, 0)
    for path, outline in zip(forecast.trajectory[0], outlines, strict=True):
        band = shapely.Polygon(outline)
        line = shapely.LineString(path)
        exact = line.buffer(np.log(5) * 0.4, cap_style="flat")  # the same scale in every direction
        assert band.is_valid
        assert band.contains(line)
        assert band.symmetric_difference(exact).area < 0.05 * exact.area
    [shades] = artists(draw_scene(scene, forecast), "bands")
    order = np.argsort(forecast.probability[0], kind="stable")
    for shade, k in zip(shades.get_paths(), order.tolist(), strict=True):
        np.testing.assert_allclose(shade.vertices[: len(outlines[k])], outlines[k])
    opacity = shades.get_facecolors()[:, 3]
    assert (np.diff(opacity) >= 0).all()
    assert opacity[-1] < 0.3


@pytest.mark.parametrize("steps", [1, 2, FUTURE])
def test_bands_of_sharp_turns_and_few_steps_are_valid(scene: Scenario, steps: int) -> None:
    forecast = with_scales(make_forecast(scene), 1.5, 1.5)
    angle = np.linspace(0, 1.5 * np.pi, FUTURE)
    turn = forecast.trajectory[0, 0, 0] + np.stack((np.sin(angle), 1 - np.cos(angle)), -1)
    path = np.broadcast_to(turn, forecast.trajectory.shape)
    tight = replace(
        forecast,
        trajectory=path[:, :, :steps],
        heading=forecast.heading[:, :, :steps],
        scale=forecast.scale[:, :, :steps],
    )
    for outline in band_outlines(scene, tight, 0):
        assert shapely.Polygon(outline).is_valid


def test_a_band_follows_the_curve_of_its_mode(scene: Scenario) -> None:
    """A quarter of a circle, with a width that is the same on the way: a ring sector, not a wedge."""
    radius, width = 12.0, 2.0
    angle = np.linspace(0, np.pi / 2, FUTURE)
    forecast = with_scales(make_forecast(scene), width / np.log(5), width / np.log(5))
    centre = forecast.trajectory[0, 0, 0] + np.array([0.0, radius])
    arc = centre + radius * np.stack((np.sin(angle), -np.cos(angle)), -1)
    turning = replace(
        forecast,
        trajectory=np.broadcast_to(arc, forecast.trajectory.shape),
        heading=np.broadcast_to(angle, forecast.heading.shape),
    )
    [outline, *_] = band_outlines(scene, turning, 0)
    from_centre = np.linalg.norm(outline - centre, axis=1)
    assert np.abs(np.abs(from_centre - radius)).max() < width + 0.05
    expected = width * radius * np.pi + CAP * width**2 * np.pi / 2  # and half an ellipse at the end
    assert shapely.Polygon(outline).area == pytest.approx(expected, rel=0.02)


def test_modes_with_the_same_end_share_a_label(scene: Scenario) -> None:
    forecast = make_forecast(scene)
    joined = replace(forecast, trajectory=np.repeat(forecast.trajectory[:, :1], 6, axis=1))
    labels = artists(draw_scene(scene, joined, radius_m=400.0), "probability")
    assert [label.get_text() for label in labels] == ["100%, 6 modes"]


def test_a_future_shorter_than_its_road_user_has_no_label_and_is_drawn_of_the_focal_agent_alone(
    scene: Scenario,
) -> None:
    """The car has a length of 4 to 5 m, the bus more than 10."""
    forecast = make_forecast(scene, ("car", "bus", "walker"))
    rows = scene.tracks.indices(forecast.track_id)
    start = scene.tracks.position[rows, OBSERVED - 1][:, None, None]
    short = replace(forecast, trajectory=start + (forecast.trajectory - start) / 8)  # 3 m
    for given, probabilities, others in ((forecast, 6, 12), (short, 0, 6)):
        figure = draw_scene(scene, given, tracks=["car", "bus", "walker"])
        assert len(artists(figure, "probability")) == probabilities
        assert len(lines(figure, "focal-modes")) == 6
        assert len(lines(figure, "other-modes")) == others, "of the pedestrian only"
        joint = draw_scene(scene, given, joint_mode=0)
        assert len(lines(joint, "other-modes")) == others / 6


def test_bands_lie_in_the_frame_of_the_model_where_the_data_lack_a_heading() -> None:
    """A car that stands on a lane to the north heads along it."""
    standing = np.zeros((1, 10, 2))
    waiting = Scenario.from_arrays(standing, num_observed=5, map=[[[0.0, -50.0], [0.0, 50.0]]])
    forecast = with_scales(lane_following(waiting), ahead=0.5, left=0.2)
    width = lateral_band(waiting, forecast)[0, 0]  # of the mode that stays
    np.testing.assert_allclose(1 - np.exp(-width / 0.2), 0.8)


@pytest.fixture(scope="module")
def figure(real_scene: Scenario, attention: Attention) -> Figure:
    return draw_scene(real_scene, attention=attention, radius_m=150.0)


def test_lanes_are_as_wide_as_their_share(figure: Figure, real_scene: Scenario, attention: Attention) -> None:
    [drawn] = artists(figure, "attention-lanes")
    shares = attention.shares(real_scene.focal_id)[len(attention.track_id) :]
    centers = [lane_line(real_scene.map, row) for row in attention.lane.tolist()]
    drawn_shares = []
    for segment in drawn.get_segments():
        row = next(i for i, line in enumerate(centers) if np.array_equal(line, segment))
        drawn_shares.append(float(shares[row]))
    strongest = attention.shares(real_scene.focal_id).max()
    assert len(drawn_shares) == (shares >= MIN_STRENGTH * strongest).sum()
    assert len(drawn_shares) > 2
    assert drawn_shares == sorted(drawn_shares)
    assert drawn_shares[-1] == shares.max()
    assert (np.diff(drawn.get_linewidths()) >= 0).all()
    assert (np.diff(drawn.get_colors()[:, 3]) >= 0).all()
    assert (drawn.get_colors()[:, :3] == to_rgba(LIGHT.attention)[:3]).all()


def test_attended_agents_are_ringed_and_connected_and_totals_written(
    figure: Figure, real_scene: Scenario, attention: Attention
) -> None:
    [rings] = artists(figure, "attention-agents")
    [connections] = artists(figure, "attention-lines")
    segments = np.array(connections.get_segments())  # [M, 2, 2]
    assert len(segments) > 1
    last = real_scene.tracks.position[real_scene.focal, real_scene.num_observed - 1]
    assert (segments[:, 0] == last).all()
    for ring, end in zip(rings.get_paths(), segments[:, 1], strict=True):
        assert ring.contains_point(end)
    agents = attention.shares(real_scene.focal_id)[: len(attention.track_id)].sum()
    assert text(figure, "attention-total") == f"attention: {agents:.0%} agents, {1 - agents:.0%} lanes"
    assert "attention" in legend_of(figure)


def test_attention_to_nothing_or_to_agents_alone(real_scene: Scenario, attention: Attention) -> None:
    A = len(attention.track_id)
    nothing = replace(attention, weight=np.zeros_like(attention.weight))
    assert not artists(draw_scene(real_scene, attention=nothing), "attention-total")
    # Rounded shares may sum to slightly more than 1.
    weight = np.full_like(attention.weight[..., :A], (1 + 1e-6) / A)
    bare = replace(attention, weight=weight, lane=attention.lane[:0])
    figure = draw_scene(real_scene, attention=bare)
    assert text(figure, "attention-total") == "attention: 100% agents, 0% lanes"


def test_both_forecasts_are_drawn_and_compared() -> None:
    scene = make_scenario()
    car_alone = make_forecast(scene, ("car",))
    other = replace(car_alone, trajectory=car_alone.trajectory + np.array([60.0, 2.0]))
    figure = draw_scene(scene, make_forecast(scene), what_if=WhatIf(("bus",), other))
    order = np.argsort(other.probability[0], kind="stable")
    assert np.allclose(lines(figure, "what-if-modes"), other.trajectory[0, order])
    # A recorded mode with its border leaves both edges of an equal ribbon visible.
    [ribbons] = artists(figure, "what-if-modes")
    [recorded] = artists(figure, "focal-modes")
    assert min(ribbons.get_linewidths()) > max(recorded.get_linewidths()) + 1
    assert ribbons.get_zorder() < recorded.get_zorder()
    assert len(lines(figure, "focal-modes")) == 6
    [removed] = artists(figure, "removed")
    assert len(removed.get_paths()) == 1
    shift = float(np.hypot(60.0, 2.0))
    expected = f"without bus: mean future {shift:.2f} m away, {shift:.2f} m at the end"
    assert text(figure, "subtitle").endswith(expected)
    assert other.trajectory[0, ..., 0].max() < figure.axes[0].get_xlim()[1]


def test_mean_shift_weights_modes_by_probability() -> None:
    scene = make_scenario()
    original = make_forecast(scene)
    moved = replace(original, trajectory=original.trajectory.copy())
    moved.trajectory[0, 1] += [3.0, 4.0]  # the mode of 30 %, by 5 m
    assert mean_shift(original, moved, "car") == pytest.approx(np.full(30, 0.3 * 5.0))
    assert mean_shift(original, moved, "walker") == pytest.approx(np.zeros(30))
    # Modes have no order.
    shuffled = replace(moved, trajectory=moved.trajectory[:, ::-1], probability=moved.probability[:, ::-1])
    assert mean_shift(original, shuffled, "car") == pytest.approx(np.full(30, 1.5))
    rejects("'bus'", mean_shift, original, moved, "bus")
