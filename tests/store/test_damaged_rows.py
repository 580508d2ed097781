"""Damage within a shard or index gives what was written, or one DataError, and never a crash."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.store.damage import refused
from trajpred.store import ScenarioStore, prepare
from trajpred.store.codec import MAX_BYTES, SCHEMA
from trajpred.store.shards import PACKED, pack


@pytest.fixture
def store(sample_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sample_store, tmp_path / "store"))


@pytest.fixture(scope="session")
def zstd_store(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The validation split of the sample, compressed. Not to be written to."""
    folder = tmp_path_factory.mktemp("zstd")
    shutil.copytree(sample / "val", folder / "raw" / "val")
    options: dict[str, Any] = {"workers": 1, "shard_size": 3, "progress": False}
    prepare("argoverse2", folder / "raw", folder / "store", compression="zstd", **options)
    return folder / "store"


@pytest.fixture
def packed(zstd_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(zstd_store, tmp_path / "packed"))


#: In a process of its own, because what is tested is that it does not crash.
FUZZ = """
import random, sys, warnings
from pathlib import Path
from trajpred.errors import DataError
from trajpred.store import ScenarioStore

warnings.simplefilter("ignore")
path, random_, refused = Path(sys.argv[1]), random.Random(int(sys.argv[2])), 0
content = path.read_bytes()
zones = [range(9000), range(len(content) - 9000, len(content)), range(len(content))]
for i in range(300):
    damaged = bytearray(content)
    for _ in range(3):
        zone = zones[i % 3]
        damaged[random_.randrange(max(zone.start, 0), min(zone.stop, len(content)))] = random_.randrange(256)
    path.write_bytes(damaged)
    try:
        scenarios = ScenarioStore(path.parents[1], path.parent.name)
        scenarios[0], scenarios.batch([0]), scenarios.scenario_ids, scenarios.sizes
    except DataError:
        refused += 1
print(refused)
"""


def fuzz(file: Path, seed: int) -> int:
    command = [sys.executable, "-c", FUZZ, str(file), str(seed)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    return int(run.stdout)


@pytest.mark.parametrize("seed", [0, 1])
def test_random_damage_gives_a_scenario_or_a_data_error(store: Path, seed: int) -> None:
    assert fuzz(store / "test" / "shard-00000.arrow", seed) > 30


def test_random_damage_to_a_compressed_shard(packed: Path) -> None:
    assert fuzz(packed / "val" / "shard-00000.arrow", 0) > 100


def test_random_damage_to_an_index(store: Path) -> None:
    assert fuzz(store / "test" / "index.arrow", 0) > 100


# ---------------------------------------------------------------------------------- columns and payloads


def rewritten(path: Path, change: Callable[[dict[str, list[Any]]], Any], schema: pa.Schema) -> None:
    """The Arrow file with other content in its columns."""
    with pa.OSFile(str(path)) as source:
        columns = pa.ipc.open_file(source).get_batch(0).to_pydict()
    change(columns)
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def spoilt(name: str, change: Callable[[list[Any]], Any]) -> Callable[[dict[str, list[Any]]], Any]:
    """A change to the second scenario's values of one column."""

    def spoil(columns: dict[str, list[Any]]) -> None:
        columns[name][1] = change(columns[name][1])

    return spoil


WRONG_COLUMNS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a heading less": ("heading", lambda values: values[1:]),
    "a position less": ("position", lambda values: values[1:]),
    "a bit less": ("valid", lambda values: [values[0] & 0x7F if values[0] & 0x80 else 0x80, *values[1:]]),
    "a byte more": ("valid", lambda values: [*values, 0]),
    "a track less": ("track_id", lambda values: values[1:]),
    "a type more": ("object_type", lambda values: [*values, 0]),
    "a lane less": ("lane_id", lambda values: values[1:]),
    "an intersection less": ("is_intersection", lambda values: values[1:]),
    "a longer lane": ("centerline_lengths", lambda values: [values[0] + 1, *values[1:]]),
    "a lane of negative length": ("successors_lengths", lambda v: [-1, v[0] + v[1] + 1, *v[2:]]),
    "heights of some points": ("centerline_height", lambda values: [1.0]),
    "no steps": ("timestamps_ns", lambda values: []),
    "a focal track too high": ("focal", lambda value: 10**6),
    "a negative focal track": ("focal", lambda value: -1),
}


