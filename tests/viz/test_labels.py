"""Labels cover neither each other nor marks, and it is clear what each belongs to."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.text import Text

from tests.viz.scenes import artists
from trajpred.data.scenario import Scenario
from trajpred.predictors import Predictor
from trajpred.viz import draw_scene
from trajpred.viz.film import CAPTION
from trajpred.viz.labels import place_labels, text_size
from trajpred.viz.style import Layer


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
def test_labels_of_real_scenes_as_rendered(
    width_mm: float, sample_scenarios: list[Scenario], model: Predictor
) -> None:
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
