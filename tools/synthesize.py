"""Synthetic scenarios in Argoverse 2's format, for scale tests, CI and teaching.

Accuracy measured on them is meaningless. Roads are straight, curved, or branch with three or four arms;
right-hand traffic. Vehicles follow lanes and slow down for bends; those that would overlap another road user
are omitted. Pedestrians walk beside the road and over crossings. Metres, radians, seconds.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import cyclopts
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from joblib import Parallel, delayed
from numpy.typing import NDArray

from tools.synthetic_roads import ARM_LENGTH, GRID, SHOULDER, SPEED_LIMIT, Paths, Roads
from trajpred.environment import processes
from trajpred.errors import DataError, require
from trajpred.files import require_writable
from trajpred.geometry import norm, to_local, unit_vector, wrap_angle
from trajpred.progress import progress_bar
from trajpred.scenario import Scenario
from trajpred.sources.argoverse2 import STATE, TEXT
from trajpred.sources.av2_objects import map_archive
from trajpred.tracks import EGO_ID, OBJECT_TYPES, TYPICAL_SIZES, TrackCategory, Tracks

#: Nanoseconds of the first step; all stamps are multiples of 256 and therefore exact in float64.
EPOCH_NS, STEP_S = 315_964_800 * 10**9, 0.1
#: Angles of the arms of each kind of road network; one or two of them are varied at random.
KINDS = {
    "straight": (0.0, np.pi),
    "curve": (0.0, np.pi * 0.7),
    "tee": (0.0, np.pi / 2, np.pi),
    "junction": (0.0, np.pi / 2, np.pi, -np.pi / 2),
}
WALKING_SPEED = 1.4
#: Sensor range; shortest recorded track in steps; standard deviations of the noise of x, y, heading and
#: velocity, and its correlation from step to step.
RANGE, SHORTEST = 95.0, 5
NOISE, CORRELATION = np.array([0.06, 0.06, 0.01, 0.08, 0.08]), 0.85
#: The first vehicles pass the middle near the present; the ego and the focal vehicle are among them.
LEADERS, VEHICLES, PARKED, PEDESTRIANS = 8, 24, 6, 10
#: Maximum number of scored tracks beside the focal one.
SCORED = 5
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
    out: Path, scenarios: int, seed: int = 0, val: float = 0.1, test: float = 0.1, steps: int = 110,
    observed: int = 50, workers: int = -1, progress: bool = True,
) -> dict[str, int]:  # fmt: skip
    """Write synthetic scenarios to ``out/{train,val,test}/<id>/`` and return the number in each split.

    A scenario depends only on ``seed``, its index and the lengths, not on the number of workers.

    Args:
        val, test: shares of these splits; test scenarios have no future.
        steps, observed: length of a scenario and of its input, in steps of 0.1 s.

    Raises: DataError if ``out`` is not empty or a number is out of range.
    """
    require(scenarios > 0, "limit", "must be positive")
    require(seed >= 0, "seed", "must not be negative")
    processes(workers)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError("is not empty; synthetic scenarios need a new folder", file=out)
    held = round(scenarios * val)
    counts = {"val": held, "test": min(round(scenarios * test), scenarios - held)}
    counts = {"train": scenarios - sum(counts.values()), **counts}
    out.mkdir(parents=True, exist_ok=True)
    label = {"notice": NOTICE, "seed": seed, "steps": steps, "observed": observed, "scenarios": counts}
    (out / "synthetic.json").write_text(json.dumps(label, indent=1) + "\n", encoding="utf-8")
    splits = [split for split, count in counts.items() for _ in range(count)]
    jobs = (delayed(_write)(out / split, seed, i, steps, observed) for i, split in enumerate(splits))
    written = Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=16)(jobs)
    list(progress_bar(written, total=scenarios, unit=" scenarios", shown=progress))
    return counts


def _write(folder: Path, seed: int, index: int, steps: int, observed: int) -> None:
    scenario = make_scenario(seed, index, steps, observed)
    write_scenario(scenario, folder / scenario.scenario_id, future=folder.name != "test")


def make_scenario(seed: int, index: int, steps: int = 110, observed: int = 50) -> Scenario:
    """Generate one scenario; equal arguments give equal values."""
    rng = np.random.default_rng([seed, index])
    arms = np.array(list(KINDS.values())[index % len(KINDS)])
    arms[1::2] += rng.uniform(-0.2, 0.2, len(arms[1::2]))
    roads = Roads(arms + rng.uniform(-np.pi, np.pi), rng.uniform(-4000, 4000, 2), int(rng.integers(1, 3)))
    users = simulate(rng, roads, steps, observed)
    name = str(uuid5(NAMESPACE_URL, f"trajpred/synthetic/{seed}/{index}"))
    stamps = EPOCH_NS + np.round(np.arange(steps) * STEP_S * 1e9).astype(np.int64)
    tracks, focal_id = observe(rng, users, observed)
    return Scenario(name, "synthetic", stamps, observed, focal_id, tracks, roads.lane_map()).validate()


def write_scenario(scenario: Scenario, folder: Path, future: bool = True) -> None:
    """Write ``scenario_<id>.parquet`` and ``log_map_archive_<id>.json`` into a new or existing ``folder``.

    Map points without heights are written at height 0. Without ``future``, as in a test split, the steps
    after the observed ones are omitted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = scenario.scenario_id
    # Dictionary encoding of measurements, which rarely repeat, would only cost time.
    pq.write_table(
        scenario_table(scenario, future), folder / f"scenario_{name}.parquet", use_dictionary=list(TEXT)
    )
    (folder / f"log_map_archive_{name}.json").write_text(json.dumps(map_archive(scenario.map)))


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

    states = (*np.moveaxis(tracks.position, -1, 0), tracks.heading, *np.moveaxis(tracks.velocity, -1, 0))
    return pa.table(
        {
            "observed": step < scenario.num_observed,
            "track_id": text(tracks.track_id.tolist(), track),
            "object_type": text(list(OBJECT_TYPES), tracks.object_type[track]),
            "object_category": tracks.category[track].astype(np.int64),
            "timestep": step,
            **{name: values[valid] for name, values in zip(STATE, states, strict=True)},
            "scenario_id": constant(scenario.scenario_id, pa.string()),
            "start_timestamp": constant(float(scenario.timestamps_ns[0]), pa.float64()),
            "end_timestamp": constant(float(scenario.timestamps_ns[-1]), pa.float64()),
            "num_timestamps": constant(scenario.num_steps, pa.int64()),
            "focal_track_id": constant(scenario.focal_id, pa.string()),
            "city": constant(scenario.city, pa.string()),
        }
    )


