"""Write the index of a split, and describe the split in the manifest."""

from __future__ import annotations

import filecmp
import hashlib
import json
from collections import Counter
from collections.abc import Collection
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.data.files import progress_bar
from trajpred.errors import DataError, require
from trajpred.sources import find_source
from trajpred.sources.reading import RawScenario
from trajpred.store.codec import COLUMNS_VERSION
from trajpred.store.jobs import Extension, Run, ShardJob, is_finished, labels_lost, run_job, sole_writer
from trajpred.store.jobs import workers as worker_pool
from trajpred.store.reader import ScenarioStore, listed
from trajpred.store.shards import (
    INDEX,
    MANIFEST,
    VERSION,
    is_plain,
    prepare_command,
    previous_manifest,
    record_of,
    sealed,
    signed_name,
    unsealed,
    write_index,
)
from trajpred.store.windows import LostFrames, Window, common_windows, describe_mixture

#: What to do about scenarios that the new store would lack.
ALLOW = "allow the loss with --overwrite"


def write_entry(folder: Path, jobs: list[ShardJob], overwrite: bool) -> dict[str, Any]:
    """Write the index of the split in ``folder`` from the records of its shards; return its manifest entry.

    Raises: DataError if ids are not unique or, unless ``overwrite``, readers would lose scenarios.
    """
    records = [unsealed(job.record.read_text()) for job in jobs]
    rows: dict[str, list[Any]] = {name: [] for name in INDEX.names}
    shards: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    raw_names: list[str] = []
    for record in records:
        for name, values in rows.items():
            values += record[name]
        shards.append({"file": record["file"], "scenarios": record["scenarios"]})
        skipped |= record["skipped"]
        raw_names += [name for name in record["paths"] if name not in record["skipped"]]
    ids = rows["scenario_id"]
    for scenario_id, count in Counter(ids).most_common(1):
        copies = [name for name, own_id in zip(raw_names, ids, strict=True) if own_id == scenario_id]
        repeated = f"{count} scenarios of split {folder.name!r} have the id {scenario_id!r}: {listed(copies)}"
        require(count == 1, "raw", f"{repeated}; remove all but one of them")
    if not overwrite:
        _require_no_loss(folder, ids, skipped)
    new = jobs[0].scratch / f"{folder.name}.arrow"
    write_index(new, **rows)
    index = signed_name("index", new)
    put(new, folder / index)
    common, is_cut = _windows_of(records)
    entry = {
        "scenarios": len(ids),
        "index": index,
        "shards": shards,
        "skipped": skipped,
        "lengths": [list(window) for window in common],  # as JSON gives them back
    }
    if is_cut:
        entry["cut"] = True
    return entry


def _require_no_loss(folder: Path, ids: list[str], skipped: dict[str, str]) -> None:
    """Raise :class:`DataError` if readers find scenarios in the split that are not among its new ``ids``."""
    lost = sorted(_readable(folder) - set(ids))
    if not lost:
        return
    cause = "the raw data lack them"
    if skipped:
        name = next(iter(skipped))
        cause = f"{name} was skipped: {skipped[name]}"
    problem = f"split {folder.name!r} would lose {len(lost)} scenarios: {listed(lost)} ({cause})"
    advice = f"the old store stays; repair the raw data, or {ALLOW}"
    raise DataError(f"{problem}; {advice}", field="store")


def _windows_of(records: list[dict[str, Any]]) -> tuple[list[Window], bool]:
    """Return the windows of a split from the records of its shards, and whether any has to be cut."""
    windows: list[Window] = []
    lost: list[LostFrames] = []
    for record in records:
        windows += [Window(*window) for window in record["lengths"]]
        for window, frames in record.get("lost", []):
            lost.append(LostFrames(Window(*window), Window(*frames)))
    return common_windows(windows, lost)


def put(new: Path, path: Path) -> None:
    """Rename the file ``new`` to ``path``, unless that already has the same content."""
    if not (path.is_file() and filecmp.cmp(new, path, shallow=False)):
        new.replace(path)


def _readable(folder: Path) -> set[str]:
    """Return the ids that readers of the store find in a split; none if they find no store or split."""
    try:
        return set(ScenarioStore(folder.parent, folder.name).scenario_ids)
    except DataError:
        return set()


#: Entries of a manifest that an error does not list: a hash, and nested records.
NOT_LISTED = ("config", "extended", "options")


