"""Map compliance against one polygon and one lane at a time, and on real futures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import shapely
from numpy.typing import NDArray

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
Futures = tuple[NDArray[np.float64], NDArray[np.float64]]


def drive(y: float, heading: float, speed: float = 10.0, steps: int = 30) -> Futures:
    """One mode along the street at ``y``, in the middle of it."""
    along = 50 + (np.arange(steps) - steps / 2) * 0.1 * speed * np.cos(heading)
    path = np.stack((along, np.full(steps, y)), -1)
    return path[None, None], np.full((1, 1, steps), heading)


def test_points_on_the_road_are_in_any_drivable_area(sample_scenarios: list[Scenario]) -> None:
    draw = np.random.default_rng(0)
    for scenario in sample_scenarios[:4]:
        areas = [shapely.Polygon(ring[:, :2]) for ring in scenario.map.drivable_area]
        points = scenario.map.centerline.values[:, :2]
        points = draw.uniform(points.min(0), points.max(0), (5, 40, 2))
        found = on_road(points, road_area(scenario.map))
        expected = [any(a.intersects(shapely.Point(p)) for a in areas) for p in points.reshape(-1, 2)]
        assert found.ravel().tolist() == expected and 0.02 < found.mean() < 0.98


def test_lanes_without_boundaries_are_widened_centrelines() -> None:
    y = [-HALF_LANE_WIDTH_M - 0.01, -HALF_LANE_WIDTH_M + 0.01, 1.75, 5.24, 5.26]
    assert on_road(np.array([[50.0, at] for at in y]), road_area(STREET)).tolist() == [
        False,
        *[True] * 3,
        False,
    ]
    left, right = Ragged.from_rows([[], [[100, 2], [0, 2]]], 2), Ragged.from_rows([[], [[100, 9], [0, 9]]], 2)
    mixed = road_area(replace(STREET, left_boundary=left, right_boundary=right))
    points = np.array([[50.0, -1.7], [50, 1.9], [50, 8.9], [50, 9.1]])
    assert on_road(points, mixed).tolist() == [True, False, True, False]
    assert road_area(LaneMap()) is None


def test_vehicles_are_bound_to_the_road() -> None:
    vehicles = np.array(OBJECT_TYPES)[is_road_vehicle(np.arange(len(OBJECT_TYPES)))]
    assert vehicles.tolist() == ["vehicle", "motorcyclist", "bus"]


def test_a_mode_is_off_road_if_any_known_step_is() -> None:
    path = np.concatenate([drive(y, 0.0)[0] for y in (0.0, 0.0, 0.0, 9.0)], 1)
    path[0, 1, 17] = 50, -2
    path[0, 2, 3:9] = np.nan
    found = off_road(path, road_area(STREET))
    assert found[..., -1].tolist() == [[False, True, False, True]]
    assert found[0, 1].tolist() == [step >= 17 for step in range(30)], "from then on"


def is_wrong(*futures: Futures, lane_map: LaneMap = STREET) -> list[bool]:
    path, heading = (np.concatenate([f[i] for f in futures]) for i in (0, 1))
    found: list[bool] = wrong_way(path, heading, lane_map)[:, 0, -1].tolist()
    return found


def test_wrong_way_is_against_every_lane_nearby() -> None:
    with_traffic, against = drive(0, 0.0), drive(0, np.pi)
    between = drive(1.75, np.pi)  # within 2 m of both lanes, one of which allows it
    crossing, u_turn = drive(0, np.deg2rad(134.0)), drive(0, np.deg2rad(136.0))
    far = drive(-2.1, np.pi)
    found = is_wrong(with_traffic, against, between, crossing, u_turn, far, drive(3.5, np.pi), drive(3.5, 0))
    assert found == [False, True, False, False, True, False, False, True]


def test_wrong_way_takes_a_second_of_motion_outside_intersections() -> None:
    assert [is_wrong(drive(0, np.pi, steps=n))[0] for n in (10, 9, 1)] == [True, False, False]
    assert is_wrong(drive(0, np.pi, speed=0.9), drive(0, np.pi, speed=1.1)) == [False, True]
    crossing = replace(STREET, is_intersection=np.ones(2, np.bool_))
    assert is_wrong(drive(0, np.pi), lane_map=crossing) == [False]
    unknown = drive(0, np.pi)
    unknown[0][0, 0, 4:] = np.nan
    assert is_wrong(unknown) == [False]
