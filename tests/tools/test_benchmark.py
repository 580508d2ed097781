"""The benchmark: what it measures, and its process without torch."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tools.benchmark import main
from tools.benchmark_onboard import AGENTS, CROWDED, onboard, with_duplicates
from trajpred.data.scenario import Scenario
from trajpred.export.export_bundle import export_bundle


def test_distant_agents_are_duplicated_beside_themselves(sample_scenarios: list[Scenario]) -> None:
    ids = [scenario.scenario_id for scenario in sample_scenarios]
    crowded = sample_scenarios[ids.index(CROWDED.name)]
    now = crowded.num_observed - 1
    scene = with_duplicates(crowded, AGENTS[-1]).validate()
    assert scene.tracks.valid[:, now].sum() == AGENTS[-1] > crowded.tracks.valid[:, now].sum()
    copies = np.arange(len(crowded.tracks), len(scene.tracks))
    names = [name.removesuffix(", duplicate") for name in scene.tracks.track_id[copies]]
    originals = [scene.tracks.index(name) for name in names]
    assert (scene.tracks.position[copies, now] - scene.tracks.position[originals, now] == 3.0).all()
    assert scene.focal not in originals
    assert with_duplicates(crowded, 1).tracks.track_id.tolist() == crowded.tracks.track_id.tolist()


def run(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *line.split()])
    main()


def test_help_lists_the_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, "--help")
    shown = capsys.readouterr().out
    assert all(command in shown for command in ("model", "core", "data", "onboard"))


def test_mistakes_get_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {
        f"model --model {ROOT / 'configs' / 'trainer' / 'cpu.yaml'}": "cpu.yaml: contains no model; give",
        "onboard --bundle nowhere": "make one with trajpred export",
    }
    for line, words in lines.items():
        with pytest.raises(SystemExit, match=words):
            run(monkeypatch, line)


@pytest.mark.slow
def test_figures_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, "model --repeats 1")
    figures = [float(row.split()[-1]) for row in capsys.readouterr().out.splitlines()]
    assert len(figures) > 20
    assert min(figures) > 0


@pytest.mark.slow
def test_two_bundles_are_measured_in_turn(tmp_path: Path, sample_scenarios: list[Scenario]) -> None:
    export_bundle("argoverse-nano", tmp_path / "bundle", sample_scenarios[:1])
    bundle = tmp_path / "bundle"
    zipped = Path(shutil.make_archive(str(tmp_path / "same"), "zip", bundle))
    figures = onboard(bundle=[bundle, zipped], repeats=1, rounds=1)
    assert min(figures.values()) > 0
    assert figures[f"{bundle}, Python, 5 agents, p50 ms"] < figures[f"{zipped}, Python, 128 agents, p50 ms"]
    assert figures[f"{bundle}, Python, 27 agents, peak MB"] < 300
