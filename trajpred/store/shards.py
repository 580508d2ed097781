"""Shards of a store and its manifest: files with checksums that are written and verified."""

from __future__ import annotations

import json
import shlex
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trajpred.errors import DataError
from trajpred.store.codec import SCHEMA, encode_batch
from trajpred.store.decoder import part_lengths, views

#: First columns of every shard, and all columns of the index: name, number of tracks with an observed state,
#: number of lane segments and crossings.
INDEX = pa.schema([SCHEMA.field(name) for name in ("scenario_id", "tracks", "lanes")])
#: The columns of a shard: those of a scenario, and their checksum.
SHARD = SCHEMA.append(pa.field("crc32", pa.uint32(), nullable=False))

#: Function from a row to its parts, see :mod:`trajpred.store.decoder`. Raises ValueError on damage.
Shard = Callable[[int], list[NDArray[Any]]]


def write_shard(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows made by :func:`~trajpred.store.codec.encode_row`.

    Raises: DataError if there are too many rows for one shard; OSError.
    """
    batch = encode_batch(rows)
    values, offsets = views(batch)
    crc32: list[int] = []
    for row in range(len(rows)):
        parts = _parts(values, offsets, row)
        crc32.append(row_checksum(parts))
    _write(path, [*batch.columns, pa.array(crc32, pa.uint32())], SHARD)


def write_index(path: Path, scenario_id: list[str], tracks: list[int], lanes: list[int]) -> None:
    """Write a split's index from the columns of its shards, concatenated. Raises: OSError."""
    columns = [
        pa.array(scenario_id, INDEX.field("scenario_id").type),
        pa.array(tracks, INDEX.field("tracks").type),
        pa.array(lanes, INDEX.field("lanes").type),
    ]
    _write(path, columns, INDEX)


def _write(path: Path, columns: list[pa.Array], schema: pa.Schema) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def row_checksum(parts: Sequence[NDArray[Any]]) -> int:
    """Return the CRC-32 of the number of entries of each part (int32), followed by all entries."""
    value = zlib.crc32(np.array(part_lengths(parts), "<i4").data)
    for part in parts:
        value = zlib.crc32(part.data, value)
    return value


def open_index(path: Path, rows: int) -> pa.RecordBatch:
    """Open the index of a split, and verify its checksum. Raises: DataError."""
    batch = _mapped(path, rows, INDEX)
    if not is_intact(path):
        raise DataError("is damaged (its checksum is wrong); prepare it again", file=path)
    return batch


def open_shard(path: Path, index: pa.RecordBatch) -> Shard:
    """Open the shard with the scenarios of ``index``; reads offsets and names only. Raises: DataError."""
    batch = _mapped(path, index.num_rows, SHARD)
    if not batch.column("scenario_id").equals(index.column("scenario_id")):
        raise DataError("does not hold the scenarios of the index; prepare it again", file=path)
    try:
        values, offsets = views(batch.select(SCHEMA.names))
        return partial(_verified, values, offsets, batch.column("crc32"))
    except ValueError as error:
        raise DataError(f"shard is damaged ({error}); prepare it again", file=path) from None


def read_times(path: Path, rows: int) -> tuple[NDArray[np.int32], list[NDArray[np.int64]]]:
    """Read the observed steps ``[N]`` and the timestamps of all scenarios of a shard. Raises: DataError."""
    batch = _mapped(path, rows, SHARD)
    stamps = [row.values.to_numpy() for row in batch.column("timestamps_ns")]
    return batch.column("num_observed").to_numpy(), stamps


def _mapped(path: Path, rows: int, schema: pa.Schema) -> pa.RecordBatch:
    try:
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        is_ours = file.schema == schema and file.num_record_batches == 1
        batch = pa.record_batch({})
        if is_ours:  # other files are not read
            batch = file.get_batch(0)
        batch.validate()
        for column in batch.columns:
            if not pa.types.is_list(column.type):  # views() checks lists
                column.validate(full=True)  # otherwise Arrow would follow offsets out of bounds
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"cannot be opened ({error}); prepare it again", file=path) from None
    nulls = any(column.null_count for column in batch.columns)
    if not is_ours or batch.num_rows != rows or nulls:
        raise DataError("is not the file named in the manifest; prepare it again", file=path)
    return batch


