"""The files of a store: shards, the index of a split, the manifest. Readers verify their checksums."""

from __future__ import annotations

import json
import shlex
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trajpred.errors import DataError
from trajpred.store.format import SCHEMA, Rows, encode_batch, part_lengths

#: Version of the files of a store.
VERSION = 7
MANIFEST = "manifest.json"
#: First columns of every shard, and all columns of the index: name, number of tracks with an observed state,
#: number of lane segments and crossings.
INDEX = pa.schema([SCHEMA.field(name) for name in ("scenario_id", "tracks", "lanes")])
#: The columns of a shard: those of a scenario, and their checksum.
SHARD = SCHEMA.append(pa.field("crc32", pa.uint32(), nullable=False))


def write_shard(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows made by :func:`~trajpred.store.format.encode_row`.

    Raises: DataError if there are too many rows for one shard; OSError.
    """
    batch = encode_batch(rows)
    encoded = Rows(batch)
    crc32 = [row_checksum(encoded[row]) for row in range(len(rows))]
    _write(path, [*batch.columns, pa.array(crc32, pa.uint32())], SHARD)


def write_index(path: Path, columns: dict[str, list[Any]]) -> None:
    """Write a split's index from the columns of its shards, concatenated. Raises: OSError."""
    _write(path, [pa.array(columns[field.name], field.type) for field in INDEX], INDEX)


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


class Shard:
    """An open shard, of which only offsets and names have been read.

    Args:
        path: of the file.
        index: the entries of its scenarios in the index.

    Raises: DataError if it is another file or damaged.
    """

    def __init__(self, path: Path, index: pa.RecordBatch) -> None:
        batch = _mapped(path, index.num_rows, SHARD)
        if not batch.column("scenario_id").equals(index.column("scenario_id")):
            raise DataError("does not hold the scenarios of the index; prepare it again", file=path)
        try:
            self._rows = Rows(batch.select(SCHEMA.names))
        except ValueError as error:
            raise DataError(f"shard is damaged ({error}); prepare it again", file=path) from None
        self._crc32 = batch.column("crc32")

    def __getitem__(self, row: int) -> list[NDArray[Any]]:
        """Return the parts of a row. Raises: ValueError if its checksum is wrong."""
        parts = self._rows[row]
        if row_checksum(parts) != self._crc32[row].as_py():
            raise ValueError(f"row {row} has a wrong checksum")
        return parts


def read_times(path: Path, rows: int) -> tuple[NDArray[np.int32], list[NDArray[np.int64]]]:
    """Read the observed steps ``[N]`` and the timestamps of all scenarios of a shard. Raises: DataError."""
    batch = _mapped(path, rows, SHARD)
    stamps = [row.values.to_numpy() for row in batch.column("timestamps_ns")]
    return batch.column("num_observed").to_numpy(), stamps


def _mapped(path: Path, rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """Map the only batch of a file. Raises: DataError if it has other columns or another number of rows."""
    try:
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        is_ours = file.schema == schema and file.num_record_batches == 1
        batch = pa.record_batch({})
        if is_ours:  # other files are not read
            batch = file.get_batch(0)
        batch.validate()
        for column in batch.columns:
            if not pa.types.is_list(column.type):  # Rows checks lists
                column.validate(full=True)  # otherwise Arrow would follow offsets out of bounds
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"cannot be opened ({error}); prepare it again", file=path) from None
    nulls = any(column.null_count for column in batch.columns)
    if not is_ours or batch.num_rows != rows or nulls:
        raise DataError("is not the file named in the manifest; prepare it again", file=path)
    return batch


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
    return _text(signed | values)


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


# -------------------------------------------------------------------------------------------- manifest


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
    return f"trajpred prepare {shlex.join(map(str, words))}"
