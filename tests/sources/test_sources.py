"""Sources of other packages: the documented example works by name, and faulty ones are reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT, blocks, error_of, install_package, output_of, rejects, run
from trajpred.cli.info import describe
from trajpred.data.registry import load_plugin
from trajpred.sources import SOURCES, Source, find_source
from trajpred.store import ScenarioStore
from trajpred.store.reader import prepare_command, read_manifest

PAGE = ROOT / "docs" / "how-to" / "own-data.md"
MODULE = """
from trajpred.data.registry import register
from trajpred.sources import Source
EMPTY = register("source", "mine")(Source(lambda raw: {}, lambda item: None))
TEXT = "no source"
"""
OPTIONS = """
from dataclasses import dataclass
import numpy as np
from trajpred import Scenario
from trajpred.errors import require
from trajpred.sources import RawScenario, Source

@dataclass(frozen=True)
class Options:
    '''Options.

    Attributes:
        steps: Number of steps.
    '''

    steps: int = 5

    def __post_init__(self):
        require(self.steps > 0, "steps", "must be positive")

def read(raw, options):
    return Scenario.from_arrays(np.zeros((1, options.steps, 2)), num_observed=2, scenario_id=raw.name)

SOURCE = Source(lambda raw, options: {"val": [RawScenario.of(raw / "a")]}, read, options=Options)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of packages on this process's path; what they register is forgotten afterwards."""
    modules = {"good_one": MODULE, "broken_one": "raise RuntimeError('no licence')"}
    modules["leaving"] = "raise SystemExit(3)"
    folder = install_package(tmp_path / "site", "first", modules, "mine = good_one")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(SOURCES, "data", dict(SOURCES))
    monkeypatch.delitem(sys.modules, "good_one", raising=False)
    load_plugin.cache_clear()
    return folder


def raw_folder(folder: Path) -> Path:
    """Write scenarios in the format of the documented example."""
    for split, number in (("train", 0), ("train", 1), ("val", 2)):
        path = folder / split / f"scene-{number}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        track = np.random.default_rng(number).normal(size=(3, 40, 2))
        np.savez(path, position=track, types=["vehicle", "cyclist", "pedestrian"])
    (folder / "train" / "scene-9.npz").write_bytes(b"no archive")
    return folder


def test_the_documented_example_works(tmp_path: Path) -> None:
    [*_, code] = blocks(PAGE, "python")
    [toml] = blocks(PAGE, "toml")
    assert len(code.splitlines()) <= 40
    site = install_package(tmp_path / "site", "my_lab", {}, toml.partition("\n")[2])
    (site / "my_lab").mkdir()
    (site / "my_lab" / "trajectories.py").write_text(code)
    raw = raw_folder(tmp_path / "raw")
    store = tmp_path / "store"
    command = [sys.executable, ROOT / "tools" / "prepare.py", "--source", "my-lab", "--raw", raw]
    command += ["--store", store, "--workers", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "train: 2 scenarios, 1 skipped" in done.stdout
    assert "scene-9.npz" in done.stderr
    assert "1 scenarios were skipped" in done.stderr
    again = subprocess.run([*command, "--allow-skipped"], env=environment, capture_output=True, text=True)
    assert again.returncode == 0
    assert "were skipped" not in again.stderr
    for split, numbers in (("train", (0, 1)), ("val", (2,))):
        for number, scenario in zip(numbers, ScenarioStore(store, split), strict=True):
            expected = np.random.default_rng(number).normal(size=(3, 40, 2))
            assert scenario.scenario_id == f"scene-{number}"
            assert np.abs(scenario.tracks.position - expected).max() < 0.001


def test_registered_sources_are_found(site: Path) -> None:
    assert isinstance(find_source("mine"), Source)
    assert find_source("good_one:EMPTY") is find_source("mine")
    assert find_source("argoverse2") is SOURCES["argoverse2"]
    assert list(SOURCES)[:3] == ["argoverse1", "argoverse2", "argoverse2-sensor"]
    assert find_source("commonroad").facts()["every_s"] == 1.5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other", "unknown source 'other'; known: argoverse1, argoverse2, argoverse2-sensor, "),
        ("absent_module:X", "'absent_module:X' cannot be loaded (ModuleNotFoundError: No module named 'abs"),
        ("broken_one:X", "'broken_one:X' cannot be loaded (RuntimeError: no licence)"),
        ("leaving:X", "'leaving:X' cannot be loaded (SystemExit: 3)"),
        ("good_one:ABSENT", "'good_one:ABSENT' cannot be loaded (AttributeError"),
        ("good_one:TEXT", "'good_one:TEXT' is not a trajpred.sources.Source"),
        ("a b:c", "cannot be loaded"),
    ],
)
def test_faulty_sources_are_reported_when_requested(site: Path, name: str, message: str) -> None:
    caught = rejects("", find_source, name)
    assert caught.field == "source"
    assert message in str(caught)


def test_options_of_a_source_are_options_of_prepare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of another package: they are in its help, checked, recorded, and noticed when they differ."""
    (tmp_path / "my_lab_options.py").write_text(OPTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "a").touch()
    source = ["--source", "my_lab_options:SOURCE"]
    assert "--steps INT" in (page := output_of(capsys, "prepare", *source, "--help"))
    assert "Number of steps." in page
    command = [*source, "--raw", raw, "--store", tmp_path / "store", "--workers", 1]
    assert run("prepare", *command, "--steps", 7) == 0
    rows = ScenarioStore(tmp_path / "store", "val")
    assert rows[0].num_steps == 7
    assert describe(str(tmp_path / "store"))[1]["steps"] == 7
    assert "--steps 7" in prepare_command(tmp_path / "store", read_manifest(tmp_path / "store"))
    assert run("prepare", *command, "--steps", 9) == 0
    assert ScenarioStore(tmp_path / "store", "val")[0].num_steps == 9
    assert error_of(capsys, "prepare", *command, "--steps", 0) == "error: --steps: must be positive"
