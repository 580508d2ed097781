"""Convert raw scenarios into a store: parallel, resumable, skipping scenarios that cannot be read."""

from __future__ import annotations

import filecmp
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from trajpred.errors import DataError, require
from trajpred.progress import progress_bar
from trajpred.sources import find_source
from trajpred.store.codec import VERSION
from trajpred.store.jobs import ShardJob, is_finished, make, sole_writer
from trajpred.store.reader import MANIFEST, is_plain, is_split
from trajpred.store.shards import COMPRESSIONS, INDEX, INDEX_FILE, write_index
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
    compression: str | None = None,
    heights: bool = False,
    overwrite: bool = False,
    patience_s: float = 0.0,
    progress: bool = True,
) -> Summary:
    """Read all scenarios below ``raw`` and write a store.

    Complete shards of the same scenarios are kept, so an interrupted run resumes and a repeated one changes
    nothing. The bytes of the store depend on neither interruptions nor the number of workers.

    Args:
        source: name or location of a source, see :func:`trajpred.sources.find_source`.
        raw: folder in the layout of the data set.
        store: target folder.
        workers: processes; -1 for all cores.
        scheduler: address of a Dask scheduler whose workers are used instead; they need the same folders.
        shard_size: scenarios per shard.
        compression: None or ``"zstd"``.
        heights: keep the heights of map points.
        overwrite: allow the store to lose scenarios. By default splits that ``raw`` lacks are kept if they
            have the same options; otherwise the run is rejected.
        patience_s: seconds to wait for another run on the same store.
        progress: show a progress bar.

    Raises:
        DataError: unknown source, no raw data, invalid option, another run on the store, or a store that
            cannot be written or would lose scenarios.

    Example:
        >>> prepare("argoverse2", "datasets/argoverse2/sample", "/tmp/store", progress=False).scenarios
        {'test': 1, 'train': 10, 'val': 5}
    """
    raw, store = Path(raw).absolute(), Path(store).absolute()
    require(shard_size > 0, "shard_size", "must be positive")
    require(compression in COMPRESSIONS, "compression", f"must be one of {COMPRESSIONS}, is {compression!r}")
    config: dict[str, Any] = {"version": VERSION, "source": source}
    config |= {"heights": heights, "compression": compression, "shard_size": shard_size}
    config["config"] = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]
    found = _discover(source, raw)
    require(store.resolve() != raw.resolve(), "store", "must be another folder than the raw one")
    try:
        with worker_pool(workers, scheduler) as run, sole_writer(store, patience_s) as scratch:
            target = _Target(store, raw, config, scratch)
            jobs = target.jobs(found, shard_size)
            target.protect(jobs, overwrite)
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
        manifest: manifest before the run.
        kept: manifest entries of splits that the raw data lack and the store keeps.
        dropped: splits that the run removes.
    """

    def __init__(self, store: Path, raw: Path, config: dict[str, Any], scratch: Path) -> None:
        self.store, self.raw, self.config, self.scratch = store, raw, config, scratch
        self.manifest = _manifest(store)
        self.kept: dict[str, Any] = {}
        self.dropped: set[str] = set()

    def jobs(self, found: dict[str, list[Path]], size: int) -> dict[str, list[ShardJob]]:
        """List the shards of each split."""

        def job(split: str, start: int) -> ShardJob:
            target = self.store / split / f"shard-{start // size:05d}.arrow"
            paths = found[split][start : start + size]
            return ShardJob(self.config, self.raw, paths, target, self.scratch)

        return {split: [job(split, start) for start in range(0, len(found[split]), size)] for split in found}

    def protect(self, jobs: dict[str, list[ShardJob]], overwrite: bool) -> None:
        """Decide which other splits are kept. Raises: DataError if the store would lose scenarios."""
        advice = "choose another folder, or allow the loss with --overwrite"
        others = {split: entry for split, entry in self.manifest["splits"].items() if split not in jobs}
        if self._same_options():
            self.kept = {split: entry for split, entry in others.items() if is_split(split, entry)}
        else:
            self.dropped = set(others)
        if overwrite:
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
        """Write missing shards, then the index of each split, and finally the manifest."""
        everything = list(chain.from_iterable(jobs.values()))
        missing = _missing(everything, run, progress)
        changing = {job.target.parent.name for job in missing}
        whole = {split: _Content.of(made) for split, made in jobs.items() if split not in changing}
        self._withdraw(whole)
        if missing:
            _make(everything, missing, run, progress)
        contents = {split: whole.get(split) or _Content.of(made) for split, made in jobs.items()}
        for split, content in contents.items():
            self._put(self.store / split / INDEX_FILE, content.write_index)
        splits = self.kept | {split: content.entry for split, content in contents.items()}
        self._publish(splits)
        self._tidy(jobs)
        return Summary(
            scenarios={name: split["scenarios"] for name, split in sorted(splits.items())},
            skipped={name: split["skipped"] for name, split in sorted(splits.items())},
        )

    def _publish(self, splits: dict[str, Any]) -> None:
        content = json.dumps({**self.config, "splits": dict(sorted(splits.items()))}, indent=1) + "\n"
        self._put(self.store / MANIFEST, lambda path: path.write_text(content, newline="\n"))

    def _put(self, path: Path, write: Callable[[Path], object]) -> None:
        """Create the file ``path`` with ``write``, unless it already has the same content."""
        new = self.scratch / path.name
        write(new)
        if not (path.is_file() and filecmp.cmp(new, path, shallow=False)):
            new.replace(path)

    def _withdraw(self, whole: dict[str, _Content]) -> None:
        """Remove splits that are about to change from the manifest, so that readers never mix old and new.

        Unchanged splits stay readable, for a running training, say.
        """
        before, stay = self.manifest["splits"], dict(self.kept)
        if self._same_options():
            stay |= {split: one.entry for split, one in whole.items() if before.get(split) == one.entry}
        if stay == before:
            return
        if stay:
            self._publish(stay)
        else:
            (self.store / MANIFEST).unlink(missing_ok=True)

    def _same_options(self) -> bool:
        """Return whether the store was prepared with the same options."""
        return bool(self.manifest.get("config") == self.config["config"])

    def _tidy(self, jobs: dict[str, list[ShardJob]]) -> None:
        """Remove obsolete shards and dropped splits."""
        needed = {path for made in jobs.values() for job in made for path in (job.target, job.record)}
        left = {path for split in {*jobs, *self.dropped} for path in (self.store / split).glob("shard-*")}
        left |= {self.store / split / INDEX_FILE for split in self.dropped}
        for path in left - needed:
            with suppress(OSError):
                path.unlink()


class _Content(NamedTuple):
    """The combined records of a split's shards: its manifest entry, and the columns of its index."""

    entry: dict[str, Any]
    rows: dict[str, list[Any]]

    @classmethod
    def of(cls, jobs: list[ShardJob]) -> _Content:
        shards: list[dict[str, Any]] = []
        skipped: dict[str, str] = {}
        lengths: set[tuple[int, int]] = set()
        rows: dict[str, list[Any]] = {name: [] for name in INDEX.names}
        for job in jobs:
            record = json.loads(job.record.read_text())
            shards.append({"file": job.target.name, "scenarios": record["scenarios"]})
            skipped |= record["skipped"]
            lengths |= {(observed, steps) for observed, steps in record["lengths"]}
            for name, values in rows.items():
                values += record[name]
        windows = [list(window) for window in sorted(lengths)]  # as JSON gives them back
        count = len(rows["scenario_id"])
        return cls({"scenarios": count, "shards": shards, "skipped": skipped, "lengths": windows}, rows)

    def write_index(self, path: Path) -> None:
        write_index(path, **self.rows)


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
    """Read the manifest of an earlier run of any version; without splits if there is none."""
    try:
        manifest: dict[str, Any] = json.loads((store / MANIFEST).read_text())
        # Splits may be removed, so they must be folders of this store.
        splits = {split: entry for split, entry in manifest["splits"].items() if is_plain(split)}
        return {**manifest, "splits": splits}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {"splits": {}}


def _differences(manifest: dict[str, Any], config: dict[str, Any]) -> str:
    """Describe the settings of the manifest that differ from ``config``."""
    names = [name for name in config if name != "config" and manifest.get(name) != config[name]]
    return ", ".join(f"{name} {manifest.get(name)}" for name in names)


def _recorded(folder: Path) -> set[str]:
    """Return the names of the scenarios recorded for the shards in ``folder``."""
    names: set[str] = set()
    for record in folder.glob("shard-*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            names |= set(json.loads(record.read_text())["paths"])
    return names
