"""Write, verify and memory-map the files of a store: shards, plain or compressed, and each split's index."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trajpred.errors import DataError
from trajpred.store.codec import MAX_BYTES, SCHEMA, encode_batch, ends_within
from trajpred.store.decoder import PARTS, views

#: First columns of every shard, and all columns of the index: name, number of tracks with an observed state,
#: number of lane segments and crossings.
INDEX = pa.schema([SCHEMA.field(name) for name in ("scenario_id", "tracks", "lanes")])
#: The columns of a plain shard: those of a scenario, and their checksum.
PLAIN = SCHEMA.append(pa.field("crc32", pa.uint32(), nullable=False))
_PAYLOAD = (("payload", pa.binary()), ("payload_bytes", pa.int32()), ("payload_crc32", pa.uint32()))
#: The columns of a shard written with ``compression="zstd"``.
PACKED = pa.schema([*INDEX, *(pa.field(name, kind, nullable=False) for name, kind in _PAYLOAD)])
COMPRESSIONS = (None, "zstd")
_LEVEL = 3
_KINDS = list(PARTS.values())

#: Function from a row to its parts, see :mod:`trajpred.store.decoder`. Raises ValueError on damage.
Shard = Callable[[int], list[NDArray[Any]]]


def write_shard(path: Path, rows: list[dict[str, Any]], compression: str | None) -> None:
    """Write rows made by :func:`~trajpred.store.codec.encode_row`; ``"zstd"`` compresses each separately.

    Raises: DataError if there are too many rows for one shard; OSError.
    """
    _write(path, _plain(rows) if compression is None else _packed(rows))


def write_index(path: Path, scenario_id: list[str], tracks: list[int], lanes: list[int]) -> None:
    """Write a split's index from the columns of its shards, concatenated. Raises: OSError."""
    _write(path, _record_batch({"scenario_id": scenario_id, "tracks": tracks, "lanes": lanes}, INDEX))


def _write(path: Path, batch: pa.RecordBatch) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _record_batch(columns: dict[str, list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(columns[column.name], column.type) for column in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plain(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    batch = encode_batch(rows)
    values, offsets = views(batch)
    crc32 = [row_checksum(_parts(values, offsets, row)) for row in range(len(rows))]
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(crc32, pa.uint32())], schema=PLAIN)


def row_checksum(parts: Sequence[NDArray[Any]]) -> int:
    """Return the CRC-32 of the number of entries of each part (int32), followed by all entries."""
    value = zlib.crc32(np.array([len(part) for part in parts], "<i4").data)
    for part in parts:
        value = zlib.crc32(part.data, value)
    return value


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
    """Open the index of a split, and verify its checksum. Raises: DataError."""
    batch = _mapped(path, rows, INDEX)
    if not is_intact(path):
        raise DataError("is damaged (its checksum is wrong); prepare it again", file=path)
    return batch


def open_shard(path: Path, index: pa.RecordBatch) -> Shard:
    """Open the shard with the scenarios of ``index``; reads offsets and names only. Raises: DataError."""
    batch = _mapped(path, index.num_rows, PLAIN, PACKED)
    if not batch.column("scenario_id").equals(index.column("scenario_id")):
        raise DataError("does not hold the scenarios of the index; prepare it again", file=path)
    if batch.schema == PACKED:
        return partial(_unpacked, *(batch.column(name) for name, _ in _PAYLOAD))
    try:
        return partial(_verified, *views(batch.select(SCHEMA.names)), batch.column("crc32"))
    except ValueError as error:
        raise DataError(f"shard is damaged ({error}); prepare it again", file=path) from None


def _mapped(path: Path, rows: int, *schemas: pa.Schema) -> pa.RecordBatch:
    try:
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        known = file.schema in schemas and file.num_record_batches == 1
        batch = file.get_batch(0) if known else pa.record_batch({})  # other files are not read
        batch.validate()
        for column in batch.columns:
            if not pa.types.is_list(column.type):  # views() checks lists
                column.validate(full=True)  # otherwise Arrow would follow offsets out of bounds
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"cannot be opened ({error}); prepare it again", file=path) from None
    nulls = any(column.null_count for column in batch.columns)
    if not known or batch.num_rows != rows or nulls:
        raise DataError("is not the file named in the manifest; prepare it again", file=path)
    return batch


def _parts(values: list[NDArray[Any]], offsets: NDArray[np.int32], row: int) -> list[NDArray[Any]]:
    bounds = offsets[:, row : row + 2].tolist()
    return [part[start:stop] for part, (start, stop) in zip(values, bounds, strict=True)]


def _verified(
    values: list[NDArray[Any]], offsets: NDArray[np.int32], checksums: pa.UInt32Array, row: int
) -> list[NDArray[Any]]:
    parts = _parts(values, offsets, row)
    if row_checksum(parts) != checksums[row].as_py():
        raise ValueError(f"row {row} has a wrong checksum")
    return parts


