"""What goes into the store comes out: to half a millimetre, to float32, and exactly where it is whole."""

from __future__ import annotations

import operator
import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import Parallel, delayed

from trajpred.errors import DataError
from trajpred.lane_map import LaneMap, Ragged
from trajpred.scenario import OBJECT_TYPES, Scenario, equal
from trajpred.sources.argoverse2 import discover, read_scenario
from trajpred.store import ScenarioStore, prepare
from trajpred.store.codec import decode_row, encode_batch, encode_row

POLYLINES = (
    "centerline",
    "left_boundary",
    "right_boundary",
    "crossing_edge1",
    "crossing_edge2",
    "drivable_area",
)
LINKS = ("predecessors", "successors")
ENTRIES = ("lane_id", "lane_type", "is_intersection", "left_mark", "right_mark", "left_neighbor")
ENTRIES += ("right_neighbor", "crossing_id", "drivable_area_id")
#: Half a millimetre, and what float64 leaves of it at 1e7 m.
HALF_MM = 0.5e-3 + 4e-9
ORIGIN = np.array([1e7, -1e7])


def check(found: Scenario, given: Scenario, heights: bool = False) -> None:
    """Every field of ``found`` against ``given``, with the dtypes that are documented."""
    for name in ("scenario_id", "city", "num_observed", "focal_id"):
        assert getattr(found, name) == getattr(given, name), name
    same(found.timestamps_ns, given.timestamps_ns)
    for name in ("track_id", "object_type", "category", "valid"):
        same(getattr(found.tracks, name), getattr(given.tracks, name))
    near(found.tracks.position, given.tracks.position, HALF_MM)
    for name in ("heading", "velocity"):
        single = getattr(given.tracks, name).astype(np.float32)
        same(getattr(found.tracks, name), single.astype(np.float64))
    for name in ("position", "heading", "velocity"):
        assert not getattr(found.tracks, name)[~given.tracks.valid].any()
    for name in ENTRIES:
        same(getattr(found.map, name), getattr(given.map, name))
    for name in (*LINKS, *POLYLINES):
        same(getattr(found.map, name).offsets, getattr(given.map, name).offsets)
    for name in LINKS:
        same(getattr(found.map, name).values, getattr(given.map, name).values)
    for name in POLYLINES:
        values, expected = getattr(found.map, name).values, getattr(given.map, name).values
        near(values[:, :2], expected[:, :2], HALF_MM)
        kept = heights and expected.shape[1] == 3 and len(expected) > 0
        assert values.shape[1] == (3 if kept else 2)
        same(values[:, 2:], expected[:, 2 : 3 if kept else 2].astype(np.float32).astype(np.float64))
    assert found.validate() is found


def same(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found, expected)
    assert found.dtype.kind == expected.dtype.kind
    assert found.dtype.kind == "U" or found.dtype == expected.dtype