@dataclass
class Users:
    """True states of ``A`` road users over ``T`` steps; row 0 is the ego vehicle.

    Attributes:
        states: ``[A, T, 5]`` position, heading and velocity.
        present: ``[A, T]``, True where on the map.
        focal: row of the focal vehicle.
    """

    object_type: NDArray[np.int8]
    states: NDArray[np.float64]
    present: NDArray[np.bool_]
    focal: int


def simulate(rng: np.random.Generator, roads: Roads, steps: int, observed: int) -> Users:
    """Move vehicles, pedestrians and parked cars along random paths, and omit those that would overlap."""
    routes, curbs = roads.routes(), roads.roadsides(1.3)
    walks = roads.roadsides(SHOULDER + 1.5) + [edges.mean(axis=0) for edges in roads.crossings()]
    paths = Paths.along([*routes, *walks, *curbs])
    first = np.cumsum([0, len(routes), len(walks), len(curbs)])
    counts = (VEHICLES, PEDESTRIANS, PARKED)
    group = np.repeat(np.arange(3), counts)
    path = np.concatenate([rng.integers(first[i], first[i + 1], counts[i]) for i in range(3)])
    codes = [OBJECT_TYPES.index(name) for name in ("vehicle", "bus", "motorcyclist", "cyclist", "pedestrian")]
    object_type = np.where(group == 1, codes[4], codes[0])
    object_type[LEADERS:VEHICLES] = rng.choice(codes[:4], VEHICLES - LEADERS, p=[0.8, 0.07, 0.05, 0.08])
    length = paths.last[path] * GRID
    start = rng.uniform(-60, 0.9 * length)
    start[:LEADERS] = ARM_LENGTH + rng.uniform(-30, 20, LEADERS) - 0.75 * SPEED_LIMIT * observed * STEP_S
    start = np.where(group == 2, rng.uniform(0.1, 0.9, len(group)) * length, start)
    pace = np.clip(rng.normal(0.95, 0.1, len(group)), 0.6, 1.1)
    pace[object_type == codes[3]] *= 0.4
    pace[group == 1] *= WALKING_SPEED / SPEED_LIMIT
    pace[group == 2] = 0
    s, v = np.empty((2, len(group), steps))
    position = start
    for t in range(steps):
        speed = pace * paths.speed[path, np.clip((position / GRID).astype(np.int64), 0, paths.last[path])]
        s[:, t], v[:, t] = position, speed
        position = position + speed * STEP_S
    row, index = path[:, None], np.clip((s / GRID).astype(np.int64), 0, paths.last[path][:, None] - 1)
    heading = paths.heading[row, index]
    # Beyond the ends of their paths, road users move straight on.
    xy = paths.point[row, index] + (s - index * GRID)[..., None] * unit_vector(heading)
    xy += rng.normal(0, 0.15, (len(group), 1, 1)) * unit_vector(heading + np.pi / 2)
    present = (s >= 0) & (s <= length[:, None]) & (rng.random((len(group), 1)) < 0.85)
    present[:LEADERS] = True
    keep = _without_overlap(xy, heading, TYPICAL_SIZES[object_type], present)
    focal = 1 + int(keep[1:LEADERS].argmax())
    keep[focal] = True
    states = np.concatenate((xy, heading[..., None], v[..., None] * unit_vector(heading)), -1)
    return Users(object_type.astype(np.int8), states, present & keep[:, None], focal)