def _unpacked(
    payloads: pa.BinaryArray, sizes: pa.Int32Array, checksums: pa.UInt32Array, row: int
) -> list[NDArray[Any]]:
    size, payload = sizes[row].as_py(), payloads[row].as_buffer()
    if not 0 <= size <= MAX_BYTES:
        raise ValueError(f"row {row} claims a length of {size} bytes")
    if zlib.crc32(payload) != checksums[row].as_py():
        raise ValueError(f"row {row} has a wrong checksum")
    return unpack(pa.decompress(payload, decompressed_size=size, codec="zstd"), _KINDS)


#: Bytes per value of the groups of a packed row, in order.
_SIZES = (1, 2, 4, 8)


def pack(parts: Sequence[NDArray[Any]]) -> bytes:
    """Serialise ``P`` arrays ``[n]`` or ``[n, width]`` so that zstd compresses them twice as well.

    The result holds P counts n (int32), then four groups: the arrays with values of 1, 2, 4 and 8 bytes. A
    group is an integer array of differences to the value two places before (x to x, y to y), modulo the
    range, stored as all lowest bytes first, then all second bytes, and so on.
    """
    counts = np.array([len(part) for part in parts], "<i4")
    groups = [
        np.concatenate([np.zeros(0, f"<i{size}"), *(_whole(part) for part in parts if part.itemsize == size)])
        for size in _SIZES
    ]
    return b"".join([counts.tobytes(), *(_shuffled(group) for group in groups)])


def _whole(part: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(part).reshape(-1).view(f"<i{part.itemsize}")


def _shuffled(values: NDArray[Any]) -> bytes:
    steps = values.copy()
    steps[2:] -= values[:-2]
    return steps.view(np.uint8).reshape(len(values), values.itemsize).T.tobytes()


def unpack(data: Any, kinds: Sequence[tuple[np.dtype[Any], int]]) -> list[NDArray[Any]]:
    """Invert :func:`pack` for these types and widths. Raises: ValueError if the length is wrong."""
    counts = np.frombuffer(data, "<i4", len(kinds)).astype(np.int64)
    values = counts * [width for _, width in kinds]
    sizes = np.array([kind.itemsize for kind, _ in kinds])
    if (counts < 0).any() or counts.size * 4 + values @ sizes != len(data):
        raise ValueError("a packed row does not have the length that its counts imply")
    parts: dict[int, NDArray[Any]] = {}
    start = counts.size * 4
    for size in _SIZES:
        own = np.flatnonzero(sizes == size)
        ends = np.cumsum(values[own])
        total = int(ends[-1])
        group = _unshuffled(np.frombuffer(data, np.uint8, total * size, start), size)
        start += total * size
        for i, stop, count in zip(own.tolist(), ends.tolist(), values[own].tolist(), strict=True):
            kind, width = kinds[i]
            part = group[stop - count : stop].view(kind)
            parts[i] = part if width == 1 else part.reshape(-1, width)
    return [parts[i] for i in range(len(kinds))]


def _unshuffled(data: NDArray[np.uint8], size: int) -> NDArray[Any]:
    steps = np.empty((len(data) // size, size), np.uint8)
    for place, plane in enumerate(data.reshape(size, -1)):
        steps[:, place] = plane
    values = steps.reshape(-1).view(f"<i{size}")
    for half in (values[0::2], values[1::2]):
        np.add.accumulate(half, out=half)
    return values


# ------------------------------------------------------------------------------------------- checksums


def checksum(path: Path) -> str:
    """Return eight digits that depend on every byte of a file. Raises: OSError."""
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            value = zlib.crc32(chunk, value)
    return f"{value:08x}"


def signed_name(stem: str, path: Path) -> str:
    """Return ``STEM-CHECKSUM.arrow``, the name for the content of ``path``."""
    return f"{stem}-{checksum(path)}.arrow"


def is_intact(path: Path) -> bool:
    """Return whether a file has the content that its name was made for. Raises: OSError."""
    return path.stem.rpartition("-")[2] == checksum(path)


def record_of(shard: Path) -> Path:
    """Return the path of a shard's record."""
    return shard.with_name(f"{shard.stem.rpartition('-')[0]}.json")


def sealed(values: dict[str, Any]) -> str:
    """Serialise ``values`` with their checksum."""
    crc32 = zlib.crc32(_text(values).encode())
    return _text({"crc32": crc32, **values})


def unsealed(text: str) -> dict[str, Any]:
    """Invert :func:`sealed`. Raises: ValueError if any byte has changed."""
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("is not an object")
    values.pop("crc32", None)
    if sealed(values) != text:
        raise ValueError("its checksum is wrong")
    return values


def _text(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=1) + "\n"
