"""av2's objects become scenarios and back, without loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from av2.datasets.motion_forecasting.scenario_serialization import load_argoverse_scenario_parquet
from av2.map.map_api import ArgoverseStaticMap

from tests.conftest import equal, rejects
from tests.sources.argoverse2_files import sample_scene
from trajpred import LaneMap, from_av2, to_av2
from trajpred.sources.argoverse2 import read_scenario


def test_av2_objects_equal_what_our_reader_reads_and_return_unchanged(sample_folders: list[Path]) -> None:
    for folder in sample_folders[::4]:
        theirs = load_argoverse_scenario_parquet(next(folder.glob("scenario_*.parquet")))
        their_map = ArgoverseStaticMap.from_json(next(folder.glob("log_map_archive_*.json")))
        scenario = from_av2(theirs, their_map)
        ours = read_scenario(folder)
        # av2 keeps no centrelines: it computes them from the boundaries.
        for lane, line in zip(ours.map.lane_id.tolist(), scenario.map.centerline, strict=True):
            theirs_line = their_map.get_lane_segment_centerline(lane)
            np.testing.assert_array_equal(line, theirs_line)
        same_lines = replace(scenario.map, centerline=ours.map.centerline)
        assert equal(replace(scenario, map=same_lines), ours)
        again, again_map = to_av2(scenario)
        assert again.tracks == theirs.tracks
        assert again.focal_track_id == theirs.focal_track_id
        np.testing.assert_array_equal(again.timestamps_ns, np.round(theirs.timestamps_ns))
        assert again_map == their_map
        assert equal(from_av2(again, again_map), scenario)


def test_scenarios_without_a_map_and_uneven_times_are_kept() -> None:
    scenario = sample_scene(1)
    stamps = scenario.timestamps_ns + 64 * np.arange(110) ** 2
    uneven = replace(scenario, timestamps_ns=stamps, map=LaneMap())
    theirs, _ = to_av2(uneven)
    assert equal(from_av2(theirs), uneven)


def test_frames_that_an_object_lacks_are_steps_without_states() -> None:
    whole = replace(sample_scene(1), map=LaneMap())
    theirs, _ = to_av2(whole)
    kept = np.delete(np.arange(110), [12, 13, 70])
    theirs.timestamps_ns = theirs.timestamps_ns[kept]
    frames = kept.tolist()
    for track in theirs.tracks:
        states = [state for state in track.object_states if state.timestep in frames]
        for state in states:
            state.timestep = frames.index(state.timestep)
        track.object_states = states
    scenario = from_av2(theirs)
    assert (scenario.num_observed, scenario.num_steps) == (50, 110)
    rows = [whole.tracks.index(name) for name in scenario.tracks.track_id]
    assert not scenario.tracks.valid[:, [12, 13, 70]].any()
    for name in ("valid", "position", "heading", "velocity"):
        states = getattr(whole.tracks, name)[rows][:, kept]
        np.testing.assert_array_equal(getattr(scenario.tracks, name)[:, kept], states)


def test_invalid_objects_are_named() -> None:
    theirs, _ = to_av2(sample_scene(1))
    other_unit = replace(theirs, timestamps_ns=theirs.timestamps_ns / 1000)
    for objects, problem in (
        (({"scenario_id": "a"},), "ArgoverseScenario"),
        ((theirs, "map.json"), "ArgoverseStaticMap"),
        ((other_unit,), "timestamps_ns': must be nanoseconds"),
    ):
        rejects(problem, from_av2, *objects)
    for heading in (float("nan"), None):
        theirs.tracks[0].object_states[0].heading = heading
        rejects("heading", from_av2, theirs)