@dataclass(frozen=True)
class Summary:
    """What :func:`prepare` did.

    Attributes:
        scenarios: by split, the number of scenarios in the store.
        skipped: by split and name, why scenarios were skipped.
        mixed: by split, of which kinds its windows are, and what to do about it; only if there are several.
    """

    scenarios: dict[str, int]
    skipped: dict[str, dict[str, str]]
    mixed: dict[str, str]


def prepare(
    source: str,
    raw: str | Path,
    store: str | Path,
    *,
    workers: int = -1,
    scheduler: str | None = None,
    shard_size: int = 256,
    heights: bool = False,
    options: object = None,
    extend: Extension | None = None,
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
        raw: folder in the layout of the data set; for some sources also a file.
        store: target folder.
        workers: processes; -1 for all cores.
        scheduler: address of a Dask scheduler whose workers are used instead; they need the same folders.
        shard_size: scenarios per shard.
        heights: keep the heights of map points.
        options: of the source, see :attr:`Source.options <trajpred.sources.Source>`; by default its defaults.
        extend: lengthens the training scenarios, see :mod:`trajpred.predictors.continuation`.
        overwrite: allow the store to lose scenarios, and labels of another ``extend``. By default splits that
            ``raw`` lacks are kept if they have the same options; otherwise the run is rejected.
        patience_s: seconds to wait for another run on the same store.
        progress: show a progress bar.

    Raises:
        DataError: unknown source, no raw data, invalid option, duplicate scenario ids in a split, another run
            on the store, or a store that cannot be written or would lose scenarios or labels.

    Example:
        >>> prepare("argoverse2", "datasets/argoverse2/sample", "/tmp/store", progress=False).scenarios
        {'test': 1, 'train': 10, 'val': 5}
    """
    raw = Path(raw).absolute()
    store = Path(store).absolute()
    require(shard_size > 0, "shard_size", "must be positive")
    config: dict[str, Any] = {
        "version": COLUMNS_VERSION,
        "source": source,
        "heights": heights,
        "shard_size": shard_size,
    }
    facts = find_source(source).facts(options)
    if facts:
        config["options"] = facts
    if extend is not None:
        config["extended"] = extend.facts
    config["config"] = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]
    config["version"] = VERSION  # after the hash, which identifies the content of scenarios
    raw_splits = _discover(source, raw, options)
    require(store.resolve() != raw.resolve(), "store", "must be another folder than the raw one")
    try:
        with worker_pool(workers, scheduler) as run, sole_writer(store, patience_s) as scratch:
            old = previous_manifest(store)
            splits = _kept(store, old, config, raw_splits, overwrite)
            jobs: dict[str, list[ShardJob]] = {}
            for split, scenarios in raw_splits.items():
                lengthen = extend if split == "train" else None
                jobs[split] = _jobs(config, raw, scenarios, store / split, scratch, lengthen, options)
            if not overwrite:
                _require_no_lost_labels(store, jobs.get("train", []))
            _make_missing(list(chain.from_iterable(jobs.values())), run, progress)
            for split, split_jobs in jobs.items():
                splits[split] = write_entry(store / split, split_jobs, overwrite)
            splits = dict(sorted(splits.items()))
            manifest = config | {"splits": splits}
            (scratch / MANIFEST).write_text(sealed(manifest), newline="\n")
            put(scratch / MANIFEST, store / MANIFEST)
            _tidy(store, splits, {*old["splits"], *splits})
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error}); run the same command again to resume"
        raise DataError(problem, file=error.filename or store) from None
    summary = Summary({}, {}, _mixtures(store, splits, extended=extend is not None))
    for split, entry in splits.items():
        summary.scenarios[split] = entry["scenarios"]
        summary.skipped[split] = entry["skipped"]
    return summary


def _mixtures(store: Path, splits: Collection[str], extended: bool) -> dict[str, str]:
    """Describe the windows of each split that has several kinds.

    Those of train and val must be the same, unless the training scenarios were extended.
    """
    problems: dict[str, str] = {}
    windows: dict[str, list[Window]] = {}
    steps: dict[str, NDArray[np.float64]] = {}
    for split in splits:
        try:
            windows[split], steps[split] = ScenarioStore(store, split).windows()
        except DataError:
            continue  # a damaged split that this run has not made
        problems[split] = describe_mixture(windows[split], steps[split])
    comparable = not extended and {"train", "val"} <= windows.keys()
    if comparable and not problems["train"] and not problems["val"]:
        all_windows = [*windows["train"], *windows["val"]]
        all_steps = np.concatenate((steps["train"], steps["val"]))
        problems["train and val"] = describe_mixture(all_windows, all_steps)
    return {split: problem for split, problem in problems.items() if problem}


def _discover(source: str, raw: Path, options: object) -> dict[str, list[RawScenario]]:
    """Find the scenarios of each non-empty split.

    Raises:
        DataError: the source finds none, or their names are not unique.
    """
    splits = find_source(source).scenarios(raw, options)
    for split, scenarios in splits.items():
        require(is_plain(split), "source", f"a split must be a plain folder name, not {split!r}")
        name, count = Counter(scenario.name for scenario in scenarios).most_common(1)[0]
        require(count == 1, "source", f"{count} scenarios of split {split!r} are called {name!r}")
    return splits


def _kept(
    store: Path,
    old: dict[str, Any],
    config: dict[str, Any],
    raw_splits: Collection[str],
    overwrite: bool,
) -> dict[str, Any]:
    """Return the manifest entries of the splits that the raw data lack, if they have the same ``config``.

    Raises:
        DataError: such a split has another ``config`` and would be lost, without ``overwrite``.
    """
    entries: dict[str, Any] = old["splits"]
    absent = {split: entry for split, entry in entries.items() if split not in raw_splits}
    differing = [name for name in config if old.get(name) != config[name]]
    if not differing:
        return absent
    if not absent or overwrite:
        return {}
    options = [f"{name} {old[name]}" for name in differing if name in old and name not in NOT_LISTED]
    before = ", ".join(options)
    if not options:
        before = f"`{prepare_command(store, old)}`"
    problem = f"split {min(absent)!r} was prepared with {before}, and the raw data lack its scenarios"
    raise DataError(f"{problem}; choose another folder, or {ALLOW}", file=store, field="store")


def _jobs(
    config: dict[str, Any],
    raw: Path,
    scenarios: list[RawScenario],
    folder: Path,
    scratch: Path,
    extend: Extension | None,
    options: object,
) -> list[ShardJob]:
    """List the shards of the split in ``folder``."""
    size: int = config["shard_size"]
    jobs: list[ShardJob] = []
    for start in range(0, len(scenarios), size):
        rows = scenarios[start : start + size]
        record = folder / f"shard-{start // size:05d}.json"
        jobs.append(ShardJob(config, raw, rows, record, scratch, extend, options))
    return jobs


def _require_no_lost_labels(store: Path, jobs: list[ShardJob]) -> None:
    """Raise :class:`DataError` if ``jobs`` would replace labels of another extension, perhaps hours of work.

    The records of the shards are read, since an interrupted run has no manifest.
    """
    for job in jobs:
        if made := labels_lost(job):
            facts = ", ".join(f"{name} {value}" for name, value in made.items())
            problem = f"its training scenarios were continued ({facts}), and this run would replace them"
            raise DataError(f"{problem}; choose another folder, or {ALLOW}", file=store, field="store")


def _make_missing(jobs: list[ShardJob], run: Run, progress: bool) -> None:
    """Make the shards that are not finished."""
    with closing(run(is_finished, jobs)) as results:
        checked = progress_bar(results, "checking", len(jobs), leave=False, unit=" shards", shown=progress)
        missing = [job for job, finished in zip(jobs, checked, strict=True) if not finished]
    if not missing:
        return
    total = _count(jobs)
    finished_scenarios = total - _count(missing)
    bar = progress_bar(total=total, initial=finished_scenarios, unit=" scenarios", shown=progress)
    with bar, closing(run(run_job, missing)) as results:
        for job, _ in zip(missing, results, strict=True):
            bar.update(len(job.scenarios))


def _count(jobs: list[ShardJob]) -> int:
    """Return the number of scenarios of all jobs."""
    return sum(len(job.scenarios) for job in jobs)


def _tidy(store: Path, splits: dict[str, Any], folders: set[str]) -> None:
    """Remove shards, records and indices in ``folders`` that the entries of the ``splits`` do not name."""
    needed: set[Path] = set()
    for split, entry in splits.items():
        needed.add(store / split / entry["index"])
        for shard in entry["shards"]:
            path = store / split / shard["file"]
            needed.add(path)
            needed.add(record_of(path))
    for name in folders:
        files = [*(store / name).glob("shard-*"), *(store / name).glob("index*")]
        for file in files:
            if file not in needed:
                with suppress(OSError):
                    file.unlink()
