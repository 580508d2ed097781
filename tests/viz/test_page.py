"""The web page as a file: it holds what scenario, forecast and evaluation say, and needs nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from trajpred.viz.page.codec import encode, to_int
from trajpred.viz.page.colors import themes
from trajpred.viz.page.figures import Figures, focal_facts
from trajpred.viz.page.pack import Told, pack_scene
from trajpred.viz.page.road import PAINTS, road_arrays
from trajpred.viz.page.write import SCRIPTS, entry, to_json
from trajpred.viz.uncertainty import BAND, across

from tests.conftest import ROOT
from tests.viz.page_file import Page, decode
from tests.viz.test_scene import OBSERVED, forecast, lane_map, scenario
from trajpred.errors import DataError
from trajpred.evaluation import evaluate
from trajpred.forecast import Forecast
from trajpred.geometry import wrap_angle
from trajpred.metrics import columns, final_error
from trajpred.predictors import load_predictor
from trajpred.scenario import Scenario
from trajpred.store import ScenarioStore
from trajpred.store.sample import SAMPLE_STORE, ensure_store
from trajpred.viz.page import write_page
from trajpred.viz.style import TINTS
from trajpred.viz.view import focal_centre

STATIC = ROOT / "trajpred" / "viz" / "page" / "static"


class Says:
    """A predictor that says what it was made with, of whatever scenario."""

    def __init__(self, name: str = "says", walker: str = "walker", **changes: Any) -> None:
        self.name, self.tracks, self.changes = name, ("car", walker), changes
        self.training: dict[str, Any] = {}

    def __call__(self, scenarios: list[Scenario]) -> list[Forecast]:
        return [replace(forecast(one, self.tracks), **self.changes) for one in scenarios]


def spoken(scene: Scenario) -> Forecast:
    """The forecast of :func:`forecast` with scales that grow."""
    told = forecast(scene)
    scale = np.linspace(0.2, 2.0, told.trajectory.shape[2])[:, None] * np.array([1.0, 0.5])
    return replace(told, scale=np.broadcast_to(scale, told.trajectory.shape).copy())


LIMIT = 2**30 - 1
SHAPES = array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=9)
WHOLE = arrays(np.int32, SHAPES, elements=st.integers(-LIMIT, LIMIT))


@given(st.lists(WHOLE, max_size=4))
def test_whole_numbers_come_back(values: list[np.ndarray]) -> None:
    given = {f"x{i}": x for i, x in enumerate(values)}
    found = decode(json.loads(json.dumps(encode(given))))
    assert found.keys() == given.keys()
    for name, x in given.items():
        np.testing.assert_array_equal(found[name], x)


def test_what_is_too_far_is_refused() -> None:
    for far in (1e9, np.nan, np.inf):
        with pytest.raises(DataError, match="too far"):
            to_int(np.array([[0.0, far]]), 0.01, 2)


def test_states_and_modes_come_back_to_the_centimetre() -> None:
    scene = scenario(map=lane_map())
    told, tracks, origin = spoken(scene), scene.tracks, focal_centre(scene)
    packed = pack_scene(scene, [Told(told, Figures.of(scene, told))])
    found = decode(packed)
    valid = tracks.valid
    state = found["state"].reshape(*valid.shape, 3)
    np.testing.assert_array_equal(state[..., 0] == 1, valid)
    place = found["position"].reshape(*valid.shape, 2)
    np.testing.assert_array_equal(place[valid], np.rint((tracks.position - origin)[valid] * 100))
    turned = wrap_angle(state[..., 1] / 1000 - tracks.heading)[valid]
    assert np.abs(turned).max() <= 0.0005 + 1e-9
    speed = np.hypot(*tracks.velocity[valid].T)
    np.testing.assert_array_equal(state[..., 2][valid], np.rint(speed * 100))
    modes = found["mode0"].reshape(told.trajectory.shape)
    np.testing.assert_array_equal(modes, np.rint((told.trajectory - origin) * 100))
    np.testing.assert_array_equal(found["band0"].reshape(modes.shape[:3]), np.rint(across(scene, told) * 100))
    assert [packed["track_id"][row] for row in packed["models"][0]["tracks"]] == told.track_id.tolist()
    np.testing.assert_array_equal(packed["models"][0]["probability"], told.probability)


def test_the_band_is_across_the_mode() -> None:
    """Straight ahead the scale to the left counts, after a quarter turn the one ahead."""
    scene = scenario()
    told = spoken(scene)
    frame = scene.tracks.heading[0, OBSERVED - 1]
    for turn, axis in ((0.0, 1), (np.pi / 2, 0), (np.pi, 1)):
        heading = np.full_like(told.heading, frame + turn)
        width = across(scene, replace(told, heading=heading))[0]
        assert told.scale is not None
        np.testing.assert_allclose(width, BAND * told.scale[0, ..., axis])
    sample = np.random.default_rng(0).laplace(scale=2.0, size=100_000)
    assert (np.abs(sample) < BAND * 2.0).mean() == pytest.approx(0.8, abs=0.01)


def test_the_road_is_that_of_the_map() -> None:
    lanes, origin = lane_map(), focal_centre(scenario())
    found = road_arrays(lanes, origin)
    np.testing.assert_array_equal(found["centerline_rows"].ravel(), lanes.centerline.lengths)
    middle = np.rint((lanes.centerline.values - origin) * 100)
    np.testing.assert_array_equal(found["centerline"], middle)
    assert found["tint_rows"].tolist() == [[6, TINTS.index("INTERSECTION")]]
    # The dashed white line that both lanes share, and a double yellow one as two; no edge in the junction.
    looks = sorted(map(tuple, found["stroke_rows"][:, 1:].tolist()))
    assert looks == [(PAINTS.index("WHITE"), 1), *[(PAINTS.index("YELLOW"), 0)] * 2]
    assert found["arrow"][:, 3].tolist() == [12000, 12000] and abs(found["arrow"][0, 2]) < 2
    polygon = found["ground"] / 100
    x, y = polygon.T
    assert x @ np.roll(y, -1) - y @ np.roll(x, -1) > 0, "counter-clockwise"


def test_a_scene_without_map_future_or_forecast_is_packed() -> None:
    scene = scenario(steps=OBSERVED)
    line, packed = entry(scene, [Told(forecast(scene), Figures())])
    assert packed["models"][0]["end_error"] == [None, None] and line["metrics"] == [None]
    assert line["manoeuvre"] == "unknown" and line["class"] == "vehicle"
    assert entry(scene, []).line["metrics"] == [] and decode(packed)["ground"].shape == (0, 2)
    to_json(packed)
    with pytest.raises(DataError, match="is not of scenario"):
        pack_scene(scene, [Told(replace(forecast(scene), scenario_id="other"), Figures())])


def test_the_numbers_are_those_of_evaluate(tmp_path: Path) -> None:
    """In the list, and of every agent in the scene; each mode's error at the end too."""
    store, predictor = ScenarioStore(ensure_store(SAMPLE_STORE), "val"), load_predictor("lane_following")
    page = Page(write_page(tmp_path / "page.html", list(store), [predictor], progress=False))
    known = evaluate(predictor, store, progress=False).per_scenario
    index = page.json("index")
    assert [line["id"] for line in index["scenes"]] == known["scenario_id"] == store.scenario_ids
    assert index["metrics"] == list(columns("breakdown")) and index["models"] == ["lane_following"]
    for i, name in enumerate(columns("breakdown")):
        assert [line["metrics"][0][i] for line in index["scenes"]] == known[name], name
    scene, packed = store[0], page.json("scene-0")
    model, [told] = packed["models"][0], predictor([scene])
    row = model["tracks"].index(packed["focal"])
    target = scene.tracks.position[[scene.focal], scene.num_observed :]
    path = torch.from_numpy(told.trajectory[[row]])
    errors = final_error(path, torch.from_numpy(target), torch.ones(1, target.shape[1], dtype=torch.bool))
    assert model["end_error"][row] == pytest.approx(errors[0].tolist(), abs=0.006)
    assert model["metrics"][row] == index["scenes"][0]["metrics"][0]


