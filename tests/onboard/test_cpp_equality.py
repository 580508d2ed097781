"""The arrays, the order and the reasons of the C++ library are those of Python."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import INVALID_NAMES, rejects
from tests.onboard.conftest import WRONG_SIZES, edit, with_sizes
from tests.onboard.cpp import (
    Found,
    RecordingForecaster,
    Update,
    assert_equal_arrays,
    assert_equal_drives,
    built_once,
    cpp_results,
    lines_of,
    python_results,
    run,
    scene_line,
)
from tests.onboard.rates import recorded_at
from trajpred.data.batch import ScenarioBatch
from trajpred.data.lane_map import LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.features.config import ATTRIBUTES
from trajpred.integrations.replay import detections
from trajpred.onboard import Detections, OnboardForecaster
from trajpred.onboard.bundle import GRAPHS, SIGNATURES
from trajpred.onboard.detections import MAX_TRACKS
from trajpred.predictors.baselines import lane_following

STEP = 0.1
Compare = Callable[..., list[Found]]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    return built_once((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cpp")


@pytest.fixture
def compare(program: Path, bundle: Path, tmp_path: Path) -> Compare:
    """What compares the two languages on a drive, with ``bundle`` or another one."""
    return lambda updates, other=bundle: assert_equal_drives(program, other, updates, tmp_path / "drive")


def rounded(lane_map: LaneMap) -> LaneMap:
    """Round all lines to a millimetre, as written maps are."""
    lines = {}
    for name, values in vars(lane_map).items():
        if isinstance(values, Ragged) and values.values.ndim == 2:
            lines[name] = Ragged(values.values.round(3), values.offsets)
    return replace(lane_map, **lines)


def drive_of(scenario: Scenario, steps: int) -> list[Update]:
    """The first steps of a scenario, at its own times."""
    updates = []
    for step in range(steps):
        seconds = float(scenario.timestamps_ns[step] / 1e9)
        lane_map = None if step else rounded(scenario.map)
        updates.append(Update(seconds, detections(scenario, step), map=lane_map))
    return updates


def crowd(count: int, step: int, gap_m: float = 2.0) -> Detections:
    """Cars in a row, and pedestrians beside them, with positions alone."""
    x = gap_m * np.arange(count) + step * STEP * np.arange(count) / 10
    y = np.where(np.arange(count) % 3 == 1, 4.0, 0.0)
    kinds = [("vehicle", "pedestrian", "bus")[i % 3] for i in range(count)]
    return Detections([f"car {i}" for i in range(count)], np.stack((x, y), -1), object_type=kinds)


def test_whole_scenes_of_the_sample(
    program: Path, bundle: Path, sample_scenarios: list[Scenario], tmp_path: Path
) -> None:
    """With focal and scored tracks, on every scenario."""
    scenarios = [replace(scenario, map=rounded(scenario.map)) for scenario in sample_scenarios]
    lines = [scene_line(scenario) for scenario in scenarios]
    runtime = RecordingForecaster(bundle, threads=1)
    results = list(cpp_results(program, bundle, lines, tmp_path / "scenes"))
    assert len(results) == len(scenarios) == 16
    for scenario, found in zip(scenarios, results, strict=True):
        expected = runtime.localise(ScenarioBatch.of([scenario]))
        assert found.facts["track_id"] == expected.agents.track_id.tolist(), scenario.scenario_id
        assert found.facts["lane_row"] == expected.lanes.row.tolist(), scenario.scenario_id
        assert_equal_arrays(found.arrays, expected.inputs)


@pytest.mark.parametrize("rows", [[0], [7], pytest.param(range(16), marks=pytest.mark.slow)], ids=str)
def test_updates_of_a_drive(compare: Compare, sample_scenarios: list[Scenario], rows: Sequence[int]) -> None:
    """The first 60, or all of every scenario."""
    for row in rows:
        scenario = sample_scenarios[row]
        last = int(np.flatnonzero(scenario.tracks.valid.any(axis=0))[-1])
        updates = drive_of(scenario, last + 1 if len(rows) > 1 else 60)
        assert all(found.arrays for found in compare(updates))


def test_fixed_sizes_and_limits(
    compare: Compare, bundle: Path, scenes: list[Scenario], tmp_path: Path
) -> None:
    """More agents and lanes than the bundle takes: the same ones are kept, with the same reasons."""
    small = with_sizes(bundle, tmp_path / "small")
    edit(small, lambda info: info["scene"]["features"].update(max_agents=12, max_lanes=30))
    *_, last = compare(drive_of(scenes[-1], 20), small)
    assert "not among the nearest 12 agents, the bundle's limit" in last.facts["not_predicted"].values()


@pytest.mark.parametrize("names", [[name] for name in ATTRIBUTES] + [list(ATTRIBUTES)])
def test_what_a_model_omits(
    compare: Compare, bundle: Path, scenes: list[Scenario], tmp_path: Path, names: list[str]
) -> None:
    """The arrays are those of Python, and differ from those of a model that reads everything."""
    blind = Path(shutil.copytree(bundle, tmp_path / "blind"))
    edit(blind, lambda info: info["scene"]["features"].update(omit=names))
    updates = drive_of(scenes[-1], 2)
    *_, whole = compare(updates)
    *_, part = compare(updates, blind)
    with pytest.raises(AssertionError):
        assert_equal_arrays(part.arrays, whole.arrays)


@pytest.mark.parametrize("name", ["no map", "one agent", "one agent, no map"])
def test_little_to_see(compare: Compare, scenes: list[Scenario], name: str) -> None:
    scenario = scenes[1]
    updates = drive_of(scenario, 12)
    if "no map" in name:
        updates = [update._replace(map=None) for update in updates]
    if "one agent" in name:
        alone = Detections([scenario.focal_id], scenario.tracks.position[scenario.focal, :1])
        updates = [update._replace(detections=alone) for update in updates]
    assert all(found.arrays for found in compare(updates))


def messy(scenario: Scenario, steps: int) -> list[Update]:
    """A tracker at its worst: jitter, gaps, tracks that come and go, and values that are missing or wrong."""
    random = np.random.default_rng(5)
    updates = []
    clock = 100.0
    for step in range(steps):
        seen = detections(scenario, step)
        kept = np.flatnonzero(random.random(len(seen.track_id)) > 0.2)
        position = np.array(seen.position)[kept]
        heading = np.where(random.random(len(kept)) > 0.3, np.array(seen.heading)[kept] + 7.0, np.nan)
        velocity = np.array(seen.velocity)[kept]
        velocity[random.random(len(kept)) > 0.6] = np.nan
        velocity[random.random(len(kept)) > 0.95] = 150.0
        position[random.random(len(kept)) > 0.97] += 60.0
        position[random.random(len(kept)) > 0.98] = np.inf
        names = [seen.track_id[row] for row in kept]
        kinds = [OBJECT_TYPES[int(i)] for i in random.integers(0, len(OBJECT_TYPES), len(kept))]
        clock += STEP * (1 + 0.2 * random.standard_normal())
        updates.append(Update(clock, Detections(names, position, heading, velocity, kinds)))
    return updates


def test_missing_values_gaps_and_jitter(compare: Compare, scenes: list[Scenario]) -> None:
    updates = messy(scenes[2], 70)
    updates[0] = updates[0]._replace(map=rounded(scenes[2].map))
    results = compare(updates)
    assert sum("jumped" in " ".join(found.facts["warnings"]) for found in results) > 3


@pytest.mark.parametrize("rate", [1.0, 7.0, 25.0, pytest.param(50.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("given", ["all", "positions"])
def test_any_rate(compare: Compare, scenes: list[Scenario], rate: float, given: str) -> None:
    """With jitter, and updates that are lost."""
    recorded = recorded_at(scenes[1], rate, 0.3, np.random.default_rng(0))
    updates = drive_of(recorded, recorded.num_observed)
    lost = [step for step in range(3, len(updates) - 1) if step % 8 == 0]
    updates = [update for step, update in enumerate(updates) if step not in lost]
    if given == "positions":
        alone = {"heading": None, "velocity": None}
        updates = [update._replace(detections=update.detections._replace(**alone)) for update in updates]
    compare(updates)


@pytest.mark.parametrize(("scale", "detail"), [(1.0, "median angle"), (0.0, "all of these are zero")])
def test_velocities_in_another_frame_are_the_same_warning(
    compare: Compare, scale: float, detail: str
) -> None:
    """Of 32 cars in all directions, those of half are turned by up to 180 degrees; all stop at times."""
    random = np.random.default_rng(0)
    heading, turn = random.uniform(-np.pi, np.pi, (2, 32))
    turn[random.random(32) > 0.5] = 0
    travel = np.stack((np.cos(heading), np.sin(heading)), -1)
    position = random.normal(0, 100, (32, 2))
    updates: list[Update] = []
    for step in range(60):
        speed = np.clip(random.uniform(1, 9, (32, 1)), 0, 99) * (step % 20 > 4)
        position = position + STEP * speed * travel
        angle = heading + turn
        velocity = scale * speed * np.stack((np.cos(angle), np.sin(angle)), -1)
        names = [str(car) for car in range(32)]
        updates.append(Update(step * STEP, Detections(names, position, heading, velocity)))
    said = [warning for found in compare(updates) for warning in found.facts["warnings"]]
    assert len(said) == 1
    assert "contradict the positions" in said[0]
    assert detail in said[0]


def faulty(scenario: Scenario) -> list[Update]:
    """Every kind of invalid input, each between good updates."""
    here = tuple(scenario.tracks.position[scenario.focal, 0])
    good = Detections(["AV", "b"], [here, (here[0] + 9, here[1])])
    names = [name for name in INVALID_NAMES if name != "\ud800"]  # JSON cannot hold half a character
    repeated = Detections(["b", "b", "AV", "AV"], [(np.nan, 0), here, here, here])
    unknown = Detections(["AV", "b"], [here, here], object_type=["tram", "it's"])
    crowded = Detections([str(i) for i in range(MAX_TRACKS + 1)], np.zeros((MAX_TRACKS + 1, 2)))
    shapes = [
        Detections(["AV"], [here, here]),
        Detections(["AV"], [here], heading=[0.0, 1.0]),
        Detections(["AV"], [here], velocity=[(0.0, 1.0), (0.0, 1.0)]),
        Detections(["AV"], [here], object_type=[]),
    ]
    degrees = Detections(["AV", "b"], [here, here], heading=[90.0, 0.1], velocity=[(130.0, 0.0), (9.0, 0.0)])
    seen = [*shapes, unknown, degrees, repeated, crowded]
    seen += [Detections(names, [here] * len(names)), Detections([], [])]
    updates = []
    for step, detected in enumerate(seen):
        updates.append(Update(step * 0.2, good))
        updates.append(Update(step * 0.2 + 0.1, detected))
    now = updates[-1].timestamp_s
    set_back = (now - 3.0, now - 2.7, now - 2.4)
    for time in (np.nan, now - 0.5, *set_back, now - 55.0, now, now + 4.0, now + 5.5, now + 99.0):
        updates.append(Update(time, good))
        updates.append(Update(updates[-1].timestamp_s + 0.1, good, ["b", "stranger"]))
    for detected in (Detections(["another"], [here]), good):
        updates.append(Update(updates[-1].timestamp_s, detected))
    return updates


def test_invalid_input_has_the_same_reasons(compare: Compare, scenes: list[Scenario]) -> None:
    updates = faulty(scenes[0])
    far = LaneMap.from_centerlines([[[2e8, 0], [2e8 + 9, 0]]])
    updates[2] = updates[2]._replace(map=rounded(scenes[0].map))
    updates[4] = updates[4]._replace(map=far)
    updates[8] = updates[8]._replace(map=LaneMap.from_centerlines([[[0, 0], [9, 0]]]))
    results = compare(updates)
    said = "; ".join(warning for found in results for warning in found.facts["warnings"])
    for part in (
        *("map rejected", "is expected", "duplicate ids", "treated as unknown", "more than 2,000"),
        *("headings omitted", "velocities above 100 m/s omitted"),
        *("is nan", "went back by 0.", "went back by 5", "no update for", "time did not advance"),
    ):
        assert part in said


def test_known_lanes_of_a_new_map_keep_their_tokens(compare: Compare, scenes: list[Scenario]) -> None:
    """Tiles that overlap: the same lanes are encoded, and no more."""
    whole = rounded(scenes[1].map)
    half = whole.take(np.arange(0, len(whole), 2), np.zeros(0, np.int64))
    updates = drive_of(scenes[1], 8)
    updates[3] = updates[3]._replace(map=half)
    updates[6] = updates[6]._replace(map=whole)
    results = compare(updates)
    encoded = [found.facts["encoded"] for found in results]
    assert encoded[0] == encoded[4] < encoded[6]


def test_a_broken_lane_is_left_out(
    program: Path, bundle: Path, scenes: list[Scenario], tmp_path: Path
) -> None:
    """The others are those of a map without it."""
    whole = rounded(scenes[1].map)
    updates = [update._replace(map=None) for update in drive_of(scenes[1], 2)]
    first, second = lines_of([updates[0]._replace(map=whole), updates[1]])
    line = json.loads(first)
    records = line["map"]["lane_segments"]
    for row, damage in ((4, {"lane_type": "TRAM"}), (7, {"centerline": []}), (9, {"successors": [1.5]})):
        records[str(whole.lane_id[row])].update(damage)
    rest = whole.take(np.delete(np.arange(len(whole)), [4, 7, 9]), np.arange(len(whole.crossing_id)))
    updates[0] = updates[0]._replace(map=rest)
    found = cpp_results(program, bundle, [json.dumps(line), second], tmp_path / "drive")
    for a, b in zip(found, python_results(bundle, updates), strict=True):
        assert_equal_arrays(a.arrays, b.arrays)


def test_every_port_of_a_graph_is_known(program: Path, bundle: Path, tmp_path: Path) -> None:
    """As Python's signatures have them; eigenvectors need Eigen."""
    copy = Path(shutil.copytree(bundle, tmp_path / "copy"))
    graphs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name in GRAPHS:
        inputs = [port for port in SIGNATURES[name].inputs if port.name != "lane_eigenvectors"]
        graphs[name] = {
            "inputs": [port._asdict() for port in inputs],
            "outputs": [port._asdict() for port in SIGNATURES[name].outputs],
        }
    edit(copy, lambda info: info.update(graphs=graphs))
    (tmp_path / "drive").write_text('{"time_s": 0, "track_id": [], "position": []}\n')
    done = run(program, copy, tmp_path / "drive", tmp_path / "out")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("field", "change"), WRONG_SIZES)
