"""Lane following: closed forms on simple maps, and finite forecasts on any map."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.scenes import FAR, QUARTER, assert_same_forecasts, moved
from trajpred.data.forecast import Forecast
from trajpred.data.geometry import Pose, norm, rotate, unit_vector
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.features.lane_paths import LanePaths, Routes, lane_paths
from trajpred.predictors.baselines import constant_velocity, lane_following

Floats = NDArray[np.float64]


def car_at(
    position: tuple[float, float], speed: float, lanes: LaneMap | list[Floats], object_type: str = "vehicle"
) -> Scenario:
    """Ten observed steps along the x axis at constant ``speed``, to ``position``; no other agent."""
    path = np.array(position) + np.arange(-9, 1)[:, None] * [0.1 * speed, 0.0]
    return Scenario.from_arrays(path[None], num_observed=10, object_type=object_type, map=lanes)


def straight_lane(start: float = -50.0, end: float = 300.0) -> Floats:
    return np.array([[start, 0.0], [end, 0.0]])


def arc_lane(radius: float, start: float, end: float) -> Floats:
    """A lane on a circle about (0, radius) that passes the origin along the x axis; positive: to the left."""
    angle = np.linspace(start, end, 400)
    return np.stack((radius * np.sin(angle), radius - radius * np.cos(angle)), -1)


def futures(scenario: Scenario, steps: int = 60) -> Forecast:
    return lane_following(scenario, num_future=steps)


def ends(scenario: Scenario, steps: int = 60) -> Floats:
    """``[6, 2]`` of the only track."""
    return futures(scenario, steps).trajectory[0, :, -1]


def test_six_accelerations_on_a_straight_lane() -> None:
    """At 10 m/s for 6 s: 60 m, and 13.5 m per m/s² held for 3 s; braking at 4 m/s² it stands after 12.5 m."""
    forecast = futures(car_at((0.0, 0.0), 10.0, [straight_lane()]))
    np.testing.assert_allclose(forecast.trajectory[..., 1], 0.0, atol=1e-9)
    end = np.sort(forecast.trajectory[0, :, -1, 0])
    np.testing.assert_allclose(end, [12.5, 33.0, 46.5, 60.0, 73.5, 87.0], rtol=1e-9)
    time = np.arange(1, 61) * 0.1
    np.testing.assert_allclose(forecast.trajectory[0, 0, :, 0], 10 * time, rtol=1e-9)
    assert (np.diff(forecast.probability) <= 0).all()
    assert forecast.probability[0, 0] > 0.3
    standing = forecast.trajectory[0, forecast.trajectory[0, :, -1, 0].argmin()]
    expected = np.where(time < 2.5, 10 * time - 2 * time**2, 12.5)
    np.testing.assert_allclose(standing[:, 0], expected, rtol=1e-9)


def test_offset_to_the_centreline_fades_out() -> None:
    """At 10 m/s over 50 m: half of it is left after 25 m, nothing after 50 m."""
    path = futures(car_at((0.0, 1.0), 10.0, [straight_lane()])).trajectory[0, 0]
    offset = np.interp([0.1, 25.0, 50.0], path[:, 0], path[:, 1], left=np.nan)
    np.testing.assert_allclose(offset[1:], [0.5, 0.0], atol=0.01)
    assert (np.diff(path[:, 1]) <= 1e-9).all()
    assert path[0, 1] > 0.99


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize(
    ("radius", "turn", "speed", "tolerance"),
    [(60.0, 1.4, 8.0, 0.02), (20.0, 6.0, 6.0, 0.1), (20.0, 6.0, 8.0, 0.1), (20.0, 6.0, 10.0, 0.1)],
)
def test_bends_are_followed_at_the_present_speed(
    radius: float, turn: float, speed: float, tolerance: float, side: int
) -> None:
    """At 10 m/s the hairpin turns by 3 rad in 6 s; a total turn of about π is no reason to leave the road."""
    bend = arc_lane(radius, -0.5, turn) * [1, side]
    path = futures(car_at((0.0, 0.0), speed, [bend])).trajectory[0, 0]
    angle = speed * np.arange(1, 61) * 0.1 / radius
    expected = radius * np.stack((np.sin(angle), side * (1 - np.cos(angle))), -1)
    np.testing.assert_allclose(path, expected, atol=tolerance)


def fork(outside: int = 999) -> LaneMap:
    """A lane of 60 m that forks at x = 10 into straight on, left and right; an id names a lane elsewhere."""
    left = arc_lane(20.0, 0.0, np.pi / 2) + np.array([10.0, 0.0])
    left = np.concatenate((left, [[30.0, 120.0]]))
    lines = [straight_lane(-50.0, 10.0), left, left * [1, -1], straight_lane(10.0, 200.0)]
    ids = [7, 30, 20, 10]
    return LaneMap.from_centerlines(lines, lane_id=ids, successors=[[30, outside, 20, 10], [], [], [outside]])


def test_every_branch_of_a_fork_is_a_mode_and_straight_the_most_probable() -> None:
    forecast = futures(car_at((0.0, 0.0), 8.0, fork()))
    end = forecast.trajectory[0, :, -1]
    np.testing.assert_allclose(end[0], [48.0, 0.0], atol=1e-6)
    # 10 m, then a quarter of a circle of 20 m radius (31.4 m), then the rest of the 48 m.
    rest = 48.0 - 10.0 - 10.0 * np.pi
    for side in (1, -1):
        expected = np.array([30.0, side * (20.0 + rest)])
        assert norm(end - expected).min() < 0.05


def test_the_first_of_equal_branches_counts_wherever_the_map_lies() -> None:
    """Branches that turn equally weigh the same where they part later: rounding chose between them."""
    shared = arc_lane(200.0, -0.1, 0.27)  # 54 m ahead
    ahead = shared[-1] + np.linspace(0, 80, 17)[:, None] * unit_vector(np.array(0.27))
    left = np.clip(np.linspace(-0.5, 7.5, 17), 0, 1)[:, None] * unit_vector(np.array(0.27 + np.pi / 2))
    for shift in np.random.default_rng(0).uniform(-3000, 3000, (40, 2)):
        lines = [shared + shift, ahead + 2.5 * left + shift, ahead + shift]
        lanes = LaneMap.from_centerlines(lines, successors=[[1, 2], [], []])
        end = ends(car_at((shift[0], shift[1]), 8.0, lanes)) - shift
        straight = shared[-1] + (75.0 - 54.0) * unit_vector(np.array(0.27))
        assert norm(end - straight).min() > 1, "at 2 m/s² it is on the first branch"


def paths_of_one(lanes: LaneMap, position: Floats, reach: float) -> LanePaths:
    """Paths of an agent that heads along the x axis."""
    routes = Routes.of(lanes)
    pose = Pose(position, np.zeros(1))
    return lane_paths(routes, np.zeros(1, np.int64), pose, np.array([reach]), np.array([40.0]))


def path_weights(lanes: LaneMap, position: tuple[float, float], reach: float) -> dict[str, Floats]:
    """Weights of the paths of an agent that heads along the x axis, by the side on which they end."""
    paths = paths_of_one(lanes, np.array([position]), reach)
    aside = paths.curve[:, -1, 1] - paths.curve[:, 0, 1]
    sides = {"ahead": np.abs(aside) < 1, "left": aside > 1, "right": aside < -1}
    return {side: paths.weight[rows] for side, rows in sides.items()}


@pytest.mark.parametrize(("x", "matches"), [(0.0, 1), (10.0, 2)])
def test_branches_that_turn_weigh_less(x: float, matches: int) -> None:
    """By exp(-½ turn²) in radians: 0.29 of straight on at a right angle.

    At the fork itself an agent matches the branches and the lane before them.
    """
    weight = path_weights(fork(), (x, 0.0), 48.0 - x)
    for side in ("left", "right"):
        assert len(weight[side]) == len(weight["ahead"]) == matches
        ratio = weight[side] / weight["ahead"]
        np.testing.assert_allclose(ratio, np.exp(-0.5 * (np.pi / 2) ** 2), rtol=0.03)


def test_turns_before_a_fork_do_not_decide_between_its_branches() -> None:
    """A hairpin to the left, then straight on, or on in the circle: a right angle more within the reach."""
    hairpin = arc_lane(20.0, -0.5, np.pi)
    circle = arc_lane(20.0, np.pi, 1.5 * np.pi)
    circle = np.concatenate((circle, [[-20.0, -100.0]]))
    ahead = np.array([[0.0, 40.0], [-200.0, 40.0]])
    lanes = LaneMap.from_centerlines([hairpin, circle, ahead], successors=[[1, 2], [], []])
    paths = paths_of_one(lanes, np.zeros((1, 2)), 120.0)
    straight = paths.curve[:, -1, 1] > 39
    assert straight.tolist() == [False, True]
    ratio = paths.weight[~straight] / paths.weight[straight]
    np.testing.assert_allclose(ratio, np.exp(-0.5 * (np.pi / 2) ** 2), rtol=0.1)
    np.testing.assert_allclose(paths.weight[straight], 1.0, rtol=1e-3)


def test_a_lane_keeps_its_weight_where_all_its_branches_turn() -> None:
    lanes = fork()
    without_ahead = np.arange(len(lanes) - 4)  # its 190 m are the last four segments
    junction = lanes.take(without_ahead, np.zeros(0, np.int64))
    weight = path_weights(junction, (0.0, 0.0), 48.0)
    assert not len(weight["ahead"])
    np.testing.assert_allclose([weight["left"], weight["right"]], 1.0, rtol=1e-3)


def test_walkers_change_their_speed_a_quarter_as_much_as_drivers() -> None:
    """At 6 m/s for 6 s: 36 m, and 13.5 m per m/s² held for 3 s."""
    straight = {}
    for kind in ("vehicle", "pedestrian"):
        end = ends(car_at((0.0, 0.0), 6.0, [], object_type=kind))
        straight[kind] = np.sort(end[np.abs(end[:, 1]) < 1e-6][:, 0])
    assert len(straight["pedestrian"]) >= 3
    for kind, share in (("vehicle", 1.0), ("pedestrian", 0.25)):
        change = (straight[kind] - 36.0) / (13.5 * share)
        # Braking hard it stands before the three seconds are over.
        held = change[straight[kind] > 36.0 - 3 * 13.5 * share / 2]
        np.testing.assert_allclose(held, np.round(held), atol=1e-6)
        assert {-1.0, 0.0, 1.0} <= set(np.round(held)), kind


def test_paths_go_straight_where_the_map_ends() -> None:
    bend = arc_lane(40.0, -0.5, 0.5)
    path = futures(car_at((0.0, 0.0), 10.0, [bend])).trajectory[0, 0]
    after = np.diff(path[23:], axis=0)  # the lane ends 20 m ahead
    np.testing.assert_allclose(after, np.tile(unit_vector(np.array(0.5)), (len(after), 1)), atol=0.02)


@pytest.mark.parametrize("speed", [0.0, 0.3])
def test_standing_agents_most_probably_stay(speed: float) -> None:
    forecast = futures(car_at((0.0, 0.5), speed, [straight_lane()]))
    assert norm(forecast.trajectory[0, 0] - [0.0, 0.5]).max() <= 6 * speed + 1e-9
    assert forecast.probability[0, 0] > 0.5
    assert forecast.trajectory[0, :, -1, 0].max() > 10.0, "it may also start"


def test_adjacent_lanes_are_modes() -> None:
    lanes = [straight_lane(), straight_lane() + np.array([0.0, 3.5])]
    end = ends(car_at((0.0, 1.7), 10.0, lanes))
    assert (np.abs(end[:, 1]) < 1e-6).any()
    assert (np.abs(end[:, 1] - 3.5) < 1e-6).any()


@pytest.mark.parametrize("case", ["far", "oncoming", "pedestrian", "coincident"])
def test_agents_without_a_lane_do_not_use_the_map(case: str) -> None:
    bend = arc_lane(40.0, -0.5, 1.5) + np.array([0.0, 20.0 if case == "far" else 0.0])
    lanes = [np.full((2, 2), 0.1)] if case == "coincident" else [bend[::-1] if case == "oncoming" else bend]
    kind = "pedestrian" if case == "pedestrian" else "vehicle"
    without = futures(car_at((0.0, 0.0), 6.0, [], object_type=kind))
    found = futures(car_at((0.0, 0.0), 6.0, lanes, object_type=kind))
    assert_same_forecasts([found], [without])
    path = constant_velocity(car_at((0.0, 0.0), 6.0, []), num_future=60).trajectory
    np.testing.assert_allclose(found.trajectory[:, :1], path, atol=1e-9)
    end = found.trajectory[0, :, -1]
    assert end[:, 1].min() < -1, "it may turn either way"
    assert end[:, 1].max() > 1, "it may turn either way"
    assert np.ptp(norm(end)) > 5, "and change its speed"


def test_many_branches_are_fast() -> None:
    """3^40 paths through forty layers of three lanes, the first ones of no length."""
    layers = [i for i in range(40) for _ in range(3)]
    lines = [straight_lane(max(i - 20, 0), max(i - 19, 0)) for i in layers]
    onward: list[list[int]] = []
    for i in layers:
        first = 3 * (i + 1)
        onward.append([first, first + 1, first + 2] if i < 39 else [])
    lines[0] = straight_lane(-5.0, 0.0)
    end = ends(car_at((-1.0, 0.0), 15.0, LaneMap.from_centerlines(lines, successors=onward)))
    np.testing.assert_allclose(end[:, 1], 0.0, atol=1e-6)
    np.testing.assert_allclose(end[0, 0], 89.0, rtol=1e-6)


def test_lost_tracks_continue_until_now() -> None:
    """Last seen 1 s ago at x = 0, at 10 m/s: now it is at 10 m."""
    seen = car_at((0.0, 0.0), 10.0, [straight_lane()])
    position = np.full((1, 20, 2), np.nan)
    position[0, :10] = seen.tracks.position[0]
    lost = Scenario.from_arrays(position, num_observed=20, map=[straight_lane()])
    ahead = futures(lost).trajectory - futures(seen).trajectory
    np.testing.assert_allclose(ahead, np.broadcast_to([10.0, 0.0], ahead.shape), atol=1e-6)


def test_forecast_is_equivariant_to_moving_and_turning_the_scene(sample_scenarios: list[Scenario]) -> None:
    before = lane_following(sample_scenarios[0], 60)
    after = lane_following(moved(sample_scenarios[0]), 60)
    expected = rotate(before.trajectory, np.array(QUARTER)) + FAR
    np.testing.assert_allclose(after.trajectory, expected, atol=1e-5)
    np.testing.assert_allclose(after.probability, before.probability, atol=1e-6)


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1), st.integers(0, 12), st.integers(1, 6), st.sampled_from([0.0, 1.0, 1e6]))
def test_forecasts_are_finite_on_any_map(seed: int, lanes: int, agents: int, far: float) -> None:
    """Short lanes, coincident points, loops, duplicate and unknown successors, any speed."""
    draw = np.random.default_rng(seed)
    size = draw.integers(2, 6, lanes)
    lines = [np.round(draw.normal(0, 10, (n, 2)) * draw.integers(0, 2, (n, 1))) + far for n in size]
    onward = [draw.integers(-1, lanes + 2, draw.integers(0, 4)).tolist() for _ in lines]
    position = draw.normal(0, 8, (agents, 12, 2)) * draw.choice([0, 0.1, 1.0, 100.0], (agents, 1, 1)) + far
    position[draw.random((agents, 12)) < 0.5] = np.nan
    position[:, 3] = far
    scenario = Scenario.from_arrays(
        position,
        num_observed=12,
        object_type=draw.choice(["vehicle", "pedestrian", "unknown", "static"], agents).tolist(),
        map=LaneMap.from_centerlines(lines, successors=onward),
    )
    forecast = futures(scenario, int(draw.integers(1, 40)))  # Forecast rejects non-finite values
    assert forecast.trajectory.shape[:2] == (agents, 6)
    assert (np.diff(forecast.probability, axis=1) <= 0).all()
    np.testing.assert_allclose(forecast.probability.sum(axis=1), 1, rtol=1e-9)