def test_facts_are_those_of_the_evaluation(tmp_path: Path) -> None:
    store = ScenarioStore(ensure_store(SAMPLE_STORE), "val")
    parts = evaluate(load_predictor("constant_velocity"), store, progress=False).breakdowns
    told = [focal_facts(one) for one in store]
    for fact in ("class", "manoeuvre", "city"):
        focal = {value: groups["focal"]["count"] for value, groups in parts[fact].items()}
        values = [one[fact] for one in told]
        assert {v: n for v, n in focal.items() if n} == {v: values.count(v) for v in values}


def test_facts_need_no_future_of_the_focal_track() -> None:
    """It was seen, but not at the last observed step: nobody judges it, and there is no manoeuvre."""
    scene = scenario()
    valid = scene.tracks.valid.copy()
    valid[scene.focal, OBSERVED - 1] = False
    lost = replace(scene, tracks=replace(scene.tracks, valid=valid))
    assert focal_facts(lost) == {"class": "vehicle", "manoeuvre": "unknown", "city": scene.city or "unknown"}
    assert focal_facts(scene)["manoeuvre"] != "unknown"


def test_a_page_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    before = write_page(path, [scenario()], [Says()], progress=False).read_text()

    def full(*_: Any) -> int:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        write_page(path, [scenario(), replace(scenario(), scenario_id="b")], [Says()], progress=False)
    assert path.read_text() == before and list(tmp_path.iterdir()) == [path]