def _without_overlap(
    xy: NDArray[np.float64],
    heading: NDArray[np.float64],
    size: NDArray[np.float64],
    present: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Return which users ``[A]`` to keep so that none overlaps an earlier one, checked twice a second."""
    xy, heading, present = xy[:, ::5], heading[:, ::5], present[:, ::5]
    other = np.abs(to_local(xy[None], xy[:, None], heading[:, None]))
    reach = (size[:, None] + size) / 2 + 0.2
    hit = (other < reach[:, :, None]).all(-1) & present[:, None] & present
    clash = hit.any(-1) | hit.any(-1).T
    keep = np.ones(len(xy), np.bool_)
    for a in range(1, len(xy)):
        keep[a] = not (clash[a, :a] & keep[:a]).any()
    return keep


def observe(rng: np.random.Generator, users: Users, observed: int) -> tuple[Tracks, str]:
    """Return the tracks that the ego vehicle records, with noise and gaps, and the focal track's id."""
    A, T = users.present.shape
    focal, position, step = users.focal, users.states[..., :2], np.arange(T)
    begin = rng.integers(0, T, (A, 1))
    gap = (step >= begin) & (step < begin + rng.integers(1, 13, (A, 1))) & (rng.random((A, 1)) < 0.25)
    valid = users.present & (norm(position - position[0]) < RANGE) & ~gap
    valid[valid.sum(1) < SHORTEST] = False
    valid[[0, focal]] = True
    noise = rng.standard_normal(users.states.shape) * NOISE
    for t in range(1, T):
        noise[:, t] = CORRELATION * noise[:, t - 1] + np.sqrt(1 - CORRELATION**2) * noise[:, t]
    noise[0] *= 0.1
    states = users.states + noise
    states[..., 2] = wrap_angle(states[..., 2])
    moved = norm(position[:, -1] - position[:, 0]) > 4.0
    distance = norm(position[:, observed - 1] - position[focal, observed - 1])
    distance[~(valid.all(1) & moved)] = distance[[0, focal]] = np.inf
    category = np.where(valid.mean(1) < 0.5, TrackCategory.FRAGMENT, TrackCategory.UNSCORED)
    category[(distance < 50) & (distance.argsort().argsort() < SCORED)] = TrackCategory.SCORED
    category[focal] = TrackCategory.FOCAL
    rows = np.roll(np.flatnonzero(valid.any(1)), -1)  # the ego comes last, which is the order of the ids
    names = np.where(rows == 0, EGO_ID, (1000 + rows).astype(str))
    mask = valid[rows]
    states = np.where(mask[..., None], states[rows], 0.0)
    types, ranks = users.object_type[rows], category[rows].astype(np.int8)
    tracks = Tracks(names, types, ranks, mask, states[..., :2], states[..., 2], states[..., 3:])
    return tracks, str(1000 + focal)


if __name__ == "__main__":
    cyclopts.run(main)
