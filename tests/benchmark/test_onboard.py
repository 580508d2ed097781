"""The onboard benchmark: what it measures, and its process without torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trajpred.benchmark.onboard import CROWDED, MANY, _processes, _size_mb, with_duplicates
from trajpred.data.scenario import Scenario
from trajpred.onboard.bundle import Bundle


def test_distant_agents_are_duplicated_beside_themselves(sample_scenarios: list[Scenario]) -> None:
    ids = [scenario.scenario_id for scenario in sample_scenarios]
    crowded = sample_scenarios[ids.index(CROWDED)]
    now = crowded.num_observed - 1
    scene = with_duplicates(crowded, MANY).validate()
    recent = scene.tracks.valid[:, now - 10 : now + 1].any(axis=1).sum()
    assert recent == MANY > crowded.tracks.valid[:, now].sum()
    copies = np.arange(len(crowded.tracks), len(scene.tracks))
    names = [name.removesuffix(", duplicate") for name in scene.tracks.track_id[copies]]
    originals = [scene.tracks.index(name) for name in names]
    assert (scene.tracks.position[copies, now] - scene.tracks.position[originals, now] == 3.0).all()
    assert scene.focal not in originals
    assert with_duplicates(crowded, 1).tracks.track_id.tolist() == crowded.tracks.track_id.tolist()


@pytest.mark.slow
def test_processes_and_sizes(bundle: Path, sample_scenarios: list[Scenario]) -> None:
    scene = min(sample_scenarios, key=lambda scenario: len(scenario.tracks))
    wall, cpu, memory = _processes(bundle, 1, {"native": scene}).values()
    assert wall > 0 < cpu
    assert 30 < memory < 300
    in_parts = 0
    everything = 0
    for path in bundle.iterdir():
        size = path.stat().st_size
        everything += size
        if path.suffix == ".onnx" and path.stem != "forecaster":
            in_parts += size
    loaded = Bundle(bundle)
    size_mb = _size_mb(loaded)
    assert in_parts < size_mb * 1e6 < everything
    loaded.info["files"]["forecaster.onnx"] = {"bytes": 10**9}
    assert _size_mb(loaded) == size_mb
