"""Raw scenarios -> store: in parallel, shard by shard, resumable, never stopped by one bad scenario."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from trajpred.errors import DataError, require
from trajpred.sources import find_source
from trajpred.store.codec import VERSION
from trajpred.store.reader import MANIFEST, is_plain, is_split
from trajpred.store.shard_job import ShardJob, is_finished, make
from trajpred.store.shards import COMPRESSIONS, INDEX, INDEX_FILE, write_index
from trajpred.store.workers import Run
from trajpred.store.workers import workers as worker_pool
from trajpred.store.writer import Writer, sole_writer


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
    scheduler: str | None = None,
    shard_size: int = 256,
    compression: str | None = None,
    heights: bool = False,
    overwrite: bool = False,
    patience_s: float = 0.0,
    progress: bool = True,
) -> Summary:
    """Read every scenario below ``raw`` and write a store.

    Shards already made from the same scenarios are kept, so a stopped run continues where it was, and a
    finished one changes nothing; what earlier runs left is removed. The same bytes come out however often a
    run was stopped and however many workers there are.

    Args:
        source: as :func:`trajpred.sources.find_source` takes it.
        raw: the data set's own layout.
        store: target folder.
        workers: processes; -1 for all cores.
        scheduler: address of a Dask scheduler whose workers do it instead; they see the same folders.
        shard_size: scenarios per shard.
        compression: None or ``"zstd"``.
        heights: keep the heights of the map's points.
        overwrite: let the store lose scenarios that this run does not make. Without it, splits not in ``raw``
            stay if they were made with the same options, and else nothing is done.
        patience_s: how long to wait for another run that is at work on the store.
        progress: show a progress bar.

    Raises:
        DataError: unknown source, no raw data, a wrong option, another run at work on the store, or a store
            that cannot be written or would lose scenarios.
    """
    raw, store = Path(raw).absolute(), Path(store).absolute()
    require(shard_size > 0, "shard_size", "must be positive")
    require(compression in COMPRESSIONS, "compression", f"must be one of {COMPRESSIONS}, is {compression!r}")
    options = {"heights": heights, "compression": compression, "shard_size": shard_size}
    config = _config({"version": VERSION, "source": source, **options})
    found = _discover(source, raw)
    require(store.resolve() != raw.resolve(), "store", "must be another folder than the raw one")
    with worker_pool(workers, scheduler) as run, sole_writer(store, patience_s) as writer:
        try:
            target = _Target(store, raw, config, writer)
            jobs = target.jobs(found, shard_size)
            target.protect(jobs, overwrite)
            return target.fill(jobs, run, progress)
        except OSError as error:
            problem = f"cannot be written ({error.strerror or error}); the same command continues"
            raise DataError(problem, file=error.filename or store) from None


def _config(settings: dict[str, Any]) -> dict[str, Any]:
    """``settings``, which with the raw data decide the content of a store, and ``config``, a hash of them."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return {**settings, "config": digest[:16]}


def _discover(source: str, raw: Path) -> dict[str, list[Path]]:
    """The scenarios of each split that has any. Raises: DataError."""
    discover = find_source(source).discover
    if not raw.is_dir():
        raise DataError("no such folder", file=raw)
    try:
        found = {split: list(paths) for split, paths in discover(raw).items() if paths}
    except DataError:
        raise
    except Exception as error:  # other people's sources may raise anything
        problem = f"source {source!r} cannot list it ({type(error).__name__}: {error})"
        raise DataError(problem, file=raw) from None
    if not found:
        raise DataError(f"source {source!r} finds no scenarios here", file=raw)
    for split, paths in found.items():
        require(is_plain(split), "source", f"a split must be named like a folder, not {split!r}")
        name, count = Counter(path.name for path in paths).most_common(1)[0]
        require(count == 1, "source", f"{count} scenarios of split {split!r} are called {name!r}")
    return found


