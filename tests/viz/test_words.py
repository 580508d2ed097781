"""Captions, legends and labels are legible, complete and in the figure, and cover nothing."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.viz.scenes import artists, legend_of, make_forecast, make_map, make_scenario, with_scales
from trajpred.data.forecast import Attention
from trajpred.data.scenario import Scenario
from trajpred.predictors import Predictor
from trajpred.viz import WhatIf, draw_lane_map, draw_scene, legend_alone
from trajpred.viz.film import CAPTION
from trajpred.viz.labels import place_labels, text_size
from trajpred.viz.style import Layer

SCENE = make_scenario(map=make_map())
FORECAST = with_scales(make_forecast(SCENE))
ALONE = ["focal agent", "recording vehicle", "scored agent", "other agent", "pedestrian", "history"]
TRUTH = ["true future", "true future, scored"]
BAR = "predicted futures by probability"
#: How each kind is drawn, and what its legend and its caption say.
KINDS: dict[str, tuple[Callable[..., Figure], list[str], list[str]]] = {
    "alone": (lambda **look: draw_scene(SCENE, **look), [*ALONE, *TRUTH], ["2.0 s observed"]),
    "forecast": (
        lambda **look: draw_scene(SCENE, FORECAST, **look),
        [*ALONE, *TRUTH, "80% band"],
        ["2.0 s observed, 3.0 s predicted, 6 modes", "minADE", BAR],
    ),
    "joint": (
        lambda **look: draw_scene(SCENE, FORECAST, joint_mode=0, **look),
        [*ALONE, *TRUTH, "predicted future", "of others", "80% band"],
        ["joint mode 1 of 6 (30%)"],
    ),
    "what if": (
        lambda **look: draw_scene(SCENE, FORECAST, what_if=WhatIf(("bus",), FORECAST), **look),
        [*ALONE, *TRUTH, "80% band", "removed road user", "future without it"],
        ["without bus: mean future 0.00 m away", BAR],
    ),
    "map": (
        lambda **look: draw_lane_map(SCENE.map, title="town", frame="UTM zone 32N", **look),
        ["lane", "intersection", "pedestrian crossing", "direction", "end without successor"],
        ["town", "UTM zone 32N · middle at x = 7000.0 m, y = -3000.0 m"],
    ),
}


def words(figure: Figure) -> list[str]:
    """Return all texts of a figure, as a reader of its SVG finds them."""
    file = BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(file, format="svg")
    root = ElementTree.fromstring(file.getvalue())
    return ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]


def legend_boxes(figure: Figure) -> list[Any]:
    """Return the extents of the legend and the colour bar with its texts, in inches."""
    figure.set_dpi(150)
    figure.canvas.draw()
    axes = figure.axes[0]
    legend = axes.get_legend()
    assert legend is not None
    boxes = [legend.get_window_extent(), *(bar.get_tightbbox() for bar in axes.child_axes)]
    return [box.extents / 150 for box in boxes]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_captions_and_legends(kind: str, theme: str) -> None:
    draw, legend, caption = KINDS[kind]
    figure = draw(theme=theme)
    assert sorted(legend_of(figure)) == sorted(legend)
    found = words(figure)
    for phrase in [*legend, *caption]:
        assert any(phrase in one for one in found), phrase
    boxes = legend_boxes(figure)
    assert min(box[0] for box in boxes) >= 0
    assert min(box[1] for box in boxes) >= 0, "of four rows at most"
    assert max(box[2] for box in boxes) <= figure.get_figwidth()
    if len(boxes) > 1:
        assert boxes[0][2] < boxes[1][0], "the legend ends before the colour bar"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width_mm", [40.0, 85.0, 120.0, 183.0])
def test_figures_for_papers_and_their_legends_have_the_column_width(kind: str, width_mm: float) -> None:
    draw, entries, _ = KINDS[kind]
    plain = draw(plain=True, width_mm=width_mm)
    assert plain.get_figwidth() * 25.4 == pytest.approx(width_mm)
    legend = legend_alone(draw(), width_mm)
    assert legend.get_figwidth() * 25.4 == pytest.approx(width_mm)
    assert sorted(legend_of(legend)) == sorted(entries)
    boxes = legend_boxes(legend)
    for left, bottom, right, top in boxes:
        assert min(left, bottom) >= 0
        assert right * 25.4 <= width_mm
        assert top <= legend.get_figheight()
    if len(boxes) > 1:
        assert boxes[1][3] <= boxes[0][1], "the colour bar is below"
    sizes = [entry.get_fontsize() for entry in legend.axes[0].get_legend().get_texts()]
    assert min(sizes) >= 7


def test_other_modes_fade_beside_attention(real_scene: Scenario, attention: Attention, model: Any) -> None:
    [forecast] = model([real_scene])
    strength: list[float] = []
    for shown in (None, attention):
        figure = draw_scene(real_scene, forecast, attention=shown)
        axes = figure.axes[0]
        assert ("80% band" in legend_of(figure)) == (len(artists(figure, "bands")) == 1) == (shown is None)
        modes = [part for part in axes.collections if part.get_gid() == "other-modes"]
        assert len(modes) == 1
        strength.append(float(np.asarray(modes[0].get_colors())[1::2, 3].max()))
    assert strength[1] < 0.4 * strength[0]


def distances(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Distance ``[M, N]`` of boxes (left, bottom, right, top) from others, 0 if they touch."""
    low = others[:, :2] - boxes[:, None, 2:]
    high = boxes[:, None, :2] - others[:, 2:]
    return np.hypot(*np.maximum(0, np.maximum(low, high)).transpose(2, 0, 1))


