"""Damaged stores: every damage is one DataError that names the file, or has no effect."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import equal, rejected
from tests.store.scenarios import index, shard
from trajpred.errors import DataError
from trajpred.store import ScenarioStore
from trajpred.store.format import SCHEMA, Rows
from trajpred.store.shards import SHARD, VERSION, is_intact, row_checksum


def test_a_missing_store_names_the_command_that_prepares_it(tmp_path: Path) -> None:
    store = tmp_path / "my store"
    error = rejected(lambda: ScenarioStore(store, "train"), store)
    assert error.message.endswith(f"--raw RAW_DIR --store '{store}'")


def test_a_store_of_another_version_names_the_command_that_prepares_it(tmp_path: Path) -> None:
    recorded = {
        "version": 1,
        "source": "argoverse2",
        "heights": True,
        "shard_size": 8,
        "splits": {},
    }
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
    contents = [*MANIFESTS, whole + " ", whole[:1], whole[:100], whole[:500]]
    for n in range(0, len(whole), 37):
        flipped = chr(ord(whole[n]) ^ 1)
        contents.append(whole[:n] + flipped + whole[n + 1 :])
    for content in contents:
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
    first = shard(folder)
    columns = index(folder)
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
    whole = list(ScenarioStore(copy, "val"))
    rng = np.random.default_rng(0)
    noticed = 0
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
    rows = Rows(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    checksums = [row_checksum(rows[row]) for row in range(len(arrays[0]))]
    sums = pa.array(checksums, pa.uint32())
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SHARD) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([*arrays, sums], schema=SHARD))


def first_bit_flipped(values: list[int]) -> list[int]:
    """Change whether the first step is valid, and nothing else of the first byte if it was."""
    first = values[0]
    return [first & 0x7F if first & 0x80 else 0x80, *values[1:]]


INCONSISTENT: list[tuple[str, Callable[[Any], Any]]] = [
    ("heading", lambda values: values[1:]),
    ("position", lambda values: values[1:]),
    ("valid", first_bit_flipped),
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
    end = start + offsets.nbytes
    path.write_bytes(content[:start] + offsets.tobytes() + content[end:])
    for row in (0, 1, 2):
        error = rejected(lambda row=row: ScenarioStore(copy, "val")[row], path)
        assert "offsets of" in error.message
