"""Labels keep clear of each other and of what they label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from trajpred.viz.labels import place_labels, same_place

from tests.viz.test_scene import FUTURE, forecast, scenario
from trajpred.viz import draw_scene


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
