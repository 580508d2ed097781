"""Convert raw scenarios into a store: parallel, resumable, skipping scenarios that cannot be read."""

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

from trajpred.errors import DataError, require
from trajpred.progress import progress_bar
from trajpred.sources import find_source
from trajpred.sources.raw_scenario import RawScenario
from trajpred.store.codec import COLUMNS_VERSION
from trajpred.store.jobs import Extension, ShardJob, is_finished, make, sole_writer
from trajpred.store.reader import MANIFEST, VERSION, ScenarioStore, is_plain, listed
from trajpred.store.shards import INDEX, record_of, sealed, signed_name, unsealed, write_index
from trajpred.store.windows import LostFrames, Window, common_windows, describe_mixture
from trajpred.store.workers import Run
from trajpred.store.workers import workers as worker_pool

_ALLOW = "allow the loss with --overwrite"


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
    every_s: float | None = None,
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
        raw: folder in the layout of the data set.
        store: target folder.
        workers: processes; -1 for all cores.
        scheduler: address of a Dask scheduler whose workers are used instead; they need the same folders.
        shard_size: scenarios per shard.
        heights: keep the heights of map points.
        every_s: seconds between the starts of windows, of sources that cut windows; by default their own.
        extend: lengthens the training scenarios, see :mod:`trajpred.predictors.continuation`.
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
    spacing_s = find_source(source).spacing_s(every_s)
    if spacing_s is not None:
        config["every_s"] = spacing_s
    if extend is not None:
        config["extended"] = extend.facts
    config["config"] = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]
    config["version"] = VERSION  # after the hash, which identifies the content of scenarios
    found = _discover(source, raw, every_s)
    require(store.resolve() != raw.resolve(), "store", "must be another folder than the raw one")
    try:
        with worker_pool(workers, scheduler) as run, sole_writer(store, patience_s) as scratch:
            old = _manifest(store)
            splits = _kept(store, old, config, found, overwrite)
            jobs = {}
            for split, scenarios in found.items():
                lengthen = extend if split == "train" else None
                jobs[split] = _jobs(config, raw, scenarios, store / split, scratch, lengthen)
            _make_missing([*chain(*jobs.values())], run, progress)
            splits |= {split: _entry(store / split, own, overwrite) for split, own in jobs.items()}
            splits = dict(sorted(splits.items()))
            (scratch / MANIFEST).write_text(sealed({**config, "splits": splits}), newline="\n")
            _put(scratch / MANIFEST, store / MANIFEST)
            _tidy(store, splits, {*old["splits"], *splits})
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error}); the same command continues"
        raise DataError(problem, file=error.filename or store) from None
    return Summary(
        scenarios={name: split["scenarios"] for name, split in splits.items()},
        skipped={name: split["skipped"] for name, split in splits.items()},
        mixed=_mixtures(store, splits, extended=extend is not None),
    )


def _mixtures(store: Path, splits: Collection[str], extended: bool) -> dict[str, str]:
    """Describe the windows of each split that has several kinds.

    Those of train and val must be the same, unless the training scenarios were extended.
    """
    found: dict[str, str] = {}
    windows: dict[str, list[Window]] = {}
    steps: dict[str, NDArray[np.float64]] = {}
    for split in splits:
        try:
            windows[split], steps[split] = ScenarioStore(store, split).windows()
        except DataError:
            continue  # a damaged split that this run has not made
        found[split] = describe_mixture(windows[split], steps[split])
    comparable = not extended and {"train", "val"} <= windows.keys()
    if comparable and not found["train"] and not found["val"]:
        both = np.concatenate((steps["train"], steps["val"]))
        found["train and val"] = describe_mixture([*windows["train"], *windows["val"]], both)
    return {split: problem for split, problem in found.items() if problem}


def _discover(source: str, raw: Path, every_s: float | None) -> dict[str, list[RawScenario]]:
    """Find the scenarios of each non-empty split. Raises: DataError, also if their names are not unique."""
    found = find_source(source).scenarios(raw, every_s)
    for split, scenarios in found.items():
        require(is_plain(split), "source", f"a split must be a plain folder name, not {split!r}")
        name, count = Counter(scenario.name for scenario in scenarios).most_common(1)[0]
        require(count == 1, "source", f"{count} scenarios of split {split!r} are called {name!r}")
    return found


def _kept(
    store: Path, old: dict[str, Any], config: dict[str, Any], found: Collection[str], overwrite: bool
) -> dict[str, Any]:
    """Return the manifest entries of the splits that are not ``found`` and were prepared with ``config``.

    Raises: DataError if another one would be lost, unless ``overwrite``.
    """
    others = {split: entry for split, entry in old["splits"].items() if split not in found}
    differing = [name for name in config if old.get(name) != config[name]]
    kept = {} if differing else others
    for split in sorted(others.keys() - kept.keys()) if not overwrite else ():
        how = ", ".join(f"{name} {old.get(name)}" for name in differing if name != "config")
        problem = f"split {split!r} was prepared with {how}, and the raw data lack its scenarios"
        raise DataError(f"{problem}; choose another folder, or {_ALLOW}", file=store, field="store")
    return kept


