"""Uncertainty bands contain their share, and modes with the same end share a label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import shapely

from tests.viz.scenes import FUTURE, OBSERVED, artists, lines, make_forecast, make_scenario, with_scales
from trajpred.data.scenario import Scenario
from trajpred.predictors.baselines import lane_following
from trajpred.viz import draw_scene
from trajpred.viz.forecast_layer import CAP, band_outlines, lateral_band


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
