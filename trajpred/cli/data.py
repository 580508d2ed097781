"""Commands that obtain data: download, prepare."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajpred.cli.scenarios import SourceOptions
from trajpred.data.environment import command_words
from trajpred.data.files import require_writable
from trajpred.data.splits import SPLITS, Split
from trajpred.errors import DataError, require

if TYPE_CHECKING:
    from trajpred.store.prepare import Summary

#: Exit code of prepare if scenarios were skipped.
SKIPPED = 3
#: With fewer training scenarios than this, the advice is to fine-tune shipped weights.
FEW = 5_000


def download(
    *,
    out: Path,
    split: list[Split] | None = None,
    limit: int | None = None,
    workers: int = 16,
    endpoint: str | None = None,
    bucket: str | None = None,
    prefix: str | None = None,
) -> int:
    """Download Argoverse 2 motion forecasting (58 GB): resumable, every file verified.

    Example: trajpred download --out /data/av2 --split train val --limit 100

    Args:
        out: Target folder, for {train,val,test}/ID/.
        split: Splits to download; by default all.
        limit: Download only the first LIMIT scenarios of each split.
        workers: Files downloaded at once.
        endpoint: URL of the S3 service, for a mirror; by default the public one.
        bucket: Bucket of a mirror.
        prefix: Folder of a mirror's bucket that contains the splits.
    """
    require_writable(out, folder=True)
    from trajpred.sources.download import download as fetch

    mirror: dict[str, Any] = {}
    if endpoint is not None:
        mirror["endpoint"] = endpoint
    if bucket is not None:
        mirror["bucket"] = bucket
    if prefix is not None:
        mirror["prefix"] = prefix
    done = fetch(out, splits=split or SPLITS, limit=limit, workers=workers, **mirror)
    print(f"{done.fetched} files fetched ({done.fetched_bytes / 1e9:.2f} GB), {done.kept} kept")
    if done.failed:
        again = "run the same command again to resume"
        print(f"{len(done.failed)} files failed; {again}:", file=sys.stderr)
        for path, problem in done.failed.items():
            print(f"  {path}: {problem}", file=sys.stderr)
    else:
        print(f"Prepare it: trajpred prepare --raw {command_words(out)} --store STORE")
    return int(bool(done.failed))


def prepare(
    *,
    source: str = "argoverse2",
    raw: Path | None = None,
    store: Path | None = None,
    workers: int = -1,
    scheduler: str | None = None,
    shard_size: int = 256,
    heights: bool = False,
    continue_s: float | None = None,
    teacher: str | None = None,
    options: SourceOptions = None,
    allow_skipped: bool = False,
    overwrite: bool = False,
) -> int:
    """Convert raw scenarios into a store: in parallel, resumable; unreadable ones are skipped and reported.

    Example: trajpred prepare --source argoverse2 --raw /data/av2 --store /data/av2-store

    Args:
        source: Name of the data set, or package.module:OBJECT (see docs/how-to/own-data.md). Some sources
            have their own options, listed by --source NAME --help: argoverse2-sensor, commonroad, scenarionet
            for nuScenes, Waymo and others in its format, and table for your own CSV and parquet files.
        raw: Folder of the data set in its official layout, for Argoverse 2 {train,val,test}/ID/; for tables
            also a file. By default the sample.
        store: Target folder; by default the sample's.
        workers: Processes; -1 for all cores.
        scheduler: Address of a Dask scheduler, tcp://host:8786, whose workers see the same folders.
        shard_size: Scenarios per file.
        heights: Keep the heights of map points.
        continue_s: Continue training scenarios by this many seconds from their last recorded step, as labels
            for longer horizons; needs --teacher. Continued steps are never evaluated.
        teacher: Checkpoint or shipped weights that predict the continued steps (docs/how-to/train.md).
        allow_skipped: Exit with 0 even if scenarios were skipped, instead of 3.
        overwrite: Allow this run to remove scenarios from the store that it does not produce, and to replace
            another teacher's continuations.
    """
    from trajpred.store import prepare as prepare_store
    from trajpred.store.sample import SAMPLE_RAW, require_sample, require_sample_store, sample_store

    raw = raw or require_sample("--raw")
    store = store or require_sample_store()
    foreign = raw.resolve() != SAMPLE_RAW.resolve() and store.resolve() == sample_store().resolve()
    require(not foreign, "store", "must be given with --raw: the default store is the sample's")
    extend = None
    require((continue_s is None) == (teacher is None), "teacher", "must be given together with --continue-s")
    if continue_s is not None and teacher is not None:
        from trajpred.predictors.continuation import Continuation

        extend = Continuation(teacher, continue_s)
    summary = prepare_store(
        source,
        raw,
        store,
        workers=workers,
        scheduler=scheduler,
        shard_size=shard_size,
        heights=heights,
        options=options,
        extend=extend,
        overwrite=overwrite,
    )
    _print_summary(summary)
    if not any(summary.scenarios.values()):
        raise DataError("no scenario could be read", file=raw)
    absent = [split for split in ("train", "val") if not summary.scenarios.get(split)]
    if absent:
        print(f"Training also needs: {', '.join(absent)}")
    else:
        start = "--weights argoverse-nano " if summary.scenarios["train"] < FEW else ""
        print(f"Train on it: trajpred train {start}--data.store {command_words(store)}")
    lost = sum(len(skipped) for skipped in summary.skipped.values())
    if lost and not allow_skipped:
        print(f"{lost} scenarios were skipped, see above; --allow-skipped accepts that", file=sys.stderr)
        return SKIPPED
    return 0


def _print_summary(summary: Summary) -> None:
    """Print the number of scenarios of each split, why others were skipped, and warnings."""
    for split, count in summary.scenarios.items():
        skipped = summary.skipped[split]
        counts = summary.plausibility[split]
        parts = [f"{split}: {count} scenarios"]
        if skipped:
            parts.append(f"{len(skipped)} skipped")
        parts += filter(None, (counts.lanes, counts.gaps))
        print(f"{', '.join(parts)}:" if skipped else ", ".join(parts))
        for name, problem in skipped.items():
            print(f"  {name}: {problem}", file=sys.stderr)
    for split, problem in (*summary.mixed.items(), *summary.unseen.items()):
        print(f"warning: {split} {problem}", file=sys.stderr)
    for split, counts in summary.plausibility.items():
        for problem in counts.problems():
            print(f"warning: {split}: {problem}", file=sys.stderr)
