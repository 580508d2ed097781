"""Raw scenarios -> store: in parallel, shard by shard, resumable, never stopped by one bad scenario."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from joblib import Parallel, delayed
from tqdm import tqdm

from trajpred.errors import DataError, require
from trajpred.sources import SOURCES
from trajpred.store.codec import SCHEMA, VERSION, encode_batch, encode_row
from trajpred.store.reader import MANIFEST


@dataclass(frozen=True)
class Summary:
    """What :func:`prepare` did.

    Attributes:
        scenarios: for each split how many scenarios the store now holds.
        skipped: for each split ``{scenario folder: what was wrong}``.
    """

    scenarios: dict[str, int]
    skipped: dict[str, dict[str, str]]


def prepare(
    source: str,
    raw: str | Path,
    store: str | Path,
    *,
    workers: int = -1,
    shard_size: int = 256,
    heights: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> Summary:
    """Read every scenario below ``raw`` and write a store.

    Shards already written from the same scenarios are kept, so a stopped run continues where it was; what
    earlier runs left beside them is removed.

    Args:
        source: a name in :data:`trajpred.sources.SOURCES`.
        raw: the data set's own layout.
        store: target folder.
        workers: processes; -1 for all cores.
        shard_size: scenarios per shard.
        heights: keep the heights of the map's points.
        overwrite: let a split lose scenarios that ``raw`` no longer holds; splits not in ``raw`` stay anyway.
        progress: show a progress bar.

    Raises:
        DataError: unknown source, no raw data, no such number of workers or scenarios per shard, or the
            target cannot be written.
    """
    raw, store = Path(raw), Path(store)
    if source not in SOURCES:
        raise DataError(f"unknown source {source!r}; known: {', '.join(SOURCES)}", field="source")
    if not raw.is_dir():
        raise DataError("no such folder", file=raw)
    require(workers != 0, "workers", "must be a number of processes, or -1 for all cores")
    require(shard_size > 0, "shard_size", "must be positive")
    splits = _kept(store, source)
    options = {"version": VERSION, "source": source, "heights": heights}
    jobs = [
        (split, store / split / f"shard-{number:05d}.arrow", paths[start : start + shard_size])
        for split, paths in SOURCES[source].discover(raw).items()
        for number, start in enumerate(range(0, len(paths), shard_size))
    ]
    if not overwrite:
        _keep_scenarios(store, splits, jobs)
    for split, _, _ in jobs:
        splits.pop(split, None)
    run = Parallel(n_jobs=min(workers, len(jobs)) if workers > 0 else workers, return_as="generator")
    results: Iterator[dict[str, Any]] = run(
        delayed(_shard)(options, target, paths) for _, target, paths in jobs
    )
    with tqdm(total=sum(len(paths) for *_, paths in jobs), unit=" scenarios", disable=not progress) as bar:
        for (split, _, paths), result in zip(jobs, results, strict=True):
            entry = splits.setdefault(split, {"shards": [], "skipped": {}, "lengths": []})
            entry["shards"].append({"file": result["file"], "scenarios": result["scenarios"]})
            entry["skipped"] |= result["skipped"]
            entry["lengths"] = sorted({*map(tuple, entry["lengths"]), *map(tuple, result["lengths"])})
            bar.update(len(paths))
    _write_json(store / MANIFEST, {**options, "splits": splits})
    _tidy(store, [target for _, target, _ in jobs])
    return Summary(
        scenarios={name: sum(s["scenarios"] for s in split["shards"]) for name, split in splits.items()},
        skipped={name: split["skipped"] for name, split in splits.items()},
    )


def _kept(store: Path, source: str) -> dict[str, dict[str, Any]]:
    """The splits that the store already holds: those that this run does not touch stay in it."""
    try:
        manifest: dict[str, Any] = json.loads((store / MANIFEST).read_text())
        same = (manifest["version"], manifest["source"]) == (VERSION, source)
        return dict(manifest["splits"]) if same else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _keep_scenarios(
    store: Path, splits: dict[str, dict[str, Any]], jobs: list[tuple[str, Path, list[Path]]]
) -> None:
    """Raise :class:`DataError` if a split would lose scenarios that are not among those to be prepared."""
    for split in {split for split, _, _ in jobs} & set(splits):
        here = {path.name for name, _, paths in jobs if name == split for path in paths}
        there: set[str] = set()
        for shard in splits[split]["shards"]:
            record = (store / split / shard["file"]).with_suffix(".json")
            with suppress(OSError, ValueError, KeyError, TypeError):
                there |= set(json.loads(record.read_text())["paths"])
        problem = f"split {split!r} holds {len(there - here)} scenarios that the raw data lack"
        require(not there - here, "store", f"{problem}; choose another folder, or overwrite it (--overwrite)")


def _shard(options: dict[str, Any], target: Path, paths: list[Path]) -> dict[str, Any]:
    """Write one shard and, last, the record beside it that says it is complete."""
    record = target.with_suffix(".json")
    task = {**options, "file": target.name, "paths": [path.name for path in paths]}
    done = _finished(record, task)
    if done is not None and target.is_file() and target.stat().st_size == done["bytes"]:
        return done
    read = SOURCES[options["source"]].read
    rows, skipped = [], {}
    for path in paths:
        try:
            rows.append(encode_row(read(path), options["heights"]))
        except DataError as error:
            skipped[path.name] = str(error)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}.partial")
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
            writer.write_batch(encode_batch(rows))
        partial.replace(target)
        lengths = sorted({(row["num_observed"], len(row["timestamps_ns"])) for row in rows})
        result = {**task, "scenarios": len(rows), "skipped": skipped, "lengths": lengths}
        result["bytes"] = target.stat().st_size
        _write_json(record, result)
    except OSError as error:
        raise DataError(f"cannot be written ({error})", file=target) from None
    return result


def _finished(record: Path, task: dict[str, Any]) -> dict[str, Any] | None:
    """The record of an earlier run of this very task, unless it skipped what may be mended by now."""
    try:
        found: dict[str, Any] = json.loads(record.read_text())
        return found if found | task == found and not found["skipped"] else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _tidy(store: Path, shards: list[Path]) -> None:
    """Remove what stopped runs and runs with other options left in the folders of ``shards``."""
    kept = {store / MANIFEST, *shards, *(shard.with_suffix(".json") for shard in shards)}
    present = [path for folder in {shard.parent for shard in shards} for path in folder.glob("shard-*")]
    for path in {*present, *store.glob("manifest*")} - kept:
        with suppress(OSError):
            path.unlink()


def _write_json(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.replace(path)
