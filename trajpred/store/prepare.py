"""Convert raw scenarios into a store: parallel, resumable, skipping scenarios that cannot be read."""

from __future__ import annotations

import filecmp
import hashlib
import json
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from trajpred.errors import DataError, require
from trajpred.progress import progress_bar
from trajpred.sources import find_source
from trajpred.store.codec import COLUMNS_VERSION
from trajpred.store.jobs import ShardJob, is_finished, make, sole_writer
from trajpred.store.reader import MANIFEST, VERSION, ScenarioStore, is_plain, is_split, listed
from trajpred.store.shards import INDEX, record_of, sealed, signed_name, unsealed, write_index
from trajpred.store.workers import Run
from trajpred.store.workers import workers as worker_pool


@dataclass(frozen=True)
class Summary:
    """Number of scenarios in the store by split, and the messages about skipped ones by split and name."""

    scenarios: dict[str, int]
    skipped: dict[str, dict[str, str]]


def prepare(
    source: str,
    raw: str | Path,
    store: str | Path,
    *,
    workers: int = -1,
    scheduler: str | None = None,
    shard_size: int = 256,
    heights: bool = False,
    overwrite: bool = False,
    patience_s: float = 0.0,
    progress: bool = True,
) -> Summary:
    """Read all scenarios below ``raw`` and write a store.

    Undamaged shards of the same scenarios are kept, so an interrupted run resumes and a repeated one changes
    nothing. The bytes of the store depend on neither interruptions nor the number of workers. Until the new
    store is complete, readers get the old one.

    Args:
        source: name or location of a source, see :func:`trajpred.sources.find_source`.
        raw: folder in the layout of the data set.
        store: target folder.
        workers: processes; -1 for all cores.
        scheduler: address of a Dask scheduler whose workers are used instead; they need the same folders.
        shard_size: scenarios per shard.
        heights: keep the heights of map points.
        overwrite: allow the store to lose scenarios. By default splits that ``raw`` lacks are kept if they
            have the same options; otherwise the run is rejected.
        patience_s: seconds to wait for another run on the same store.
        progress: show a progress bar.

    Raises:
        DataError: unknown source, no raw data, invalid option, duplicate scenario ids in a split, another run
            on the store, or a store that cannot be written or would lose scenarios.

    Example:
        >>> prepare("argoverse2", "datasets/argoverse2/sample", "/tmp/store", progress=False).scenarios
        {'test': 1, 'train': 10, 'val': 5}
    """
    raw, store = Path(raw).absolute(), Path(store).absolute()
    require(shard_size > 0, "shard_size", "must be positive")
    config: dict[str, Any] = {"version": COLUMNS_VERSION, "source": source}
    config |= {"heights": heights, "shard_size": shard_size}
    config["config"] = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]
    config["version"] = VERSION  # after the hash, which identifies the content of scenarios
    found = _discover(source, raw)
    require(store.resolve() != raw.resolve(), "store", "must be another folder than the raw one")
    try:
        with worker_pool(workers, scheduler) as run, sole_writer(store, patience_s) as scratch:
            target = _Target(store, raw, config, scratch, overwrite)
            jobs = target.jobs(found, shard_size)
            target.protect(jobs)
            return target.fill(jobs, run, progress)
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error}); the same command continues"
        raise DataError(problem, file=error.filename or store) from None


def _discover(source: str, raw: Path) -> dict[str, list[Path]]:
    """Find the scenarios of each non-empty split. Raises: DataError."""
    discover = find_source(source).discover
    if not raw.is_dir():
        raise DataError("no such folder", file=raw)
    try:
        found = {split: list(paths) for split, paths in discover(raw).items() if paths}
    except DataError:
        raise
    except Exception as error:  # third-party sources may raise anything
        problem = f"source {source!r} cannot list it ({type(error).__name__}: {error})"
        raise DataError(problem, file=raw) from None
    if not found:
        raise DataError(f"source {source!r} finds no scenarios here", file=raw)
    for split, paths in found.items():
        require(is_plain(split), "source", f"a split must be a plain folder name, not {split!r}")
        name, count = Counter(path.name for path in paths).most_common(1)[0]
        require(count == 1, "source", f"{count} scenarios of split {split!r} are called {name!r}")
    return found