def apart(boxes: np.ndarray) -> float:
    """Smallest distance between two boxes."""
    return float(distances(boxes, boxes)[np.triu_indices(len(boxes), 1)].min(initial=np.inf))


def test_labels_keep_clear_of_each_other_of_boxes_and_of_the_border() -> None:
    anchors = np.array([[0.0, 0.0], [4.0, 1.0], [8.0, -1.0], [5.0, 6.0], [2.0, -5.0], [9.0, 4.0]])
    sizes = np.tile([18.0, 7.0], (6, 1))
    blocked = np.array([[14.0, 0.0, 6.0, 6.0]])
    centres, leaders = place_labels(anchors, np.zeros(6), sizes, anchors, blocked, window=40.0)
    boxes = np.concatenate((centres - sizes / 2, centres + sizes / 2), axis=1)
    assert apart(np.concatenate((boxes, [[8.0, -6.0, 20.0, 6.0]]))) >= 1
    assert np.abs(boxes).max() <= 40
    to_anchors = distances(boxes, np.tile(anchors, 2))
    own = np.diag(to_anchors)
    assert to_anchors.min() > 0
    nearest = np.where(np.eye(6, dtype=bool), np.inf, to_anchors).min(axis=1)
    assert leaders[nearest <= own].all(), "it is clear what a label belongs to"


def test_crowded_labels_give_way() -> None:
    """The first labels stay, and none covers another."""
    sizes = np.full((90, 2), [30.0, 8.0])
    centres, _ = place_labels(np.zeros((90, 2)), np.zeros(90), sizes, np.zeros((0, 2)))
    kept = centres[np.isfinite(centres[:, 0])]
    assert 5 < len(kept) < 90
    assert np.isfinite(centres[0]).all()
    half = sizes[: len(kept)] / 2
    assert apart(np.concatenate((kept - half, kept + half), axis=1)) >= 1


@pytest.mark.parametrize("width_mm", [91.5, 85.0])
def test_labels_of_real_scenes(width_mm: float, sample_scenarios: list[Scenario], model: Predictor) -> None:
    """No text covers another or the star; one that is nearer to another mark than to its own has a leader."""
    some = sample_scenarios[::2]
    for scenario, forecast in zip(some, model(some), strict=True):
        figure = draw_scene(scenario, forecast, width_mm=width_mm)
        figure.set_dpi(72)
        figure.canvas.draw()
        axes = figure.axes[0]
        labels = artists(figure, "probability")
        others = [text for text in axes.texts if text.get_gid() not in (*CAPTION, "probability")]
        extents = [Text.get_window_extent(text).extents for text in (*labels, *others)]
        boxes = np.array(extents)
        assert apart(boxes) > 0
        stars = [part for part in axes.collections if part.get_zorder() == Layer.TRUTH_END]
        [row] = forecast.rows(np.array([scenario.focal_id])).tolist()
        places = [star.get_offsets()[0] for star in stars]
        marks = axes.transData.transform([*places, *forecast.trajectory[row, :, -1]])
        for label, box in zip(labels, boxes, strict=False):
            away = distances(box[None], np.tile(marks, 2))[0]
            assert away[: len(stars)].min(initial=np.inf) > 3, "under the star"
            is_own = np.linalg.norm(marks - axes.transData.transform(label.xy), axis=1) < 4
            is_clear = away[is_own].min() < away[~is_own].min(initial=np.inf)
            assert is_clear or label.arrow_patch is not None


def test_the_size_of_a_text_is_that_of_the_renderer(real_scene: Scenario) -> None:
    figure = draw_scene(real_scene)
    figure.set_dpi(720)
    for words in ("7%", "100%, 6 modes", "<1%"):
        drawn = figure.axes[0].text(0, 0, words, fontsize=7).get_window_extent()
        assert text_size(words, 7) == pytest.approx([drawn.width / 10, drawn.height / 10], abs=0.5)
