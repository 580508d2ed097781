"""Scenario and LaneMap: the door for people's own data, and what validation refuses."""

from __future__ import annotations

import doctest
import importlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trajpred.errors import DataError
from trajpred.geometry import causal_heading, causal_velocity
from trajpred.lane_map import NO_LANE, TRAFFIC_CONTROL, TURN_DIRECTIONS, LaneMap, Ragged
from trajpred.scenario import OBJECT_TYPES, Scenario, TrackCategory, Tracks, equal

A, T, OBSERVED = 3, 20, 12


def paths() -> np.ndarray:
    """Three tracks; the second comes late, the third has a gap."""
    rng = np.random.default_rng(0)
    position = 1e5 + np.cumsum(rng.normal(size=(A, T, 2)), axis=1)
    position[1, :5] = position[2, 7:10] = np.nan
    return position


def scenario(**changes: Any) -> Scenario:
    inputs = {
        "position": paths(),
        "num_observed": OBSERVED,
        "map": [[[0, 0], [1, 0]], [[1, 0], [2, 1], [3, 1]]],
    }
    return Scenario.from_arrays(**(inputs | changes))


def refused(field: str, **changes: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        scenario(**changes)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)
    return caught.value


# ------------------------------------------------------------------------------------------ from_arrays


@pytest.mark.parametrize(
    "module", ["errors", "geometry", "lane_map", "scenario", "forecast", "sources.argoverse2"]
)
def test_docstring_examples_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"trajpred.{module}"))
    assert result.failed == 0
    assert result.attempted > 0 or module != "scenario"


def test_nan_marks_missing_steps_and_missing_values_are_zero() -> None:
    position = paths()
    tracks = scenario().tracks
    np.testing.assert_array_equal(tracks.valid, ~np.isnan(position).any(-1))
    np.testing.assert_array_equal(tracks.position, np.nan_to_num(position))
    for name in ("heading", "velocity"):
        assert not getattr(tracks, name)[~tracks.valid].any()


def test_motion_is_causal_by_default() -> None:
    position, tracks = paths(), scenario(step_s=0.5).tracks
    velocity = causal_velocity(position, tracks.valid, 0.5)
    np.testing.assert_array_equal(tracks.velocity, velocity)
    np.testing.assert_array_equal(
        tracks.heading[tracks.valid], causal_heading(velocity, tracks.valid)[tracks.valid]
    )


def test_given_motion_and_mask_are_kept() -> None:
    rng = np.random.default_rng(1)
    position, valid = rng.normal(size=(A, T, 2)), rng.random((A, T)) < 0.8
    heading, velocity = rng.normal(size=(A, T)), rng.normal(size=(A, T, 2))
    tracks = scenario(position=position, valid=valid, heading=heading, velocity=velocity).tracks
    np.testing.assert_array_equal(tracks.valid, valid)
    np.testing.assert_array_equal(tracks.heading, heading * valid)
    np.testing.assert_array_equal(tracks.velocity, velocity * valid[..., None])


def test_defaults() -> None:
    made = scenario()
    assert made.tracks.track_id.tolist() == ["0", "1", "2"]
    assert made.focal_id == "0"
    assert made.tracks.category.tolist() == [TrackCategory.FOCAL, TrackCategory.SCORED, TrackCategory.SCORED]
    assert {OBJECT_TYPES[code] for code in made.tracks.object_type} == {"vehicle"}
    assert (made.num_observed, made.num_steps, made.step_s) == (OBSERVED, T, pytest.approx(0.1))
    assert (made.scenario_id, made.city) == ("scenario", "local")


def test_names_types_categories_and_focal() -> None:
    made = scenario(
        track_id=["x", 7, "ü"], object_type=["bus", "cyclist", "unknown"], category=[0, 3, 1], focal=1
    )
    assert made.tracks.track_id.tolist() == ["x", "7", "ü"]
    assert [OBJECT_TYPES[code] for code in made.tracks.object_type] == ["bus", "cyclist", "unknown"]
    assert made.tracks.category.tolist() == [0, 3, 1]
    assert (made.focal, made.focal_id) == (1, "7")


@pytest.mark.parametrize("object_type", OBJECT_TYPES)
def test_each_object_type_is_known(object_type: str) -> None:
    assert (
        scenario(object_type=object_type).tracks.object_type.tolist() == [OBJECT_TYPES.index(object_type)] * A
    )


def test_lists_will_do() -> None:
    made = Scenario.from_arrays(paths().tolist(), num_observed=OBSERVED, step_s=0.1)
    assert equal(made, scenario(map=None))


def test_inputs_are_not_kept() -> None:
    position = paths()
    made = scenario(position=position)
    position[:] = 0
    assert equal(made, scenario())


@pytest.mark.parametrize("step_s", [0.1, 0.5, 1 / 3])
def test_step_length(step_s: float) -> None:
    assert scenario(step_s=step_s).step_s == pytest.approx(step_s, abs=1e-9)