def test_sizes_that_the_graphs_do_not_have(
    program: Path, bundle: Path, tmp_path: Path, field: str, change: Callable[[dict], object]
) -> None:
    """The same sentence as Python's, but for the names of dynamic sizes."""
    copy = Path(shutil.copytree(bundle, tmp_path / "copy"))
    edit(copy, change)
    error = rejects("", OnboardForecaster, copy)
    done = run(program, copy, tmp_path / "none", tmp_path / "out")
    assert (done.returncode, done.stderr) == (2, f"trajpred_arrays: {error}\n")
    assert f"bundle.json, field '{field}': is " in done.stderr


def test_the_fallback_predicts_the_same_futures(program: Path, bundle: Path, tmp_path: Path) -> None:
    lanes = [[[-50.0, 0.0], [100.0, 0.0]], [[100.0, 0.0], [400.0, 60.0]], [[100.0, 0.0], [400.0, 0.0]]]
    lane_map = LaneMap.from_centerlines(lanes, successors=[[1, 2], [], []])
    updates = [Update(step * STEP, crowd(150, step)) for step in range(12)]
    updates[0] = updates[0]._replace(map=lane_map)
    assert equal_fallbacks(program, bundle, updates, tmp_path / "drive") == 22


def test_the_fallback_follows_the_lanes_of_real_maps(
    program: Path, bundle: Path, sample_scenarios: list[Scenario], tmp_path: Path
) -> None:
    """With their forks and merges; the bundle predicts one agent, the fallback all others."""
    small = Path(shutil.copytree(bundle, tmp_path / "small"))
    edit(small, lambda info: info["scene"]["features"].update(max_agents=1))
    drives = [drive_of(scenario, 2) for scenario in sample_scenarios]
    assert sum(equal_fallbacks(program, small, updates, tmp_path / "drive") for updates in drives) > 200


def equal_fallbacks(program: Path, bundle: Path, updates: list[Update], out: Path) -> int:
    """Compare all futures of a drive, and return how many of the last update are the fallback's."""
    expected = python_results(bundle, updates, lane_following)
    results = list(cpp_results(program, bundle, lines_of(updates), out, "--fallback"))
    for a, b in zip(results, expected, strict=True):
        for name in ("track_id", "not_predicted", "fallback", "warnings"):
            assert a.facts[name] == b.facts[name]
        for name in ("trajectory", "probability"):
            np.testing.assert_allclose(a.facts[name], b.facts[name], rtol=0, atol=1e-3)
    return len(results[-1].facts["fallback"])
