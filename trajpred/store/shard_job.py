"""One shard of a store: whether it stands, and how it is made. This is what the workers do."""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from trajpred.errors import DataError
from trajpred.sources import Source, find_source
from trajpred.store.codec import encode_row
from trajpred.store.shards import INDEX, are_windows, holds, write_shard


class ShardJob(NamedTuple):
    """The making of one shard.

    Attributes:
        config: version, source and options of the store.
        raw: the raw folder.
        paths: the shard's scenarios, in the order of its rows.
        target: the shard's file.
        scratch: where to write what is not finished.
    """

    config: dict[str, Any]
    raw: Path
    paths: list[Path]
    target: Path
    scratch: Path

    @property
    def record(self) -> Path:
        """The file beside the shard that says what it was made from and that it is complete."""
        return self.target.with_suffix(".json")


def is_finished(job: ShardJob) -> bool:
    """Whether the shard stands, made of the same files, and what it lacks still cannot be read.

    A damaged record is none: the split's index is made of it.
    """
    try:
        found: dict[str, Any] = json.loads(job.record.read_text())
        if found | _task(job) != found or job.target.stat().st_size != found["bytes"]:
            return False
        skipped, rows = found["skipped"], {name: found[name] for name in INDEX.names}
        counts = found["scenarios"] == len(rows["scenario_id"]) == len(job.paths) - len(skipped)
        windows = are_windows(found["lengths"]) and bool(found["lengths"]) == (found["scenarios"] > 0)
        if not (counts and windows and holds(job.target, rows)):
            return False
        return bool(_read(job, [path for path in job.paths if path.name in skipped]) == skipped)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False


def make(job: ShardJob) -> None:
    """Write the shard and, last, its record. Raises: DataError if it cannot be written, or no such source."""
    task = _task(job)
    read = _read(job, job.paths)
    rows = [row for row in read.values() if not isinstance(row, str)]
    record = {
        **task,
        "scenarios": len(rows),
        "skipped": {name: row for name, row in read.items() if isinstance(row, str)},
        "lengths": sorted({(row["num_observed"], len(row["timestamps_ns"])) for row in rows}),
        **{name: [row[name] for row in rows] for name in ("scenario_id", "tracks", "lanes")},
    }
    shard, text = job.scratch / uuid4().hex, job.scratch / uuid4().hex
    try:
        write_shard(shard, rows, job.config["compression"])
        content = json.dumps({**record, "bytes": shard.stat().st_size}, indent=1) + "\n"
        text.write_text(content, newline="\n")
        job.target.parent.mkdir(exist_ok=True)
        # From here until the new record stands, the shard counts as unfinished.
        with suppress(FileNotFoundError):
            job.record.replace(job.scratch / uuid4().hex)
        shard.replace(job.target)
        text.replace(job.record)
    except DataError as error:
        raise error.located(job.target) from None
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error}); the same command continues"
        raise DataError(problem, file=job.target) from None


def _task(job: ShardJob) -> dict[str, Any]:
    """What the shard is made from, as its record states it."""
    names = [path.name for path in job.paths]
    return {**job.config, "paths": names, "fingerprints": [_fingerprint(path) for path in job.paths]}


def _fingerprint(path: Path) -> int:
    """A number that changes with the sizes of the scenario's files (not their times: copying changes them).

    The files are ``path``, those in that folder, or the pack of scenarios that ``path`` leads into.
    """
    sizes: list[Any] = []
    with suppress(OSError):  # what cannot be read is reported when it is read
        if path.is_dir():
            with os.scandir(path) as files:
                sizes = sorted((file.name, file.stat().st_size) for file in files if file.is_file())
        else:
            sizes = [(path if path.exists() else path.parent).stat().st_size]
    return zlib.crc32(repr(sizes).encode())


def _read(job: ShardJob, paths: list[Path]) -> dict[str, dict[str, Any] | str]:
    """For each scenario, by the name of its path, its columns, or what is wrong with it."""
    source = find_source(job.config["source"])  # one that this process lacks is not the scenarios' fault
    return {path.name: _row(job, source, path) for path in paths}


def _row(job: ShardJob, source: Source, path: Path) -> dict[str, Any] | str:
    try:
        return encode_row(source.read(path), job.config["heights"])
    except Exception as error:  # a reader of other people's may raise anything; no scenario stops the rest
        problem = str(error) if isinstance(error, DataError) else f"{type(error).__name__}: {error}"
        # Where the raw folder lies is not for the store to remember.
        return problem.removeprefix(f"{job.raw}{os.sep}")
