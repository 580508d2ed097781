"""The sample that ships in the repository, so that every tool works without arguments."""

from __future__ import annotations

from pathlib import Path

from trajpred.errors import DataError
from trajpred.store import prepare
from trajpred.store.reader import read_manifest

ROOT = Path(__file__).parents[1]
SAMPLE_RAW = ROOT / "datasets" / "argoverse2" / "sample"
SAMPLE_STORE = ROOT / "datasets" / "argoverse2" / "store"


def ensure_store(store: Path) -> Path:
    """``store``; if it is the sample's and not there yet (or of an older version), prepare it first.

    Raises: DataError if any other store is missing or stale, with the command that makes it.
    """
    try:
        read_manifest(store)
    except DataError:
        if store.resolve() != SAMPLE_STORE.resolve():
            raise
        prepare("argoverse2", SAMPLE_RAW, store, workers=1, overwrite=True, progress=False)
    return store
