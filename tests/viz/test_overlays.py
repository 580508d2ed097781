"""Attention in the picture is the model's; a what-if shows and compares both forecasts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from tests.conftest import rejects
from tests.viz.scenes import artists, legend_of, lines, make_forecast, make_scenario, text
from trajpred.data.forecast import Attention
from trajpred.data.scenario import Scenario
from trajpred.viz import WhatIf, draw_scene
from trajpred.viz.map_layer import lane_line
from trajpred.viz.overlays import MIN_STRENGTH, mean_shift
from trajpred.viz.style import LIGHT


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