def _parts(values: list[NDArray[Any]], offsets: NDArray[np.int32], row: int) -> list[NDArray[Any]]:
    """Slice the parts of one row."""
    bounds = offsets[:, row : row + 2].tolist()
    return [part[start:stop] for part, (start, stop) in zip(values, bounds, strict=True)]


def _verified(
    values: list[NDArray[Any]], offsets: NDArray[np.int32], checksums: pa.UInt32Array, row: int
) -> list[NDArray[Any]]:
    parts = _parts(values, offsets, row)
    if row_checksum(parts) != checksums[row].as_py():
        raise ValueError(f"row {row} has a wrong checksum")
    return parts


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
    signed: dict[str, Any] = {"crc32": zlib.crc32(_text(values).encode())}
    signed.update(values)
    return _text(signed)


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


#: Version of the files of a store.
VERSION = 6
MANIFEST = "manifest.json"


def read_manifest(store: Path) -> dict[str, Any]:
    """Read the manifest of a store.

    Raises:
        DataError: it is missing, damaged, or of another version; the message has the command that prepares
            the store.
    """
    path = store / MANIFEST
    if not path.is_file():
        raise DataError(f"no store here; {_advice(store, {})}", file=store)
    try:
        text = path.read_text()
        manifest: dict[str, Any] = json.loads(text)
        version = manifest["version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"is not a store manifest ({error!r}); {_advice(store, {})}", file=path) from None
    if version != VERSION:
        problem = f"store version {version}, this trajpred reads version {VERSION}"
        raise DataError(f"{problem}; {_advice(store, manifest)}", file=path)
    try:
        return unsealed(text)
    except ValueError as error:
        raise DataError(f"is damaged ({error}); {_advice(store, manifest)}", file=path) from None


def is_plain(name: str) -> bool:
    """Return whether ``name`` is a plain file name, without folders and not hidden. Raises: TypeError."""
    return Path(name).name == name and not name.startswith(".") and name != ""


def _advice(store: Path, manifest: dict[str, Any]) -> str:
    return f"prepare it with: {prepare_command(store, manifest)}"


def prepare_command(store: Path, manifest: dict[str, Any]) -> str:
    """Return the command that prepares a store with the options of ``manifest``."""
    words = ["--source", manifest.get("source", "SOURCE"), "--raw", "RAW_DIR", "--store", store]
    if manifest.get("heights"):
        words.append("--heights")
    for name, value in manifest.get("options", {}).items():
        if value not in (None, [], False):
            words += [f"--{name.replace('_', '-')}", *(value if isinstance(value, list) else [value])]
    if manifest.get("shard_size", 256) != 256:
        words += ["--shard_size", manifest["shard_size"]]
    extended = manifest.get("extended")
    if isinstance(extended, dict):
        words += ["--continue-s", extended.get("seconds", "SECONDS")]
        words += ["--teacher", extended.get("teacher", "TEACHER")]
    arguments = shlex.join(str(word) for word in words)
    return f"trajpred prepare {arguments}"


def previous_manifest(store: Path) -> dict[str, Any]:
    """Read the manifest of an earlier run of any version; without splits if it is missing or damaged."""
    try:
        text = (store / MANIFEST).read_text()
        manifest: dict[str, Any] = json.loads(text)
        if manifest["version"] == VERSION:
            unsealed(text)
        # Splits may be removed, so they must be folders of this store.
        splits = manifest["splits"].items()
        manifest["splits"] = {split: entry for split, entry in splits if is_plain(split)}
        return manifest
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {"splits": {}}
