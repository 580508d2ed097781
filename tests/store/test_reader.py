"""Random access, batches equal to joined scenarios, bounded open files, and one DataError for any damage."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import SAMPLE, equal, rejected
from tests.features.scenes import assert_same
from tests.store.scenarios import OPTIONS, full_map, index, made, shard
from trajpred.errors import DataError
from trajpred.scenario_batch import ScenarioBatch
from trajpred.store import ScenarioStore, find_scenarios, prepare
from trajpred.store.codec import SCHEMA
from trajpred.store.decoder import views
from trajpred.store.manifest import VERSION
from trajpred.store.shards import SHARD, is_intact, row_checksum, sealed, unsealed

Raw = Callable[..., Path]


# ------------------------------------------------------------------------------------------------- batches


def test_batches_equal_joined_scenarios(raw: Raw, tmp_path: Path) -> None:
    """Real scenarios, and maps with and without heights, lanes and crossings; any rows in any order."""
    kinds: list[dict[str, Any]] = [
        {"map": None, "scenario_id": "no map"},
        {"map": full_map(), "position": np.random.default_rng(1).normal(size=(1, 12, 2))},
        {"map": full_map(), "position": np.zeros((300, 12, 2)), "scenario_id": "日本"},
        {"track_id": [" ", "Ä東京 and more"], "step_s": 1 / 3},
        {"focal": 1, "velocity": np.full((2, 12, 2), 1e6)},
    ]
    options = OPTIONS | {"heights": True}
    prepare("argoverse2", SAMPLE, tmp_path / "real", **options)
    given = [made(**{"scenario_id": str(i)} | kind) for i, kind in enumerate(kinds)]
    prepare("made", raw([*given]), tmp_path / "made", **options)
    for name in ("real", "made"):
        store = ScenarioStore(tmp_path / name, "train")
        one_by_one = list(store)
        rows = np.random.default_rng(0).integers(len(store), size=12)
        for chosen in (range(len(store)), [3, 1], [2, 1], [1, 1], rows):
            assert_same(store.batch(chosen), ScenarioBatch.of([one_by_one[int(row)] for row in chosen]))
        tracks, lanes = store.sizes
        for one, seen, elements in zip(one_by_one, tracks, lanes, strict=True):
            assert seen == one.tracks.valid[:, : one.num_observed].any(1).sum()
            assert elements == len(one.map) + len(one.map.crossing_id)


def test_batches_of_different_windows_and_rows_out_of_range_are_rejected(raw: Raw, tmp_path: Path) -> None:
    given = [made(scenario_id=name, num_observed=steps) for name, steps in (("a", 8), ("b", 7), ("c", 8))]
    prepare("made", raw([*given]), tmp_path / "store", **OPTIONS)
    store = ScenarioStore(tmp_path / "store", "train")
    assert len(store.batch([0, 2])) == 2
    with pytest.raises(DataError, match="window lengths differ"):
        store.batch([0, 1])
    with pytest.raises(DataError, match="mixes window lengths"):
        _ = store.lengths
    with pytest.raises(DataError):
        store.batch([])
    for row in (-1, 3):
        for read in (store.__getitem__, lambda row: store.batch([0, row])):
            with pytest.raises(IndexError):
                read(row)


# -------------------------------------------------------------------------------------------------- access


def test_rows_ids_and_lengths_agree_also_in_a_pickled_store(sample_store: Path) -> None:
    store = ScenarioStore(sample_store, "train")
    given = list(store)
    assert store.lengths == (50, 60)
    assert [one.scenario_id for one in given] == store.scenario_ids
    for row in np.random.default_rng(0).permutation(len(store)):
        assert equal(store[row], given[row]) and store.index(given[row].scenario_id) == row
    with pytest.raises(DataError, match="missing"):
        store.index("missing")
    content = pickle.dumps(store)
    assert len(content) < 10_000 and equal(pickle.loads(content)[7], given[7])


def test_a_subset_is_a_store_of_its_own(sample_store: Path) -> None:
    store = ScenarioStore(sample_store, "train")
    part = store.subset(np.array([7, 2, 3]))
    assert len(part) == 3 and len(store) == 10 and part.lengths == store.lengths
    assert part.scenario_ids == [store.scenario_ids[row] for row in (7, 2, 3)]
    copy = pickle.loads(pickle.dumps(part))
    assert all(equal(one, store[row]) for one, row in zip(copy, (7, 2, 3), strict=True))
    assert part.index(store.scenario_ids[3]) == 2 and store.scenario_ids[0] not in part
    assert [sizes.tolist() for sizes in part.sizes] == [sizes[[7, 2, 3]].tolist() for sizes in store.sizes]
    assert part.subset(np.array([False, True, True])).scenario_ids == part.scenario_ids[1:]
    with pytest.raises(IndexError):
        part[3]


def test_few_shards_are_open_at_a_time(raw: Raw, tmp_path: Path) -> None:
    if not Path("/proc/self/maps").exists():
        pytest.skip("no /proc on this system")

    def maps() -> int:
        return sum(f"{tmp_path / 'store'}/" in line for line in Path("/proc/self/maps").open())

    folder = raw([made(scenario_id=f"{i:03}", map=None) for i in range(66)])
    prepare("made", folder, tmp_path / "store", **OPTIONS | {"shard_size": 1})
    store = ScenarioStore(tmp_path / "store", "train")
    assert [store[i].scenario_id for i in (0, 3, 0)] == ["000", "003", "000"]
    assert maps() == 3  # two shards and the index
    assert store.batch(range(66)).scenario_id.tolist() == store.scenario_ids
    assert maps() == 65
    del store
    assert maps() == 0


def test_a_scenario_is_found_by_an_unambiguous_start_of_its_id(sample_store: Path, copy: Path) -> None:
    splits = ("train", "val", "test")
    ids = [name for split in splits for name in ScenarioStore(sample_store, split).scenario_ids]
    for name in ids:
        assert [found for found, _ in find_scenarios(sample_store, [name[:8], name])] == [name, name]
    manifest = unsealed((copy / "manifest.json").read_text())
    shutil.copytree(copy / "val", copy / "train2")
    manifest["splits"]["train2"] = manifest["splits"]["val"]
    (copy / "manifest.json").write_text(sealed(manifest))
    name = ScenarioStore(copy, "val").scenario_ids[0]
    for first in ("val", "train2"):
        assert [rows.split for _, rows in find_scenarios(copy, [name], first)] == [first]
    with pytest.raises(DataError, match="no split holds scenario 'missing'"):
        find_scenarios(sample_store, ["missing"])
    several = [name for name in sorted(ids) if name.startswith("0a")]
    with pytest.raises(DataError, match=f"{len(several)} scenarios start with '0a': {', '.join(several)}"):
        find_scenarios(sample_store, ["0a"])


# -------------------------------------------------------------------------------------------------- damage


def test_a_missing_store_names_the_command_that_prepares_it(tmp_path: Path) -> None:
    store = tmp_path / "my store"
    error = rejected(lambda: ScenarioStore(store, "train"), store)
    assert error.message.endswith(f"--raw RAW_DIR --store '{store}'")


def test_a_store_of_another_version_names_the_command_that_prepares_it(tmp_path: Path) -> None:
    recorded = {"version": 1, "source": "argoverse2", "heights": True, "shard_size": 8, "splits": {}}
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(recorded))
    message = rejected(lambda: ScenarioStore(tmp_path, "train"), path).message
    reads = f"store version 1, this trajpred reads version {VERSION}; prepare it with: trajpred "
    assert message.startswith(reads)
    assert message.endswith(f"argoverse2 --raw RAW_DIR --store {tmp_path} --heights --shard_size 8")


MANIFESTS = ["", "[]", "{}", "\xff", '{"version": "3"}']


def test_damaged_manifests_are_rejected(copy: Path) -> None:
    path = copy / "manifest.json"
    whole = path.read_text()
    flipped = [whole[:n] + chr(ord(whole[n]) ^ 1) + whole[n + 1 :] for n in range(0, len(whole), 37)]
    for content in (*MANIFESTS, *flipped, whole + " ", *(whole[:n] for n in (1, 100, 500))):
        path.write_bytes(content.encode("latin-1"))
        with pytest.raises(DataError) as caught:
            ScenarioStore(copy, "train")
        assert caught.value.file == path
    path.write_text(whole)
    assert "train" in rejected(lambda: ScenarioStore(copy, "validation"), copy).message


@pytest.mark.parametrize("share", [0, 0.9999])
@pytest.mark.parametrize("name", ["shard", "index"])
def test_truncated_files_are_named_and_others_stay_readable(copy: Path, name: str, share: float) -> None:
    path = index(copy / "train") if name == "index" else shard(copy / "train", 1)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    store = ScenarioStore(copy, "train")
    assert "prepare it again" in rejected(lambda: store[4], path).message
    rejected(lambda: store.batch([0, 5, 7]), path)
    if name != "index":
        assert store[2].scenario_id != store[6].scenario_id


def test_missing_and_exchanged_files_are_named(copy: Path) -> None:
    folder = copy / "val"
    first, columns = shard(folder), index(folder)
    first.rename(folder / "moved")
    rejected(lambda: ScenarioStore(copy, "val")[0], first)
    shutil.copy(shard(folder, 1), first)
    rejected(lambda: ScenarioStore(copy, "val")[0], first)
    shutil.copy(shard(copy / "train"), first)  # as many rows, other scenarios
    rejected(lambda: ScenarioStore(copy, "val")[0], first)
    shutil.copy(index(copy / "train"), columns)
    rejected(lambda: ScenarioStore(copy, "val").sizes, columns)
    columns.unlink()
    rejected(lambda: ScenarioStore(copy, "val").scenario_ids, columns)


def test_any_changed_byte_is_noticed_or_has_no_effect(copy: Path) -> None:
    """In shards and indices; the bytes without effect pad values or state lengths twice."""
    whole, rng, noticed = list(ScenarioStore(copy, "val")), np.random.default_rng(0), 0
    for path in (shard(copy / "val"), index(copy / "val")):
        content = path.read_bytes()
        for place in rng.integers(len(content), size=60):
            damaged = bytearray(content)
            damaged[place] ^= 1 << rng.integers(8)
            path.unlink()  # not overwritten: earlier stores have it mapped
            path.write_bytes(damaged)
            assert not is_intact(path)
            try:
                assert all(map(equal, ScenarioStore(copy, "val"), whole))
            except DataError as error:
                assert error.file == path
                noticed += 1
        path.unlink()
        path.write_bytes(content)
    assert noticed > 110


def rewrite(path: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Change a value of the second scenario of a shard and its checksum, as a faulty writer would."""
    with pa.OSFile(str(path)) as source:
        columns = pa.ipc.open_file(source).get_batch(0).to_pydict()
    columns[name][1] = change(columns[name][1])
    arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
    values, offsets = views(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    rows = [[v[o[i] : o[i + 1]] for v, o in zip(values, offsets, strict=True)] for i in range(len(arrays[0]))]
    sums = pa.array([row_checksum(row) for row in rows], pa.uint32())
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SHARD) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([*arrays, sums], schema=SHARD))


