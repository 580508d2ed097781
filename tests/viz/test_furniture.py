"""Legend and scale bar tell what is drawn, and fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from trajpred.viz.furniture import round_length

from tests.viz.test_scene import FUTURE, OBSERVED, forecast, scenario
from trajpred.scenario import Scenario
from trajpred.viz import draw_scene


def test_legend_names_only_what_is_drawn() -> None:
    """No bicycle: it was lost before the last observed step; no forecast, no standing object."""
    legend = draw_scene(scenario()).axes[0].get_legend()
    assert legend is not None
    names = {text.get_text() for text in legend.get_texts()}
    agents = {"focal agent", "recording vehicle", "scored agent", "other agent", "pedestrian"}
    assert names == agents | {"history", "true future"}
    told = forecast(scenario())
    for scale, entries in (
        (None, {"prediction"}),
        (np.ones_like(told.trajectory), {"prediction", "80% band"}),
    ):
        legend = draw_scene(scenario(), replace(told, scale=scale)).axes[0].get_legend()
        assert {text.get_text() for text in legend.get_texts()} == names | entries


def test_fullest_legend_leaves_room_for_the_colour_bar() -> None:
    kinds = ["vehicle", "vehicle", "pedestrian", "cyclist", "static"]
    scene = Scenario.from_arrays(
        np.zeros((5, OBSERVED + FUTURE, 2)), num_observed=OBSERVED, object_type=kinds,
        track_id=["car", "AV", "walker", "bike", "cone"], category=[3, 1, 2, 1, 1],
    )  # fmt: skip
    told = forecast(scene)
    figure = draw_scene(scene, replace(told, scale=np.ones_like(told.trajectory)))
    legend = figure.axes[0].get_legend()
    assert legend is not None and len(legend.get_texts()) == 11
    bar = figure.axes[0].child_axes[0]
    figure.canvas.draw()
    label = min(part.get_window_extent().x0 for part in bar.texts + bar.get_xticklabels())
    assert legend.get_window_extent().x1 < label


@pytest.mark.parametrize(("metres", "expected"), [(9.9, 5.0), (20.0, 20.0), (60.0, 50.0), (0.3, 0.2)])
def test_round_length(metres: float, expected: float) -> None:
    assert round_length(metres) == pytest.approx(expected)
