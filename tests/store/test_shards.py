"""The size of shards, the documented format, and how much of a shard is read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import SAMPLE
from tests.store.scenarios import ORIGIN, made
from trajpred.sources.argoverse2 import discover, read
from trajpred.store import ScenarioStore, prepare
from trajpred.store.format import encode_row
from trajpred.store.sample import SAMPLE_NATIVE
from trajpred.store.shards import write_shard


def test_bytes_per_argoverse_2_scenario(tmp_path: Path) -> None:
    rows = []
    for folders in discover(SAMPLE).values():
        native = [folder for folder in folders if folder.name in SAMPLE_NATIVE]
        rows += [encode_row(read(folder), heights=False) for folder in native]
    write_shard(tmp_path / "shard", rows * 8)
    assert (tmp_path / "shard").stat().st_size / (8 * len(rows)) < 52_000


def test_the_documented_example_reads_a_shard(sample_store: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "concepts" / "store.md"
    example = page.read_text("utf-8").split("```python")[-1].split("```")[0]
    shown: dict[str, Any] = {}
    exec(example.replace("/data/av2-store", str(sample_store)), shown)
    expected = ScenarioStore(sample_store, "train")[2]
    np.testing.assert_array_equal(shown["valid"], expected.tracks.valid)
    states = expected.tracks.position[expected.tracks.valid]
    np.testing.assert_allclose(shown["position"][shown["valid"]], states, atol=1e-6)
    for lane, line in zip(shown["lanes"], expected.map.centerline, strict=True):
        millimetres = np.round(1000 * (line - line[0]))
        np.testing.assert_array_equal(lane - lane[0], millimetres)


#: Prints how many bytes of files become resident when one row of a shard is read.
RESIDENT = """
import sys
from pathlib import Path
from trajpred.store import ScenarioStore

def resident():
    return int(Path("/proc/self/statm").read_text().split()[2]) * 4096

ScenarioStore(sys.argv[2], "train")[0]  # everything is imported now
before = resident()
ScenarioStore(sys.argv[1], "train").batch([7])
print(resident() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc on this system")
def test_reading_a_row_does_not_read_the_whole_shard(raw: Callable[..., Path], tmp_path: Path) -> None:
    large = made(position=ORIGIN + np.random.default_rng(0).normal(size=(1000, 200, 2)))
    for name, scenario in (("large", large), ("small", made())):
        ten = [replace(scenario, scenario_id=str(i)) for i in range(10)]
        prepare("made", raw([*ten]), tmp_path / name, workers=1, progress=False)
    [shard] = (tmp_path / "large").rglob("shard-*.arrow")
    command = [sys.executable, "-c", RESIDENT, str(tmp_path / "large"), str(tmp_path / "small")]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert shard.stat().st_size > 25e6
    assert int(run.stdout) < 0.35 * shard.stat().st_size
