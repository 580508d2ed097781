"""The page contains what scenario, forecast and evaluation contain, and is one file, complete or absent."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from av2.datasets.motion_forecasting.eval.metrics import compute_fde

from tests.conftest import ROOT, rejects
from tests.scenes import hidden
from tests.viz.scenes import OBSERVED, make_forecast, make_map, make_scenario, with_scales
from trajpred.data.forecast import Attention, Forecast
from trajpred.data.geometry import wrap_angle
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import TrackCategory
from trajpred.evaluation import evaluate
from trajpred.evaluation.table import members
from trajpred.metrics import final_error
from trajpred.predictors import Predictor, load_predictor
from trajpred.predictors.derived import StreamedPredictor
from trajpred.predictors.perturbations import road_users, without
from trajpred.store import ScenarioStore, ensure_store
from trajpred.viz.forecast_layer import lateral_band
from trajpred.viz.page import SCRIPTS, write_page
from trajpred.viz.page.data import (
    HEAD_SHARE,
    PAINTS,
    SHARE,
    ModelResult,
    focal_facts,
    pack_attention,
    pack_map,
    pack_scene,
)
from trajpred.viz.style import TINTS
from trajpred.viz.view import focal_position


class Page:
    """What a browser finds in the file: data blocks, code, and references to other files."""

    def __init__(self, path: Path) -> None:
        self.source = path.read_text(encoding="utf-8")
        scripts = re.findall(r"<script([^>]*)>(.*?)</script>", self.source, re.DOTALL)
        self.code = [text for kind, text in scripts if not kind]
        self.blocks = {kind.split('"')[3]: text for kind, text in scripts if kind}
        tags = re.findall(r"<[a-z][^>]*>", re.sub(r"(?s)<(script|style).*?</\1>", "", self.source))
        self.references = re.findall(r'\b(?:src|href|action|data)="([^"]*)"', "".join(tags))
        assert len(re.findall("<script", self.source)) == len(scripts) == self.source.count("</script")

    @property
    def index(self) -> Any:
        return json.loads(self.blocks["index"])

    def scene(self, number: int) -> Any:
        return json.loads(gzip.decompress(base64.b64decode(json.loads(self.blocks[f"scene-{number}"]))))


class FixedPredictor(Predictor):
    """Predicts the same modes for every scenario."""

    def __init__(self, name: str = "fixed", walker: str = "walker", **changes: Any) -> None:
        self.name, self.tracks, self.changes = name, ("car", walker), changes

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        return [replace(make_forecast(one, self.tracks), **self.changes) for one in scenarios]


def write(path: Path, scenes: list[Scenario], *predictors: Any, **options: Any) -> Page:
    return Page(write_page(path, scenes, predictors, **options))


def points(packed: dict[str, Any]) -> np.ndarray:
    """Coordinates ``[..., P, 2]`` in centimetres."""
    return np.stack([np.cumsum(packed[axis], axis=-1) for axis in "xy"], axis=-1)


def test_states_and_modes_are_exact_to_the_centimetre() -> None:
    scene = make_scenario(map=make_map())
    forecast, tracks, origin = with_scales(make_forecast(scene)), scene.tracks, focal_position(scene)
    packed = pack_scene(scene, [ModelResult(forecast)])
    valid = tracks.valid
    np.testing.assert_array_equal([list(row) for row in packed["valid"]], np.where(valid, "1", "0"))
    np.testing.assert_array_equal(points(packed)[valid], np.rint((tracks.position - origin)[valid] * 100))
    heading = np.cumsum(packed["heading"], axis=-1) / 1000
    assert np.abs(wrap_angle(heading - tracks.heading)[valid]).max() <= 0.0005 + 1e-9
    speed = np.hypot(*tracks.velocity[valid].T)
    np.testing.assert_array_equal(np.cumsum(packed["speed"], axis=-1)[valid], np.rint(speed * 100))
    [model] = packed["models"]
    np.testing.assert_array_equal(points(model), np.rint((forecast.trajectory - origin) * 100))
    band = np.rint(lateral_band(scene, forecast) * 100)
    np.testing.assert_array_equal(np.cumsum(model["band"], axis=-1), band)
    assert [packed["track_id"][row] for row in model["tracks"]] == forecast.track_id.tolist()
    np.testing.assert_array_equal(model["probability"], forecast.probability)


def test_map_is_the_scenarios() -> None:
    scene = make_scenario(map=make_map())
    lanes, origin = scene.map, focal_position(scene)
    packed = pack_map(lanes, origin)
    middle = np.rint((lanes.centerline.values - origin) * 100)
    np.testing.assert_array_equal(np.concatenate([points(line) for line in packed["centerline"]]), middle)
    assert [one["tint"] for one in packed["tint"]] == [TINTS.index("INTERSECTION")]
    # The dashed white line that both lanes share, and both lines of a double yellow one.
    strokes = sorted((one["paint"], one["dashed"]) for one in packed["stroke"])
    assert strokes == [(PAINTS.index("WHITE"), 1), *[(PAINTS.index("YELLOW"), 0)] * 2]
    assert [arrow[3] for arrow in packed["arrow"]] == [12000, 12000]
    assert abs(packed["arrow"][0][2]) < 2
    for polygon in (*packed["ground"], *packed["bar"], *packed["tint"], *packed["crossing"]):
        x, y = points(polygon).T
        assert x @ np.roll(y, -1) - y @ np.roll(x, -1) > 0, "counter-clockwise"


def test_numbers_are_those_of_evaluate(tmp_path: Path) -> None:
    """In the list and of every agent in the scene, with each mode's error at the end."""
    store, predictor = ScenarioStore(ensure_store(), "val"), load_predictor("lane_following")
    page = write(tmp_path / "page.html", list(store), predictor)
    evaluation = evaluate(predictor, store, progress=False)
    known, index = evaluation.per_scenario["focal"].to_pydict(), page.index
    assert [entry["id"] for entry in index["scenes"]] == known["scenario_id"] == store.scenario_ids
    assert index["models"] == ["lane_following"]
    for i, name in enumerate(index["metrics"]):
        assert [entry["metrics"][0][i] for entry in index["scenes"]] == known[name], name
    for fact in index["facts"]:
        values = [entry[fact] for entry in index["scenes"]]
        assert members(evaluation.agents, "focal")[fact].to_pylist() == values
    scene, packed = store[0], page.scene(0)
    model, [forecast] = packed["models"][0], predictor([scene])
    row = model["tracks"].index(packed["focal"])
    target = torch.from_numpy(scene.tracks.position[[scene.focal], scene.num_observed :])
    valid = torch.ones(target.shape[:2], dtype=torch.bool)
    errors = final_error(torch.from_numpy(forecast.trajectory[[row]]), target, valid)
    assert model["end_error"][row] == pytest.approx(errors[0].tolist(), abs=0.006)
    assert model["metrics"][row] == index["scenes"][0]["metrics"][0]


