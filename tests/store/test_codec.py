"""Scenarios survive encoding and decoding: exactly where stored exactly, to half a unit elsewhere."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import SAMPLE
from tests.store.scenarios import ORIGIN, full_map, made
from trajpred.errors import DataError
from trajpred.lane_map import LaneMap, Ragged
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.sources.argoverse2 import discover, read
from trajpred.store.codec import POLYLINES, encode_batch, encode_row
from trajpred.store.decoder import decode, views
from trajpred.store.shards import open_index, open_shard, signed_name, write_index, write_shard

#: Half a millimetre plus the resolution of float64 at 1e7 m.
HALF_MM = 0.5e-3 + 4e-9
HEADING = 4.8e-5
Through = Callable[..., list[Scenario]]


def same(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found, expected)
    assert found.dtype.kind == expected.dtype.kind
    assert found.dtype.kind == "U" or found.dtype == expected.dtype


def near(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert found.dtype == expected.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def check(found: Scenario, given: Scenario, heights: bool = False) -> None:
    """Compare every field of ``found`` with ``given``."""
    for name in ("scenario_id", "city", "num_observed", "focal_id"):
        assert getattr(found, name) == getattr(given, name), name
    same(found.timestamps_ns, given.timestamps_ns)
    for name in ("track_id", "object_type", "category", "valid"):
        same(getattr(found.tracks, name), getattr(given.tracks, name))
    near(found.tracks.position, given.tracks.position, HALF_MM)
    turned = found.tracks.heading - given.tracks.heading
    near(np.remainder(turned + np.pi, 2 * np.pi), np.full(turned.shape, np.pi), HEADING)
    fastest = np.abs(given.tracks.velocity).max()
    near(found.tracks.velocity, given.tracks.velocity, 0.98e-3 if fastest < 63.9 else fastest / 32767)
    assert not found.tracks.velocity[given.tracks.velocity == 0].any()
    for field in fields(LaneMap):
        one, two = getattr(found.map, field.name), getattr(given.map, field.name)
        if not isinstance(one, Ragged):
            same(one, two)
            continue
        same(one.offsets, two.offsets)
        if field.name not in POLYLINES:
            same(one.values, two.values)
            continue
        near(one.values[:, :2], two.values[:, :2], HALF_MM)
        kept = heights and two.values.shape[1] == 3 and len(two.values) > 0
        expected = two.values[:, 2 : 3 if kept else 2]
        same(one.values[:, 2:], expected.astype(np.float32).astype(np.float64))
    assert found.validate() is found


@pytest.fixture
def through(tmp_path: Path) -> Through:
    """Return a function that writes scenarios to a shard and reads them back."""

    def round_trip(*scenarios: Scenario, heights: bool = False) -> list[Scenario]:
        rows = [encode_row(scenario, heights) for scenario in scenarios]
        columns: list[Any] = [[row[name] for row in rows] for name in ("scenario_id", "tracks", "lanes")]
        write_index(tmp_path / "new", *columns)
        index = (tmp_path / "new").rename(tmp_path / signed_name("index", tmp_path / "new"))
        write_shard(tmp_path / "shard", rows)
        shard = open_shard(tmp_path / "shard", open_index(index, len(rows)))
        return [decode(shard(row)) for row in range(len(rows))]

    return round_trip


@pytest.mark.parametrize("heights", [False, True], ids=["flat", "heights"])
def test_real_scenarios(through: Through, heights: bool) -> None:
    given = [read(one) for found in discover(SAMPLE).values() for one in found[:3]]
    for found, expected in zip(through(*given, heights=heights), given, strict=True):
        check(found, expected, heights)


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
    "all headings": {"heading": np.linspace(-20, 20, 24).reshape(2, 12)},
}


@pytest.mark.parametrize("heights", [False, True], ids=["flat", "heights"])
def test_constructed_scenarios_share_a_shard(through: Through, heights: bool) -> None:
    given = [made(**changes) for changes in VARIANTS.values()]
    for found, expected in zip(through(*given, heights=heights), given, strict=True):
        check(found, expected, heights)


def test_whole_millimetres_stay_exact_wherever_the_focal_track_is(through: Through) -> None:
    """The origin is a whole number of metres, so that their grid is that of the city."""
    x = 1234 + np.array([[0.00043] * 12, 1e-3 * np.arange(0, 1200, 100)])  # the focal track is on no grid
    [found] = through(made(position=np.stack((x, -x), -1), map=None))
    np.testing.assert_allclose(found.tracks.position[1], np.stack((x, -x), -1)[1], rtol=0, atol=1e-9)


def test_offsets_that_start_below_zero_are_refused() -> None:
    batch = encode_batch([encode_row(made(), heights=False)])
    views(batch)
    offsets = batch.column("position").buffers()[1]
    ctypes.c_int32.from_address(offsets.address).value = -1  # as in a damaged file, which Arrow maps unread
    with pytest.raises(ValueError, match="offsets of position are out of range"):
        views(batch)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("position", {"position": np.array([[[0.0, 0.0]] * 2, [[3e6, 0.0]] * 2])}),
        ("centerline", {"map": [[[0, 0], [1, 1]]]}),
    ],
)
def test_distances_beyond_int32_are_rejected_by_name(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=f"field '{field}'"):
        encode_row(made(**({"num_observed": 2} | changes)), heights=False)


@pytest.mark.parametrize("field", ["position", "heading", "velocity"])
def test_states_that_are_not_finite_are_rejected(field: str) -> None:
    """Sources need not validate what they read."""
    good = made()
    tracks = replace(good.tracks, **{field: np.full_like(getattr(good.tracks, field), np.nan)})
    with pytest.raises(DataError, match=f"field '{field}'"):
        encode_row(replace(good, tracks=tracks), heights=False)


def test_oversized_rows_and_shards_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    row = encode_row(made(), heights=False)
    row["valid"] = np.broadcast_to(np.True_, (2**31,))  # takes no memory
    with pytest.raises(DataError, match="shard_size"):
        encode_batch([row])
    monkeypatch.setattr("trajpred.store.codec.MAX_BYTES", 500)
    with pytest.raises(DataError, match="more than 500"):
        encode_row(made(), heights=False)