class _Target:
    """The store that a run writes.

    Attributes:
        overwrite: whether the store may lose scenarios.
        manifest: manifest before the run.
        kept: manifest entries of splits that the raw data lack and the store keeps.
        dropped: splits that the run removes.
    """

    def __init__(
        self, store: Path, raw: Path, config: dict[str, Any], scratch: Path, overwrite: bool
    ) -> None:
        self.store, self.raw, self.config, self.scratch = store, raw, config, scratch
        self.overwrite = overwrite
        self.manifest = _manifest(store)
        self.kept: dict[str, Any] = {}
        self.dropped: set[str] = set()

    def jobs(self, found: dict[str, list[Path]], size: int) -> dict[str, list[ShardJob]]:
        """List the shards of each split."""

        def job(split: str, start: int) -> ShardJob:
            record = self.store / split / f"shard-{start // size:05d}.json"
            paths = found[split][start : start + size]
            return ShardJob(self.config, self.raw, paths, record, self.scratch)

        return {split: [job(split, start) for start in range(0, len(found[split]), size)] for split in found}

    def protect(self, jobs: dict[str, list[ShardJob]]) -> None:
        """Decide which other splits are kept. Raises: DataError if the store would lose scenarios."""
        advice = "choose another folder, or allow the loss with --overwrite"
        others = {split: entry for split, entry in self.manifest["splits"].items() if split not in jobs}
        if self._same_options():
            self.kept = {split: entry for split, entry in others.items() if is_split(split, entry)}
        else:
            self.dropped = set(others)
        if self.overwrite:
            return
        for split in sorted(others.keys() - self.kept.keys()):
            how = _differences(self.manifest, self.config)
            problem = f"split {split!r} was prepared with {how}, and the raw data lack its scenarios"
            raise DataError(f"{problem}; {advice}", file=self.store, field="store")
        for split, shards in jobs.items():
            lost = _recorded(self.store / split) - {path.name for job in shards for path in job.paths}
            problem = f"split {split!r} holds {len(lost)} scenarios that the raw data lack"
            require(not lost, "store", f"{problem}; {advice}")

    def fill(self, jobs: dict[str, list[ShardJob]], run: Run, progress: bool) -> Summary:
        """Write missing shards, then the index of each split, and finally the manifest, which names them all.

        Until then the files of the earlier manifest stay.
        """
        everything = list(chain.from_iterable(jobs.values()))
        missing = _missing(everything, run, progress)
        if missing:
            _make(everything, missing, run, progress)
        splits = self.kept | {split: self._entry(split, made) for split, made in jobs.items()}
        text = sealed({**self.config, "splits": dict(sorted(splits.items()))})
        new = self.scratch / MANIFEST
        new.write_text(text, newline="\n")
        self._put(new, self.store / MANIFEST)
        self._tidy({*jobs, *self.dropped}, splits)
        return Summary(
            scenarios={name: split["scenarios"] for name, split in sorted(splits.items())},
            skipped={name: split["skipped"] for name, split in sorted(splits.items())},
        )

    def _entry(self, split: str, jobs: list[ShardJob]) -> dict[str, Any]:
        """Write the index of a split from the records of its shards, and return its entry in the manifest."""
        records = [unsealed(job.record.read_text()) for job in jobs]
        rows = {name: [x for record in records for x in record[name]] for name in INDEX.names}
        skipped = {name: why for record in records for name, why in record["skipped"].items()}
        self._check_ids(split, rows["scenario_id"], skipped)
        new = self.scratch / f"{split}.arrow"
        write_index(new, **rows)
        index = signed_name("index", new)
        self._put(new, self.store / split / index)
        windows = {(observed, steps) for record in records for observed, steps in record["lengths"]}
        return {
            "scenarios": len(rows["scenario_id"]),
            "index": index,
            "shards": [{"file": record["file"], "scenarios": record["scenarios"]} for record in records],
            "skipped": skipped,
            "lengths": [list(window) for window in sorted(windows)],  # as JSON gives them back
        }

    def _check_ids(self, split: str, ids: list[str], skipped: dict[str, str]) -> None:
        """Raise DataError if ids are not unique, or scenarios that readers of the store have are missing."""
        for name, count in Counter(ids).most_common(1):
            require(count == 1, "source", f"{count} scenarios of split {split!r} have the id {name!r}")
        lost = [] if self.overwrite else sorted(_readable(self.store, split) - set(ids))
        cause = next((f"{name} was skipped: {why}" for name, why in skipped.items()), "the ids changed")
        problem = f"split {split!r} would lose {len(lost)} scenarios: {listed(lost)} ({cause})"
        advice = "the old store stays; repair the raw data, or allow the loss with --overwrite"
        require(not lost, "store", f"{problem}; {advice}")

    def _put(self, new: Path, path: Path) -> None:
        """Rename the file ``new`` to ``path``, unless that already has the same content."""
        if not (path.is_file() and filecmp.cmp(new, path, shallow=False)):
            new.replace(path)

    def _same_options(self) -> bool:
        """Return whether the store was prepared with the same options."""
        return all(self.manifest.get(name) == self.config[name] for name in ("version", "config"))

    def _tidy(self, changed: set[str], splits: dict[str, Any]) -> None:
        """Remove shards, records and indices of the ``changed`` splits that the manifest does not name."""
        needed: set[Path] = set()
        for split, entry in splits.items():
            shards = [self.store / split / shard["file"] for shard in entry["shards"]]
            needed |= {self.store / split / entry["index"], *shards, *map(record_of, shards)}
        folders = [self.store / split for split in changed]
        left = {path for folder in folders for name in ("shard-*", "index*") for path in folder.glob(name)}
        for path in left - needed:
            with suppress(OSError):
                path.unlink()