class _Target:
    """The store of one run.

    Attributes:
        manifest: as it was before.
        kept: entries in the manifest of splits that the raw data lack, and that stay.
        dropped: splits that the store loses.
    """

    def __init__(self, store: Path, raw: Path, config: dict[str, Any], writer: Writer) -> None:
        self.store, self.raw, self.config, self.writer = store, raw, config, writer
        self.manifest = _manifest(store)
        self.kept: dict[str, Any] = {}
        self.dropped: set[str] = set()

    def jobs(self, found: dict[str, list[Path]], size: int) -> dict[str, list[ShardJob]]:
        """What is to be made of each split."""

        def job(split: str, start: int) -> ShardJob:
            target = self.store / split / f"shard-{start // size:05d}.arrow"
            paths = found[split][start : start + size]
            return ShardJob(self.config, self.raw, paths, target, self.writer.scratch)

        return {split: [job(split, start) for start in range(0, len(found[split]), size)] for split in found}

    def protect(self, jobs: dict[str, list[ShardJob]], overwrite: bool) -> None:
        """Find out what becomes of the store's other splits. Raises: DataError if scenarios would be lost."""
        advice = "choose another folder, or let the store lose them (--overwrite)"
        others = {split: entry for split, entry in self.manifest["splits"].items() if split not in jobs}
        if self._made_alike():
            self.kept = {split: entry for split, entry in others.items() if is_split(split, entry)}
        else:
            self.dropped = set(others)
        if overwrite:
            return
        for split in sorted(others.keys() - self.kept.keys()):
            how = _differences(self.manifest, self.config)
            problem = f"split {split!r} was prepared with {how}, and the raw data lack its scenarios"
            raise DataError(f"{problem}; {advice}", file=self.store, field="store")
        for split, made in jobs.items():
            lost = _recorded(self.store / split) - {path.name for job in made for path in job.paths}
            problem = f"split {split!r} holds {len(lost)} scenarios that the raw data lack"
            require(not lost, "store", f"{problem}; {advice}")

    def fill(self, jobs: dict[str, list[ShardJob]], run: Run, progress: bool) -> Summary:
        """Make what is missing: the shards, then each split's index, and last the manifest."""
        everything = list(chain.from_iterable(jobs.values()))
        missing = _missing(everything, run, progress)
        changing = {job.target.parent.name for job in missing}
        whole = {split: _Content.of(made) for split, made in jobs.items() if split not in changing}
        self._withdraw(whole)
        if missing:
            self.writer.require()
            _make(everything, missing, run, progress)
        contents = {split: whole.get(split) or _Content.of(made) for split, made in jobs.items()}
        for split, content in contents.items():
            self.writer.put(self.store / split / INDEX_FILE, content.write_index)
        splits = self.kept | {split: content.entry for split, content in contents.items()}
        self._publish(splits)
        self._tidy(jobs)
        return Summary(
            scenarios={name: split["scenarios"] for name, split in sorted(splits.items())},
            skipped={name: split["skipped"] for name, split in sorted(splits.items())},
        )

    def _publish(self, splits: dict[str, Any]) -> None:
        content = json.dumps({**self.config, "splits": dict(sorted(splits.items()))}, indent=1) + "\n"
        self.writer.put(self.store / MANIFEST, lambda path: path.write_text(content, newline="\n"))

    def _withdraw(self, whole: dict[str, _Content]) -> None:
        """Name no split that is about to change: nobody shall read old and new mixed.

        Who reads another, a training that takes hours, say, shall not notice.
        """
        before, stay = self.manifest["splits"], dict(self.kept)
        if self._made_alike():
            stay |= {split: one.entry for split, one in whole.items() if before.get(split) == one.entry}
        if stay == before:
            return
        self.writer.require()
        if stay:
            self._publish(stay)
        else:
            (self.store / MANIFEST).unlink(missing_ok=True)

    def _made_alike(self) -> bool:
        """Whether the manifest is of a store made with the same options."""
        return bool(self.manifest.get("config") == self.config["config"])

    def _tidy(self, jobs: dict[str, list[ShardJob]]) -> None:
        """Remove what stopped runs and runs with other options left, and what the store was to lose."""
        needed = {path for made in jobs.values() for job in made for path in (job.target, job.record)}
        left = {path for split in {*jobs, *self.dropped} for path in (self.store / split).glob("shard-*")}
        left |= {self.store / split / INDEX_FILE for split in self.dropped}
        for path in left - needed:
            with suppress(OSError):
                path.unlink()


class _Content(NamedTuple):
    """What the records of a split's shards say.

    Attributes:
        entry: the split's, in the manifest.
        rows: columns of its index.
    """

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
    """The jobs that are not finished."""
    with closing(run(is_finished, jobs)) as results:
        checked = tqdm(results, "checking", len(jobs), leave=False, unit=" shards", disable=not progress)
        return [job for job, finished in zip(jobs, checked, strict=True) if not finished]


def _make(jobs: list[ShardJob], missing: list[ShardJob], run: Run, progress: bool) -> None:
    total, left = (sum(len(job.paths) for job in some) for some in (jobs, missing))
    bar = tqdm(total=total, initial=total - left, unit=" scenarios", disable=not progress)
    with bar, closing(run(make, missing)) as results:
        for job, _ in zip(missing, results, strict=True):
            bar.update(len(job.paths))


def _manifest(store: Path) -> dict[str, Any]:
    """The manifest of an earlier run, of whatever version; one without splits where there is none."""
    try:
        manifest: dict[str, Any] = json.loads((store / MANIFEST).read_text())
        # A split is a folder of this store: others may be removed, and are not ours to remove.
        splits = {split: entry for split, entry in manifest["splits"].items() if is_plain(split)}
        return {**manifest, "splits": splits}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {"splits": {}}


def _differences(manifest: dict[str, Any], config: dict[str, Any]) -> str:
    """Which settings the manifest has that ``config`` has not."""
    names = [name for name in config if name != "config" and manifest.get(name) != config[name]]
    return ", ".join(f"{name} {manifest.get(name)}" for name in names)


def _recorded(folder: Path) -> set[str]:
    """The scenarios that the shards in ``folder`` were made from."""
    names: set[str] = set()
    for record in folder.glob("shard-*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            names |= set(json.loads(record.read_text())["paths"])
    return names
