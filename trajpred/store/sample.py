"""The sample in the repository, on which the tools run by default."""

from __future__ import annotations

import os
from pathlib import Path

from trajpred.errors import DataError
from trajpred.store.prepare import prepare
from trajpred.store.reader import read_manifest

ROOT = Path(__file__).parents[2]
SAMPLE_RAW = ROOT / "datasets" / "argoverse2" / "sample"


def store_of(raw: Path) -> Path:
    """Return where the store of ``raw`` belongs: beside it, or in the user's cache if that is read-only."""
    beside = raw.with_name("store")
    if beside.is_dir() or not raw.is_dir() or os.access(raw.parent, os.W_OK):
        return beside
    return Path.home() / ".cache" / "trajpred" / "argoverse2-sample"


SAMPLE_STORE = store_of(SAMPLE_RAW)


def store_words(store: Path) -> list[str]:
    """Return the words that name ``store`` on the command line; none for the sample, the default."""
    return [] if store == SAMPLE_STORE else ["--store", str(store)]


def require_sample() -> Path:
    """Return the folder of the sample. Raises: DataError if this installation has no repository."""
    if not SAMPLE_RAW.is_dir():
        advice = "give your own data with --store; trajpred download and trajpred prepare make a store"
        raise DataError(f"the sample is in trajpred's repository only, not in this installation: {advice}")
    return SAMPLE_RAW


def ensure_store(store: Path | None = None) -> Path:
    """Return ``store``, by default the sample's, which is prepared first if it is missing or outdated.

    Raises: DataError if any other store is missing or stale, with the command that makes it.
    """
    store = store or SAMPLE_STORE
    try:
        read_manifest(store)
    except DataError:
        if store.resolve() != SAMPLE_STORE.resolve():
            raise
        # Several processes may start at once; the others wait for the first one.
        raw = require_sample()
        prepare("argoverse2", raw, store, workers=1, overwrite=True, patience_s=120, progress=False)
    return store