INCONSISTENT: list[tuple[str, Callable[[Any], Any]]] = [
    ("heading", lambda values: values[1:]),
    ("position", lambda values: values[1:]),
    ("valid", lambda values: [values[0] & 0x7F if values[0] & 0x80 else 0x80, *values[1:]]),
    ("valid", lambda values: [*values, 0]),
    ("track_id", lambda values: values[1:]),
    ("object_type", lambda values: [*values, 0]),
    ("lane_id", lambda values: values[1:]),
    ("centerline_lengths", lambda values: [values[0] + 1, *values[1:]]),
    ("successors_lengths", lambda v: [-1, v[0] + v[1] + 1, *v[2:]]),
    ("centerline_height", lambda values: [1.0]),
    ("timestamps_ns", lambda values: []),
    ("focal", lambda value: 10**6),
    ("focal", lambda value: -1),
]


def test_inconsistent_columns_are_rejected(copy: Path) -> None:
    path = shard(copy / "val")
    whole = path.read_bytes()
    for name, change in INCONSISTENT:
        path.unlink()  # not overwritten: earlier stores have it mapped
        path.write_bytes(whole)
        rewrite(path, name, change)
        store = ScenarioStore(copy, "val")
        rejected(lambda store=store: store[1], path)
        rejected(lambda store=store: store.batch([4, 0, 1]), path)
        assert len(store.batch([0, 2])) == 2


def test_offsets_out_of_range_are_rejected(copy: Path) -> None:
    path = shard(copy / "val")
    content = path.read_bytes()
    with pa.OSFile(str(path)) as source:
        offsets = pa.ipc.open_file(source).get_batch(0).column("position").offsets.to_numpy().copy()
    start = content.index(offsets.tobytes())
    offsets[2] = 2**30
    path.write_bytes(content[:start] + offsets.tobytes() + content[start + offsets.nbytes :])
    for row in (0, 1, 2):
        assert "offsets of" in rejected(lambda row=row: ScenarioStore(copy, "val")[row], path).message
