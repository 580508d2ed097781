"""visualize: formats, where scenarios come from, which are chosen, and how their files are named."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from tests.conftest import SAMPLE, error_of, output_of, run
from tests.store.scenarios import made
from trajpred.cli.scenarios import choose
from trajpred.cli.training_report import _advise
from trajpred.cli.visualize import file_stems
from trajpred.data.scenario import Scenario
from trajpred.data.splits import half_of
from trajpred.errors import DataError
from trajpred.evaluation.results import listing
from trajpred.sources import SOURCES, RawScenario, Source
from trajpred.sources.argoverse2 import discover
from trajpred.sources.windows import Windows
from trajpred.store import ScenarioStore

VAL = [one.name for one in discover(SAMPLE)["val"]]


def picture(folder: Path, *args: object, scenario: str = VAL[0]) -> Any:
    """Draw one scenario into a folder and read the picture."""
    assert run("visualize", *args, "--scenario", scenario, "--out", folder) == 0
    return imread(folder / f"{scenario}.png")


def test_commands_without_a_half_read_the_deciding_one(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that a training prints draws the half that it validated on; ``calibrate`` fits to it."""
    rows = ScenarioStore(store, "val").halved("deciding")
    _advise(rows, Path("constant_velocity"), tmp_path)
    [line] = re.findall(r"^ +trajpred visualize (.*)", capsys.readouterr().out, re.MULTILINE)
    assert run("visualize", *shlex.split(line)) == 0
    drawn = [path.stem for path in (tmp_path / "pictures").iterdir()]
    assert sorted(drawn) == sorted(name for name in VAL if half_of(name) == "deciding")
    assert 0 < len(drawn) < len(VAL)
    error = error_of(capsys, "visualize", "--store", store, "--half", "deciding", "--scenario", VAL[0])
    assert "--half: selects from a split of a store" in error

    used: list[str] = []

    def fit(checkpoint: str, rows: ScenarioStore, *_: object) -> None:
        used.append(listing(rows.split, rows.half))
        raise DataError("seen")

    monkeypatch.setattr("trajpred.evaluation.calibrate.calibrate", fit)
    for options in ([], ["--half", "reporting"], ["--split", "train"]):
        assert run("calibrate", "--store", store, "--out", tmp_path / "x.ckpt", *options) == 2
    assert used == ["val, deciding", "val, reporting", "train"]


def test_pictures_show_what_is_asked_for(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "predictions.parquet"
    assert run("predict", "--checkpoint", "lane_following", "--store", store, "--out", file) == 0
    at = ["--store", store]
    constant = [*at, "--checkpoint", "constant_velocity"]
    drawn = {
        "alone": picture(tmp_path / "alone", *at),
        "raw": picture(tmp_path / "raw", "--raw", SAMPLE),
        "file": picture(tmp_path / "file", *at, "--checkpoint", file),
        "dark": picture(tmp_path / "dark", *constant, "--show", "joint", "--theme", "dark"),
        "without": picture(tmp_path / "without", *constant, "--without", "nearest"),
    }
    assert np.abs(drawn["alone"] - drawn["raw"]).mean() < 1e-3
    assert drawn["dark"][0, 0, :3].max() < 0.2
    names = ["alone", "file", "dark", "without"]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[:i]]
    assert all((drawn[a] != drawn[b]).any() for a, b in pairs)


def test_a_missing_film_encoder_is_reported_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    error = error_of(capsys, "visualize", "--out", tmp_path / "films.mp4")
    assert "pip install 'imageio-ffmpeg" in error
    assert not list(tmp_path.iterdir())