def _jobs(
    config: dict[str, Any],
    raw: Path,
    scenarios: list[RawScenario],
    folder: Path,
    scratch: Path,
    extend: Extension | None,
) -> list[ShardJob]:
    """List the shards of the split in ``folder``."""
    size: int = config["shard_size"]
    jobs: list[ShardJob] = []
    for start in range(0, len(scenarios), size):
        rows = scenarios[start : start + size]
        record = folder / f"shard-{start // size:05d}.json"
        jobs.append(ShardJob(config, raw, rows, record, scratch, extend))
    return jobs


def _make_missing(jobs: list[ShardJob], run: Run, progress: bool) -> None:
    """Make the shards that are not finished."""
    with closing(run(is_finished, jobs)) as results:
        checked = progress_bar(results, "checking", len(jobs), leave=False, unit=" shards", shown=progress)
        missing = [job for job, finished in zip(jobs, checked, strict=True) if not finished]
    if not missing:
        return
    total, left = (sum(len(job.scenarios) for job in group) for group in (jobs, missing))
    bar = progress_bar(total=total, initial=total - left, unit=" scenarios", shown=progress)
    with bar, closing(run(make, missing)) as results:
        for job, _ in zip(missing, results, strict=True):
            bar.update(len(job.scenarios))


def _entry(folder: Path, jobs: list[ShardJob], overwrite: bool) -> dict[str, Any]:
    """Write the index of the split in ``folder`` from the records of its shards; return its manifest entry.

    Raises: DataError if ids are not unique or, unless ``overwrite``, readers would lose scenarios.
    """
    records = [unsealed(job.record.read_text()) for job in jobs]
    rows = {name: [x for record in records for x in record[name]] for name in INDEX.names}
    skipped = {name: why for record in records for name, why in record["skipped"].items()}
    ids, split = rows["scenario_id"], folder.name
    for name, count in Counter(ids).most_common(1):
        require(count == 1, "source", f"{count} scenarios of split {split!r} have the id {name!r}")
    lost = [] if overwrite else sorted(_readable(folder) - set(ids))
    cause = next((f"{name} was skipped: {why}" for name, why in skipped.items()), "the raw data lack them")
    problem = f"split {split!r} would lose {len(lost)} scenarios: {listed(lost)} ({cause})"
    require(not lost, "store", f"{problem}; the old store stays; repair the raw data, or {_ALLOW}")
    new = jobs[0].scratch / f"{split}.arrow"
    write_index(new, **rows)
    index = signed_name("index", new)
    _put(new, folder / index)
    entry = {
        "scenarios": len(ids),
        "index": index,
        "shards": [{"file": record["file"], "scenarios": record["scenarios"]} for record in records],
        "skipped": skipped,
        "lengths": [],
    }
    common, is_cut = _windows_of(records)
    entry["lengths"] = [list(window) for window in common]  # as JSON gives them back
    if is_cut:
        entry["cut"] = True
    return entry


def _windows_of(records: list[dict[str, Any]]) -> tuple[list[Window], bool]:
    """Return the windows of a split from the records of its shards, and whether any has to be cut."""
    windows: list[Window] = []
    lost: list[LostFrames] = []
    for record in records:
        windows += [Window(*window) for window in record["lengths"]]
        lost += [LostFrames(Window(*window), Window(*frames)) for window, frames in record.get("lost", [])]
    return common_windows(windows, lost)


def _put(new: Path, path: Path) -> None:
    """Rename the file ``new`` to ``path``, unless that already has the same content."""
    if not (path.is_file() and filecmp.cmp(new, path, shallow=False)):
        new.replace(path)


def _tidy(store: Path, splits: dict[str, Any], folders: set[str]) -> None:
    """Remove shards, records and indices in ``folders`` that the entries of the ``splits`` do not name."""
    needed: set[Path] = set()
    for split, entry in splits.items():
        shards = [store / split / shard["file"] for shard in entry["shards"]]
        needed |= {store / split / entry["index"], *shards, *map(record_of, shards)}
    for pattern in ("shard-*", "index*"):
        for path in {path for name in folders for path in (store / name).glob(pattern)} - needed:
            with suppress(OSError):
                path.unlink()


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


def _readable(folder: Path) -> set[str]:
    """Return the ids that readers of the store find in a split; none if they find no store or split."""
    try:
        return set(ScenarioStore(folder.parent, folder.name).scenario_ids)
    except DataError:
        return set()
