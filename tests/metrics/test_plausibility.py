"""Plausibility against closed forms, plain loops, polygons of shapely, and what people really drove."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
import shapely
from numpy.typing import NDArray
from trajpred.metrics.collisions import collisions

from tests.graph.scenes import moved
from trajpred.geometry import rotate, unit_vector
from trajpred.metrics import collisions as collisions_module
from trajpred.metrics.map_compliance import is_road_vehicle
from trajpred.metrics.plausibility import KinematicLimits, diversity, infeasible, kinematics
from trajpred.scenario import OBJECT_TYPES, TYPICAL_SIZE, TYPICAL_SIZES, Scenario

Floats = NDArray[np.float64]
TIME = np.arange(1, 61) * 0.1
FAR = np.array([6000.0, -8000.0])


def motion(position: Floats, start: Floats, velocity: Floats) -> list[float]:
    """Curvature, acceleration, deceleration, lateral acceleration of one mode ``[F, 2]``."""
    found = kinematics(position[None, None], start[None], velocity[None])
    return [float(value[0, 0]) for value in astuple(found)]


@pytest.mark.parametrize("radius", [5.0, 20.0, 300.0])
@pytest.mark.parametrize("speed", [2.0, 8.0])
def test_a_circle_has_its_curvature(radius: float, speed: float) -> None:
    angle = np.arange(-20, 61) * 0.1 * speed / radius
    circle = radius * unit_vector(angle) + FAR
    curvature, faster, slower, lateral = motion(circle[21:], circle[20], np.zeros(2) + np.nan)
    chord = 2 * radius * np.sin(speed / radius / 2)  # over one second
    assert curvature == pytest.approx(1 / radius, rel=1e-6)
    assert lateral == pytest.approx(chord**2 / radius, rel=1e-6)
    assert max(faster, slower) < 1e-6


@pytest.mark.parametrize("acceleration", [3.0, -2.0])
def test_constant_acceleration_on_a_line(acceleration: float) -> None:
    ahead = unit_vector(np.array(0.7))
    path = (15 * TIME + acceleration * TIME**2 / 2)[:, None] * ahead + FAR
    curvature, faster, slower, lateral = motion(path, FAR, 15 * ahead)
    assert faster == pytest.approx(max(acceleration, 0), abs=1e-6)
    assert slower == pytest.approx(max(-acceleration, 0), abs=1e-6)
    assert curvature < 1e-6 and lateral < 1e-6


def test_a_start_unlike_the_past_shows() -> None:
    path = np.stack((20 * TIME, 0 * TIME), -1)
    _, faster, _, _ = motion(path, np.zeros(2), np.array([10.0, 0.0]))
    assert faster == pytest.approx(10.0)
    _, faster, slower, _ = motion(path[:3], np.zeros(2), np.array([22.0, 0.0]))  # shorter than the spacing
    assert faster == 0 and slower == pytest.approx(2 / 0.3)


def test_kinematics_equal_plain_loops() -> None:
    draw = np.random.default_rng(2)
    trajectory = draw.normal(0, 2, (3, 4, 30, 2)).cumsum(2)
    trajectory[0, 1, 7] = np.nan
    origin, velocity = draw.normal(0, 5, (3, 2)), draw.normal(0, 5, (3, 2))
    found = np.stack(astuple(kinematics(trajectory, origin, velocity)), -1)
    for a in range(3):
        for k in range(4):
            past = [origin[a] - velocity[a] * 0.1 * ago for ago in range(10, -1, -1)]
            path, largest = np.array([*past, *trajectory[a, k]]), np.zeros(4)
            for t in range(10, len(path) - 10):
                sides = path[t] - path[t - 10], path[t + 10] - path[t]
                s1, s2 = (np.hypot(*side) for side in sides)
                (a1, b1), (a2, b2) = sides
                area = abs(a1 * b2 - b1 * a2) / 2
                curvature = 4 * area / (s1 * s2 * np.hypot(*sum(sides))) if min(s1, s2) > 1 else 0.0
                largest = np.fmax(largest, [curvature, s2 - s1, s1 - s2, curvature * s1 * s2])
            np.testing.assert_allclose(found[a, k], largest, rtol=1e-9)


def test_jitter_at_standstill_is_feasible() -> None:
    standing = np.random.default_rng(3).normal(0, 0.1, (200, 1, 60, 2)) + FAR
    found = kinematics(standing, np.broadcast_to(FAR, (200, 2)), np.zeros((200, 2)))
    assert not infeasible(found).any()
    assert found.curvature.max() == 0


def test_each_limit_counts() -> None:
    limits = KinematicLimits()
    for name in ("curvature", "acceleration", "deceleration", "lateral"):
        values = dict.fromkeys(("curvature", "acceleration", "deceleration", "lateral"), np.zeros((1, 2)))
        values[name] = getattr(limits, name) * np.array([[0.99, 1.01]])
        found = infeasible(
            kinematics(np.zeros((1, 2, 1, 2)), np.zeros((1, 2)), np.zeros((1, 2))).__class__(**values)
        )
        assert found.tolist() == [[False, True]]


def test_a_reversal_at_speed_is_infeasible_and_raises_no_warning() -> None:
    there_and_back = 100 - np.abs(100 - 10 * np.arange(1, 61))
    path = np.stack((there_and_back, 0 * TIME), -1)
    with np.errstate(all="raise"):
        found = kinematics(path[None, None], np.zeros((1, 2)), np.array([[100.0, 0]]))
    assert infeasible(found).all()


def boxes_by_shapely(place: Floats, heading: float, size: Floats) -> shapely.Polygon:
    corner = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]]) / 2 * size
    return shapely.Polygon(rotate(corner, np.full(4, heading)) + place)


@pytest.mark.parametrize("at_once", [1, 1_000_000])
def test_collisions_equal_polygons_pair_by_pair(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collisions_module, "_PAIRS_AT_ONCE", at_once)
    draw = np.random.default_rng(4)
    A, K, F = 14, 3, 4
    trajectory, heading = draw.uniform(-9, 9, (A, K, F, 2)), draw.uniform(-4, 4, (A, K, F))
    origin, turned = draw.uniform(-9, 9, (A, 2)), draw.uniform(-4, 4, A)
    size, scene = draw.uniform(0.5, 5, (A, 2)), draw.integers(0, 3, A)
    trajectory[2, 0, 1] = np.nan
    expected, skipped = np.zeros((A, K), bool), 0
    for i in range(A):
        for j in range(A):
            if i == j or scene[i] != scene[j]:
                continue
            now = [boxes_by_shapely(origin[a], turned[a], size[a]) for a in (i, j)]
            if now[0].intersects(now[1]):
                skipped += 1
                continue
            for k in range(K):
                for f in range(F):
                    if np.isfinite(trajectory[[i, j], k, f]).all():
                        one, two = (
                            boxes_by_shapely(trajectory[a, k, f], heading[a, k, f], size[a]) for a in (i, j)
                        )
                        expected[i, k] |= one.intersects(two)
    found = collisions(trajectory, heading, size, scene, origin, turned, box_scale=1.0)
    assert found.tolist() == expected.tolist()
    assert skipped and 0.2 < expected.mean() < 0.95


def test_boxes_shrink_before_they_are_compared() -> None:
    path = np.zeros((2, 2, 1, 2))
    path[1, :, 0, 1] = 1.88, 1.70  # side by side, 1.9 m wide each
    size, heading = np.tile(TYPICAL_SIZES[0], (2, 1)), np.zeros((2, 2, 1))
    apart = np.array([[0.0, 0.0], [0.0, 5.0]])
    judged = path, heading, size, np.zeros(2, np.int64), apart, np.zeros(2)
    assert collisions(*judged).tolist() == [[False, True]] * 2
    assert collisions(*judged, box_scale=1.0).tolist() == [[True, True]] * 2


def test_nobody_collides_alone() -> None:
    for A in (0, 1):
        found = collisions(
            np.zeros((A, 6, 5, 2)),
            np.zeros((A, 6, 5)),
            np.ones((A, 2)),
            np.zeros(A, int),
            np.zeros((A, 2)),
            np.zeros(A),
        )
        assert found.shape == (A, 6) and not found.any()


def test_typical_sizes_follow_the_types() -> None:
    assert TYPICAL_SIZES.shape == (len(OBJECT_TYPES), 2)
    assert TYPICAL_SIZES[OBJECT_TYPES.index("bus")].tolist() == list(TYPICAL_SIZE["bus"])


def test_diversity_equals_plain_loops() -> None:
    draw = np.random.default_rng(5)
    trajectory, heading = draw.normal(0, 5, (3, 4, 6, 2)), draw.uniform(-4, 4, 3)
    probability = draw.dirichlet(np.ones(4), 3)
    found = diversity(trajectory + FAR, probability, heading)
    for a in range(3):
        end, p = trajectory[a, :, -1], probability[a]
        gaps = [np.hypot(*(end[i] - end[j])) for i in range(4) for j in range(i)]
        first, second = np.argsort(p)[:-3:-1]
        ahead = np.array([np.cos(heading[a]), np.sin(heading[a])])
        expected = {"pairwise": np.mean(gaps), "top_two": np.hypot(*(end[first] - end[second]))}
        for name, axis in (("along", ahead), ("across", np.array([-ahead[1], ahead[0]]))):
            expected[name] = np.sqrt(np.cov(end @ axis, aweights=p, ddof=0))
        assert {name: value[a] for name, value in found.items()} == pytest.approx(expected)


def test_one_mode_has_no_diversity() -> None:
    found = diversity(np.ones((2, 1, 3, 2)), np.ones((2, 1)), np.zeros(2))
    assert np.isnan([found["pairwise"], found["top_two"]]).all()
    assert not np.any([found["along"], found["across"]])


def judged(scenario: Scenario) -> tuple[NDArray[np.bool_], NDArray[np.bool_], list[Floats]]:
    """Of the true futures: which are infeasible, which collide (road vehicles), and all extremes."""
    tracks, now = scenario.tracks, scenario.num_observed
    here = tracks.valid[:, now - 1] & tracks.valid[:, now:].any(1)
    vehicle = is_road_vehicle(tracks.object_type[here])
    path = np.where(tracks.valid[:, now:, None], tracks.position[:, now:], np.nan)[here][:, None]
    origin, turned = tracks.position[here, now - 1], tracks.heading[here, now - 1]
    found = kinematics(path, origin, tracks.velocity[here, now - 1], scenario.step_s)
    size, scene = TYPICAL_SIZES[tracks.object_type[here]], np.zeros(here.sum(), np.int64)
    hit = collisions(path, tracks.heading[here, None, now:], size, scene, origin, turned)
    return infeasible(found)[vehicle, 0], hit[vehicle, 0], list(astuple(found))


def test_true_futures_are_plausible(sample_scenarios: list[Scenario]) -> None:
    all_of_them = [judged(scenario) for scenario in sample_scenarios if scenario.has_future]
    impossible, hit = (np.concatenate([found[i] for found in all_of_them]) for i in (0, 1))
    assert len(hit) > 400
    assert impossible.mean() < 0.03
    assert hit.mean() < 0.03


def test_wherever_the_scene_lies(sample_scenarios: list[Scenario]) -> None:
    for scenario in sample_scenarios[:3]:
        here, there = judged(scenario), judged(moved(scenario))
        assert here[0].tolist() == there[0].tolist() and here[1].tolist() == there[1].tolist()
        for one, other in zip(here[2], there[2], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
