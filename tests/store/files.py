"""The files of a store: when they were written, and their names without checksums."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any


def stamps(store: Path) -> dict[str, tuple[int, int]]:
    """Return inode and modification time of each file, which change whenever it is written."""
    times = {}
    for path in store.rglob("*"):
        if path.is_file() and path.name != ".lock":
            stat = path.stat()
            times[str(path.relative_to(store))] = (stat.st_ino, stat.st_mtime_ns)
    return times


def changed(store: Path, before: dict[str, tuple[int, int]]) -> set[str]:
    """Return the names of the files written since, without checksums."""
    return {unsigned(name) for name, stamp in stamps(store).items() if stamp != before.get(name)}


def unsigned(name: str) -> str:
    """Remove the checksum of a name."""
    return re.sub(r"-[0-9a-f]{8}\.arrow$", ".arrow", name)


def manifest(store: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((store / "manifest.json").read_text())
    return content


def only(raw: Path, split: str) -> Path:
    """Copy one split of ``raw``."""
    target = raw.with_name(f"only {split}")
    shutil.copytree(raw / split, target / split)
    return target
