"""Checksums of all files of a store, CRC-32: in the name of an Arrow file, in the text of a JSON file."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

_CHUNK = 2**20


def checksum(path: Path) -> str:
    """Return eight digits that depend on every byte of a file. Raises: OSError."""
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
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