def test_a_stream_is_what_was_predicted_at_each_update(real_scene: Scenario, tmp_path: Path) -> None:
    """Errors are av2's; only the focal and the scored tracks have earlier forecasts."""
    model = load_predictor("lane_following")
    page = write(tmp_path / "page.html", [real_scene], StreamedPredictor(model, 0.5, 3))
    packed, tracks, now = page.scene(0), real_scene.tracks, real_scene.num_observed - 1
    stream, focal = packed["models"][0]["stream"], packed["focal"]
    assert page.index["streams"]
    assert stream["step"] == [now - 10, now - 5, now]
    for u, back in enumerate((10, 5)):
        earlier, [forecast] = stream["earlier"][u], model([real_scene.window(later=-back)])
        assert {packed["role"][track] for track in earlier["tracks"]} == {"FOCAL", "SCORED"}
        path = forecast.trajectory[forecast.rows(np.array([real_scene.focal_id]))[0]]
        row = earlier["tracks"].index(focal)
        found = np.cumsum([earlier["x"][row], earlier["y"][row]], axis=-1) / 100
        np.testing.assert_allclose(np.moveaxis(found, 0, -1) + focal_position(real_scene), path, atol=0.0051)
        truth = tracks.position[focal, now - back + 1 : now - back + 61]
        error = compute_fde(path, truth).min()
        assert stream["scores"]["minFDE6"][focal][u] == pytest.approx(error, abs=0.006)
    first = [scores[0] for scores in stream["scores"]["mode displacement"]]
    assert first == [None] * len(tracks), "nothing was predicted before"
    assert packed["models"][0]["steps"] == 60
    assert model([real_scene])[0].trajectory.shape[2] == 60


