"""Attention in the picture: the lanes and agents that the model names, by their shares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from trajpred.viz.attention_layer import LABELS, lane_line
from trajpred.viz.what_if import WhatIf

from trajpred.cli.visualize import visualize
from trajpred.errors import DataError
from trajpred.forecast import Attention
from trajpred.predictors import load_predictor
from trajpred.predictors.checkpoint import attention_of
from trajpred.scenario import Scenario
from trajpred.viz import draw_scene
from trajpred.viz.style import LIGHT


@pytest.fixture(scope="module")
def scene(sample_scenarios: list[Scenario]) -> Scenario:
    return next(one for one in sample_scenarios if one.scenario_id.startswith("7f6920a4"))


@pytest.fixture(scope="module")
def attention(scene: Scenario) -> Attention:
    return attention_of(load_predictor("argoverse2-demo"), [scene])[0]


def parts(figure: Figure, gid: str) -> list[Artist]:
    return figure.axes[0].findobj(lambda artist: artist.get_gid() == gid)


def test_lanes_are_as_wide_as_they_are_heard(scene: Scenario, attention: Attention) -> None:
    [drawn] = parts(draw_scene(scene, attention=attention, radius_m=60.0), "attention-lanes")
    assert isinstance(drawn, LineCollection)
    shares = attention.shares(scene.focal_id)[len(attention.track_id) :]
    lines = [lane_line(scene.map, row) for row in attention.lane.tolist()]
    width, alpha, found = drawn.get_linewidths(), drawn.get_colors()[:, 3], []
    for segment in drawn.get_segments():
        [at] = [i for i, line in enumerate(lines) if line.shape == segment.shape and (line == segment).all()]
        found.append(float(shares[at]))
    assert len(found) > 10 and found == sorted(found)
    assert (np.diff(width) >= 0).all() and (np.diff(alpha) >= 0).all()
    assert found[-1] == shares.max()
    np.testing.assert_allclose(drawn.get_colors()[:, :3], [to_rgba(LIGHT.attention)[:3]] * len(found))


def test_crossings_have_a_line_too(scene: Scenario) -> None:
    lanes = scene.map
    line = lane_line(lanes, len(lanes))
    one, two = lanes.crossing_edge1[0][:, :2], lanes.crossing_edge2[0][:, :2]
    assert line.shape == (2, 2)
    for end, side in zip(line, (one[0], one[-1]), strict=True):
        across = np.hypot(*(two[[0, -1]] - side).T).min()
        assert np.hypot(*(end - side)) == pytest.approx(across / 2, rel=1e-6)


def test_agents_are_ringed_and_joined(scene: Scenario, attention: Attention) -> None:
    figure = draw_scene(scene, attention=attention, radius_m=60.0)
    [rings], [joined] = parts(figure, "attention-agents"), parts(figure, "attention-lines")
    assert isinstance(rings, PolyCollection) and isinstance(joined, LineCollection)
    now, tracks = scene.num_observed - 1, scene.tracks
    ends = np.array([segment[1] for segment in joined.get_segments()])
    assert len(rings.get_paths()) == len(ends) > 3
    starts = np.array([segment[0] for segment in joined.get_segments()])
    assert (starts == tracks.position[scene.focal, now]).all()
    gap = np.hypot(*(ends[:, None] - tracks.position[None, :, now]).transpose(2, 0, 1))
    assert gap.min(axis=1).max() < 30, "where they were seen within the last second"
    for path, end in zip(rings.get_paths(), ends, strict=True):
        assert path.contains_point(end)


def test_the_strongest_are_written(scene: Scenario, attention: Attention) -> None:
    figure = draw_scene(scene, attention=attention, radius_m=150.0)
    written = [label.get_text() for label in parts(figure, "attention-share")]
    most = np.sort(attention.shares(scene.focal_id))[::-1][:LABELS]
    assert written == [f"{share:.0%}" for share in most]
    [total] = parts(figure, "attention-total")
    agents = attention.shares(scene.focal_id)[: len(attention.track_id)].sum()
    assert total.get_text() == f"attention: {agents:.0%} agents, {1 - agents:.0%} lanes"
    assert "attention" in [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_who_hears_nobody_gets_no_total(scene: Scenario, attention: Attention) -> None:
    deaf = replace(attention, weight=np.zeros_like(attention.weight))
    figure = draw_scene(scene, attention=deaf)
    assert not parts(figure, "attention-total") and not parts(figure, "attention-share")


def test_shares_that_sum_to_a_little_more_than_one(scene: Scenario, attention: Attention) -> None:
    """As rounded sums do; where there are no lanes, agents give all."""
    A = len(attention.track_id)
    weight = np.full_like(attention.weight[..., :A], (1 + 1e-6) / A)
    bare = replace(attention, weight=weight, lane=attention.lane[:0])
    [total] = parts(draw_scene(scene, attention=bare), "attention-total")
    assert total.get_text() == "attention: 100% agents, 0% lanes"


def test_what_cannot_be_drawn_is_refused(scene: Scenario, attention: Attention) -> None:
    with pytest.raises(DataError, match="is not of scenario"):
        draw_scene(scene, attention=replace(attention, scenario_id="another"))
    told = load_predictor("constant_velocity")([scene])[0]
    with pytest.raises(DataError, match="one at a time"):
        draw_scene(scene, told, attention=attention, what_if=WhatIf(("a",), told))


def test_the_tool_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = {"checkpoint": "argoverse2-demo", "attention": True}
    assert visualize(limit=1, out=tmp_path, **model) == 0
    [picture] = tmp_path.iterdir()
    assert picture.suffix == ".png"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"attention": True}, "needs --checkpoint"),
        ({**model, "without": "nearest"}, "not drawn together"),
        ({**model, "format": "html"}, "as a layer"),
    ]
    for given, told in wrong:
        with pytest.raises(DataError, match=told):
            visualize(out=tmp_path, **given)
    assert visualize(limit=1, out=tmp_path, attention=True, checkpoint="lane_following") == 1
    assert "not by lane_following" in capsys.readouterr().err
