"""Make a store's shards in parallel, in local processes or on a Dask cluster."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import is_dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias
from uuid import uuid4

import numpy as np
import pyarrow as pa
from joblib import Parallel, delayed, parallel_config

from trajpred.data.environment import install_command, processes
from trajpred.data.plausible import Plausibility
from trajpred.data.registry import load_module
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.sources import find_source
from trajpred.sources.reading import RawScenario
from trajpred.store.format import Rows, encode_batch, encode_row
from trajpred.store.reader import (
    INDEX,
    SHARD,
    Window,
    checksum,
    is_intact,
    row_checksum,
    sealed,
    signed_name,
    unsealed,
)

#: Timeout for the scheduler, and for the first of its workers.
TIMEOUT_S = 10
_WATCH_S = 0.5


class Extension(Protocol):
    """Lengthen scenarios before they are stored: a picklable function that describes itself."""

    @property
    def facts(self) -> dict[str, Any]:
        """Return everything that the result depends on, as JSON values."""
        ...

    def __call__(self, scenario: Scenario) -> Scenario: ...


class ShardJob(NamedTuple):
    """The inputs and the output file of one shard.

    Attributes:
        config: version, source and options of the store.
        raw: raw folder.
        scenarios: the raw scenarios that become its rows.
        record: file beside the shard that records its inputs and its name.
        scratch: folder of unfinished files.
        extend: applied to every scenario after reading.
        options: options of the source.
        modules: modules of the user, possibly with the source, to import where the job runs.
    """

    config: dict[str, Any]
    raw: Path
    scenarios: list[RawScenario]
    record: Path
    scratch: Path
    extend: Extension | None = None
    options: object = None
    modules: tuple[str, ...] = ()


def run_job(job: ShardJob) -> None:
    """Write a job's shard and then its record, unless both exist undamaged for the same inputs.

    The shard is named after its content and thus never replaces one that is being read.

    Raises:
        DataError: the source is unknown, the teacher fails, or writing fails.
    """
    for module in job.modules:
        load_module(module)
    inputs = dict(job.config)
    inputs["paths"] = [raw.name for raw in job.scenarios]
    inputs["recordings"] = [raw.recording for raw in job.scenarios]
    inputs["fingerprints"] = [_fingerprint(raw, job.options) for raw in job.scenarios]
    if _is_finished(job, inputs):
        return
    rows, skipped = _read(job, job.scenarios)
    record = inputs | {"scenarios": len(rows), "skipped": skipped} | _summary(rows)
    new_shard = job.scratch / uuid4().hex
    new_record = job.scratch / uuid4().hex
    try:
        write_shard(new_shard, rows)
        record["file"] = signed_name(job.record.stem, new_shard)
        new_record.write_text(sealed(record), encoding="utf-8", newline="\n")
        job.record.parent.mkdir(exist_ok=True)
        new_shard.replace(job.record.with_name(record["file"]))
        new_record.replace(job.record)
    except DataError as error:
        raise error.located(job.record) from None
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error}); run the same command again to resume"
        raise DataError(problem, file=job.record) from None


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a shard's record states about its rows."""
    whole: set[Window] = set()
    lost: set[tuple[Window, Window]] = set()
    unseen: dict[str, int] = {}
    for row in rows:
        if row["frames"] == row["window"]:
            whole.add(row["window"])
        else:
            lost.add((row["window"], row["frames"]))
        if row["lane_distance"] > 0:
            unseen[row["scenario_id"]] = row["lane_distance"]
    summary: dict[str, Any] = {"lengths": sorted(whole)}
    for name in INDEX.names:
        summary[name] = [row[name] for row in rows]
    if unseen:
        summary["unseen"] = unseen
    summary["plausibility"] = list(Plausibility.sum(row["plausibility"] for row in rows))
    if lost:
        summary["lost"] = sorted(lost)
    return summary