def test_has_future() -> None:
    assert scenario().has_future
    position = paths()
    position[0, OBSERVED:] = np.nan
    assert not scenario(position=position).has_future
    assert not scenario(position=paths()[:, :OBSERVED]).has_future


def test_last_seen_is_the_last_observed_step_of_each_track() -> None:
    position = paths()
    position[0, OBSERVED - 2 : OBSERVED] = np.nan  # back in the future
    position[1, :OBSERVED] = np.nan
    assert scenario(position=position).last_seen.tolist() == [OBSERVED - 3, -1, OBSERVED - 1]


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("position", {"position": np.zeros((T, 2))}),
        ("position", {"position": np.zeros((A, T, 3))}),
        ("position", {"position": [[[0, 0]], [[0, 0], [1, 1]]]}),
        ("position", {"position": [["a"]]}),
        ("position", {"valid": np.ones((A, T), bool)}),
        ("position", {"position": np.where(np.isnan(paths()), np.inf, paths())}),
        ("valid", {"valid": np.ones((A, T, 1), bool)}),
        ("valid", {"valid": np.ones((T, A), bool)}),
        ("valid", {"position": np.full((A, T, 2), np.nan)}),
        ("heading", {"heading": np.zeros((A, T, 1))}),
        ("heading", {"heading": np.full((A, T), np.nan)}),
        ("velocity", {"velocity": np.zeros((A, T))}),
        ("velocity", {"velocity": np.full((A, T, 2), np.inf)}),
        ("focal", {"focal": A}),
        ("focal", {"focal": -1}),
        ("focal", {"position": np.zeros((0, T, 2))}),
        ("focal_id", {"focal": 1, "num_observed": 5}),
        ("num_observed", {"num_observed": 0}),
        ("num_observed", {"num_observed": T + 1}),
        ("object_type", {"object_type": "tram"}),
        ("object_type", {"object_type": ["bus", "bus", None]}),
        ("object_type", {"object_type": ["bus"]}),
        ("track_id", {"track_id": ["a", "b"]}),
        ("track_id", {"track_id": ["a", "b", "a"]}),
        ("category", {"category": [0, 1, 4]}),
        ("category", {"category": np.array([0, 1, 256])}),
        ("category", {"category": [0, 1, 10**30]}),
        ("category", {"category": [3, 1]}),
        ("timestamps_ns", {"step_s": 0.0}),
        ("timestamps_ns", {"step_s": -0.1}),
        ("centerline", {"map": [[[0, 0]]]}),
        ("centerline", {"map": [[[0, 0, 5], [1, 0, 5]]]}),
        ("centerline", {"map": [[0, 0, 1, 1]]}),
        ("centerline", {"map": [[[0, 0], [np.nan, 0]]]}),
        ("centerline", {"map": [[]]}),
    ],
)
def test_wrong_input_is_refused_by_name(field: str, changes: dict[str, Any]) -> None:
    refused(field, **changes)


def test_the_message_gives_the_shapes() -> None:
    assert "(20, 2)" in refused("position", position=np.zeros((T, 2))).message


# ------------------------------------------------------------------------------------------------- maps


@pytest.mark.parametrize("empty", [None, [], np.zeros((0, 2, 2))], ids=["None", "list", "array"])
def test_without_a_map(empty: Any) -> None:
    made = scenario(map=empty)
    assert len(made.map) == 0
    assert equal(made, scenario(map=LaneMap()))


def test_a_map_is_centrelines_as_lists_one_array_or_a_lane_map() -> None:
    lines = np.arange(12.0).reshape(2, 3, 2)
    expected = LaneMap.from_centerlines(list(lines))
    for given in (lines, lines.tolist(), expected):
        assert equal(scenario(map=given), scenario(map=expected))
    np.testing.assert_array_equal(expected.centerline.values.reshape(lines.shape), lines)


