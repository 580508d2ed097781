"""Make a store: shards in parallel, then the index of each split, then the manifest."""

from __future__ import annotations

import filecmp
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from trajpred.data.files import progress_bar, resumable
from trajpred.data.lane_map import REACH_M
from trajpred.data.plausible import Plausibility
from trajpred.data.registry import imported
from trajpred.data.time import SAME_STEP
from trajpred.errors import DataError, require
from trajpred.sources import find_source
from trajpred.sources.reading import RawScenario
from trajpred.store.format import COLUMNS_VERSION
from trajpred.store.jobs import Extension, Run, ShardJob, write_batch
from trajpred.store.jobs import workers as worker_pool
from trajpred.store.reader import (
    ADVICE,
    INDEX,
    MANIFEST,
    VERSION,
    ScenarioStore,
    Window,
    listed,
    prepare_command,
    record_of,
    sealed,
    signed_name,
    unsealed,
)

#: Advice about scenarios that the new store would lack.
ALLOW = "allow the loss with --overwrite"
#: Manifest entries that an error does not list: a hash, and nested records.
NOT_LISTED = ("config", "extended", "options")
#: Empty file, locked by the current run; the operating system releases the lock when the process ends.
LOCK = ".lock"
_SCRATCH = ".unfinished-"


@dataclass(frozen=True)
class Summary:
    """The result of :func:`prepare`.

    Attributes:
        scenarios: by split, the number of scenarios in the store.
        skipped: by split and name, why scenarios were skipped.
        mixed: by split, the kinds of its windows and what to do about them; only if there are several kinds.
        unseen: by split, how many maps have no lane that a model reads; only if there are any.
        plausibility: by split, signs of wrong frames and units.
    """

    scenarios: dict[str, int]
    skipped: dict[str, dict[str, str]]
    mixed: dict[str, str]
    unseen: dict[str, str]
    plausibility: dict[str, Plausibility]


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
        scheduler: address of a Dask scheduler whose workers are used instead; they need access to the
            folders.
        shard_size: scenarios per shard.
        heights: keep the heights of map points.
        options: options of the source, see :attr:`Source.options <trajpred.sources.Source>`; by default its
            defaults.
        extend: lengthens the training scenarios, see :mod:`trajpred.predictors.continuation`.
        overwrite: allow the store to lose scenarios, and labels by another ``extend``. By default, splits
            that ``raw`` lacks are kept if their options are equal; otherwise the run is rejected.
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
    config = _config_of(source, options, extend, heights=heights, shard_size=shard_size)
    raw_splits = _discover(source, raw, options)
    require(store.resolve() != raw.resolve(), "store", "must be another folder than the raw one")
    with resumable(store), worker_pool(workers, scheduler) as run, sole_writer(store, patience_s) as scratch:
        old = _previous_manifest(store)
        splits = _kept(store, old, config, raw_splits, overwrite)
        modules = tuple(imported.values())
        jobs: dict[str, list[ShardJob]] = {}
        for split, scenarios in raw_splits.items():
            extend_split = extend if split == "train" else None
            jobs[split] = []
            for number, start in enumerate(range(0, len(scenarios), shard_size)):
                rows = scenarios[start : start + shard_size]
                record = store / split / f"shard-{number:05d}.json"
                job = ShardJob(config, raw, rows, record, scratch, extend_split, options, modules)
                jobs[split].append(job)
        if not overwrite:
            _require_no_lost_labels(store, jobs.get("train", []))
        _make_shards(list(chain.from_iterable(jobs.values())), run, progress)
        for split, split_jobs in jobs.items():
            splits[split] = _write_index(store / split, split_jobs, overwrite)
        splits = dict(sorted(splits.items()))
        (scratch / MANIFEST).write_text(sealed(config | {"splits": splits}), encoding="utf-8", newline="\n")
        _put(scratch / MANIFEST, store / MANIFEST)
        _remove_unused(store, splits, {*old["splits"], *splits})
    summary = Summary({}, {}, _mixtures(store, splits, extended=extend is not None), {}, {})
    for split, entry in splits.items():
        summary.scenarios[split] = entry["scenarios"]
        summary.skipped[split] = entry["skipped"]
        if entry.get("unseen"):
            summary.unseen[split] = _unseen(entry)
        summary.plausibility[split] = Plausibility(*entry.get("plausibility", ()))
    return summary


