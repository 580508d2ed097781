"""Write the index of a split, and describe the split in the manifest."""

from __future__ import annotations

import filecmp
from collections import Counter
from pathlib import Path
from typing import Any

from trajpred.errors import DataError, require
from trajpred.store.jobs import ShardJob
from trajpred.store.reader import ScenarioStore, listed
from trajpred.store.shards import INDEX, signed_name, unsealed, write_index
from trajpred.store.windows import LostFrames, Window, common_windows

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
