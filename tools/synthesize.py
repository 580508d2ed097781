"""Synthetic scenarios in Argoverse 2's format, for scale tests, CI and teaching.

Accuracy measured on them is meaningless. Roads are straight, curved, or branch with three or four arms;
right-hand traffic. Vehicles follow lanes and slow down for bends; those that would overlap another road user
are omitted. Pedestrians walk beside the road and over crossings. Metres, radians, seconds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import cyclopts
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from joblib import Parallel, delayed

from tools.synthetic_roads import Roads
from tools.synthetic_traffic import STEP_S, observe, simulate
from trajpred.data.environment import processes
from trajpred.data.files import progress_bar, require_writable
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.errors import DataError, require
from trajpred.sources.argoverse2 import TEXT, archive_of

#: Nanoseconds of the first step; all stamps are multiples of 256 and therefore exact in float64.
EPOCH_NS = 315_964_800 * 10**9
#: Angles of the arms of each kind of road network; one or two of them are varied at random.
KINDS = {
    "straight": (0.0, np.pi),
    "curve": (0.0, np.pi * 0.7),
    "tee": (0.0, np.pi / 2, np.pi),
    "junction": (0.0, np.pi / 2, np.pi, -np.pi / 2),
}
NOTICE = (
    "Synthetic scenarios by trajpred: procedural roads and traffic in Argoverse 2's file format. No real "
    "place or road user. For scale tests, CI and teaching; accuracy measured on them is meaningless."
)


def main(*, out: Path, limit: int = 1000, seed: int = 0, workers: int = -1) -> None:
    """Write synthetic scenarios in Argoverse 2's format: a tenth for validation, a tenth for testing.

    Args:
        out: Target folder, new or empty.
        limit: Number of scenarios in all splits together.
        seed: The same seed gives the same bytes.
        workers: Processes; -1 for all cores.
    """
    try:
        require_writable(out, folder=True)
        print(synthesize(out, limit, seed, workers=workers), f"synthetic scenarios: {out}")
    except (DataError, OSError) as error:
        sys.exit(f"error: {error}")


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
    """Write synthetic scenarios to ``out/{train,val,test}/<id>/`` and return the number in each split.

    A scenario depends only on ``seed``, its index and the lengths, not on the number of workers.

    Args:
        val: share of the validation split.
        test: share of the test split, whose scenarios have no future.
        steps: length of a scenario, in steps of 0.1 s.
        observed: length of its input, in the same steps.

    Raises: DataError if ``out`` is not empty or a number is out of range.
    """
    require(scenarios > 0, "limit", "must be positive")
    require(seed >= 0, "seed", "must not be negative")
    processes(workers)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError("is not empty; synthetic scenarios need a new folder", file=out)
    num_val = round(scenarios * val)
    num_test = min(round(scenarios * test), scenarios - num_val)
    counts = {"train": scenarios - num_val - num_test, "val": num_val, "test": num_test}
    out.mkdir(parents=True, exist_ok=True)
    label = {
        "notice": NOTICE,
        "seed": seed,
        "steps": steps,
        "observed": observed,
        "scenarios": counts,
    }
    (out / "synthetic.json").write_text(json.dumps(label, indent=1) + "\n", encoding="utf-8")
    splits: list[str] = []
    for split, count in counts.items():
        splits += [split] * count
    write = delayed(_write)
    jobs = (write(out / split, seed, index, steps, observed) for index, split in enumerate(splits))
    written = Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=16)(jobs)
    for _ in progress_bar(written, total=scenarios, unit=" scenarios", shown=progress):
        pass
    return counts


def _write(folder: Path, seed: int, index: int, steps: int, observed: int) -> None:
    scenario = make_scenario(seed, index, steps, observed)
    write_scenario(scenario, folder / scenario.scenario_id, future=folder.name != "test")


def make_scenario(seed: int, index: int, steps: int = 110, observed: int = 50) -> Scenario:
    """Generate one scenario; equal arguments give equal values."""
    rng = np.random.default_rng([seed, index])
    kinds = list(KINDS.values())
    angles = np.array(kinds[index % len(kinds)])
    angles[1::2] += rng.uniform(-0.2, 0.2, len(angles[1::2]))
    turn = rng.uniform(-np.pi, np.pi)
    origin = rng.uniform(-4000, 4000, 2)
    width = int(rng.integers(1, 3))
    roads = Roads(angles + turn, origin, width)
    users = simulate(rng, roads, steps, observed)
    tracks, focal_id = observe(rng, users, observed)
    scenario = Scenario(
        scenario_id=str(uuid5(NAMESPACE_URL, f"trajpred/synthetic/{seed}/{index}")),
        city="synthetic",
        timestamps_ns=EPOCH_NS + np.round(np.arange(steps) * STEP_S * 1e9).astype(np.int64),
        num_observed=observed,
        focal_id=focal_id,
        tracks=tracks,
        map=roads.lane_map(),
    )
    return scenario.validate()


def write_scenario(scenario: Scenario, folder: Path, future: bool = True) -> None:
    """Write ``scenario_<id>.parquet`` and ``log_map_archive_<id>.json`` into a new or existing ``folder``.

    Map points without heights are written at height 0. Without ``future``, as in a test split, the steps
    after the observed ones are omitted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = scenario.scenario_id
    table = scenario_table(scenario, future)
    # Dictionary encoding of measurements, which rarely repeat, would only cost time.
    pq.write_table(table, folder / f"scenario_{name}.parquet", use_dictionary=list(TEXT))
    archive = json.dumps(archive_of(scenario.map, digits=None))
    (folder / f"log_map_archive_{name}.json").write_text(archive)


def scenario_table(scenario: Scenario, future: bool = True) -> pa.Table:
    """Return one row per track and valid step, with Argoverse 2's columns and types."""
    tracks = scenario.tracks
    valid = tracks.valid.copy()
    if not future:
        valid[:, scenario.num_observed :] = False
    track, step = np.nonzero(valid)

    def text(values: list[str], code: Any) -> pa.Array:
        return pa.array(values, pa.string()).take(pa.array(code))

    def constant(value: Any, dtype: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, dtype), len(track))

    x, y = np.moveaxis(tracks.position[valid], -1, 0)
    velocity_x, velocity_y = np.moveaxis(tracks.velocity[valid], -1, 0)
    return pa.table(
        {
            "observed": step < scenario.num_observed,
            "track_id": text(tracks.track_id.tolist(), track),
            "object_type": text(list(OBJECT_TYPES), tracks.object_type[track]),
            "object_category": tracks.category[track].astype(np.int64),
            "timestep": step,
            "position_x": x,
            "position_y": y,
            "heading": tracks.heading[valid],
            "velocity_x": velocity_x,
            "velocity_y": velocity_y,
            "scenario_id": constant(scenario.scenario_id, pa.string()),
            "start_timestamp": constant(float(scenario.timestamps_ns[0]), pa.float64()),
            "end_timestamp": constant(float(scenario.timestamps_ns[-1]), pa.float64()),
            "num_timestamps": constant(scenario.num_steps, pa.int64()),
            "focal_track_id": constant(scenario.focal_id, pa.string()),
            "city": constant(scenario.city, pa.string()),
        }
    )


if __name__ == "__main__":
    cyclopts.run(main)