def _config_of(source: str, options: object, extend: Extension | None, **settings: Any) -> dict[str, Any]:
    """Return the settings that a store's manifest states, with a hash of those that scenarios depend on."""
    config: dict[str, Any] = {"version": COLUMNS_VERSION, "source": source, **settings}
    facts = find_source(source).facts(options)
    if facts:
        config["options"] = facts
    if extend is not None:
        config["extended"] = extend.facts
    config["config"] = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]
    config["version"] = VERSION  # after the hash, which identifies the content of scenarios
    return config


def _unseen(entry: dict[str, Any]) -> str:
    """Describe the scenarios whose maps have no lane near a road user."""
    name, metres = next(iter(entry["unseen"].items()))
    count = f"{len(entry['unseen'])} of {entry['scenarios']} maps have no lane within {REACH_M:g} m"
    return f"{count} of a road user, such as {name} ({metres:,} m): check the frame and origin of the map"


def _discover(source: str, raw: Path, options: object) -> dict[str, list[RawScenario]]:
    """Find the scenarios of each split. Raises: DataError if there are none, or names are not unique."""
    splits = find_source(source).scenarios(raw, options)
    for split, scenarios in splits.items():
        require(_is_plain(split), "source", f"a split must be a plain folder name, not {split!r}")
        [(name, count)] = Counter(scenario.name for scenario in scenarios).most_common(1)
        require(count == 1, "source", f"{count} scenarios of split {split!r} are called {name!r}")
    return splits


def _is_plain(name: str) -> bool:
    """Return whether ``name`` is a plain file name, without folders and not hidden. Raises: TypeError."""
    return Path(name).name == name and not name.startswith(".") and name != ""


