"""The sample in the repository, which commands use by default."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from trajpred.data.environment import ROOT
from trajpred.data.files import require_writable
from trajpred.errors import DataError
from trajpred.store.prepare import prepare
from trajpred.store.reader import ScenarioStore, read_manifest

SAMPLE_RAW = ROOT / "datasets" / "argoverse2" / "sample"


def sample_store(raw: Path = SAMPLE_RAW) -> Path:
    """Return the place of the sample's store: beside the sample, or in the user's cache if read-only."""
    beside = raw.with_name("store")
    if beside.is_dir() or not raw.is_dir() or os.access(raw.parent, os.W_OK):
        return beside
    return _cache() / "argoverse2-sample"


def _cache() -> Path:
    """Return the user's cache folder, or a temporary folder if it cannot be written.

    In a container or a service, a user may have no home, or one owned by root.
    """
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        require_writable(home, folder=True)
        return home / "trajpred"
    except (RuntimeError, DataError):  # no home; it cannot be written
        user = os.getuid() if hasattr(os, "getuid") else ""  # Windows' folder is the user's own
        return Path(tempfile.gettempdir()) / f"trajpred{user}"


def store_words(store: Path) -> list[str]:
    """Return the words that name ``store`` on the command line; none for the sample, the default."""
    return [] if store == sample_store() else ["--store", str(store)]


def split_words(rows: ScenarioStore) -> list[str]:
    """Return the words that name a split, or a half of it, and its store; none for what is the default."""
    words = store_words(rows.path)
    if rows.split != "val":
        words += ["--split", rows.split]
    if rows.half:
        words += ["--half", rows.half]
    return words


def require_sample(option: str = "--store") -> Path:
    """Return the folder of the sample.

    Args:
        option: the option that names other data, for the message.

    Raises: DataError if this installation is without the repository.
    """
    if not SAMPLE_RAW.is_dir():
        advice = f"give your own data with {option}"
        if option != "--raw":
            advice += "; trajpred download and trajpred prepare make a store"
        raise DataError(f"the sample is in trajpred's repository only, not in this installation: {advice}")
    return SAMPLE_RAW


def require_sample_store(option: str = "--store") -> Path:
    """Return where the store of the sample belongs. Raises: DataError if it cannot be written there."""
    store = sample_store()
    try:
        require_writable(store, folder=True)
    except DataError as error:
        advice = f"make a store elsewhere, trajpred prepare --store FOLDER, and give {option} FOLDER"
        raise DataError(f"{error.message}: {advice}", file=error.file) from None
    return store


def ensure_store(store: Path | None = None, option: str = "--store") -> Path:
    """Return ``store``, by default the sample's, which is prepared first if it is missing or outdated.

    Args:
        option: the option that names another store, for messages.

    Raises: DataError if any other store is missing or stale, with the command that makes it.
    """
    store = store or sample_store()
    try:
        read_manifest(store)
    except DataError:
        if store.resolve() != sample_store().resolve():
            raise
        # Several processes may start at once; the others wait for the first one.
        raw = require_sample(option)
        require_sample_store(option)
        prepare("argoverse2", raw, store, workers=1, overwrite=True, patience_s=120, progress=False)
    return store
