"""One run at a time writes a store, and each file appears whole or not at all."""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from filelock import FileLock, Timeout

from trajpred.errors import DataError

#: An empty file, locked by the run at work. The system gives the lock up when that run ends, however it ends.
LOCK = ".lock"
_SCRATCH = ".unfinished-"


@dataclass(frozen=True)
class Writer:
    """The right to write a store.

    Attributes:
        scratch: folder of this run's unfinished files. Whatever enters the store is renamed out of it.
        problem: why the store cannot be written, if it cannot; ``scratch`` then lies elsewhere.
    """

    scratch: Path
    problem: DataError | None

    def require(self) -> None:
        """Raise :class:`DataError` if the store cannot be written."""
        if self.problem is not None:
            raise self.problem

    def put(self, path: Path, write: Callable[[Path], object]) -> None:
        """Let ``write`` make the file ``path``; one that has the same content already stays as it is."""
        new = self.scratch / uuid4().hex
        write(new)
        if not (path.is_file() and filecmp.cmp(new, path, shallow=False)):
            self.require()
            new.replace(path)


@contextmanager
def sole_writer(store: Path, patience_s: float) -> Iterator[Writer]:
    """Keep other runs off ``store``, which is made if need be. A store that is read-only can be looked at.

    Raises: DataError if another run is still at work after ``patience_s``.
    """
    try:
        lock = _locked(store, patience_s)
    except OSError as error:
        problem = DataError(f"cannot be written ({error.strerror or error})", file=error.filename or store)
        with TemporaryDirectory() as folder:
            yield Writer(Path(folder), problem)
        return
    scratch = store / f"{_SCRATCH}{uuid4().hex}"
    try:
        for left in store.glob(f"{_SCRATCH}*"):
            _discard(left)
        scratch.mkdir()
        yield Writer(scratch, None)
    finally:
        _discard(scratch)
        lock.release()


def _locked(store: Path, patience_s: float) -> FileLock:
    store.mkdir(parents=True, exist_ok=True)
    lock = FileLock(store / LOCK)
    try:
        lock.acquire(timeout=patience_s)
    except Timeout:
        raise DataError("another prepare is writing this store; wait until it ends", file=store) from None
    return lock


def _discard(scratch: Path) -> None:
    """Remove a run's unfinished files.

    The folder is renamed first. A worker that outlives its run, say on a cluster, then finds neither the
    file that it was about to rename into the store nor the folder to write another.
    """
    doomed = scratch.with_name(f"{scratch.name}-{uuid4().hex[:8]}")
    with suppress(OSError):
        scratch.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
