"""Plausibility and map compliance against closed forms, plain loops, shapely, and real futures."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import shapely
from numpy.typing import NDArray

from tests.scenes import moved
from trajpred.data.geometry import rotate
from trajpred.data.lane_map import LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES, TYPICAL_SIZES
from trajpred.metrics import plausibility as collisions_module
from trajpred.metrics.plausibility import (
    HALF_LANE_WIDTH_M,
    KINEMATIC_LIMITS,
    collisions,
    infeasible,
    is_road_vehicle,
    kinematics,
    off_road,
    on_road,
    road_area,
    wrong_way,
)

Floats = NDArray[np.float64]
TIME = np.arange(1, 61) * 0.1
FAR = np.array([6000.0, -8000.0])


def test_kinematics_equal_plain_loops() -> None:
    draw = np.random.default_rng(2)
    trajectory = draw.normal(0, 2, (3, 4, 30, 2)).cumsum(2)
    trajectory[0, 1, 7] = np.nan
    origin = draw.normal(0, 5, (3, 2))
    velocity = draw.normal(0, 5, (3, 2))
    values = kinematics(trajectory, origin, velocity)
    extremes = np.stack([values[name] for name in KINEMATIC_LIMITS], -1)
    for a, k in np.ndindex(3, 4):
        past = [origin[a] - velocity[a] * 0.1 * ago for ago in range(10, -1, -1)]
        path = np.array([*past, *trajectory[a, k]])
        largest = np.zeros(4)
        for t in range(10, len(path) - 10):
            largest = np.fmax(largest, motion_at(path, t))
            reached = extremes[a, k, t - 1]  # at the step where the second side ends
            np.testing.assert_allclose(reached, largest, rtol=1e-9)
        assert not extremes[a, k, :9].any()


def motion_at(path: Floats, t: int) -> list[float]:
    """The values of the limits at one point, by the circle through it and those a second away."""
    first = path[t] - path[t - 10]
    second = path[t + 10] - path[t]
    s1 = np.hypot(*first)
    s2 = np.hypot(*second)
    curvature = 0.0
    if min(s1, s2) > 1:
        area = abs(first[0] * second[1] - first[1] * second[0]) / 2
        curvature = 4 * area / (s1 * s2 * np.hypot(*(first + second)))
    return [curvature, s2 - s1, s1 - s2, curvature * s1 * s2]


def test_feasibility() -> None:
    standing = np.random.default_rng(3).normal(0, 0.1, (200, 1, 60, 2)) + FAR
    jitter = kinematics(standing, np.broadcast_to(FAR, (200, 2)), np.zeros((200, 2)))
    assert not infeasible(jitter).any()
    assert jitter["curvature"].max() == 0
    for name, limit in KINEMATIC_LIMITS.items():
        values = dict.fromkeys(KINEMATIC_LIMITS, np.zeros((1, 2)))
        values[name] = limit * np.array([[0.99, 1.01]])
        assert infeasible(values).tolist() == [[False, True]]
    there_and_back = np.stack((100 - np.abs(100 - 10 * np.arange(1, 61)), 0 * TIME), -1)
    with np.errstate(all="raise"):
        reversal = kinematics(there_and_back[None, None], np.zeros((1, 2)), np.array([[100.0, 0]]))
    assert infeasible(reversal)[..., -1].all()


def box(place: Floats, heading: float, size: Floats) -> shapely.Polygon:
    corner = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]]) / 2 * size
    return shapely.Polygon(rotate(corner, np.full(4, heading)) + place)


@pytest.mark.parametrize("at_once", [1, 1_000_000])
def test_collisions_equal_polygons_pair_by_pair(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collisions_module, "_MAX_PAIRS", at_once)
    draw = np.random.default_rng(4)
    A = 14
    K = 3
    F = 4
    trajectory = draw.uniform(-9, 9, (A, K, F, 2))
    heading = draw.uniform(-4, 4, (A, K, F))
    origin = draw.uniform(-9, 9, (A, 2))
    origin_heading = draw.uniform(-4, 4, A)
    size = draw.uniform(0.5, 5, (A, 2))
    scene = draw.integers(0, 3, A)
    trajectory[2, 0, 1] = np.nan
    expected = np.zeros((A, K), bool)
    skipped = 0
    for i, j in np.ndindex(A, A):
        if i == j or scene[i] != scene[j]:
            continue
        before = box(origin[i], origin_heading[i], size[i])
        if before.intersects(box(origin[j], origin_heading[j], size[j])):
            skipped += 1
            continue
        for k, f in np.ndindex(K, F):
            if np.isfinite(trajectory[[i, j], k, f]).all():
                body = box(trajectory[i, k, f], heading[i, k, f], size[i])
                other_body = box(trajectory[j, k, f], heading[j, k, f], size[j])
                expected[i, k] |= body.intersects(other_body)
    hit = collisions(trajectory, heading, size, scene, origin, origin_heading, box_scale=1.0)
    assert hit.tolist() == expected.tolist()
    assert skipped
    assert 0.2 < expected.mean() < 0.95


def test_boxes_are_scaled_and_single_agents_do_not_collide() -> None:
    path = np.zeros((2, 2, 1, 2))
    path[1, :, 0, 1] = 1.88, 1.70  # side by side, 1.9 m wide each
    agents = {
        "trajectory": path,
        "heading": np.zeros((2, 2, 1)),
        "size": np.tile(TYPICAL_SIZES[0], (2, 1)),
        "scene": np.zeros(2, np.int64),
        "origin": np.array([[0.0, 0.0], [0.0, 5.0]]),
        "origin_heading": np.zeros(2),
    }
    assert collisions(**agents).tolist() == [[False, True]] * 2
    assert collisions(**agents, box_scale=1.0).tolist() == [[True, True]] * 2
    for A in (0, 1):
        fewer = {name: values[:A] for name, values in agents.items()}
        assert not collisions(**fewer).any()


@dataclass(frozen=True)
class TrueFutures:
    """Which true futures of road vehicles are infeasible, which collide, and the extremes of all agents."""

    infeasible: NDArray[np.bool_]
    collides: NDArray[np.bool_]
    extremes: Floats

    @classmethod
    def of(cls, scenario: Scenario) -> TrueFutures:
        tracks = scenario.tracks
        now = scenario.num_observed
        here = tracks.valid[:, now - 1] & tracks.valid[:, now:].any(1)
        vehicle = is_road_vehicle(tracks.object_type[here])
        path = np.where(tracks.valid[:, now:, None], tracks.position[:, now:], np.nan)[here][:, None]
        origin = tracks.position[here, now - 1]
        motion = kinematics(path, origin, tracks.velocity[here, now - 1], scenario.step_s)
        hit = collisions(
            trajectory=path,
            heading=tracks.heading[here, None, now:],
            size=TYPICAL_SIZES[tracks.object_type[here]],
            scene=np.zeros(here.sum(), np.int64),
            origin=origin,
            origin_heading=tracks.heading[here, now - 1],
        )
        extremes = np.stack([values[..., -1] for values in motion.values()])
        return cls(infeasible(motion)[vehicle, 0, -1], hit[vehicle, 0], extremes)


def test_true_futures_are_plausible_wherever_the_scene_is(sample_scenarios: list[Scenario]) -> None:
    scenes = [TrueFutures.of(scenario) for scenario in sample_scenarios if scenario.has_future]
    impossible = np.concatenate([futures.infeasible for futures in scenes])
    hit = np.concatenate([futures.collides for futures in scenes])
    assert len(hit) > 400
    assert impossible.mean() < 0.03
    assert hit.mean() < 0.03
    here = TrueFutures.of(sample_scenarios[0])
    there = TrueFutures.of(moved(sample_scenarios[0]))
    assert here.infeasible.tolist() == there.infeasible.tolist()
    assert here.collides.tolist() == there.collides.tolist()
    np.testing.assert_allclose(here.extremes, there.extremes, atol=1e-6)


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


def test_wrong_way_takes_a_second_of_motion_outside_intersections() -> None:
    for steps in (1, 9, 10):
        assert is_wrong(drive(0, np.pi, steps=steps)) == [steps == 10]
    assert is_wrong(drive(0, np.pi, speed=0.9), drive(0, np.pi, speed=1.1)) == [False, True]
    crossing = replace(STREET, is_intersection=np.ones(2, np.bool_))
    assert is_wrong(drive(0, np.pi), lane_map=crossing) == [False]
    unknown = drive(0, np.pi)
    unknown.path[0, 0, 4:] = np.nan
    assert is_wrong(unknown) == [False]
