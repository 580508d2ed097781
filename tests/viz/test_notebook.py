"""Scenarios in a notebook: a picture and a line of text instead of pages of arrays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.image import imread

from tests.viz.test_scene import forecast, lane_map, scenario
from trajpred.lane_map import LaneMap
from trajpred.scenario import Scenario
from trajpred.viz import plot_scenario


@pytest.fixture(autouse=True)
def pyplot() -> Iterator[None]:
    """No window, nothing left open."""
    with matplotlib.rc_context({"backend": "agg"}):
        yield
        plt.close("all")


def test_a_new_figure_is_pyplots_own() -> None:
    scene = scenario(map=lane_map())
    ax = plot_scenario(scene, forecast(scene), theme="dark", radius_m=30.0)
    assert plt.gcf() is ax.figure and np.diff(ax.get_xlim()) == pytest.approx(60.0)
    assert ax.figure.get_facecolor()[0] < 0.1, "dark around the scene, too"
    before = ax.get_xlim()
    ax.plot(*scene.tracks.position[0].T)  # in the city frame, and the view stays
    assert ax.get_xlim() == before


def test_an_axes_of_ones_own() -> None:
    scene = scenario()
    figure, panels = plt.subplots(1, 2)
    assert plot_scenario(scene, ax=panels[1]) is panels[1]
    assert panels[1].collections and not panels[0].collections
    assert plt.get_fignums() == [figure.number]


def test_a_scenario_shows_its_picture() -> None:
    image = imread(BytesIO(scenario(map=lane_map())._repr_png_()))
    assert image.shape[0] > image.shape[1] > 600 and image.std() > 0.05


def test_a_picture_needs_neither_torch_nor_pyplot_and_data_need_no_matplotlib() -> None:
    code = """
import sys, numpy as np
from trajpred import Scenario
scene = Scenario.from_arrays(np.zeros((1, 5, 2)), num_observed=5)
assert repr(scene) and not {'torch', 'matplotlib'} & set(sys.modules)
assert scene._repr_png_()[:4] == b'\\x89PNG'
assert not {'torch', 'matplotlib.pyplot'} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_line_of_text_says_what_it_is(sample_scenarios: list[Scenario]) -> None:
    scene = next(one for one in sample_scenarios if one.scenario_id.startswith("0a1e6f0a"))
    text = repr(scene)
    assert "0a1e6f0a-1817-4a98-b02e-db8c9327d151, austin: 5.0 s observed + 6.0 s, 58 tracks" in text
    assert f"focal vehicle {scene.focal_id}" in text and f"{len(scene.map)} lane segments" in text
    kinds = dict(pair.split(" ")[::-1] for pair in repr(scene.tracks).split(": ")[1].rstrip(")").split(", "))
    assert sum(map(int, kinds.values())) == len(scene.tracks) and int(kinds["vehicle"]) > 1
    assert repr(scene.map).startswith(f"LaneMap({len(scene.map)} lane segments, ")
    told = forecast(scenario())
    assert repr(told) == "Forecast(scenario: 2 tracks, 6 modes of 30 steps)"
    for value in (scene, scene.tracks, scene.map, scene.map.centerline, told, LaneMap()):
        assert len(repr(value)) < 160 and "\n" not in repr(value)
