"""Map compliance against one polygon and one lane at a time, and on real futures."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import shapely
from numpy.typing import NDArray

from trajpred.data.lane_map import LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.metrics.plausibility import (
    HALF_LANE_WIDTH_M,
    is_road_vehicle,
    off_road,
    on_road,
    road_area,
    wrong_way,
)

#: A street along x with one lane each way, 3.5 m apart.
LINES = Ragged.from_rows([[[0, 0], [50, 0], [100, 0]], [[100, 3.5], [0, 3.5]]], 2)
STREET = LaneMap(lane_id=np.arange(2), centerline=LINES)


@dataclass(frozen=True)
class Drive:
    """One mode: ``[1, 1, F, 2]`` metres and ``[1, 1, F]`` radians."""

    path: NDArray[np.float64]
    heading: NDArray[np.float64]


def drive(y: float, heading: float, speed: float = 10.0, steps: int = 30) -> Drive:
    """One mode along the street at ``y``, in the middle of it."""
    along = 50 + (np.arange(steps) - steps / 2) * 0.1 * speed * np.cos(heading)
    path = np.stack((along, np.full(steps, y)), -1)
    return Drive(path[None, None], np.full((1, 1, steps), heading))


def test_points_on_the_road_are_in_any_drivable_area(sample_scenarios: list[Scenario]) -> None:
    draw = np.random.default_rng(0)
    for scenario in sample_scenarios[:4]:
        lane_points = scenario.map.centerline.values[:, :2]
        points = draw.uniform(lane_points.min(0), lane_points.max(0), (5, 40, 2))
        inside = np.zeros((5, 40), np.bool_)
        for ring in scenario.map.drivable_area:
            area = shapely.Polygon(ring[:, :2])
            inside |= shapely.intersects(area, shapely.points(points))
        is_on_road = on_road(points, road_area(scenario.map))
        assert is_on_road.tolist() == inside.tolist()
        assert 0.02 < is_on_road.mean() < 0.98


def test_lanes_without_boundaries_are_widened_centrelines() -> None:
    y = [-HALF_LANE_WIDTH_M - 0.01, -HALF_LANE_WIDTH_M + 0.01, 1.75, 5.24, 5.26]
    across = np.stack((np.full(5, 50.0), y), -1)
    assert on_road(across, road_area(STREET)).tolist() == [False, True, True, True, False]
    left = Ragged.from_rows([[], [[100, 2], [0, 2]]], 2)
    right = Ragged.from_rows([[], [[100, 9], [0, 9]]], 2)
    mixed = road_area(replace(STREET, left_boundary=left, right_boundary=right))
    points = np.array([[50.0, -1.7], [50, 1.9], [50, 8.9], [50, 9.1]])
    assert on_road(points, mixed).tolist() == [True, False, True, False]
    assert road_area(LaneMap()) is None


def test_vehicles_are_bound_to_the_road() -> None:
    vehicles = np.array(OBJECT_TYPES)[is_road_vehicle(np.arange(len(OBJECT_TYPES)))]
    assert vehicles.tolist() == ["vehicle", "motorcyclist", "bus"]


def test_a_mode_is_off_road_if_any_known_step_is() -> None:
    on_lane = drive(0.0, 0.0).path
    path = np.concatenate((on_lane, on_lane, on_lane, drive(9.0, 0.0).path), 1)
    path[0, 1, 17] = 50, -2
    path[0, 2, 3:9] = np.nan
    left = off_road(path, road_area(STREET))
    assert left[..., -1].tolist() == [[False, True, False, True]]
    assert left[0, 1].tolist() == [False] * 17 + [True] * 13, "from then on"


def is_wrong(*drives: Drive, lane_map: LaneMap = STREET) -> list[bool]:
    path = np.concatenate([mode.path for mode in drives])
    heading = np.concatenate([mode.heading for mode in drives])
    wrong: list[bool] = wrong_way(path, heading, lane_map)[:, 0, -1].tolist()
    return wrong


@pytest.mark.parametrize(
    ("y", "degrees", "wrong"),
    [
        pytest.param(0, 0, False, id="with traffic"),
        pytest.param(0, 180, True, id="against it"),
        pytest.param(1.75, 180, False, id="within 2 m of both lanes, one of which allows it"),
        pytest.param(0, 134, False, id="crossing"),
        pytest.param(0, 136, True, id="U-turn"),
        pytest.param(-2.1, 180, False, id="far from all lanes"),
        pytest.param(3.5, 180, False, id="with traffic of the other lane"),
        pytest.param(3.5, 0, True, id="against traffic of the other lane"),
    ],
)
def test_wrong_way_is_against_every_lane_nearby(y: float, degrees: float, wrong: bool) -> None:
    assert is_wrong(drive(y, np.deg2rad(degrees))) == [wrong]


@pytest.mark.parametrize(("steps", "wrong"), [(10, True), (9, False), (1, False)])
def test_wrong_way_takes_a_second(steps: int, wrong: bool) -> None:
    assert is_wrong(drive(0, np.pi, steps=steps)) == [wrong]


def test_wrong_way_takes_motion_outside_intersections() -> None:
    assert is_wrong(drive(0, np.pi, speed=0.9), drive(0, np.pi, speed=1.1)) == [False, True]
    crossing = replace(STREET, is_intersection=np.ones(2, np.bool_))
    assert is_wrong(drive(0, np.pi), lane_map=crossing) == [False]
    unknown = drive(0, np.pi)
    unknown.path[0, 0, 4:] = np.nan
    assert is_wrong(unknown) == [False]