def _is_finished(job: ShardJob, inputs: dict[str, Any]) -> bool:
    """Return whether the shard is undamaged, its inputs are unchanged, and skipped scenarios still fail."""
    try:
        record = unsealed(job.record.read_text("utf-8"))
        if record | inputs != record or not is_intact(job.record.with_name(record["file"])):
            return False
        unreadable = [raw for raw in job.scenarios if raw.name in record["skipped"]]
        rows, skipped = _read(job, unreadable)
        return not rows and bool(skipped == record["skipped"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _fingerprint(raw: RawScenario, options: object) -> int:
    """Hash the contents of a scenario's files and of files named in options, not their locations."""
    contents: list[Any] = []
    for value in (raw.path, *raw.beside, *_values(raw.part), *_values(options)):
        paths = value if isinstance(value, (list, tuple)) else [value]
        contents += [_contents(path) for path in paths if isinstance(path, Path)]
    return zlib.crc32(repr(contents).encode())


def _values(record: object) -> Iterable[Any]:
    """Return the fields of a NamedTuple or a dataclass; none for anything else."""
    if isinstance(record, tuple):
        return record
    return vars(record).values() if is_dataclass(record) else ()


def _contents(path: Path) -> list[Any]:
    """Return name and checksum of each file in a folder, or of one file; empty if it cannot be read."""
    contents: list[Any] = []
    try:
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            if file.is_file():
                stat = file.stat()
                contents.append((file.name, _checksum(file, stat.st_size, stat.st_mtime_ns)))
    except OSError:  # reported when the scenario is read
        return []
    return contents


@lru_cache(maxsize=256)  # a file may have many scenarios
def _checksum(file: Path, size: int, changed_ns: int) -> int:
    """Return the checksum of a file; its size and the time of its last change reveal changes."""
    return checksum(file)


def _read(job: ShardJob, scenarios: list[RawScenario]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Read scenarios: encoded rows, each with its window, and the reasons for skipping others, by name."""
    # Not in the loop: a missing source must not be recorded as damaged scenarios.
    source = find_source(job.config["source"])
    rows: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    for raw in scenarios:
        try:
            scenario = source.scenario(raw, job.options)
            if job.extend is not None:
                scenario.validate()
        except (Exception, SystemExit) as error:
            skipped[raw.name] = _problem(job, error)
            continue
        # Not guarded: a teacher that does not fit the scenarios ends the run with one sentence.
        if job.extend is not None:
            scenario = job.extend(scenario)
        try:  # encoding validates
            row = encode_row(scenario, job.config["heights"])
        except Exception as error:
            skipped[raw.name] = _problem(job, error)
            continue
        row["window"] = Window(scenario.num_observed, scenario.num_steps)
        row["frames"] = recorded_frames(scenario)
        row["recording"] = raw.recording or scenario.scenario_id
        row["lane_distance"] = round(scenario.lane_distance)
        row["plausibility"] = Plausibility.of(scenario)
        rows.append(row)
    return rows, skipped


def _problem(job: ShardJob, error: BaseException) -> str:
    """Describe why a scenario is skipped; third-party readers may raise anything."""
    problem = str(error)
    if not isinstance(error, DataError):
        problem = f"{type(error).__name__}: {error}"
    # The bytes of a store must not depend on the location of the raw folder.
    folder = job.raw.parent if job.raw.is_file() else job.raw
    return problem.removeprefix(f"{folder}{os.sep}")


def recorded_frames(scenario: Scenario) -> Window:
    """Return the window without inner steps at which no track is valid.

    Returns the whole window if the focal track would have no observed state in the shortened history.
    """
    valid = scenario.tracks.valid
    seen = np.flatnonzero(valid.any(axis=0))
    inside = np.arange(seen[0], seen[-1] + 1)
    lost = np.setdiff1d(inside, seen)
    observed = scenario.num_observed - int((lost < scenario.num_observed).sum())
    recent = valid[scenario.focal, scenario.num_observed - observed : scenario.num_observed]
    if not recent.any():
        return Window(scenario.num_observed, scenario.num_steps)
    return Window(observed, scenario.num_steps - len(lost))


def write_shard(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows made by :func:`~trajpred.store.format.encode_row`.

    Raises: DataError if there are too many rows for one shard; OSError.
    """
    batch = encode_batch(rows)
    encoded = Rows(batch)
    crc32 = [row_checksum(encoded[row]) for row in range(len(rows))]
    write_batch(path, [*batch.columns, pa.array(crc32, pa.uint32())], SHARD)


def write_batch(path: Path, columns: list[pa.Array], schema: pa.Schema) -> None:
    """Write a file of one batch. Raises: OSError."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


# --------------------------------------------------------------------------------------------- workers

#: Make the shards of all jobs in parallel.
Run: TypeAlias = Callable[[Sequence[ShardJob]], Generator[None, None, None]]


@contextmanager
def workers(count: int, scheduler: str | None) -> Iterator[Run]:
    """Provide ``count`` local processes (-1: all cores), or the workers of a Dask scheduler at an address.

    Raises: DataError if the count is invalid, the scheduler does not answer, or ``distributed`` is missing.
    """
    count = processes(count)
    if scheduler is None:
        options = {"n_jobs": count, "backend": "loky", "initializer": serve, "initargs": (os.getpid(),)}
        problem = (
            "a process died, possibly out of memory; run the same command again to resume, with fewer workers"
        )
        yield partial(_run, options, BrokenExecutor, DataError(problem, field="workers"))
        return
    with _client(scheduler) as client:
        from distributed import CancelledError, KilledWorker

        options = {"backend": "dask", "client": client, "wait_for_workers_timeout": TIMEOUT_S}
        lost = DataError(
            "the cluster lost its workers; run the same command again to resume", field="scheduler"
        )
        yield partial(_run, options | {"n_jobs": -1}, (CancelledError, KilledWorker, TimeoutError), lost)


def _run(
    options: dict[str, Any], losses: Any, problem: DataError, jobs: Sequence[ShardJob]
) -> Generator[None, None, None]:
    """Run jobs with these options of joblib; raise ``problem`` on an exception among ``losses``."""
    try:
        with parallel_config(**options | {"n_jobs": min(options["n_jobs"], len(jobs))}):
            pool = Parallel(return_as="generator")
        with closing(pool(delayed(run_job)(job) for job in jobs)) as results:
            yield from results
    except losses:
        raise problem from None


def serve(parent: int) -> None:
    """Leave Ctrl-C to the parent and exit with it, unlike ordinary pool processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the parent's handler, inherited by forking

    def watch() -> None:
        wait_for_end(parent)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def wait_for_end(parent: int) -> None:
    """Return when the parent process ends."""
    if sys.platform == "win32":  # where the id of the parent stays
        import _winapi

        with suppress(OSError):  # it has ended already
            process = _winapi.OpenProcess(_winapi.SYNCHRONIZE, False, parent)
            _winapi.WaitForSingleObject(process, _winapi.INFINITE)
        return
    while os.getppid() == parent:
        time.sleep(_WATCH_S)


@contextmanager
def _client(scheduler: str) -> Iterator[Any]:
    """Connect to a Dask scheduler. Raises: DataError if none answers, or ``distributed`` is missing."""
    try:
        from distributed import Client
        from distributed.comm import resolve_address
    except ImportError:
        problem = f"needs dask.distributed: {install_command('cluster')}"
        raise DataError(problem, field="scheduler") from None
    try:
        resolve_address(scheduler)  # otherwise Client hangs for 20 s after its error
        client = Client(scheduler, timeout=TIMEOUT_S, set_as_default=False)
    except Exception as error:  # anything may happen if another service answers
        problem = f"no Dask scheduler answers at {scheduler} ({str(error) or type(error).__name__})"
        raise DataError(problem, field="scheduler") from None
    with client:
        yield client
