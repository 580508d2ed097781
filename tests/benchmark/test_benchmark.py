"""The onboard benchmark: what it measures on, and the process that must not need torch."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import run
from trajpred.benchmark import onboard
from trajpred.benchmark.onboard import _PROCESS, CROWDED, WIDE, _process, _processes, _size_mb, widened
from trajpred.onboard.bundle import Bundle
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.scenario import Scenario
from trajpred.scenario_batch import ScenarioBatch


def test_a_widened_scene_has_doubles_of_those_far_away(
    forecaster: OnboardForecaster, sample_scenarios: list[Scenario]
) -> None:
    crowded = next(one for one in sample_scenarios if one.scenario_id == CROWDED)
    wide, now = widened(crowded, WIDE).validate(), crowded.num_observed - 1
    predicted = forecaster.forecast(ScenarioBatch.of([wide]))
    assert len(predicted.track_id) == WIDE > crowded.tracks.valid[:, now].sum()
    doubles = np.arange(len(crowded.tracks), len(wide.tracks))
    originals = [wide.tracks.index(wide.tracks.track_id[row].removesuffix(", double")) for row in doubles]
    apart = wide.tracks.position[doubles, now] - wide.tracks.position[originals, now]
    assert (apart == 3.0).all() and wide.focal not in originals
    assert widened(crowded, 1).tracks.track_id.tolist() == crowded.tracks.track_id.tolist()


def test_start_and_memory_of_a_process_without_torch(
    bundle: Path, sample_scenarios: list[Scenario], tmp_path: Path
) -> None:
    file = tmp_path / "scenario"
    file.write_bytes(pickle.dumps(min(sample_scenarios, key=lambda one: len(one.tracks))))
    wall, cpu, early, late = _process(bundle, 1, file, [2, 5], 1)
    assert wall > 0 < cpu and 30 < early < 300 and 30 < late < 300


def test_where_the_system_does_not_tell_memory_is_left_out(
    bundle: Path, sample_scenarios: list[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = min(sample_scenarios, key=lambda one: len(one.tracks))
    silent = _PROCESS.replace(
        "import drive_on_repeat, resident_mb", "import drive_on_repeat\nresident_mb = lambda: None"
    )
    monkeypatch.setattr(onboard, "_PROCESS", silent)
    figures = _processes(bundle, 1, 20, {"native": scene})
    assert set(figures) == {"start-up, wall s", "start-up, CPU s"}


def test_copies_do_not_count(bundle: Path) -> None:
    """The fused graph and the compiled one."""
    graphs = [path.stat().st_size for path in bundle.glob("*.onnx") if path.stem != "forecaster"]
    loaded = Bundle(bundle)
    size_mb = _size_mb(loaded)
    assert sum(graphs) < size_mb * 1e6 < sum(x.stat().st_size for x in bundle.iterdir())
    loaded.info["files"]["forecaster.pt2"] = {"bytes": 10**9}
    assert _size_mb(loaded) == size_mb


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--bundle", "nowhere"], "make one with python tools/export.py"),
        (["--repeats", "0"], "must be positive"),
        (["--updates", "10"], "must be 1000 at least"),
    ],
)
def test_bad_arguments_get_one_sentence(
    args: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("benchmark", "onboard", *args) == 2
    assert says in capsys.readouterr().err