def test_the_worst_of_an_evaluation_are_drawn(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.json"
    models = ["--checkpoint", "constant_velocity", "--against", "lane_following"]
    output_of(capsys, "evaluate", "--store", store, *models, "--out", results)
    found = {one["predictor"]: one["per_scenario"]["focal"] for one in json.loads(results.read_text())}
    for asked, limit in (("lane_following", 2), (None, 1)):
        scores = found[asked or "constant_velocity"]
        ranked = sorted(zip(scores["minFDE6"], scores["scenario_id"], strict=True), reverse=True)[:limit]
        options = ["--scenario", results, "--limit", limit, "--out", tmp_path]
        options += ["--checkpoint", asked] if asked else []
        caption, *paths = output_of(capsys, "visualize", "--store", store, *options).splitlines()
        assert [Path(path).stem for path in paths] == [name for _, name in ranked]
        assert caption.endswith("by minFDE6: " + " to ".join(f"{score:.2f}" for score, _ in ranked))


def test_unreadable_scenarios_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, out, page = tmp_path / "raw", tmp_path / "out", tmp_path / "page.html"
    for name in VAL[:2]:
        shutil.copytree(SAMPLE / "val" / name, raw / "val" / name)
    (raw / "val" / VAL[1] / f"scenario_{VAL[1]}.parquet").write_bytes(b"PAR1 no more")
    assert run("visualize", "--raw", raw, "--out", out) == 1
    assert [path.stem for path in out.iterdir()] == [VAL[0]]
    [error] = capsys.readouterr().err.splitlines()
    assert error.startswith(f"{VAL[1]}: skipped: ")
    assert "parquet" in error
    assert run("visualize", "--raw", raw, "--out", page) == 1
    assert VAL[0] in page.read_text()
    assert VAL[1] not in page.read_text()
    unknown = ["--checkpoint", "constant_velocity", "--without", "x", "--limit", 1]
    assert run("visualize", "--raw", raw, "--out", out, *unknown) == 1
    assert "'x' is not in scenario" in capsys.readouterr().err


def test_code_for_scripts_reads_what_was_chosen(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(one: RawScenario, options: Windows) -> Scenario:
        return made(scenario_id=f"{one.name} {one.part} {options.every_s}")

    listed = {"val": [RawScenario("a", SAMPLE, ("recording", 3))]}
    monkeypatch.setitem(SOURCES, "made", Source(lambda *_: listed, read, options=Windows))
    found = [
        *choose(store, None, "val", [], 2),
        *choose(SAMPLE, "argoverse2", "val", [], 1),
        *choose(SAMPLE, "made", "val", [], 1, Windows(every_s=0.5)),
    ]
    for choice in found:
        imports, reading = choice.code
        assert "cli" not in imports
        assert "*" not in imports
        names: dict[str, Any] = {}
        exec(imports, names)
        scenario = eval(reading, names)
        assert scenario.scenario_id == choice.read().scenario_id
        np.testing.assert_array_equal(scenario.tracks.position, choice.read().tracks.position)
    assert len(found) == 4


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_raw_scenarios_with_dots_in_their_names_are_told_apart(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["log.0", "log.1", "log.2"]
    listed = []
    for name in names:
        path = tmp_path / (name if kind == "folder" else f"{name}.csv")
        path.mkdir() if kind == "folder" else path.touch()
        listed.append(RawScenario.of(path))
    source = Source(lambda _: {"val": listed}, lambda one: made(scenario_id=one.path.name))
    monkeypatch.setitem(SOURCES, "made", source)
    for chosen in ([], names):
        found = choose(tmp_path, "made", "val", chosen, 10)
        assert [one.name for one in found] == names
        assert [one.read().scenario_id for one in found] == [one.path.name for one in listed]


def test_ids_become_distinct_file_names_on_every_system() -> None:
    wild = ["../x", "a:b?", "..", "", "a\\b", "line\nbreak", "é" * 300, "dot.", "städte 7"]
    found = file_stems(wild)
    for stem in found:
        assert re.fullmatch(r"[\w-][\w.-]*", stem)
        assert len(stem.encode()) <= 200
        assert not stem.endswith(".")
    assert found[:2] == ["_x", "a_b_"]
    assert found[-1] == "städte_7"
    assert file_stems([*VAL, "12345", "0012.5-x"]) == [*VAL, "12345", "0012.5-x"]
    assert file_stems(["a:b", "a?b", "A_B", "a_b-2", "c"]) == ["a_b", "a_b-2", "A_B-3", "a_b-2-2", "c"]


def test_out_is_a_file_or_of_several_scenarios_a_folder(store: Path, tmp_path: Path) -> None:
    for name in ("scene.PNG", "scene.pdf", "scene.svg", "scene.MCAP", "page.html"):
        assert run("visualize", "--store", store, "--limit", 1, "--out", tmp_path / "new" / name) == 0
        assert (tmp_path / "new" / name).is_file()
    assert run("visualize", "--store", store, "--limit", 2, "--out", tmp_path / "several.svg") == 0
    assert sorted(path.name for path in (tmp_path / "several").iterdir()) == [
        f"{name}.svg" for name in VAL[:2]
    ]
