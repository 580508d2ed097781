"""Plausibility against closed forms, plain loops, polygons of shapely, and real futures."""

from __future__ import annotations

import numpy as np
import pytest
import shapely
from numpy.typing import NDArray

from tests.features.scenes import moved
from trajpred.geometry import rotate
from trajpred.metrics import collisions as collisions_module
from trajpred.metrics.collisions import collisions
from trajpred.metrics.map_compliance import is_road_vehicle
from trajpred.metrics.plausibility import KINEMATIC_LIMITS, infeasible, kinematics
from trajpred.scenario import TYPICAL_SIZES, Scenario

Floats = NDArray[np.float64]
TIME = np.arange(1, 61) * 0.1
FAR = np.array([6000.0, -8000.0])


def test_kinematics_equal_plain_loops() -> None:
    draw = np.random.default_rng(2)
    trajectory = draw.normal(0, 2, (3, 4, 30, 2)).cumsum(2)
    trajectory[0, 1, 7] = np.nan
    origin, velocity = draw.normal(0, 5, (3, 2)), draw.normal(0, 5, (3, 2))
    values = kinematics(trajectory, origin, velocity)
    found = np.stack([values[name] for name in KINEMATIC_LIMITS], -1)
    for a, k in np.ndindex(3, 4):
        past = [origin[a] - velocity[a] * 0.1 * ago for ago in range(10, -1, -1)]
        path, largest = np.array([*past, *trajectory[a, k]]), np.zeros(4)
        for t in range(10, len(path) - 10):
            sides = path[t] - path[t - 10], path[t + 10] - path[t]
            s1, s2 = (np.hypot(*side) for side in sides)
            (a1, b1), (a2, b2) = sides
            area = abs(a1 * b2 - b1 * a2) / 2
            curvature = 4 * area / (s1 * s2 * np.hypot(*sum(sides))) if min(s1, s2) > 1 else 0.0
            largest = np.fmax(largest, [curvature, s2 - s1, s1 - s2, curvature * s1 * s2])
            reached = found[a, k, t - 1]  # at the step where the second side ends
            np.testing.assert_allclose(reached, largest, rtol=1e-9)
        assert not found[a, k, :9].any()


def test_feasibility() -> None:
    standing = np.random.default_rng(3).normal(0, 0.1, (200, 1, 60, 2)) + FAR
    jitter = kinematics(standing, np.broadcast_to(FAR, (200, 2)), np.zeros((200, 2)))
    assert not infeasible(jitter).any() and jitter["curvature"].max() == 0
    for name, limit in KINEMATIC_LIMITS.items():
        values = dict.fromkeys(KINEMATIC_LIMITS, np.zeros((1, 2))) | {name: limit * np.array([[0.99, 1.01]])}
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
    A, K, F = 14, 3, 4
    trajectory, heading = draw.uniform(-9, 9, (A, K, F, 2)), draw.uniform(-4, 4, (A, K, F))
    origin, turned = draw.uniform(-9, 9, (A, 2)), draw.uniform(-4, 4, A)
    size, scene = draw.uniform(0.5, 5, (A, 2)), draw.integers(0, 3, A)
    trajectory[2, 0, 1] = np.nan
    expected, skipped = np.zeros((A, K), bool), 0
    for i, j in np.ndindex(A, A):
        if i == j or scene[i] != scene[j]:
            continue
        if box(origin[i], turned[i], size[i]).intersects(box(origin[j], turned[j], size[j])):
            skipped += 1
            continue
        for k, f in np.ndindex(K, F):
            if np.isfinite(trajectory[[i, j], k, f]).all():
                one, two = (box(trajectory[a, k, f], heading[a, k, f], size[a]) for a in (i, j))
                expected[i, k] |= one.intersects(two)
    found = collisions(trajectory, heading, size, scene, origin, turned, box_scale=1.0)
    assert found.tolist() == expected.tolist()
    assert skipped and 0.2 < expected.mean() < 0.95


def test_boxes_are_scaled_and_single_agents_do_not_collide() -> None:
    path = np.zeros((2, 2, 1, 2))
    path[1, :, 0, 1] = 1.88, 1.70  # side by side, 1.9 m wide each
    size, heading = np.tile(TYPICAL_SIZES[0], (2, 1)), np.zeros((2, 2, 1))
    apart = np.array([[0.0, 0.0], [0.0, 5.0]])
    given = path, heading, size, np.zeros(2, np.int64), apart, np.zeros(2)
    assert collisions(*given).tolist() == [[False, True]] * 2
    assert collisions(*given, box_scale=1.0).tolist() == [[True, True]] * 2
    for A in (0, 1):
        assert not collisions(*(x[:A] for x in given)).any()


def true_futures(scenario: Scenario) -> tuple[NDArray[np.bool_], NDArray[np.bool_], list[Floats]]:
    """Which true futures of road vehicles are infeasible, which collide, and all extremes."""
    tracks, now = scenario.tracks, scenario.num_observed
    here = tracks.valid[:, now - 1] & tracks.valid[:, now:].any(1)
    vehicle = is_road_vehicle(tracks.object_type[here])
    path = np.where(tracks.valid[:, now:, None], tracks.position[:, now:], np.nan)[here][:, None]
    origin, turned = tracks.position[here, now - 1], tracks.heading[here, now - 1]
    found = kinematics(path, origin, tracks.velocity[here, now - 1], scenario.step_s)
    size, scene = TYPICAL_SIZES[tracks.object_type[here]], np.zeros(here.sum(), np.int64)
    hit = collisions(path, tracks.heading[here, None, now:], size, scene, origin, turned)
    extremes = [value[..., -1] for value in found.values()]
    return infeasible(found)[vehicle, 0, -1], hit[vehicle, 0], extremes


def test_true_futures_are_plausible_wherever_the_scene_is(sample_scenarios: list[Scenario]) -> None:
    every = [true_futures(scenario) for scenario in sample_scenarios if scenario.has_future]
    impossible, hit = (np.concatenate([found[i] for found in every]) for i in (0, 1))
    assert len(hit) > 400 and impossible.mean() < 0.03 and hit.mean() < 0.03
    here, there = true_futures(sample_scenarios[0]), true_futures(moved(sample_scenarios[0]))
    assert here[0].tolist() == there[0].tolist() and here[1].tolist() == there[1].tolist()
    np.testing.assert_allclose(here[2], there[2], atol=1e-6)
