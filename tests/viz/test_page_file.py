"""The page is one file, complete or absent, whatever its scenes are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.viz.pages import FixedPredictor, points, write
from tests.viz.scenes import make_forecast, make_map, make_scenario
from trajpred.data.forecast import Forecast
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.viz.page import SCRIPTS

STATIC = ROOT / "trajpred" / "viz" / "page" / "static"


def test_the_file_needs_no_other_file(tmp_path: Path) -> None:
    page = write(tmp_path / "deep" / "page.html", [make_scenario(map=make_map())], FixedPredictor())
    assert page.source.lower().startswith("<!doctype html>")
    assert len(page.code) == 1
    assert set(page.blocks) == {"index", "scene-0"}
    assert page.references == ["data:,"], "an icon, so that the browser requests none"
    assert not re.search(r"https?:|\bfetch\(|\bimport\b|XMLHttp|WebSocket", page.code[0])
    style = page.source.split("<style>")[1].split("</style>")[0]
    assert not re.search(r"https?:|@import|url\(", style)
    assert sorted(path.name for path in STATIC.glob("*.js")) == sorted(SCRIPTS)


def test_texts_cannot_break_out(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><!--<b>&\"'\u2028/*JS*/<!--DATA-->"
    scene = replace(make_scenario(), scenario_id=evil, city=evil)
    names = np.array([evil if name == "walker" else name for name in scene.tracks.track_id.tolist()])
    scene = replace(scene, tracks=replace(scene.tracks, track_id=names))
    page = write(tmp_path / "page.html", [scene], FixedPredictor(evil, walker=evil))
    assert len(page.code) == 1
    assert set(page.blocks) == {"index", "scene-0"}
    assert evil not in page.source
    assert "alert" not in page.code[0]
    index, packed = page.index, page.scene(0)
    assert (index["scenes"][0]["id"], index["models"], packed["id"]) == (evil, [evil], evil)
    assert evil in packed["track_id"]
    assert index["scenes"][0]["city"] == evil


def test_invalid_pages_are_rejected(tmp_path: Path) -> None:
    scene, path, fixed = make_scenario(), tmp_path / "page.html", FixedPredictor()
    for match, scenes, predictors, options in (
        ("at least one", [], [], {}),
        ("duplicates", [scene, scene], [], {}),
        ("at most two", [scene], [fixed] * 3, {}),
        ("needs a model", [scene], [], {"without": ["nearest"]}),
        ("focal", [scene], [fixed], {"without": ["car"]}),
    ):
        with pytest.raises(DataError, match=match):
            write(path, scenes, *predictors, **options)
    assert not path.exists()


def test_failing_scenes_are_reported_and_omitted(tmp_path: Path) -> None:
    """Of two models, whose forecasts and metrics are kept apart."""
    scenes = [replace(make_scenario(), scenario_id=name) for name in "abcde"]
    path, failed = tmp_path / "page.html", {}

    class Fails(FixedPredictor):
        def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
            if any(one.scenario_id == "d" for one in scenarios):
                raise RuntimeError("out of ideas")
            made = super().__call__(scenarios)
            return [replace(x, trajectory=x.trajectory + 1e9 * (x.scenario_id == "b")) for x in made]

    def on_error(scene: Scenario, error: Exception) -> None:
        failed[scene.scenario_id] = str(error)

    far = FixedPredictor("far", trajectory=make_forecast(scenes[0]).trajectory + 7.0)
    page = write(path, scenes, Fails(), far, on_error=on_error)
    models = page.scene(0)["models"]
    np.testing.assert_array_equal(points(models[1]), points(models[0]) + 700)
    metrics = [dict(zip(page.index["metrics"], m, strict=True)) for m in page.index["scenes"][0]["metrics"]]
    assert page.index["models"] == ["fixed", "far"]
    assert metrics[1]["minFDE6"] > metrics[0]["minFDE6"]
    assert [entry["id"] for entry in page.index["scenes"]] == ["a", "c", "e"]
    assert page.scene(1)["id"] == "c"
    assert list(failed) == ["b", "d"]
    assert "too far" in failed["b"]
    assert failed["d"] == "out of ideas"
    before = path.read_text()
    with pytest.raises(RuntimeError, match="out of ideas"):
        write(path, scenes[2:], Fails())
    with pytest.raises(DataError, match="none can be displayed"):
        write(path, [scenes[3]], Fails(), on_error=on_error)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]
