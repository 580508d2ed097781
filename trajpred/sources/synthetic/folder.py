"""A folder of synthetic scenarios in Argoverse 2's layout, written in parallel."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from joblib import Parallel, delayed
from tqdm import tqdm

from trajpred.errors import DataError, require
from trajpred.sources.synthetic.scenes import block_of, make_block
from trajpred.sources.synthetic.write import encode_map, write_scenario

#: What lies beside the splits and says what they are.
LABEL = "synthetic.json"
NOTICE = (
    "Synthetic scenarios by trajpred's tools/synthesize.py: procedurally built roads, simulated traffic. "
    "No real place or road user, and not Argoverse's data, only its file format. For scale tests, CI and "
    "teaching; no accuracy measured on them means anything."
)


def synthesize(
    out: Path,
    scenarios: int,
    seed: int = 0,
    val: float = 0.1,
    test: float = 0.1,
    steps: int = 110,
    observed: int = 50,
    workers: int = -1,
    progress: bool = True,
) -> dict[str, int]:
    """Write ``scenarios`` scenarios below ``out``, ``test`` without futures; returns the count per split.

    A scenario depends on ``seed``, its index and the lengths alone: the same arguments give the same bytes
    with any number of workers.

    Raises:
        DataError: ``out`` is not empty, or an argument is out of range.
    """
    require(scenarios > 0, "scenarios", "must be positive")
    require(seed >= 0, "seed", "must not be negative")
    require(
        val >= 0 and test >= 0 and val + test <= 1, "val", "and test must be shares of at most 1 together"
    )
    require(steps > 1, "steps", f"must be 2 at least, is {steps}")
    require(0 < observed < steps, "observed", f"must be 1 to {steps - 1}, is {observed}")
    require(workers != 0, "workers", "must be a number of processes, or -1 for all cores")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError("is not empty; synthesize writes into a new folder", file=out)
    counts = {"val": round(scenarios * val), "test": round(scenarios * test)}
    counts = {"train": scenarios - sum(counts.values()), **counts}
    out.mkdir(parents=True, exist_ok=True)
    (out / "README.md").write_text(f"# Synthetic scenarios\n\n{NOTICE}\n", encoding="utf-8")
    label = {"notice": NOTICE, "seed": seed, "steps": steps, "observed": observed, "scenarios": counts}
    (out / LABEL).write_text(json.dumps(label, indent=1) + "\n", encoding="utf-8")
    splits = [split for split, count in counts.items() for _ in range(count)]
    work: dict[int, dict[int, str]] = {}
    for index, split in enumerate(splits):
        block, place = block_of(index)
        work.setdefault(block, {})[place] = split
    jobs = (
        delayed(_write_block)(out, seed, block, places, steps, observed) for block, places in work.items()
    )
    done: Iterable[int] = Parallel(n_jobs=workers, return_as="generator_unordered")(jobs)
    with tqdm(total=scenarios, unit="scenario", disable=None if progress else True) as bar:
        for count in done:
            bar.update(count)
    return counts


def _write_block(out: Path, seed: int, block: int, places: dict[int, str], steps: int, observed: int) -> int:
    """Make a block and write those of its scenarios that are wanted: ``{place: split}``."""
    made = make_block(seed, block, steps=steps, observed=observed)
    archive = encode_map(made[0].map)
    for place, split in places.items():
        folder = out / split / made[place].scenario_id
        write_scenario(made[place], folder, archive, future=split != "test")
    return len(places)
