"""Map compliance against one polygon and one lane at a time, and on what people really drove."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import shapely
from numpy.typing import NDArray

from tests.graph.scenes import moved
from trajpred.lane_map import LaneMap, Ragged
from trajpred.metrics.map_compliance import (
    HALF_LANE_WIDTH_M,
    is_road_vehicle,
    off_road,
    on_road,
    road_area,
    wrong_way,
)
from trajpred.scenario import OBJECT_TYPES, Scenario

#: A street along x with one lane each way, 3.5 m apart.
STREET = LaneMap.from_centerlines([[[0, 0], [50, 0], [100, 0]], [[100, 3.5], [0, 3.5]]])
Futures = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]


def true_futures(scenario: Scenario) -> Futures:
    """Trajectory ``[A, 1, F, 2]`` (NaN where unknown), heading, who starts on the road: road vehicles."""
    tracks, now = scenario.tracks, scenario.num_observed
    judged = is_road_vehicle(tracks.object_type) & tracks.valid[:, now - 1]
    judged &= tracks.valid[:, now:].any(1)
    future = np.where(tracks.valid[:, now:, None], tracks.position[:, now:], np.nan)[judged]
    start = on_road(tracks.position[judged, now - 1], scenario.map)
    assert start is not None
    return future[:, None], tracks.heading[judged, None, now:], start


def drive(y: float, heading: float, speed: float = 10.0, steps: int = 30) -> Futures:
    """One mode along the street at ``y``, in the middle of it."""
    along = 50 + (np.arange(steps) - steps / 2) * 0.1 * speed * np.cos(heading)
    path = np.stack((along, np.full(steps, y)), -1)
    return path[None, None], np.full((1, 1, steps), heading), np.ones(1, np.bool_)


def test_on_road_is_in_any_drivable_area(sample_scenarios: list[Scenario]) -> None:
    draw = np.random.default_rng(0)
    for scenario in sample_scenarios[:4]:
        areas = [shapely.Polygon(ring[:, :2]) for ring in scenario.map.drivable_area]
        low, high = scenario.map.centerline.values[:, :2].min(0), scenario.map.centerline.values[:, :2].max(0)
        points = draw.uniform(low, high, (5, 40, 2))
        found = on_road(points, scenario.map)
        expected = [any(a.intersects(shapely.Point(p)) for a in areas) for p in points.reshape(-1, 2)]
        assert found is not None and found.shape == (5, 40)
        assert found.ravel().tolist() == expected
        assert 0.02 < found.mean() < 0.98


def test_without_drivable_areas_lanes_are_the_road(sample_scenarios: list[Scenario]) -> None:
    bare = {"drivable_area_id": np.zeros(0, np.int64), "drivable_area": Ragged.from_rows([], 2)}
    lanes = replace(sample_scenarios[0].map, **bare)
    rings = zip(lanes.left_boundary, lanes.right_boundary, strict=True)
    shapes = [shapely.Polygon([*left[:, :2], *right[::-1, :2]]).buffer(0) for left, right in rings]
    points = lanes.centerline.values[:, :2] + np.random.default_rng(1).normal(0, 3, (1, 2))
    found = on_road(points, lanes)
    assert found is not None
    assert found.tolist() == [any(s.intersects(shapely.Point(p)) for s in shapes) for p in points]


def test_bare_centrelines_are_as_wide_as_a_lane() -> None:
    y = np.array([-HALF_LANE_WIDTH_M - 0.01, -HALF_LANE_WIDTH_M + 0.01, 1.75, 5.24, 5.26])
    found = on_road(np.stack((np.full(5, 50.0), y), -1), STREET)
    assert found is not None and found.tolist() == [False, True, True, True, False]


def test_some_lanes_with_boundaries_and_some_without() -> None:
    left, right = Ragged.from_rows([[], [[100, 2], [0, 2]]], 2), Ragged.from_rows([[], [[100, 9], [0, 9]]], 2)
    mixed = replace(STREET, left_boundary=left, right_boundary=right)
    found = on_road(np.array([[50.0, -1.7], [50, 1.9], [50, 8.9], [50, 9.1]]), mixed)
    assert found is not None and found.tolist() == [True, False, True, False]


def test_off_road_at_any_known_step() -> None:
    path = np.concatenate([drive(y, 0.0)[0] for y in (0.0, 0.0, 0.0, 9.0)], 1)
    path[0, 1, 17] = 50, -2
    path[0, 2, 3:9] = np.nan
    found = off_road(path, STREET)
    assert found is not None and found.tolist() == [[False, True, False, True]]


def test_no_map_no_verdict() -> None:
    path, heading, _ = drive(0, 0)
    assert road_area(LaneMap()) is None and on_road(path, LaneMap()) is None
    assert off_road(path, LaneMap()) is None and wrong_way(path, heading, LaneMap()) is None


def is_wrong(*futures: Futures, lane_map: LaneMap = STREET) -> list[bool]:
    path, heading = (np.concatenate([f[i] for f in futures]) for i in (0, 1))
    found = wrong_way(path, heading, lane_map)
    assert found is not None
    return found[:, 0].tolist()


def test_wrong_way_is_against_every_near_lane() -> None:
    with_traffic, against = drive(0, 0.0), drive(0, np.pi)
    between = drive(1.75, np.pi)  # within 2 m of both lanes, one of which allows it
    crossing, u_turn = drive(0, np.deg2rad(134.0)), drive(0, np.deg2rad(136.0))
    far = drive(-2.1, np.pi)
    found = is_wrong(with_traffic, against, between, crossing, u_turn, far, drive(3.5, np.pi), drive(3.5, 0))
    assert found == [False, True, False, False, True, False, False, True]


def test_wrong_way_takes_a_second_of_moving_outside_intersections() -> None:
    assert is_wrong(drive(0, np.pi, steps=10)) == [True]
    assert is_wrong(drive(0, np.pi, steps=9)) == [False]
    assert is_wrong(drive(0, np.pi, steps=1)) == [False]
    assert is_wrong(drive(0, np.pi, speed=0.9), drive(0, np.pi, speed=1.1)) == [False, True]
    crossing = replace(STREET, is_intersection=np.ones(2, np.bool_))
    assert is_wrong(drive(0, np.pi), lane_map=crossing) == [False]
    unknown = drive(0, np.pi)
    unknown[0][0, 0, 4:] = np.nan
    assert is_wrong(unknown) == [False]


def wrong_by_loops(path: NDArray[np.float64], heading: NDArray[np.float64], lanes: LaneMap) -> bool:
    """One mode, step by step and lane by lane."""
    count, lines = 0, [shapely.LineString(line[:, :2]) for line in lanes.centerline]
    for xy, angle, velocity in zip(path, heading, np.gradient(path, 0.1, axis=0), strict=True):
        against, here = [], shapely.Point(xy)
        for line, intersection in zip(lines, lanes.is_intersection, strict=True):
            for piece in pairwise(line.coords) if line.distance(here) <= 2 else ():
                if shapely.LineString(piece).distance(here) <= 2:
                    ahead = np.subtract(*piece[::-1])
                    cosine = ahead @ [np.cos(angle), np.sin(angle)] / np.linalg.norm(ahead)
                    against.append(not intersection and cosine < np.cos(np.deg2rad(135)))
        count += bool(np.linalg.norm(velocity) > 1 and against and all(against))
    return count >= 10


@pytest.mark.parametrize("turn", [0.0, np.pi])
def test_wrong_way_equals_plain_loops(sample_scenarios: list[Scenario], turn: float) -> None:
    """Real vehicles, as they drove and with their headings reversed."""
    scenario = sample_scenarios[0]
    path, heading, _ = true_futures(scenario)
    fastest = np.nan_to_num(np.abs(path[:, 0, -1] - path[:, 0, 0]).max(-1)).argsort()[-4:]
    found = wrong_way(path[fastest], heading[fastest] + turn, scenario.map)
    expected = [wrong_by_loops(path[i, 0], heading[i, 0] + turn, scenario.map) for i in fastest]
    assert found is not None and found[:, 0].tolist() == expected
    assert any(expected) == (turn > 0)


def test_wherever_the_scene_lies(sample_scenarios: list[Scenario]) -> None:
    for scenario in sample_scenarios[:3]:
        there = moved(scenario)
        (path, heading, start), (path2, heading2, start2) = true_futures(scenario), true_futures(there)
        assert start.tolist() == start2.tolist()
        for turn in (0.0, np.pi):
            found = wrong_way(path, heading + turn, scenario.map), off_road(path, scenario.map)
            again = wrong_way(path2, heading2 + turn, there.map), off_road(path2, there.map)
            np.testing.assert_array_equal(found, again)


def test_true_futures_hardly_ever_violate(sample_scenarios: list[Scenario]) -> None:
    left, wrong = [], []
    for scenario in sample_scenarios:
        if scenario.has_future:
            path, heading, start = true_futures(scenario)
            off, against = off_road(path[start], scenario.map), wrong_way(path, heading, scenario.map)
            assert off is not None and against is not None
            left.append(off.ravel())
            wrong.append(against.ravel())
    assert len(np.concatenate(wrong)) > 400
    assert np.concatenate(left).mean() < 0.03
    assert np.concatenate(wrong).mean() < 0.005


def test_road_vehicles() -> None:
    found = is_road_vehicle(np.arange(len(OBJECT_TYPES)))
    assert np.array(OBJECT_TYPES)[found].tolist() == ["vehicle", "motorcyclist", "bus"]
