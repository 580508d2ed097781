"""What every kind of picture says: captions and legends are legible, complete, and within the figure."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.viz.scenes import artists, legend_of, make_forecast, make_map, make_scenario, text, with_scales
from trajpred.data.forecast import Attention
from trajpred.data.scenario import Scenario
from trajpred.viz import WhatIf, draw_lane_map, draw_scene, legend_alone

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
def test_figures_for_papers_and_their_legends_have_the_width_of_the_column(
    kind: str, width_mm: float
) -> None:
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


def test_attention_says_what_it_shows(real_scene: Scenario, attention: Attention) -> None:
    figure = draw_scene(real_scene, attention=attention)
    assert "attention" in legend_of(figure)
    assert text(figure, "attention-total").startswith("attention: ")


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