# ------------------------------------------------------------------------------------------ the folder


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

    The folder is renamed first, so that a worker that outlives its run (on a cluster, say) can neither rename
    files into the store nor write others.
    """
    doomed = scratch.with_name(f"{scratch.name}-{uuid4().hex[:8]}")
    with suppress(OSError):
        scratch.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _put(new: Path, path: Path) -> None:
    """Rename the file ``new`` to ``path``, unless ``path`` already has this content."""
    if not (path.is_file() and filecmp.cmp(new, path, shallow=False)):
        new.replace(path)


def _remove_unused(store: Path, splits: dict[str, Any], folders: set[str]) -> None:
    """Remove shards, records and indices in ``folders`` that no entry of ``splits`` names."""
    needed: set[Path] = set()
    for split, entry in splits.items():
        needed.add(store / split / entry["index"])
        for shard in entry["shards"]:
            path = store / split / shard["file"]
            needed |= {path, record_of(path)}
    for name in folders:
        files = [*(store / name).glob("shard-*"), *(store / name).glob("index*")]
        for file in files:
            if file not in needed:
                with suppress(OSError):
                    file.unlink()


# -------------------------------------------------------------------------------------- the old store


def _previous_manifest(store: Path) -> dict[str, Any]:
    """Read the manifest of an earlier run of any version; without splits if it is missing or damaged."""
    try:
        text = (store / MANIFEST).read_text("utf-8")
        manifest: dict[str, Any] = json.loads(text)
        if manifest["version"] == VERSION:
            unsealed(text)
        # Splits may be removed, so they must be folders of this store.
        splits = manifest["splits"].items()
        manifest["splits"] = {split: entry for split, entry in splits if _is_plain(split)}
        return manifest
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {"splits": {}}


def _kept(
    store: Path, old: dict[str, Any], config: dict[str, Any], raw_splits: Collection[str], overwrite: bool
) -> dict[str, Any]:
    """Return the manifest entries of splits that the raw data lack, if their ``config`` is equal.

    Raises: DataError if such a split has another ``config`` and would be lost, unless ``overwrite``.
    """
    absent = {split: entry for split, entry in old["splits"].items() if split not in raw_splits}
    differing = [name for name in config if old.get(name) != config[name]]
    if not differing:
        return absent
    if not absent or overwrite:
        return {}
    options = [f"{name} {old[name]}" for name in differing if name in old and name not in NOT_LISTED]
    before = ", ".join(options) or f"`{prepare_command(store, old)}`"
    problem = f"split {min(absent)!r} was prepared with {before}, and the raw data lack its scenarios"
    raise DataError(f"{problem}; choose another folder, or {ALLOW}", file=store, field="store")


def _require_no_lost_labels(store: Path, jobs: list[ShardJob]) -> None:
    """Raise :class:`DataError` if ``jobs`` would replace another extension's labels, perhaps hours of work.

    The records of the shards are read, since an interrupted run has no manifest.
    """
    for job in jobs:
        try:
            extended = unsealed(job.record.read_text("utf-8")).get("extended")
        except (OSError, ValueError):
            continue
        if extended and extended != job.config.get("extended"):
            facts = ", ".join(f"{name} {value}" for name, value in extended.items())
            problem = f"its training scenarios were continued ({facts}), and this run would replace them"
            raise DataError(f"{problem}; choose another folder, or {ALLOW}", file=store, field="store")


def _require_no_loss(folder: Path, ids: list[str], skipped: dict[str, str]) -> None:
    """Raise :class:`DataError` if the split has scenarios that are not among its new ``ids``."""
    readable: set[str] = set()
    with suppress(DataError):  # readers find no store, or no such split
        readable.update(ScenarioStore(folder.parent, folder.name).scenario_ids)
    lost = sorted(readable - set(ids))
    if not lost:
        return
    cause = "the raw data lack them"
    if skipped:
        name, reason = next(iter(skipped.items()))
        cause = f"{name} was skipped: {reason}"
    problem = f"split {folder.name!r} would lose {len(lost)} scenarios: {listed(lost)} ({cause})"
    advice = f"the old store stays; repair the raw data, or {ALLOW}"
    raise DataError(f"{problem}; {advice}", field="store")


# -------------------------------------------------------------------------------------- the new store


def _make_shards(jobs: list[ShardJob], run: Run, progress: bool) -> None:
    total = sum(len(job.scenarios) for job in jobs)
    bar = progress_bar(total=total, unit=" scenarios", shown=progress)
    with bar, closing(run(jobs)) as results:
        for job, _ in zip(jobs, results, strict=True):
            bar.update(len(job.scenarios))


def _write_index(folder: Path, jobs: list[ShardJob], overwrite: bool) -> dict[str, Any]:
    """Write the index of the split in ``folder`` from the records of its shards; return its manifest entry.

    Raises: DataError if ids are not unique or, unless ``overwrite``, readers would lose scenarios.
    """
    rows: dict[str, list[Any]] = {name: [] for name in INDEX.names}
    shards: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    raw_names: list[str] = []
    whole: set[Window] = set()
    lost: set[tuple[Window, Window]] = set()
    unseen: dict[str, int] = {}
    counts: list[list[int]] = []
    for job in jobs:
        record = unsealed(job.record.read_text("utf-8"))
        for name, values in rows.items():
            values += record[name]
        shards.append({"file": record["file"], "scenarios": record["scenarios"]})
        skipped |= record["skipped"]
        unseen |= record.get("unseen", {})
        counts.append(record.get("plausibility", []))
        raw_names += [name for name in record["paths"] if name not in record["skipped"]]
        for window in record["lengths"]:
            whole.add(Window(*window))
        for window, frames in record.get("lost", []):
            lost.add((Window(*window), Window(*frames)))
    ids = rows["scenario_id"]
    _require_unique(folder.name, ids, raw_names)
    if not overwrite:
        _require_no_loss(folder, ids, skipped)
    new = jobs[0].scratch / f"{folder.name}.arrow"
    write_batch(new, [pa.array(rows[field.name], field.type) for field in INDEX], INDEX)
    index = signed_name("index", new)
    _put(new, folder / index)
    windows = common_windows(whole, lost)
    entry = {
        "scenarios": len(ids),
        "index": index,
        "shards": shards,
        "skipped": skipped,
        "lengths": sorted(windows),
        "plausibility": list(Plausibility.sum(counts)),
    }
    if any(window not in windows for window, _ in lost):
        entry["cut"] = True
    if unseen:
        entry["unseen"] = unseen
    return entry


def _require_unique(split: str, ids: list[str], raw_names: list[str]) -> None:
    """Raise :class:`DataError` if scenarios of a split have the same id; the message names the raw ones."""
    if len(set(ids)) == len(ids):
        return
    scenario_id, count = Counter(ids).most_common(1)[0]
    copies = [name for name, own_id in zip(raw_names, ids, strict=True) if own_id == scenario_id]
    repeated = f"{count} scenarios of split {split!r} have the id {scenario_id!r}: {listed(copies)}"
    raise DataError(f"{repeated}; remove all but one of them", field="raw")


def _mixtures(store: Path, splits: Collection[str], extended: bool) -> dict[str, str]:
    """Describe the window lengths of each split that mixes several.

    Train and val must have equal windows, unless the training scenarios were extended.
    """
    windows: dict[str, tuple[list[Window], NDArray[np.float64]]] = {}
    for split in splits:
        with suppress(DataError):  # a damaged split, not from this run
            windows[split] = ScenarioStore(store, split).windows()
    problems = {split: describe_mixture(*of_split) for split, of_split in windows.items()}
    comparable = not extended and {"train", "val"} <= windows.keys()
    if comparable and not problems["train"] and not problems["val"]:
        train, train_steps = windows["train"]
        val, val_steps = windows["val"]
        problems["train and val"] = describe_mixture(train + val, np.concatenate((train_steps, val_steps)))
    return {split: problem for split, problem in problems.items() if problem}


def common_windows(whole: Collection[Window], lost: Collection[tuple[Window, Window]]) -> set[Window]:
    """Return a split's windows: those without lost frames, and those that cannot be cut to one of these.

    Args:
        whole: windows without lost frames.
        lost: windows with lost frames, and what remains of each without these frames.
    """
    kinds = set(whole)
    for longer, frames in sorted(lost):
        if not any(_can_be_cut(longer, frames, kind) for kind in kinds):
            kinds.add(longer)
    return kinds


def _can_be_cut(longer: Window, frames: Window, kind: Window) -> bool:
    """Return whether ``kind`` is at most as long as the window, and at least as long as its frames."""
    in_past = frames.observed <= kind.observed <= longer.observed
    in_future = frames.future <= kind.future <= longer.future
    return in_past and in_future


def describe_mixture(windows: Collection[Window], step_s: NDArray[np.float64]) -> str:
    """Describe windows ``[N]`` with steps of ``step_s`` ``[N]`` seconds; empty if there is only one kind."""
    distinct: dict[float, float] = {}  # each length, and the shortest that counts as equal
    shortest = 0.0
    for step in np.unique(step_s).tolist():
        if step > (1 + SAME_STEP) * shortest:
            shortest = step
        distinct[step] = shortest
    kinds = Counter((window, distinct[step]) for window, step in zip(windows, step_s.tolist(), strict=True))
    if len(kinds) < 2:
        return ""
    parts = [f"{count:,} of {window} steps of {step:.3g} s" for (window, step), count in kinds.most_common()]
    return f"mixes scenarios: {', '.join(parts)}; {ADVICE}"