def near(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert found.dtype == expected.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def through(*scenarios: Scenario, heights: bool = False) -> list[Scenario]:
    batch = encode_batch([encode_row(scenario, heights) for scenario in scenarios])
    return [decode_row(batch, row) for row in range(len(scenarios))]


def made(**changes: Any) -> Scenario:
    """Two tracks with gaps and a map of two lanes, far from the origin."""
    rng = np.random.default_rng(0)
    position = ORIGIN + np.cumsum(rng.normal(size=(2, 12, 2)), axis=1)
    position[0, 2] = position[1, 5:] = np.nan
    lanes = [ORIGIN + rng.normal(scale=100, size=(points, 2)) for points in (2, 7)]
    inputs = {"position": position, "num_observed": 8, "map": lanes}
    return Scenario.from_arrays(**(inputs | changes))


# ----------------------------------------------------------------------------------------- real scenarios


@pytest.mark.parametrize("split", ["train", "val", "test"])
@pytest.mark.parametrize("heights", [False, True], ids=["flat", "heights"])
def test_every_sample_scenario_comes_back(sample: Path, tmp_path: Path, split: str, heights: bool) -> None:
    prepare("argoverse2", sample, tmp_path, workers=1, shard_size=4, heights=heights, progress=False)
    store, folders = ScenarioStore(tmp_path, split), discover(sample)[split]
    assert len(store) == len(folders)
    assert store.scenario_ids == [folder.name for folder in folders]
    for found, folder in zip(store, folders, strict=True):
        check(found, read_scenario(folder), heights)


def test_every_shared_scenario_comes_back(shared: Path) -> None:
    folders = sorted(path.parent for path in shared.glob("data/argoverse2/*/*/*/*.parquet"))
    if not folders:
        pytest.skip(f"TRAJPRED_SHARED: no scenarios in {shared}")
    given = [read_scenario(folder) for folder in folders]
    for heights in (False, True):
        for found, expected in zip(through(*given, heights=heights), given, strict=True):
            check(found, expected, heights)


def test_a_second_trip_changes_nothing(sample_store: Path) -> None:
    given = list(ScenarioStore(sample_store, "val"))
    for found, expected in zip(through(*given), given, strict=True):
        assert equal(found, expected)


def test_access_in_any_order_gives_the_same(sample_store: Path) -> None:
    in_order = list(ScenarioStore(sample_store, "train"))
    store = ScenarioStore(sample_store, "train")
    order = [*range(len(store))] * 2
    random.Random(0).shuffle(order)
    for index in order:
        assert equal(store[index], in_order[index])
        assert store.index(in_order[index].scenario_id) == index


@pytest.mark.parametrize("index", [-1, 5, 10**9])
def test_an_index_out_of_range(sample_store: Path, index: int) -> None:
    store = ScenarioStore(sample_store, "val")
    assert len(store) == 5
    with pytest.raises(IndexError):
        store[index]


def test_an_unknown_scenario_id(sample_store: Path) -> None:
    with pytest.raises(DataError, match="nobody"):
        ScenarioStore(sample_store, "val").index("nobody")


def test_lengths(sample_store: Path) -> None:
    assert ScenarioStore(sample_store, "train").lengths == (50, 60)


def test_a_used_store_can_be_pickled(sample_store: Path) -> None:
    store = ScenarioStore(sample_store, "val")
    first = store[0], store.scenario_ids
    content = pickle.dumps(store)
    assert len(content) < 10_000
    copy = pickle.loads(content)
    assert equal(copy[0], first[0])
    assert copy.scenario_ids == first[1]


def test_a_used_store_works_in_other_processes(sample_store: Path) -> None:
    store = ScenarioStore(sample_store, "val")
    given = list(store)
    found = Parallel(n_jobs=2)(delayed(operator.getitem)(store, i) for i in range(len(store)))
    assert all(equal(a, b) for a, b in zip(found, given, strict=True))


# ----------------------------------------------------------------------------------------- made scenarios


VARIANTS: dict[str, dict[str, Any]] = {
    "far from the origin": {},
    "no map": {"map": None},
    "every object type": {
        "position": ORIGIN + np.random.default_rng(1).normal(size=(10, 12, 2)),
        "object_type": OBJECT_TYPES,
        "category": [0, 1, 2, 3, 0, 1, 2, 3, 0, 1],
    },
    "names in any script": {"track_id": ["", "Ä東京"], "scenario_id": "ü", "city": "東京"},
    "no future": {"num_observed": 12},
    "one state": {"position": ORIGIN + np.array([[[1.2345, -6.789]]]), "num_observed": 1},
    "focal lost early": {"focal": 1},
    "long": {"position": np.tile(ORIGIN, (1, 3000, 1)), "num_observed": 1},
    "odd steps": {"step_s": 1 / 3},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_made_scenarios_come_back(changes: dict[str, Any]) -> None:
    given = made(**changes)
    check(through(given)[0], given)


def test_scenarios_of_all_kinds_share_a_shard() -> None:
    given = [made(**changes) for changes in VARIANTS.values()]
    for found, expected in zip(through(*given, heights=True), given, strict=True):
        check(found, expected, heights=True)


def full_map() -> LaneMap:
    """Every part present, with heights, and ids that need 64 bits."""
    lines = Ragged.from_rows([[[0, 0, 1.5], [5, 0, -2]], [[5, 0, 3], [6, 1, 3], [7, 1, 3]]], 3)
    return replace(
        LaneMap.from_centerlines([[[0, 0], [1, 0]]] * 2, lane_id=[2**62, -(2**62)], successors=[[7], [8, 9]]),
        centerline=lines,
        left_boundary=lines,
        is_intersection=np.array([True, False]),
        lane_type=np.array([1, 2], np.int8),
        left_mark=np.array([14, 3], np.int8),
        left_neighbor=np.array([2**61, -1]),
        crossing_id=np.array([2**60]),
        crossing_edge1=Ragged.from_rows([[[0, 0, 1], [1, 1, 1]]], 3),
        crossing_edge2=Ragged.from_rows([[[0, 1, 1], [1, 2, 1]]], 3),
        drivable_area_id=np.array([5]),
        drivable_area=Ragged.from_rows([[[0, 0, 9], [1, 1, 9], [0, 1, 9]]], 3),
    )


@pytest.mark.parametrize("heights", [False, True])
def test_every_part_of_a_map_comes_back(heights: bool) -> None:
    given = made(position=np.zeros((1, 12, 2)), map=full_map())
    check(through(given, heights=heights)[0], given, heights)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("position", {"position": np.array([[[0.0, 0.0]] * 2, [[3e6, 0.0]] * 2])}),
        ("centerline", {"map": [[[0, 0], [1, 1]]]}),
        ("velocity", {"velocity": np.full((2, 12, 2), 1e39)}),
        ("heading", {"heading": np.full((2, 12), -1e39)}),
    ],
)
def test_what_the_store_cannot_hold_is_refused_by_name(field: str, changes: dict[str, Any]) -> None:
    changes = {"num_observed": 2} | changes
    with pytest.raises(DataError) as caught:
        encode_row(made(**changes), heights=False)
    assert caught.value.field == field


def test_a_shard_that_would_overflow_its_offsets_is_refused() -> None:
    row = encode_row(made(), heights=False)
    row["valid"] = np.broadcast_to(np.True_, (2**31,))  # no memory behind it
    with pytest.raises(DataError, match="shard_size") as caught:
        encode_batch([row])
    assert caught.value.field == "valid"


def test_a_store_can_be_read_while_it_is_rewritten(raw: Callable[..., Path], tmp_path: Path) -> None:
    given = [made(scenario_id=str(i)) for i in range(4)]
    prepare("made", raw(given), tmp_path / "store", workers=1, shard_size=2, progress=False)
    store = ScenarioStore(tmp_path / "store", "train")
    first = store[0]
    prepare("made", raw(given), tmp_path / "store", workers=1, shard_size=3, heights=True, progress=False)
    assert equal(store[0], first)
    assert equal(store[1], ScenarioStore(tmp_path / "store", "train")[1])
