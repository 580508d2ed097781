"""Scenarios survive encoding and decoding: exactly where stored exactly, to half a unit elsewhere.

The size of shards, the documented format, and how much of a shard is read.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from tests.conftest import SAMPLE, rejects
from tests.store.scenarios import ORIGIN, full_map, made
from trajpred.data.lane_map import LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES, Tracks
from trajpred.sources.argoverse2 import discover, read
from trajpred.store import ScenarioStore, prepare
from trajpred.store.format import POLYLINES, encode_batch, encode_row
from trajpred.store.jobs import write_shard

#: Half a millimetre plus the resolution of float64 at 1e7 m.
HALF_MM = 0.5e-3 + 4e-9
HEADING = 4.8e-5
Through = Callable[..., list[Scenario]]


def same(values: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(values, expected)
    assert values.dtype.kind == expected.dtype.kind
    assert values.dtype.kind == "U" or values.dtype == expected.dtype


def near(values: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert values.dtype == expected.dtype == np.float64
    np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance)


def check(decoded: Scenario, original: Scenario, heights: bool = False) -> None:
    """Compare every field of a decoded scenario with the original."""
    for name in ("scenario_id", "city", "num_observed", "focal_id"):
        assert getattr(decoded, name) == getattr(original, name), name
    same(decoded.timestamps_ns, original.timestamps_ns)
    check_tracks(decoded.tracks, original.tracks)
    for field in fields(LaneMap):
        values = getattr(decoded.map, field.name)
        expected = getattr(original.map, field.name)
        if not isinstance(values, Ragged):
            same(values, expected)
            continue
        same(values.offsets, expected.offsets)
        if field.name in POLYLINES:
            check_points(values.values, expected.values, heights)
        else:
            same(values.values, expected.values)
    assert decoded.validate() is decoded


def check_tracks(decoded: Tracks, original: Tracks) -> None:
    for name in ("track_id", "object_type", "category", "valid"):
        same(getattr(decoded, name), getattr(original, name))
    near(decoded.position, original.position, HALF_MM)
    turned = decoded.heading - original.heading
    near(np.remainder(turned + np.pi, 2 * np.pi), np.full(turned.shape, np.pi), HEADING)
    fastest = np.abs(original.velocity).max()
    tolerance = 0.98e-3 if fastest < 63.9 else fastest / 32767
    near(decoded.velocity, original.velocity, tolerance)
    assert not decoded.velocity[original.velocity == 0].any()
    np.testing.assert_allclose(decoded.size, original.size, rtol=1e-7)


def check_points(decoded: np.ndarray, original: np.ndarray, heights: bool) -> None:
    near(decoded[:, :2], original[:, :2], HALF_MM)
    if heights and original.shape[1] == 3 and len(original) > 0:
        same(decoded[:, 2:], original[:, 2:].astype(np.float32).astype(np.float64))
    else:
        assert decoded.shape[1] == 2


@pytest.fixture
def through(raw: Callable[..., Path], tmp_path: Path) -> Through:
    """Return a function that writes scenarios to a store and reads them back."""

    def round_trip(*scenarios: Scenario, heights: bool = False) -> list[Scenario]:
        store = tmp_path / "store"
        prepare("made", raw(scenarios), store, heights=heights, workers=1, progress=False)
        return list(ScenarioStore(store, "train"))

    return round_trip


VARIANTS: dict[str, dict[str, Any]] = {
    "far from the origin": {},
    "no map": {"map": None},
    "every object type": {
        "position": ORIGIN + np.random.default_rng(1).normal(size=(10, 12, 2)),
        "object_type": OBJECT_TYPES,
        "category": [0, 1, 2, 3, 0, 1, 2, 3, 0, 1],
    },
    "every map element": {"position": np.zeros((1, 12, 2)), "map": full_map()},
    "unicode names": {"track_id": [" ", "Ä東京"], "scenario_id": "ü", "city": "東京"},
    "one state": {"position": ORIGIN + np.array([[[1.2345, -6.789]]]), "num_observed": 1},
    "focal track lost early": {"focal": 1},
    "many steps": {"position": np.tile(ORIGIN, (1, 3000, 1)), "num_observed": 1},
    "tiny velocities": {"velocity": np.full((2, 12, 2), 1e-9)},
    "largest velocity of a unit": {"velocity": np.full((2, 12, 2), -32767 * 2.0**-9)},
    "just above it": {"velocity": np.full((2, 12, 2), 32767.5 * 2.0**-9)},
    "huge velocities": {"velocity": np.linspace(-1e300, 1e300, 48).reshape(2, 12, 2)},
    "sizes": {"size": [[4.6, 1.9], [np.nan, 0.7]]},
    "all headings": {"heading": np.linspace(-20, 20, 24).reshape(2, 12)},
}


@pytest.mark.parametrize("heights", [False, True], ids=["flat", "heights"])
def test_real_and_constructed_scenarios_share_a_shard(through: Through, heights: bool) -> None:
    scenarios = [made(**{"scenario_id": name} | changes) for name, changes in VARIANTS.items()]
    for folders in discover(SAMPLE).values():
        scenarios += [read(folder) for folder in folders[:3]]
    decoded = through(*scenarios, heights=heights)
    for scenario, original in zip(decoded, scenarios, strict=True):
        check(scenario, original, heights)


def test_whole_millimetres_stay_exact_wherever_the_focal_track_is(through: Through) -> None:
    """The origin is a whole number of metres, so that their grid is that of the city."""
    x = 1234 + np.array([[0.00043] * 12, 1e-3 * np.arange(0, 1200, 100)])  # the focal track is on no grid
    position = np.stack((x, -x), -1)
    [scenario] = through(made(position=position, map=None))
    np.testing.assert_allclose(scenario.tracks.position[1], position[1], rtol=0, atol=1e-9)


def test_known_headings_stay_known(through: Through) -> None:
    """0 means unknown, so headings that would be rounded to it are the next unit."""
    heading = np.array([[0.0, 1e-9, -1e-9, HEADING / 2, -HEADING / 2, 2 * np.pi - 1e-9]])
    standing = Scenario.from_arrays(np.zeros((1, 6, 2)), num_observed=3)
    [found] = through(replace(standing, tracks=replace(standing.tracks, heading=heading)))
    assert (found.tracks.heading[0] != 0).tolist() == [False, True, True, True, True, True]
    assert np.abs(found.tracks.heading).max() < 3 * HEADING


def with_unknown(field: str) -> Scenario:
    """Return states that are not finite: sources need not validate what they read."""
    good = made()
    tracks = replace(good.tracks, **{field: np.full_like(getattr(good.tracks, field), np.nan)})
    return replace(good, tracks=tracks)


@pytest.mark.parametrize(
    ("field", "scenario"),
    [
        ("position", made(num_observed=2, position=np.array([[[0.0, 0.0]] * 2, [[3e6, 0.0]] * 2]))),
        ("centerline", made(num_observed=2, map=[[[0, 0], [1, 1]]])),
        *((field, with_unknown(field)) for field in ("position", "heading", "velocity")),
    ],
)
def test_far_distances_and_unknown_states_are_rejected_by_name(field: str, scenario: Scenario) -> None:
    rejects(f"field '{field}'", encode_row, scenario, heights=False)


def test_oversized_rows_and_shards_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    row = encode_row(made(), heights=False)
    row["valid"] = np.broadcast_to(np.True_, (2**31,))  # takes no memory
    rejects("shard_size", encode_batch, [row])
    monkeypatch.setattr("trajpred.store.format.MAX_BYTES", 500)
    rejects("more than 500", lambda: encode_row(made(), heights=False))


def test_bytes_per_argoverse_2_scenario(tmp_path: Path) -> None:
    rows = []
    for folders in discover(SAMPLE).values():
        native = [folder for folder in folders if UUID(folder.name).version == 4]  # the others are windows
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