def _missing(jobs: list[ShardJob], run: Run, progress: bool) -> list[ShardJob]:
    """Select the jobs that are not finished."""
    with closing(run(is_finished, jobs)) as results:
        checked = progress_bar(results, "checking", len(jobs), leave=False, unit=" shards", shown=progress)
        return [job for job, finished in zip(jobs, checked, strict=True) if not finished]


def _make(jobs: list[ShardJob], missing: list[ShardJob], run: Run, progress: bool) -> None:
    total, left = (sum(len(job.paths) for job in group) for group in (jobs, missing))
    bar = progress_bar(total=total, initial=total - left, unit=" scenarios", shown=progress)
    with bar, closing(run(make, missing)) as results:
        for job, _ in zip(missing, results, strict=True):
            bar.update(len(job.paths))


def _manifest(store: Path) -> dict[str, Any]:
    """Read the manifest of an earlier run of any version; without splits if it is missing or damaged."""
    try:
        text = (store / MANIFEST).read_text()
        manifest: dict[str, Any] = json.loads(text)
        if manifest["version"] == VERSION:
            unsealed(text)
        # Splits may be removed, so they must be folders of this store.
        splits = {split: entry for split, entry in manifest["splits"].items() if is_plain(split)}
        return {**manifest, "splits": splits}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {"splits": {}}


def _differences(manifest: dict[str, Any], config: dict[str, Any]) -> str:
    """Describe the settings of the manifest that differ from ``config``."""
    names = [name for name in config if name != "config" and manifest.get(name) != config[name]]
    return ", ".join(f"{name} {manifest.get(name)}" for name in names)


def _readable(store: Path, split: str) -> set[str]:
    """Return the ids that readers of the store find in a split; none if they find no store or split."""
    try:
        return set(ScenarioStore(store, split).scenario_ids)
    except DataError:
        return set()


def _recorded(folder: Path) -> set[str]:
    """Return the names of the scenarios recorded for the shards in ``folder``."""
    names: set[str] = set()
    for record in folder.glob("shard-*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            names |= set(json.loads(record.read_text())["paths"])
    return names
