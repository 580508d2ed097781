"""Make single shards of a store, and guard the store against concurrent writers."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from filelock import FileLock, Timeout

from trajpred.errors import DataError
from trajpred.sources import Source, find_source
from trajpred.store.codec import encode_row
from trajpred.store.shards import INDEX, is_intact, sealed, signed_name, unsealed, write_shard
from trajpred.store.windows import windows_of_rows

#: Empty file, locked by the current run; the operating system releases the lock when the process ends.
LOCK = ".lock"
_SCRATCH = ".unfinished-"


class ShardJob(NamedTuple):
    """The inputs and the output file of one shard.

    Attributes:
        config: version, source and options of the store.
        raw, paths: raw folder, and the scenarios in it that are the rows.
        record: file beside the shard that records its inputs and its name.
        scratch: folder of unfinished files.
    """

    config: dict[str, Any]
    raw: Path
    paths: list[Path]
    record: Path
    scratch: Path


def is_finished(job: ShardJob) -> bool:
    """Return whether shard and record are undamaged, of the same inputs, and skipped scenarios still fail."""
    try:
        found = unsealed(job.record.read_text())
        if found | _task(job) != found or not is_intact(job.record.with_name(found["file"])):
            return False
        skipped = found["skipped"]
        return bool(_read(job, [path for path in job.paths if path.name in skipped]) == skipped)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def make(job: ShardJob) -> None:
    """Write the shard and then its record. Raises: DataError if the source is unknown or writing fails.

    The shard is named after its content, so that it never replaces one that readers of the store may use.
    """
    task = _task(job)
    read = _read(job, job.paths)
    rows = [row for row in read.values() if not isinstance(row, str)]
    windows, lost = windows_of_rows(rows)
    record = {
        **task,
        "scenarios": len(rows),
        "skipped": {name: row for name, row in read.items() if isinstance(row, str)},
        "lengths": windows,
        **{name: [row[name] for row in rows] for name in INDEX.names},
    }
    if lost:
        record["lost"] = lost
    shard, text = job.scratch / uuid4().hex, job.scratch / uuid4().hex
    try:
        write_shard(shard, rows)
        name = signed_name(job.record.stem, shard)
        text.write_text(sealed({**record, "file": name}), newline="\n")
        job.record.parent.mkdir(exist_ok=True)
        shard.replace(job.record.with_name(name))
        text.replace(job.record)
    except DataError as error:
        raise error.located(job.record) from None
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error}); the same command continues"
        raise DataError(problem, file=job.record) from None


def _task(job: ShardJob) -> dict[str, Any]:
    """Return the inputs of the shard as recorded."""
    names = [path.name for path in job.paths]
    return {**job.config, "paths": names, "fingerprints": [_fingerprint(path) for path in job.paths]}


def _fingerprint(path: Path) -> int:
    """Hash the sizes of a scenario's files; times are ignored, since copying changes them.

    The files are ``path``, the files of that folder, or the pack of scenarios that contains ``path``.
    """
    sizes: list[Any] = []
    with suppress(OSError):  # unreadable files are reported when they are read
        if path.is_dir():
            with os.scandir(path) as files:
                sizes = sorted((file.name, file.stat().st_size) for file in files if file.is_file())
        else:
            sizes = [(path if path.exists() else path.parent).stat().st_size]
    return zlib.crc32(repr(sizes).encode())


def _read(job: ShardJob, paths: list[Path]) -> dict[str, dict[str, Any] | str]:
    """Read scenarios: for each path name the encoded row, or the error message."""
    # Not in the loop: a missing source must not be recorded as damaged scenarios.
    source = find_source(job.config["source"])
    return {path.name: _row(job, source, path) for path in paths}


def _row(job: ShardJob, source: Source, path: Path) -> dict[str, Any] | str:
    try:
        return encode_row(source.read(path), job.config["heights"])
    except Exception as error:  # third-party readers may raise anything
        problem = str(error) if isinstance(error, DataError) else f"{type(error).__name__}: {error}"
        # The bytes of a store must not depend on the location of the raw folder.
        return problem.removeprefix(f"{job.raw}{os.sep}")


@contextmanager
def sole_writer(store: Path, patience_s: float) -> Iterator[Path]:
    """Lock ``store``, creating it if needed, and yield a new folder in it for unfinished files.

    Raises: DataError if another run still holds the lock after ``patience_s``; OSError.
    """
    store.mkdir(parents=True, exist_ok=True)
    lock = FileLock(store / LOCK)
    try:
        lock.acquire(timeout=patience_s)
    except Timeout:
        raise DataError("another prepare is writing this store; wait until it ends", file=store) from None
    scratch = store / f"{_SCRATCH}{uuid4().hex}"
    try:
        for left in store.glob(f"{_SCRATCH}*"):
            _discard(left)
        scratch.mkdir()
        yield scratch
    finally:
        _discard(scratch)
        lock.release()


def _discard(scratch: Path) -> None:
    """Remove the unfinished files of a run.

    The folder is renamed first, so that a worker that outlives its run (on a cluster, say) can neither
    rename a file into the store nor write another one.
    """
    doomed = scratch.with_name(f"{scratch.name}-{uuid4().hex[:8]}")
    with suppress(OSError):
        scratch.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
