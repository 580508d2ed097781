"""Make single shards of a store, and guard the store against concurrent writers."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from filelock import FileLock, Timeout

from trajpred.errors import DataError
from trajpred.scenario import Scenario
from trajpred.sources import Source, find_source
from trajpred.sources.raw_scenario import RawScenario
from trajpred.store.codec import encode_row
from trajpred.store.shards import INDEX, is_intact, sealed, signed_name, unsealed, write_shard
from trajpred.store.windows import windows_of_rows

#: Empty file, locked by the current run; the operating system releases the lock when the process ends.
LOCK = ".lock"
_SCRATCH = ".unfinished-"


class Extension(Protocol):
    """Lengthen scenarios before they are stored: a picklable function that describes itself."""

    @property
    def facts(self) -> dict[str, Any]:
        """What the result depends on, as JSON values."""
        ...

    def __call__(self, scenario: Scenario) -> Scenario: ...


class ShardJob(NamedTuple):
    """The inputs and the output file of one shard.

    Attributes:
        config: version, source and options of the store.
        raw: raw folder.
        scenarios: those of the raw folder that are the rows.
        record: file beside the shard that records its inputs and its name.
        scratch: folder of unfinished files.
        extend: applied to every scenario that was read.
    """

    config: dict[str, Any]
    raw: Path
    scenarios: list[RawScenario]
    record: Path
    scratch: Path
    extend: Extension | None = None


def is_finished(job: ShardJob) -> bool:
    """Return whether shard and record are undamaged, of the same inputs, and skipped scenarios still fail."""
    try:
        record = unsealed(job.record.read_text())
        has_same_inputs = record | _task(job) == record
        if not has_same_inputs or not is_intact(job.record.with_name(record["file"])):
            return False
        skipped = record["skipped"]
        unreadable = [raw for raw in job.scenarios if raw.name in skipped]
        return bool(_read(job, unreadable) == skipped)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def run_job(job: ShardJob) -> None:
    """Write the shard of a job and then its record.

    The shard is named after its content, so that it never replaces one that is being read.

    Raises:
        DataError: the source is unknown, the teacher fails, or writing fails.
    """
    record = _task(job)
    rows: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    for name, row in _read(job, job.scenarios).items():
        if isinstance(row, str):
            skipped[name] = row
        else:
            rows.append(row)
    windows, lost = windows_of_rows(rows)
    record["scenarios"] = len(rows)
    record["skipped"] = skipped
    record["lengths"] = windows
    for name in INDEX.names:
        record[name] = [row[name] for row in rows]
    if lost:
        record["lost"] = lost
    new_shard = job.scratch / uuid4().hex
    new_record = job.scratch / uuid4().hex
    try:
        write_shard(new_shard, rows)
        record["file"] = signed_name(job.record.stem, new_shard)
        new_record.write_text(sealed(record), newline="\n")
        job.record.parent.mkdir(exist_ok=True)
        new_shard.replace(job.record.with_name(record["file"]))
        new_record.replace(job.record)
    except DataError as error:
        raise error.located(job.record) from None
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error}); run the same command again to resume"
        raise DataError(problem, file=job.record) from None


def _task(job: ShardJob) -> dict[str, Any]:
    """Return the inputs of the shard as recorded."""
    task = dict(job.config)
    task["paths"] = [raw.name for raw in job.scenarios]
    task["fingerprints"] = [_fingerprint(raw.path) for raw in job.scenarios]
    return task


def _fingerprint(path: Path) -> int:
    """Hash the sizes of a scenario's files; times are ignored, since copying changes them.

    The files are ``path``, or those of that folder.
    """
    sizes: list[Any] = []
    with suppress(OSError):  # unreadable files are reported when they are read
        if path.is_dir():
            with os.scandir(path) as files:
                sizes = sorted((file.name, file.stat().st_size) for file in files if file.is_file())
        else:
            sizes = [path.stat().st_size]
    return zlib.crc32(repr(sizes).encode())


def _read(job: ShardJob, scenarios: list[RawScenario]) -> dict[str, dict[str, Any] | str]:
    """Read scenarios: for each name the encoded row, or the error message."""
    # Not in the loop: a missing source must not be recorded as damaged scenarios.
    source = find_source(job.config["source"])
    return {raw.name: _row(job, source, raw) for raw in scenarios}


def _row(job: ShardJob, source: Source, raw: RawScenario) -> dict[str, Any] | str:
    try:
        scenario = source.read(raw)
        if job.extend is not None:
            scenario.validate()
    except Exception as error:
        return _problem(job, error)
    # Outside: a teacher that fits none of the scenarios ends the run with one sentence.
    if job.extend is not None:
        scenario = job.extend(scenario)
    try:  # encoding validates
        return encode_row(scenario, job.config["heights"])
    except Exception as error:
        return _problem(job, error)


def _problem(job: ShardJob, error: Exception) -> str:
    """Describe why a scenario is skipped; third-party readers may raise anything."""
    problem = str(error)
    if not isinstance(error, DataError):
        problem = f"{type(error).__name__}: {error}"
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
