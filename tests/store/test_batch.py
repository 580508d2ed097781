"""``ScenarioStore.batch`` reads columns, ``ScenarioBatch.of`` joins scenarios one by one: the same result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.store.scenarios import ORIGIN, full_map, made
from trajpred.errors import DataError
from trajpred.lane_map import LaneMap, Ragged
from trajpred.scenario import Tracks
from trajpred.scenario_batch import ScenarioBatch
from trajpred.store import ScenarioStore, prepare

Raw = Callable[..., Path]
COMPRESSIONS = pytest.mark.parametrize("compression", [None, "zstd"])


def identical(found: Any, expected: Any, name: str = "batch") -> None:
    assert type(found) is type(expected), name
    if isinstance(found, (ScenarioBatch, Tracks, LaneMap, Ragged)):
        for field in fields(found):
            identical(getattr(found, field.name), getattr(expected, field.name), f"{name}.{field.name}")
    elif isinstance(found, np.ndarray):
        assert found.dtype == expected.dtype, name
        np.testing.assert_array_equal(found, expected, err_msg=name)
    else:
        assert found == expected, name


def check(store: ScenarioStore, rows: Any) -> None:
    identical(store.batch(rows), ScenarioBatch.of([store[int(row)] for row in rows]))


@COMPRESSIONS
@pytest.mark.parametrize("heights", [False, True], ids=["flat", "heights"])
def test_real_scenarios(sample: Path, tmp_path: Path, compression: str | None, heights: bool) -> None:
    options: dict[str, Any] = {"compression": compression, "heights": heights}
    prepare("argoverse2", sample, tmp_path, workers=1, shard_size=3, progress=False, **options)
    store = ScenarioStore(tmp_path, "train")
    for rows in ([0], [9], range(10), [9, 0, 4, 3, 3, 9, 1], np.array([5, 2])):
        check(store, rows)


def test_argoverse_1(sample: Path, tmp_path: Path) -> None:
    raw = sample.parents[1] / "argoverse1"
    prepare("argoverse1", raw, tmp_path, workers=1, progress=False)
    store = ScenarioStore(tmp_path, "val")
    check(store, np.random.default_rng(0).permutation(len(store))[:50])
    assert set(np.unique(store.batch(range(50)).map.turn_direction)) == {1, 2, 3}
    assert set(np.unique(store.batch(range(50)).map.has_traffic_control)) == {1, 2}


@COMPRESSIONS
def test_scenarios_of_all_kinds(raw: Raw, tmp_path: Path, compression: str | None) -> None:
    """Maps with and without heights, lanes and crossings; names of any length and script; fast and slow."""
    kinds: list[dict[str, Any]] = [
        {"scenario_id": "a"},
        {"map": None, "scenario_id": "no map"},
        {"map": full_map(), "position": np.random.default_rng(1).normal(size=(1, 12, 2))},
        {"map": full_map(), "position": np.zeros((300, 12, 2)), "scenario_id": "日本"},
        {"track_id": ["", "Ä東京 and more"], "step_s": 1 / 3},
        {"focal": 1, "velocity": np.full((2, 12, 2), 1e6)},
    ]
    options: dict[str, Any] = {"compression": compression, "heights": True}
    folder = raw([made(**kind) for kind in kinds])
    prepare("made", folder, tmp_path / "store", workers=1, shard_size=4, progress=False, **options)
    store = ScenarioStore(tmp_path / "store", "train")
    for rows in (range(6), [5, 3, 1], [2, 3], [1, 1], [4], np.random.default_rng(0).integers(6, size=40)):
        check(store, rows)
    assert store.batch([2, 3]).map.centerline.values.shape[1] == 3


def test_a_batch_needs_a_row_that_is_there(sample_store: Path) -> None:
    store = ScenarioStore(sample_store, "val")
    with pytest.raises(DataError):
        store.batch([])
    for row in (-1, 5):
        with pytest.raises(IndexError):
            store.batch([0, row])


@pytest.mark.parametrize(
    "changes", [{"num_observed": 7}, {"position": np.tile(ORIGIN, (2, 13, 1))}], ids=["observed", "steps"]
)
def test_windows_must_be_alike(raw: Raw, tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = raw([made(), made(**changes), made()])
    prepare("made", folder, tmp_path / "store", workers=1, progress=False)
    store = ScenarioStore(tmp_path / "store", "train")
    check(store, [0, 2])
    with pytest.raises(DataError, match="window lengths differ") as caught:
        store.batch([0, 1])
    assert caught.value.field == "num_observed"


def test_sizes_are_those_of_the_scenarios(sample_store: Path) -> None:
    store = ScenarioStore(sample_store, "train")
    tracks, lanes = store.sizes
    for scenario, seen, elements in zip(store, tracks, lanes, strict=True):
        observed = scenario.tracks.valid[:, : scenario.num_observed]
        assert seen == sum(row.any() for row in observed)
        assert elements == len(scenario.map) + len(scenario.map.crossing_id)
    assert 0 < tracks.min() < max(len(scenario.tracks) for scenario in store)
