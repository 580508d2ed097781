"""Damaged stores: every damage is one DataError that names the file, or has no effect."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import equal, rejected, rejects
from tests.store.scenarios import index, shard
from trajpred.errors import DataError
from trajpred.store import ScenarioStore
from trajpred.store.reader import VERSION, is_intact


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


def test_damaged_manifests_are_rejected(copy: Path) -> None:
    path = copy / "manifest.json"
    whole = path.read_text()
    contents = ["", "[]", "{}", "\xff", '{"version": "3"}', whole + " ", whole[:1], whole[:100], whole[:500]]
    for n in range(0, len(whole), 37):
        flipped = chr(ord(whole[n]) ^ 1)
        contents.append(whole[:n] + flipped + whole[n + 1 :])
    for content in contents:
        path.write_bytes(content.encode("latin-1"))
        caught = rejects("", ScenarioStore, copy, "train")
        assert caught.file == path
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


def test_rows_of_wrong_offsets_are_rejected_and_others_stay_readable(copy: Path) -> None:
    path = shard(copy / "val")
    first = ScenarioStore(copy, "val")[0]
    content = path.read_bytes()
    with pa.OSFile(str(path)) as source:
        offsets = pa.ipc.open_file(source).get_batch(0).column("position").offsets.to_numpy().copy()
    start = content.index(offsets.tobytes())
    for wrong in (2**30, -1, 0):
        offsets[2] = wrong
        path.unlink()  # not overwritten: earlier stores have it mapped
        path.write_bytes(content[:start] + offsets.tobytes() + content[start + offsets.nbytes :])
        store = ScenarioStore(copy, "val")
        assert equal(store[0], first)
        for row in (1, 2):
            error = rejected(lambda row=row, store=store: store[row], path)
            assert f"shard is damaged (row {row} has a wrong checksum)" in error.message
