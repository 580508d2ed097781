"""Getting data: download, prepare, synthesize."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Literal

from trajpred.errors import DataError, require
from trajpred.sources.download import BUCKET, ENDPOINT, PREFIX, SPLITS
from trajpred.sources.download import download as fetch
from trajpred.store.sample import SAMPLE_RAW, SAMPLE_STORE

Split = Literal["train", "val", "test"]


def download(
    out: Path,
    split: list[Split] | Split | None = None,
    limit: int | None = None,
    workers: int = 16,
    endpoint: str = ENDPOINT,
    bucket: str = BUCKET,
    prefix: str = PREFIX,
) -> int:
    """Fetch Argoverse 2 (58 GB), verified, resumable; a taste: --out /data/av2 --split train val --limit 100.

    Args:
        out: target folder; gets {train,val,test}/ID/.
        split: one or more of train, val, test; by default all.
        limit: the first so many scenarios of each split; by default all.
        workers: files fetched at once.
        endpoint: URL of the S3 service, for a mirror.
        bucket: its name there.
        prefix: the folder that holds the splits.
    """
    splits = [split] if isinstance(split, str) else split or SPLITS
    again = "the same command continues where this one stopped"
    try:
        done = fetch(
            out, splits=splits, limit=limit, workers=workers, endpoint=endpoint, bucket=bucket, prefix=prefix
        )
    except KeyboardInterrupt:
        print(f"\nstopped; {again}", file=sys.stderr)
        return 130
    print(f"{done.fetched} files fetched ({done.fetched_bytes / 1e9:.2f} GB), {done.kept} kept")
    if done.failed:
        listed = "\n".join(f"  {path}: {problem}" for path, problem in done.failed.items())
        print(f"{len(done.failed)} files failed; {again}:\n{listed}", file=sys.stderr)
    else:
        print(f"Prepare it: python tools/prepare.py --raw {shlex.quote(str(out))} --store STORE")
    return int(bool(done.failed))


def prepare(
    source: str = "argoverse2",
    raw: Path = SAMPLE_RAW,
    store: Path = SAMPLE_STORE,
    workers: int = -1,
    scheduler: str | None = None,
    shard_size: int = 256,
    compression: Literal["zstd"] | None = None,
    heights: bool = False,
    strict: bool = False,
    overwrite: bool = False,
) -> int:
    """Turn raw scenarios into a store: in parallel, resumable, reporting and skipping what cannot be read.

    Example: python tools/prepare.py --source argoverse2 --raw /data/av2 --store /data/av2-store

    Args:
        source: data set, by name, or package.module:OBJECT (trajpred/sources/README.md).
        raw: its folder in the official layout; for Argoverse 2 {train,val,test}/ID/.
        store: target folder.
        workers: processes; -1 for all cores.
        scheduler: a Dask scheduler, tcp://host:8786, whose workers do it instead; they see the same folders.
        shard_size: scenarios per file.
        compression: zstd for a smaller store that is slower to read.
        heights: keep the heights of the map's points.
        strict: exit with an error if any scenario had to be skipped.
        overwrite: let the store lose scenarios that this run does not make.
    """
    from trajpred.store import prepare as prepare_store

    foreign = raw != SAMPLE_RAW and store == SAMPLE_STORE
    require(not foreign, "store", "give --store too: the default one is the sample's")
    try:
        summary = prepare_store(
            source,
            raw,
            store,
            workers=workers,
            scheduler=scheduler,
            shard_size=shard_size,
            compression=compression,
            heights=heights,
            overwrite=overwrite,
        )
    except KeyboardInterrupt:
        print("\nstopped; the same command continues", file=sys.stderr)
        return 130
    for split, count in summary.scenarios.items():
        skipped = summary.skipped[split]
        print(f"{split}: {count} scenarios" + (f", {len(skipped)} skipped:" if skipped else ""))
        for name, problem in skipped.items():
            print(f"  {name}: {problem}", file=sys.stderr)
    if not any(summary.scenarios.values()):
        raise DataError("no scenario could be read", file=raw)
    absent = [split for split in ("train", "val") if not summary.scenarios.get(split)]
    if absent:
        print(f"Training also needs: {', '.join(absent)}")
    else:
        print(f"Train on it: python tools/train.py --data.store {shlex.quote(str(store))}")
    return int(strict and any(summary.skipped.values()))


def synthesize(
    out: Path,
    scenarios: int = 1000,
    seed: int = 0,
    val: float = 0.1,
    test: float = 0.1,
    steps: int = 110,
    observed: int = 50,
    workers: int = -1,
) -> int:
    """Write synthetic scenarios in Argoverse 2's format: --out /data/synthetic --scenarios 1000.

    Args:
        out: target folder, new or empty.
        scenarios: how many in all splits together.
        seed: the same seed gives the same bytes.
        val: share of the validation split.
        test: share of the test split, which has no futures.
        steps: of 0.1 s in each scenario.
        observed: how many of them are input.
        workers: processes; -1 for all cores.
    """
    from trajpred.sources.synthetic import synthesize as write

    for split, count in write(out, scenarios, seed, val, test, steps, observed, workers).items():
        print(f"{split}: {count} synthetic scenarios")
    raw = str(out)
    print(f"Prepare: python tools/prepare.py --raw {shlex.quote(raw)} --store {shlex.quote(raw + '-store')}")
    return 0