@pytest.mark.parametrize(("name", "change"), WRONG_COLUMNS.values(), ids=WRONG_COLUMNS.keys())
def test_columns_that_contradict_each_other(store: Path, name: str, change: Callable[[Any], Any]) -> None:
    path = store / "val" / "shard-00000.arrow"
    rewritten(path, spoilt(name, change), SCHEMA)
    scenarios = ScenarioStore(store, "val")
    refused(lambda: scenarios[1], path)
    refused(lambda: scenarios.batch([4, 0, 1]), path)
    assert len(scenarios.batch([0, 2])) == 2


@pytest.mark.parametrize("wrong", [-1, 0, 2**30])
def test_offsets_that_lead_astray(store: Path, wrong: int) -> None:
    """Noticed when the shard is opened, for its other rows as well."""
    path = store / "val" / "shard-00000.arrow"
    content = path.read_bytes()
    with pa.OSFile(str(path)) as source:
        offsets = pa.ipc.open_file(source).get_batch(0).column("position").offsets.to_numpy().copy()
    start = content.index(offsets.tobytes())
    offsets[2] = wrong
    path.write_bytes(content[:start] + offsets.tobytes() + content[start + offsets.nbytes :])
    for row in (0, 1, 2):
        assert "offsets of" in refused(lambda row=row: ScenarioStore(store, "val")[row], path).message


def test_any_changed_bit_of_a_payload_is_noticed(packed: Path) -> None:
    path = packed / "val" / "shard-00000.arrow"
    content = path.read_bytes()
    with pa.OSFile(str(path)) as source:
        payload = pa.ipc.open_file(source).get_batch(0).column("payload")[1].as_py()
    start, rng = content.index(payload), np.random.default_rng(0)
    for place in rng.integers(len(payload), size=30):
        damaged = bytearray(content)
        damaged[start + place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        scenarios = ScenarioStore(packed, "val")
        assert "checksum" in refused(lambda s=scenarios: s[1], path).message
        refused(lambda s=scenarios: s.batch([0, 1]), path)
        assert scenarios[0].validate()


@pytest.mark.parametrize("size", [-1, 0, 1, 2**20, MAX_BYTES + 1, 2**31 - 1])
def test_a_payload_that_claims_another_size(packed: Path, size: int) -> None:
    path = packed / "val" / "shard-00000.arrow"
    rewritten(path, spoilt("payload_bytes", lambda _: size), PACKED)
    error = refused(lambda: ScenarioStore(packed, "val")[1], path)
    assert ("claims a length" in error.message) == (not 0 <= size <= MAX_BYTES)  # before any memory is taken


def payloads() -> dict[str, bytes]:
    few = pack([np.zeros(3, np.int32)])
    return {"empty": b"", "zeros": bytes(10**6), "another row": few, "counts": b"\xff" * 400}


@pytest.mark.parametrize("data", payloads().values(), ids=payloads().keys())
def test_a_payload_of_something_else(packed: Path, data: bytes) -> None:
    """Checksum and size are right, so that the content itself is looked at."""
    path = packed / "val" / "shard-00000.arrow"
    payload = pa.compress(data, codec="zstd", asbytes=True)

    def change(columns: dict[str, list[Any]]) -> None:
        columns["payload"][1], columns["payload_bytes"][1] = payload, len(data)
        columns["payload_crc32"][1] = zlib.crc32(payload)

    rewritten(path, change, PACKED)
    refused(lambda: ScenarioStore(packed, "val")[1], path)
    assert ScenarioStore(packed, "val")[0].validate()