def test_missing_futures_maps_and_last_states(tmp_path: Path) -> None:
    scene = make_scenario(OBSERVED)
    page = write(tmp_path / "page.html", [scene], FixedPredictor())
    [entry], [model] = page.index["scenes"], page.scene(0)["models"]
    assert entry["metrics"] == [None]
    assert (entry["manoeuvre"], entry["class"]) == ("unknown", "vehicle")
    assert model["end_error"] == [[None] * 6] * 2
    assert page.scene(0)["map"]["ground"] == []
    scene = make_scenario()
    lost = hidden(scene, (scene.focal, OBSERVED - 1))  # not scored, and without a manoeuvre
    assert focal_facts(scene)["manoeuvre"] != focal_facts(lost)["manoeuvre"] == "unknown"


def test_attention_is_the_models(real_scene: Scenario, attention: Attention) -> None:
    packed = pack_attention(real_scene, attention)
    receiver = np.array(packed["receiver"])
    sender = np.array(packed["sender"])
    share = np.array(packed["share"])
    heads = np.array(packed["heads"])
    A = len(attention.track_id)
    T = len(real_scene.tracks)
    senders = [*(real_scene.tracks.index(name) for name in attention.track_id), *(T + attention.lane)]
    for name in attention.track_id[:: max(1, A // 8)].tolist():
        edges = np.flatnonzero(receiver == real_scene.tracks.index(name))
        stored, expected = np.zeros(max(senders) + 1), np.zeros(max(senders) + 1)
        stored[sender[edges]] = share[edges] * SHARE
        expected[senders] = attention.shares(name)
        assert np.abs(stored - expected).max() <= SHARE / 2 + 1e-6
    scored = real_scene.tracks.category >= TrackCategory.SCORED
    assert scored[receiver[: len(heads)]].all()
    assert not scored[receiver[len(heads) :]].any()
    assert np.abs(heads.mean(axis=1) * HEAD_SHARE - share[: len(heads)] * SHARE).max() < HEAD_SHARE


def test_page_has_both_forecasts_of_a_what_if(real_scene: Scenario, model: Predictor, tmp_path: Path) -> None:
    page = write(tmp_path / "a.html", [real_scene], model, without=["nearest"])
    packed, removed = page.scene(0), road_users(real_scene, ["nearest"])
    assert [packed["track_id"][row] for row in packed["removed"]] == removed
    assert page.index["removes"]
    assert page.index["heads"] == [[2, 2]]
    assert len(page.source) < 300_000
    [other], [original] = model([without(real_scene, removed)]), model([real_scene])
    [stored] = packed["without"]
    expected = other.trajectory - focal_position(real_scene)
    np.testing.assert_allclose(points(stored) * 0.01, expected, atol=0.0051)
    assert real_scene.tracks.index(removed[0]) not in stored["tracks"]
    means = [
        (one.probability[row, :, None] * one.trajectory[row, :, -1]).sum(0)
        for one in (original, other)
        for row in one.rows(np.array([real_scene.focal_id]))
    ]
    shift = stored["shift_m"][stored["tracks"].index(real_scene.focal)]
    assert shift == pytest.approx(np.hypot(*(means[1] - means[0])), abs=0.006)


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
        rejects(match, write, path, scenes, *predictors, **options)
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
    rejects("none can be displayed", lambda: write(path, [scenes[3]], Fails(), on_error=on_error))
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]
