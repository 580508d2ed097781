"""Readers of a store, and of what others make of one again: small stores of two shrunk scenes."""

from __future__ import annotations

import json
import shutil
import zlib
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa

from tests.fuzz.mutate import Mutator, spoil_bytes, spoil_json, stacked
from tests.fuzz.raw_readers import small_scenario
from tests.fuzz.reader import Reader, of_file
from tests.fuzz.tables import fitting, spoil_ipc, to_parquet
from trajpred.errors import DataError
from trajpred.sources import SOURCES, Source
from trajpred.sources.argoverse2 import read_scenario
from trajpred.store import ScenarioStore, prepare
from trajpred.store.shards import PACKED


def scenes(folder: Path) -> Path:
    """A raw folder of two scenes in Argoverse 2's layout."""
    table, archive = small_scenario()
    for name in ("a", "b"):
        scene = folder / "val" / name
        scene.mkdir(parents=True)
        (scene / f"scenario_{name}.parquet").write_bytes(to_parquet(table))
        (scene / f"log_map_archive_{name}.json").write_text(json.dumps(archive))
    return folder


def _store(folder: Path, compression: str | None) -> Path:
    """A store of two scenes, which differ in their names alone."""

    def read(path: Path) -> object:
        return replace(read_scenario(path), scenario_id=path.name)

    raw, store = scenes(folder / "raw"), folder / "store"
    SOURCES["renamed"] = Source(SOURCES["argoverse2"].discover, read)
    try:
        prepare("renamed", raw, store, workers=1, compression=compression, progress=False)
    finally:
        del SOURCES["renamed"]
    return store


def _use(store: Path) -> None:
    """Everything that is read of a store."""
    rows = ScenarioStore(store, "val")
    _ = rows.lengths, rows.sizes, rows.scenario_ids, "b" in rows
    for row in range(min(len(rows), 3)):
        rows[row].validate()
    rows.batch(range(min(len(rows), 3)))


def _reader(folder: Path, file: str, *mutators: Mutator, compression: str | None = None) -> Reader:
    store = _store(folder, compression)
    path = store / file
    return Reader((path.read_bytes(),), stacked(*mutators), of_file(path, lambda: _use(store)))


def manifest(folder: Path) -> Reader:
    return _reader(folder, "manifest.json", spoil_json, spoil_json, spoil_bytes)


def index(folder: Path) -> Reader:
    return _reader(folder, "val/index.arrow", spoil_ipc, spoil_bytes)


def shard(folder: Path) -> Reader:
    return _reader(folder, "val/shard-00000.arrow", spoil_ipc, spoil_bytes)


def packed_shard(folder: Path) -> Reader:
    mutators = (spoil_ipc, spoil_bytes, _spoil_payload, _spoil_payload)
    return _reader(folder, "val/shard-00000.arrow", *mutators, compression="zstd")


def _spoil_payload(random: Random, data: bytes) -> bytes:
    """Change what is inside a packed row, and make its size and checksum right again."""
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        table.validate(full=True)
        payload, size = table["payload"].to_pylist(), table["payload_bytes"].to_pylist()
        content = spoil_bytes(random, pa.decompress(payload[0], size[0], "zstd", asbytes=True))
        payload[0] = pa.compress(content, "zstd", asbytes=True)
        size[0] = len(content) if random.random() < 0.9 else random.choice(fitting(pa.int32()))
        columns = {"payload": payload, "payload_bytes": size, "payload_crc32": [*map(zlib.crc32, payload)]}
        for name, values in columns.items():
            at = PACKED.get_field_index(name)
            table = table.set_column(at, PACKED.field(at), [pa.array(values, PACKED.field(at).type)])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, PACKED) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue().to_pybytes())
    except Exception:  # what Arrow makes of a spoilt file is not what is tested here
        return spoil_bytes(random, data)


def record(folder: Path) -> Reader:
    """What a shard was made from: read when the store is prepared again."""
    raw, whole, store = scenes(folder / "raw"), folder / "whole", folder / "store"

    def again() -> None:
        prepare("argoverse2", raw, store, workers=1, progress=False)

    prepare("argoverse2", raw, whole, workers=1, progress=False)

    def read(content: bytes) -> None:
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(whole, store)
        (store / "val" / "shard-00000.json").write_bytes(content)
        again()
        try:
            _use(store)
        except DataError as error:
            raise AssertionError("prepare left a damaged store") from error

    seed = (whole / "val" / "shard-00000.json").read_bytes()
    return Reader((seed,), stacked(spoil_json, spoil_json, spoil_bytes), read, rate=0.2)


READERS = {
    "store manifest (JSON)": manifest,
    "store index (Arrow)": index,
    "store shard (Arrow)": shard,
    "store shard, packed (Arrow, zstd)": packed_shard,
    "store record (JSON)": record,
}