def test_the_file_needs_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "page.html"
    page = Page(write_page(path, [scenario(map=lane_map())], [Says()], progress=False))
    assert not page.open and page.source.lower().startswith("<!doctype html>")
    assert len(page.code) == 1 and set(page.blocks) == {"index", "scene-0"}
    assert page.references == ["data:,"], "the icon, so that the browser asks for none"
    assert not re.search(r"https?:|\bfetch\(|\bimport\b|XMLHttp|WebSocket", page.code[0])
    style = page.source.split("<style>")[1].split("</style>")[0]
    assert not re.search(r"https?:|@import|url\(", style)


def test_texts_cannot_break_out(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><!--<b>&\"'\u2028/*JS*/<!--DATA-->"
    scene = replace(scenario(), scenario_id=evil, city=evil)
    names = np.array([evil if name == "walker" else name for name in scene.tracks.track_id.tolist()])
    scene = replace(scene, tracks=replace(scene.tracks, track_id=names))
    page = Page(write_page(tmp_path / "page.html", [scene], [Says(evil, walker=evil)], progress=False))
    assert len(page.code) == 1 and not page.open and set(page.blocks) == {"index", "scene-0"}
    assert evil not in page.source and "alert" not in page.code[0]
    index, packed = page.json("index"), page.json("scene-0")
    assert (index["scenes"][0]["id"], index["models"], packed["id"]) == (evil, [evil], evil)
    assert evil in packed["track_id"] and index["scenes"][0]["city"] == evil


def test_two_models_side_by_side(tmp_path: Path) -> None:
    scene = scenario()
    far = forecast(scene).trajectory + 7.0
    models = [Says("one"), Says("two", trajectory=far)]
    page = Page(write_page(tmp_path / "page.html", [scene], models, progress=False))
    index, packed = page.json("index"), page.json("scene-0")
    assert index["models"] == ["one", "two"] and len(packed["models"]) == 2
    found = decode(packed)
    np.testing.assert_array_equal(found["mode1"], found["mode0"] + 700)
    one, two = (
        dict(zip(columns("breakdown"), values, strict=True)) for values in index["scenes"][0]["metrics"]
    )
    assert two["minFDE6"] > one["minFDE6"]


def test_what_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    scene, path = scenario(), tmp_path / "page.html"
    with pytest.raises(DataError, match="none to show"):
        write_page(path, [])
    with pytest.raises(DataError, match="given twice"):
        write_page(path, [scene, scene])
    with pytest.raises(DataError, match="two models at most"):
        write_page(path, [scene], [Says()] * 3)
    assert not path.exists()


def test_a_scene_that_cannot_be_shown_is_told_and_left_out(tmp_path: Path) -> None:
    scenes = [replace(scenario(), scenario_id=name) for name in "abcde"]
    path, failed = tmp_path / "page.html", {}

    class Fails(Says):
        def __call__(self, scenarios: list[Scenario]) -> list[Forecast]:
            if any(one.scenario_id == "d" for one in scenarios):
                raise RuntimeError("no idea")
            far = {"b": 1e9}
            told = super().__call__(scenarios)
            return [replace(x, trajectory=x.trajectory + far.get(x.scenario_id, 0.0)) for x in told]

    def skipped(scene: Scenario, error: Exception) -> None:
        failed[scene.scenario_id] = str(error)

    page = Page(write_page(path, scenes, [Fails()], on_error=skipped, batch_size=3, progress=False))
    assert [line["id"] for line in page.json("index")["scenes"]] == ["a", "c", "e"]
    assert page.json("scene-1")["id"] == "c" and list(failed) == ["b", "d"]
    assert "too far" in failed["b"] and failed["d"] == "no idea"
    with pytest.raises(RuntimeError, match="no idea"):
        write_page(path, scenes[2:], [Fails()], progress=False)
    with pytest.raises(DataError, match="none can be shown"):
        write_page(path, [scenes[3]], [Fails()], on_error=skipped, progress=False)


def test_crowded_scenes_stay_small(sample_scenarios: list[Scenario]) -> None:
    """Twelve of the sixteen are, with about 85 road users."""
    predictor = load_predictor("lane_following")
    chosen = sample_scenarios[::4]
    told = [[Told(predictor([one])[0], Figures())] for one in chosen]
    sizes = [len(to_json(entry(*each).scene)) for each in zip(chosen, told, strict=True)]
    assert max(sizes) < 130_000, sizes


def test_both_themes_name_the_same_colours() -> None:
    light, dark = themes()["light"], themes()["dark"]
    assert light.keys() == dark.keys()
    for name, value in light.items():
        assert type(value) is type(dark[name]) and len(value) == len(dark[name]), name
    used = set(re.findall(r"colors\.(\w+)", "".join((STATIC / name).read_text() for name in SCRIPTS)))
    assert used <= light.keys()


def test_every_script_is_in_the_page_and_short() -> None:
    assert sorted(path.name for path in STATIC.glob("*.js")) == sorted(SCRIPTS)
    assert all(len(path.read_text().splitlines()) < 300 for path in STATIC.iterdir())
