"""The manifest of a store: which splits it has, and with which options they were prepared."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from trajpred.errors import DataError
from trajpred.store.shards import unsealed

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
    if "every_s" in manifest:
        words += ["--every-s", manifest["every_s"]]
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
