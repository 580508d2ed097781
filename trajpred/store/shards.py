"""The files of a store: shards, plain or compressed, and the index of a split. Memory-mapped for reading."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trajpred.errors import DataError
from trajpred.store.codec import MOST_BYTES, SCHEMA, encode_batch, ends_within
from trajpred.store.decoder import PARTS, views
from trajpred.store.packing import pack, unpack

#: Where a split keeps the index of its scenarios, :data:`INDEX`.
INDEX_FILE = "index.arrow"
#: The first columns of every shard, and all of ``index.arrow``: name, tracks seen in the observed part,
#: lane segments and crossings.
INDEX = pa.schema([SCHEMA.field(name) for name in ("scenario_id", "tracks", "lanes")])
_PAYLOAD = (("payload", pa.binary()), ("payload_bytes", pa.int32()), ("payload_crc32", pa.uint32()))
#: The columns of a shard written with ``compression="zstd"``.
PACKED = pa.schema([*INDEX, *(pa.field(name, kind, nullable=False) for name, kind in _PAYLOAD)])
#: What ``compression`` may be.
COMPRESSIONS = (None, "zstd")
_LEVEL = 3
_KINDS = list(PARTS.values())

#: Row -> its parts, see :mod:`trajpred.store.decoder`. Raises: ValueError on damage.
Shard = Callable[[int], list[NDArray[Any]]]


def write_shard(path: Path, rows: list[dict[str, Any]], compression: str | None) -> None:
    """Write rows made by :func:`~trajpred.store.codec.encode_row` to ``path``.

    Args:
        compression: None, or ``"zstd"`` to pack every row for itself.

    Raises:
        DataError: they are too many for one shard.
        OSError: the file cannot be written.
    """
    _write(path, encode_batch(rows) if compression is None else _packed(rows))


def write_index(path: Path, scenario_id: list[str], tracks: list[int], lanes: list[int]) -> None:
    """Write a split's ``index.arrow``: what the columns of these names hold in its shards, one after another.

    Raises: OSError.
    """
    _write(path, _record_batch({"scenario_id": scenario_id, "tracks": tracks, "lanes": lanes}, INDEX))


def are_windows(lengths: Any) -> bool:
    """Whether each of ``lengths`` is a window: observed steps, and all steps with these among them.

    Raises: TypeError or ValueError where they are no pairs.
    """
    return all(
        type(observed) is type(steps) is int and 0 < observed <= steps < 2**31 for observed, steps in lengths
    )


def _write(path: Path, batch: pa.RecordBatch) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _record_batch(columns: dict[str, list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(columns[column.name], column.type) for column in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _packed(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    codec = pa.Codec("zstd", compression_level=_LEVEL)
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in INDEX.names}
    columns |= {name: [] for name, _ in _PAYLOAD}
    for row in rows:
        data = pack(_parts(*views(encode_batch([row])), 0))
        payload = codec.compress(data, asbytes=True)
        columns["payload"].append(payload)
        columns["payload_bytes"].append(len(data))
        columns["payload_crc32"].append(zlib.crc32(payload))
    ends_within([len(payload) for payload in columns["payload"]], "payload")
    return _record_batch(columns, PACKED)


def open_index(path: Path, rows: int) -> pa.RecordBatch:
    """A split's ``index.arrow``. Raises: DataError."""
    return _mapped(path, rows, INDEX)


def open_shard(path: Path, index: pa.RecordBatch) -> Shard:
    """Open a shard that holds the scenarios in ``index``; reads offsets and names only. Raises: DataError."""
    batch = _mapped(path, index.num_rows, SCHEMA, PACKED)
    if not batch.column("scenario_id").equals(index.column("scenario_id")):
        raise DataError("does not hold the scenarios that the index names; prepare it again", file=path)
    if batch.schema == PACKED:
        return partial(_unpacked, *(batch.column(name) for name, _ in _PAYLOAD))
    try:
        return partial(_parts, *views(batch))
    except ValueError as error:
        raise DataError(f"shard is damaged ({error}); prepare it again", file=path) from None


def holds(path: Path, rows: dict[str, list[Any]]) -> bool:
    """Whether the columns of :data:`INDEX` in a shard are ``rows``.

    Raises: DataError; TypeError or ValueError if ``rows`` cannot be such columns.
    """
    expected = _record_batch(rows, INDEX)
    return bool(_mapped(path, expected.num_rows, SCHEMA, PACKED).select(INDEX.names).equals(expected))


def _mapped(path: Path, rows: int, *schemas: pa.Schema) -> pa.RecordBatch:
    try:
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        known = file.schema in schemas and file.num_record_batches == 1
        batch = file.get_batch(0) if known else pa.record_batch({})  # others are not worth their memory
        batch.validate()
        for column in batch.columns:
            if not pa.types.is_list(column.type):  # those are left to views()
                column.validate(full=True)  # Arrow would follow offsets out of memory
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"cannot be opened ({error}); prepare it again", file=path) from None
    nulls = any(column.null_count for column in batch.columns)
    if not known or batch.num_rows != rows or nulls:
        raise DataError("is not the file that the manifest names; prepare it again", file=path)
    return batch


def _parts(values: list[NDArray[Any]], offsets: NDArray[np.int32], row: int) -> list[NDArray[Any]]:
    bounds = offsets[:, row : row + 2].tolist()
    return [part[start:stop] for part, (start, stop) in zip(values, bounds, strict=True)]


def _unpacked(
    payloads: pa.BinaryArray, sizes: pa.Int32Array, checksums: pa.UInt32Array, row: int
) -> list[NDArray[Any]]:
    size, payload = sizes[row].as_py(), payloads[row].as_buffer()
    if not 0 <= size <= MOST_BYTES:
        raise ValueError(f"row {row} claims to be {size} bytes long")
    if zlib.crc32(payload) != checksums[row].as_py():
        raise ValueError(f"row {row} does not have its checksum")
    return unpack(pa.decompress(payload, decompressed_size=size, codec="zstd"), _KINDS)
