"""What goes into the store comes out: to half a unit of what it is counted in, exactly where it is whole."""

from __future__ import annotations

import json
import operator
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import Parallel, delayed

from tests.store.scenarios import ORIGIN, full_map, made
from trajpred.errors import DataError
from trajpred.scenario import OBJECT_TYPES, Scenario, equal
from trajpred.sources.argoverse2 import discover, read_scenario
from trajpred.store import ScenarioStore, find_splits, prepare
from trajpred.store.codec import encode_batch, encode_row
from trajpred.store.decoder import decode
from trajpred.store.shards import open_index, open_shard, write_index, write_shard

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
ENTRIES += ("right_neighbor", "turn_direction", "has_traffic_control", "crossing_id", "drivable_area_id")
#: Half a millimetre, and what float64 leaves of it at 1e7 m.
HALF_MM = 0.5e-3 + 4e-9
#: 2.4 mm at 50 m.
HEADING = 4.8e-5
#: Writes scenarios to a shard and reads them back; ``heights=True`` keeps heights.
Through = Callable[..., list[Scenario]]


def check(found: Scenario, given: Scenario, heights: bool = False) -> None:
    """Every field of ``found`` against ``given``, with the dtypes that are documented."""
    for name in ("scenario_id", "city", "num_observed", "focal_id"):
        assert getattr(found, name) == getattr(given, name), name
    same(found.timestamps_ns, given.timestamps_ns)
    for name in ("track_id", "object_type", "category", "valid"):
        same(getattr(found.tracks, name), getattr(given.tracks, name))
    near(found.tracks.position, given.tracks.position, HALF_MM)
    turned = found.tracks.heading - given.tracks.heading
    near(np.remainder(turned + np.pi, 2 * np.pi), np.full(turned.shape, np.pi), HEADING)
    assert (np.abs(found.tracks.heading) <= np.pi).all()
    fastest = np.abs(given.tracks.velocity).max()
    near(found.tracks.velocity, given.tracks.velocity, 0.98e-3 if fastest < 63.9 else fastest / 32767)
    assert not found.tracks.velocity[given.tracks.velocity == 0].any()
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


@pytest.fixture(params=[None, "zstd"], ids=["plain", "zstd"])
def through(request: pytest.FixtureRequest, tmp_path: Path) -> Through:
    def there_and_back(*scenarios: Scenario, heights: bool = False) -> list[Scenario]:
        rows = [encode_row(scenario, heights) for scenario in scenarios]
        columns: list[Any] = [[row[name] for row in rows] for name in ("scenario_id", "tracks", "lanes")]
        write_index(tmp_path / "index", *columns)
        write_shard(tmp_path / "shard", rows, request.param)
        shard = open_shard(tmp_path / "shard", open_index(tmp_path / "index", len(rows)))
        return [decode(shard(row)) for row in range(len(rows))]

    return there_and_back


# ----------------------------------------------------------------------------------------- real scenarios


@pytest.mark.parametrize("split", ["train", "val", "test"])
@pytest.mark.parametrize("heights", [False, True], ids=["flat", "heights"])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_every_sample_scenario_comes_back(
    sample: Path, tmp_path: Path, split: str, heights: bool, compression: str | None
) -> None:
    options: dict[str, Any] = {"heights": heights, "compression": compression}
    prepare("argoverse2", sample, tmp_path, workers=1, shard_size=4, progress=False, **options)
    store, folders = ScenarioStore(tmp_path, split), discover(sample)[split]
    assert len(store) == len(folders)
    assert store.scenario_ids == [folder.name for folder in folders]
    for found, folder in zip(store, folders, strict=True):
        check(found, read_scenario(folder), heights)


def test_every_shared_scenario_comes_back(shared: Path, through: Through) -> None:
    folders = sorted(path.parent for path in shared.glob("data/argoverse2/*/*/*/*.parquet"))
    if not folders:
        pytest.skip(f"TRAJPRED_SHARED: no scenarios in {shared}")
    given = [read_scenario(folder) for folder in folders]
    for heights in (False, True):
        for found, expected in zip(through(*given, heights=heights), given, strict=True):
            check(found, expected, heights)


def test_a_second_trip_changes_nothing(sample_store: Path, through: Through) -> None:
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
    "standing": {"velocity": np.zeros((2, 12, 2))},
    "crawling": {"velocity": np.full((2, 12, 2), 1e-9)},
    "as fast as a velocity unit allows": {"velocity": np.full((2, 12, 2), -32767 * 2.0**-9)},
    "a little faster": {"velocity": np.full((2, 12, 2), 32767.5 * 2.0**-9)},
    "absurdly fast": {"velocity": np.linspace(-1e300, 1e300, 48).reshape(2, 12, 2)},
    "headings all around": {"heading": np.linspace(-np.pi, np.pi, 24).reshape(2, 12)},
    "headings beyond a turn": {"heading": np.linspace(-20, 20, 24).reshape(2, 12)},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_made_scenarios_come_back(changes: dict[str, Any], through: Through) -> None:
    given = made(**changes)
    check(through(given)[0], given)


def test_scenarios_of_all_kinds_share_a_shard(through: Through) -> None:
    given = [made(**changes) for changes in VARIANTS.values()]
    for found, expected in zip(through(*given, heights=True), given, strict=True):
        check(found, expected, heights=True)


@pytest.mark.parametrize("heights", [False, True])
def test_every_part_of_a_map_comes_back(heights: bool, through: Through) -> None:
    given = made(position=np.zeros((1, 12, 2)), map=full_map())
    check(through(given, heights=heights)[0], given, heights)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("position", {"position": np.array([[[0.0, 0.0]] * 2, [[3e6, 0.0]] * 2])}),
        ("centerline", {"map": [[[0, 0], [1, 1]]]}),
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


def test_a_scenario_too_large_to_be_believed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    encode_row(made(), heights=False)
    monkeypatch.setattr("trajpred.store.codec.MAX_BYTES", 500)
    with pytest.raises(DataError, match="more than 500") as caught:
        encode_row(made(), heights=False)
    assert caught.value.field == "scenario"


def test_an_id_of_two_splits_is_looked_for_where_it_is_said(raw: Callable[..., Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    prepare("made", raw([made(scenario_id="a", city="here")]), store, workers=1, progress=False)
    shutil.copytree(store / "train", store / "val")
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["splits"]["val"] = manifest["splits"]["train"]
    other = raw([made(scenario_id="a", city="there")])
    prepare("made", other, tmp_path / "other", workers=1, progress=False)
    for file in ("shard-00000.arrow", "index.arrow"):
        shutil.copy(tmp_path / "other" / "train" / file, store / "val" / file)
    (store / "manifest.json").write_text(json.dumps(manifest))
    splits = {first: find_splits(store, ["a"], first)[0] for first in ("", "train", "val")}
    found = {first: split[split.index("a")].city for first, split in splits.items()}
    assert found == {"": "here", "train": "here", "val": "there"}


def test_a_store_can_be_read_while_it_is_rewritten(raw: Callable[..., Path], tmp_path: Path) -> None:
    given = [made(scenario_id=str(i)) for i in range(4)]
    prepare("made", raw(given), tmp_path / "store", workers=1, shard_size=2, progress=False)
    store = ScenarioStore(tmp_path / "store", "train")
    first = store[0]
    prepare("made", raw(given), tmp_path / "store", workers=1, shard_size=3, heights=True, progress=False)
    assert equal(store[0], first)
    assert equal(store[1], ScenarioStore(tmp_path / "store", "train")[1])
