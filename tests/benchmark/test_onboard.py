"""The onboard benchmark: what it measures, and its process without torch."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import run
from trajpred.benchmark import onboard
from trajpred.benchmark.onboard import CROWDED, MANY, _process, _processes, _size_mb, with_duplicates
from trajpred.onboard.bundle import Bundle
from trajpred.scenario import Scenario


def test_distant_agents_are_duplicated_beside_themselves(sample_scenarios: list[Scenario]) -> None:
    crowded = next(one for one in sample_scenarios if one.scenario_id == CROWDED)
    now = crowded.num_observed - 1
    scene = with_duplicates(crowded, MANY).validate()
    recent = scene.tracks.valid[:, now - 10 : now + 1].any(axis=1).sum()
    assert recent == MANY > crowded.tracks.valid[:, now].sum()
    copies = np.arange(len(crowded.tracks), len(scene.tracks))
    originals = [scene.tracks.index(scene.tracks.track_id[row].removesuffix(", duplicate")) for row in copies]
    assert (scene.tracks.position[copies, now] - scene.tracks.position[originals, now] == 3.0).all()
    assert scene.focal not in originals
    assert with_duplicates(crowded, 1).tracks.track_id.tolist() == crowded.tracks.track_id.tolist()


@pytest.mark.slow
def test_processes_and_sizes(
    bundle: Path, sample_scenarios: list[Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, file = min(sample_scenarios, key=lambda one: len(one.tracks)), tmp_path / "scenario"
    file.write_bytes(pickle.dumps(scene))
    wall, cpu, early, late = _process(bundle, 1, file, [2, 5], 1)
    assert wall > 0 < cpu and 30 < early < 300 and 30 < late < 300
    silent = onboard._PROCESS.replace("_repeat, resident_mb", "_repeat\nresident_mb = lambda: None")
    monkeypatch.setattr(onboard, "_PROCESS", silent)
    assert set(_processes(bundle, 1, 20, {"native": scene})) == {"start-up, wall s", "start-up, CPU s"}
    graphs = [path.stat().st_size for path in bundle.glob("*.onnx") if path.stem != "forecaster"]
    loaded = Bundle(bundle)
    size_mb = _size_mb(loaded)
    assert sum(graphs) < size_mb * 1e6 < sum(path.stat().st_size for path in bundle.iterdir())
    loaded.info["files"]["forecaster.pt2"] = {"bytes": 10**9}
    assert _size_mb(loaded) == size_mb


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--bundle", "nowhere"], "make one with trajpred export"),
        (["--repeats", "0"], "must be positive"),
        (["--updates", "10"], "must be 1000 at least"),
    ],
)
def test_mistakes_get_one_sentence(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("benchmark", "onboard", *args) == 2
    assert message in capsys.readouterr().err