def test_predecessors_are_the_inverse_of_successors() -> None:
    lanes = LaneMap.from_centerlines(
        [[[0, 0], [1, 0]]] * 3, lane_id=[10, 20, 30], successors=[[20, 30], [30], [99]]
    )
    assert [row.tolist() for row in lanes.successors] == [[20, 30], [30], [99]]
    assert [row.tolist() for row in lanes.predecessors] == [[], [10], [10, 20]]
    assert (lanes.left_neighbor == NO_LANE).all()
    assert not lanes.left_boundary.lengths.any()


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("lane_id", {"lane_id": [1]}),
        ("lane_id", {"lane_id": [1, "a"]}),
        ("lane_id", {"lane_id": [1, 1]}),
        ("successors", {"successors": [[1]]}),
    ],
)
def test_wrong_ids_of_centrelines_are_refused(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(DataError) as caught:
        LaneMap.from_centerlines([[[0, 0], [1, 0]]] * 2, **changes).validate()
    assert caught.value.field == field


def test_ragged_rows() -> None:
    rows = [[[0, 1], [2, 3]], [], [[4, 5]]]
    ragged = Ragged.from_rows(rows, 2)
    assert [row.tolist() for row in ragged] == rows
    assert ragged.lengths.tolist() == [2, 0, 1]
    assert (len(ragged), ragged.values.shape, ragged.offsets.dtype) == (3, (3, 2), np.int64)


@pytest.mark.parametrize("width", [None, 2, 3])
def test_ragged_without_rows(width: int | None) -> None:
    ragged = Ragged.from_rows([], width)
    assert (len(ragged), ragged.values.shape) == (0, (0,) if width is None else (0, width))


# ------------------------------------------------------------------------------------------- validation


def lane_map() -> LaneMap:
    lines = Ragged.from_rows([[[0, 0], [1, 0]], [[1, 0], [2, 0]]], 2)
    return replace(
        LaneMap.from_centerlines(list(lines)),
        left_boundary=lines,
        crossing_id=np.array([4]),
        crossing_edge1=Ragged.from_rows([[[0, 0], [1, 1]]], 2),
        crossing_edge2=Ragged.from_rows([[[0, 1], [1, 2]]], 2),
        drivable_area_id=np.array([5]),
        drivable_area=Ragged.from_rows([[[0, 0], [1, 1], [0, 1]]], 2),
    )


def test_what_a_source_does_not_tell_of_lanes_is_unknown() -> None:
    lanes = lane_map()
    assert [TURN_DIRECTIONS[code] for code in lanes.turn_direction] == ["UNKNOWN"] * 2
    assert [TRAFFIC_CONTROL[code] for code in lanes.has_traffic_control] == ["UNKNOWN"] * 2
    told = replace(lanes, turn_direction=np.array([2, 3], np.int8))
    assert [TURN_DIRECTIONS[code] for code in told.turn_direction] == ["LEFT", "RIGHT"]
    told.validate()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lane_type", np.array([0, 3], np.int8)),
        ("lane_type", np.zeros(1, np.int8)),
        ("turn_direction", np.array([0, 4], np.int8)),
        ("turn_direction", np.zeros(1, np.int8)),
        ("has_traffic_control", np.array([3, 0], np.int8)),
        ("has_traffic_control", np.zeros(3, np.int8)),
        ("is_intersection", np.zeros(3, bool)),
        ("left_mark", np.array([0, 15], np.int8)),
        ("right_mark", np.array([-1, 0], np.int8)),
        ("left_neighbor", np.zeros(1, np.int64)),
        ("right_neighbor", np.zeros((2, 2), np.int64)),
        ("lane_id", np.array([1, 1])),
        ("centerline", Ragged.from_rows([[[0, 0], [1, 0]]], 2)),
        ("centerline", Ragged.from_rows([[[0, 0], [1, 0]], [[0, 0]]], 2)),
        ("left_boundary", Ragged.from_rows([[[0, 0], [1, 0]], [[np.inf, 0]]], 2)),
        ("right_boundary", Ragged.from_rows([[]], 2)),
        ("successors", Ragged.from_rows([[1]], dtype=np.int64)),
        ("predecessors", Ragged(np.zeros(3, np.int64), np.array([0, 1, 2]))),
        ("crossing_edge1", Ragged.from_rows([[[0, 0]]], 2)),
        ("crossing_edge2", Ragged.from_rows([], 2)),
        ("drivable_area", Ragged.from_rows([[[0, 0], [1, 1]]], 2)),
    ],
)
def test_a_broken_map_is_refused_by_name(field: str, value: Any) -> None:
    lane_map().validate()
    with pytest.raises(DataError) as caught:
        replace(lane_map(), **{field: value}).validate()
    assert caught.value.field == field


@pytest.mark.parametrize("field", ["track_id", "object_type", "category", "position", "heading", "velocity"])
def test_tracks_of_another_length_are_refused_by_name(field: str) -> None:
    tracks = scenario().tracks
    with pytest.raises(DataError) as caught:
        replace(tracks, **{field: getattr(tracks, field)[1:]}).validate()
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [("timestamps_ns", np.arange(T - 1)), ("timestamps_ns", np.zeros(T, np.int64)), ("focal_id", "nobody")],
)
def test_a_broken_scenario_is_refused_by_name(field: str, value: Any) -> None:
    assert scenario().validate()
    with pytest.raises(DataError) as caught:
        replace(scenario(), **{field: value}).validate()
    assert caught.value.field == field


def test_index_finds_a_track_or_says_which_is_missing() -> None:
    tracks = scenario(track_id=["a", "b", "c"]).tracks
    assert tracks.index("c") == 2
    with pytest.raises(KeyError, match="nobody"):
        tracks.index("nobody")


def shifted(tracks: Tracks, by: float) -> Tracks:
    position = tracks.position.copy()
    position[0, 0, 0] += by
    return replace(tracks, position=position)


def test_equal_compares_every_value_to_within_the_tolerance() -> None:
    made = scenario()
    assert equal(made, scenario())
    nearby = replace(made, tracks=shifted(made.tracks, 1e-3))
    assert not equal(made, nearby)
    assert equal(made, nearby, tolerance=2e-3)
    assert not equal(made, replace(made, city="elsewhere"))
    assert not equal(made, replace(made, map=replace(made.map, lane_id=made.map.lane_id + 1)), tolerance=10)
