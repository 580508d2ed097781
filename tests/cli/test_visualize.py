"""tools/visualize.py as a user runs it: formats, where scenarios come from, and which are chosen."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from matplotlib.image import imread
from PIL import Image

from tests.cli.test_cli import run
from tests.conftest import SAMPLE
from trajpred.cli import choose
from trajpred.cli.choose import Choice, file_stems
from trajpred.cli.visualize import visualize
from trajpred.scenario import Scenario
from trajpred.sources.argoverse2 import discover
from trajpred.viz.page.pack import pack_scene

VAL = [path.name for path in discover(SAMPLE)["val"]]
#: The only one of the sample's test split; it has no future.
FUTURELESS = "0a0af725-fbc3-41de-b969-3be718f694e2"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    assert run("prepare", "--raw", SAMPLE, "--store", folder, "--workers", 1) == 0
    return folder


@pytest.fixture(scope="module")
def results(store: Path) -> Path:
    """Evaluations of constant_velocity and of lane_following, in this order."""
    path = store.parent / f"{store.name}.json"
    models = ["--checkpoint", "constant_velocity", "--against", "lane_following"]
    assert run("evaluate", "--store", store, *models, "--json", path) == 0
    return path


def drawn(folder: Path) -> set[str]:
    return {path.stem for path in folder.iterdir()}


def test_a_gif_of_each_scenario(store: Path, tmp_path: Path) -> None:
    given = ["--store", store, "--scenario", FUTURELESS, "--checkpoint", "constant_velocity"]
    assert run("visualize", *given, "--format", "gif", "--out", tmp_path) == 0
    with Image.open(tmp_path / f"{FUTURELESS}.gif") as film:
        assert film.n_frames >= 50 + 10 and min(film.size) > 500
    assert (tmp_path / f"{FUTURELESS}.gif").stat().st_size < 2e6


def test_a_film_that_needs_an_encoder_says_so_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run("visualize", "--format", "mp4", "--out", tmp_path / "films") == 2
    assert 'pip install "trajpred[film]"' in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_predictions_file_is_drawn_as_the_model_that_wrote_it(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "predictions.parquet"
    assert run("predict", "--checkpoint", "lane_following", "--store", store, "--out", file) == 0
    given = ["--store", store, "--scenario", VAL[0]]
    for name, checkpoint in (("file", file), ("model", "lane_following")):
        assert run("visualize", *given, "--checkpoint", checkpoint, "--out", tmp_path / name) == 0
    # A predictions file has the focal agent's futures alone: the others' are what differs.
    assert run("visualize", *given, "--out", tmp_path / "none") == 0
    file_, none = (imread(tmp_path / name / f"{VAL[0]}.png") for name in ("file", "none"))
    assert (file_ != none).any()
    for kind, start in (("pdf", b"%PDF"), ("svg", b"<?xml")):
        given += ["--format", kind, "--checkpoint", file, "--out", tmp_path / kind]
        assert run("visualize", *given) == 0
        assert (tmp_path / kind / f"{VAL[0]}.{kind}").read_bytes().startswith(start)
    assert 'id="focal-modes"' in (tmp_path / "svg" / f"{VAL[0]}.svg").read_text()


def test_raw_scenarios_are_drawn_without_a_store(store: Path, tmp_path: Path) -> None:
    some, one = tmp_path / "some", tmp_path / "one"
    assert run("visualize", "--raw", SAMPLE, "--limit", 2, "--out", some) == 0
    assert drawn(some) == set(VAL[:2])
    assert run("visualize", "--raw", SAMPLE / "val" / VAL[2], "--out", one) == 0
    assert run("visualize", "--raw", SAMPLE, "--scenario", FUTURELESS, "--out", one) == 0
    assert drawn(one) == {VAL[2], FUTURELESS}
    stored = tmp_path / "stored"
    assert run("visualize", "--store", store, "--scenario", VAL[2], "--out", stored) == 0
    a, b = (imread(folder / f"{VAL[2]}.png") for folder in (one, stored))
    assert np.abs(a - b).mean() < 1e-3, "the picture of the prepared scenario"


def test_other_sources_and_single_files(tmp_path: Path) -> None:
    raw = SAMPLE.parents[1] / "argoverse1"
    assert run("visualize", "--raw", raw, "--source", "argoverse1", "--limit", 1, "--out", tmp_path) == 0
    assert len(drawn(tmp_path)) == 1


@pytest.mark.parametrize("by", ["minFDE6", "minADE6"])
@pytest.mark.parametrize("asked", ["constant_velocity", "lane_following", None])
def test_the_worst_of_an_evaluation(
    store: Path, results: Path, tmp_path: Path, by: str, asked: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {one["predictor"]: one["per_scenario"] for one in json.loads(results.read_text())}
    scores = found[asked or "constant_velocity"]
    ranked = sorted(zip(scores[by], scores["scenario_id"], strict=True), reverse=True)[:2]
    models = ["--checkpoint", asked] if asked else []
    given = [
        "--store",
        store,
        "--worst",
        results,
        "--by",
        by,
        "--limit",
        2,
        "--out",
        tmp_path,
        "--radius_m",
        30,
    ]
    assert run("visualize", *given, *models) == 0
    told, *paths = capsys.readouterr().out.splitlines()
    assert [Path(path).stem for path in paths] == [name for _, name in ranked]
    assert told.startswith(f"the 2 worst of {asked or 'constant_velocity'} (val) by {by}: {ranked[0][0]:.2f}")


def test_one_bad_scenario_stops_no_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    for name in VAL[:3]:
        shutil.copytree(SAMPLE / "val" / name, raw / "val" / name)
    (raw / "val" / VAL[1] / f"scenario_{VAL[1]}.parquet").write_bytes(b"PAR1 no more")
    assert run("visualize", "--raw", raw, "--out", out) == 1
    assert drawn(out) == {VAL[0], VAL[2]}
    said = capsys.readouterr().err
    assert said.startswith(f"{VAL[1]}: skipped: ") and "parquet" in said and "Traceback" not in said
    page = tmp_path / "page.html"
    assert run("visualize", "--raw", raw, "--format", "html", "--out", page) == 1
    assert VAL[0] in page.read_text() and VAL[1] not in page.read_text()


def test_a_scenario_that_the_page_cannot_hold_stops_no_others(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trajpred.viz.page import write

    def pack(scene: Scenario, *args: Any) -> dict[str, Any]:
        if scene.scenario_id == VAL[1]:
            raise ValueError("no room")
        return pack_scene(scene, *args)

    monkeypatch.setattr(write, "pack_scene", pack)
    page = tmp_path / "page.html"
    given = ["--store", store, "--checkpoint", "constant_velocity", "--limit", 3]
    assert run("visualize", *given, "--format", "html", "--out", page) == 1
    assert all((name in page.read_text()) == (name != VAL[1]) for name in VAL[:3])
    said = capsys.readouterr().err
    assert f"{VAL[1]}: skipped: ValueError: no room" in said and "Traceback" not in said


def test_ids_make_safe_file_names() -> None:
    wild = ["../x", "a:b?", "..", "", "nul", "COM1.log", "a\\b", "line\nbreak", "é" * 300, "dot.", "städte 7"]
    stems = file_stems(wild)
    for stem in stems:
        assert re.fullmatch(r"[\w-][\w.-]*", stem) and len(stem.encode()) <= 200
        assert stem.split(".")[0].lower() not in ("nul", "com1") and not stem.endswith(".")
    assert stems[:2] == ["_x", "a_b_"] and stems[-1] == "städte_7"
    argoverse = [*VAL, "12345", "0012.5-x"]
    assert file_stems(argoverse) == argoverse, "kept"


def test_ids_of_the_same_file_name_get_a_number() -> None:
    stems = file_stems(["a:b", "a?b", "A_B", "a_b-2", "c"])
    assert stems == ["a_b", "a_b-2", "A_B-3", "a_b-2-2", "c"], "also where files know no case"


@pytest.mark.parametrize("kind", ["png", "gif"])
def test_pictures_stay_in_their_folder_whatever_the_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Literal["png", "gif"]
) -> None:
    scene = Scenario.from_arrays(np.zeros((1, 12, 2)), num_observed=10)
    wild = [Choice(name, lambda: scene) for name in ("../x", ":x", "?x")]
    monkeypatch.setattr(choose, "from_store", lambda *_: wild)
    assert visualize(out=tmp_path / "out", format=kind) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert drawn(tmp_path / "out") == {"_x", "_x-2", "_x-3"}


def test_without_a_road_user(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--store", store, "--scenario", VAL[1], "--checkpoint", "argoverse2-demo", "--out"]
    assert run("visualize", *given, tmp_path / "seen") == 0
    assert run("visualize", *given, tmp_path / "unseen", "--without", "nearest") == 0
    a, b = (imread(tmp_path / name / f"{VAL[1]}.png") for name in ("seen", "unseen"))
    assert a.shape == b.shape and (a != b).any()
    capsys.readouterr()
    assert run("visualize", *given, tmp_path, "--without", "AV", "nobody") == 1
    assert "'nobody' is not in scenario" in capsys.readouterr().err


def test_a_world_of_a_forecast_that_has_some(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--store", store, "--scenario", FUTURELESS, "--out", tmp_path, "--world", 0, "--theme", "dark"]
    assert run("visualize", *given, "--checkpoint", "constant_velocity") == 0
    assert imread(tmp_path / f"{FUTURELESS}.png")[0, 0, :3].max() < 0.2, "on dark paper"
    assert run("visualize", *given, "--checkpoint", "argoverse2-demo") == 2
    assert "has no joint modes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--raw", "nowhere"], "no such file or folder"),
        (["--raw", str(SAMPLE.parent / "README.md")], "skipped"),
        (["--raw", str(SAMPLE.parent)], "nor is it one scenario"),
        (["--raw", str(SAMPLE), "--split", "training"], "has no split 'training', only"),
        (["--raw", str(SAMPLE), "--scenario", "0012"], "no split holds scenario '0012'"),
        (["--worst", "RESULTS", "--scenario", "0012"], "name none"),
        (["--worst", str(SAMPLE.parent / "README.md")], "is no result of tools/evaluate.py"),
        (["--worst", "RESULTS", "--by", "speed"], "does not tell speed"),
        (["--without", "AV"], "needs --checkpoint"),
        (["--format", "gif", "--checkpoint", "constant_velocity", "--without", "AV"], "is for pictures"),
        (["--checkpoint", "constant_velocity", "--world", "0", "--without", "AV"], "together with --without"),
        (["--format", "html", "--theme", "dark"], "is for pictures"),
        (["--format", "html", "--checkpoint", "constant_velocity", "--world", "0"], "is for pictures"),
    ],
)
def test_bad_arguments_get_one_sentence(
    store: Path, results: Path, tmp_path: Path, args: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [str(results) if arg == "RESULTS" else arg for arg in args]
    assert run("visualize", "--store", store, "--out", tmp_path / "out", *args) in (1, 2)
    said = capsys.readouterr().err
    assert says in said and "Traceback" not in said and len(said.splitlines()) == 1
