"""What real data never have: road users beside the lanes, velocities in the frame of the vehicle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import shapely

from tests.scenes import hidden
from trajpred import Scenario
from trajpred.data import lane_map as lanes
from trajpred.data.geometry import rotate, unit_vector
from trajpred.data.lane_map import LaneMap
from trajpred.data.plausible import Plausibility
from trajpred.data.ragged import Ragged


def random_map(rng: np.random.Generator, with_boundaries: bool) -> tuple[LaneMap, np.ndarray]:
    """Return ten bent lanes of 3 to 5 m, or of 4 m without boundaries, and half of their widths."""
    heading = rng.uniform(-np.pi, np.pi, (10, 1))
    bend = heading + rng.normal(0, 0.1, (10, 6)).cumsum(axis=1)
    lines = rng.uniform(-60, 60, (10, 1, 2)) + 8 * unit_vector(bend).cumsum(axis=1)
    half = rng.uniform(1.5, 2.5, 10) if with_boundaries else np.full(10, 2.0)
    side = half[:, None, None] * unit_vector(heading + np.pi / 2)
    lane_map = LaneMap(lane_id=np.arange(10), centerline=Ragged.from_rows([*lines], 2))
    if with_boundaries:
        left = Ragged.from_rows([*(lines + side)], 2)
        right = Ragged.from_rows([*(lines - side)], 2)
        lane_map = replace(lane_map, left_boundary=left, right_boundary=right)
    return lane_map, half


@pytest.mark.parametrize("with_boundaries", [True, False])
def test_a_lane_carries_what_is_within_its_width_and_in_its_direction(
    with_boundaries: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As shapely's distances to each piece of a centreline say, with positions in several blocks."""
    monkeypatch.setattr(lanes, "MAX_PAIRS", 1000)
    rng = np.random.default_rng(0)
    lane_map, half = random_map(rng, with_boundaries)
    position = rng.uniform(-80, 80, (4000, 2))
    velocity = rng.normal(0, 5, (4000, 2))
    expected = np.zeros(4000, bool)
    for line, width in zip(lane_map.centerline, half, strict=True):
        for start, end in pairwise(line):
            near = shapely.distance(shapely.LineString([start, end]), shapely.points(position)) <= width
            along = velocity @ (end - start)
            expected |= near & (along >= np.linalg.norm(end - start) * np.hypot(*velocity.T) / np.sqrt(2))
    assert 30 < expected.sum() < 400
    np.testing.assert_array_equal(lane_map.carries(position, velocity), expected)
    np.testing.assert_array_equal(lane_map.carries(position[:0], velocity[:0]), [])
    assert not LaneMap().carries(position, velocity).any()


def convoy(change: Callable[..., np.ndarray] | None = None, shift: float = 0.0) -> Scenario:
    """Return 24 cars in four directions on lanes of their own, with given velocities."""
    turn = np.arange(24) * np.pi / 2
    ahead = unit_vector(turn)
    start = 6.0 * np.arange(24)[:, None] * rotate(ahead, np.full(24, np.pi / 2))
    time = np.arange(110)[:, None] * 0.1
    position = start[:, None] + 9.0 * time * ahead[:, None]
    velocity = np.broadcast_to(9.0 * ahead[:, None], position.shape)
    if change is not None:
        velocity = change(velocity, turn)
    line = start[:, None] + np.array([-20.0, 150.0])[:, None] * ahead[:, None]
    return Scenario.from_arrays(position + shift, num_observed=50, velocity=velocity, map=list(line))


def test_a_map_beside_the_road_is_told_from_one_on_it() -> None:
    on = Plausibility.of(convoy())
    assert on[:4] == (24, 24, 0, 24 * 101)
    assert on.lanes == "100% of 24 moving road users on lanes"
    assert not on.problems()
    [problem] = Plausibility.of(convoy(shift=55.0)).problems()
    assert "of 24 moving road users are on a lane of their direction: check frame and origin" in problem
    assert not Plausibility(on_lane=1, moving=3).problems(), "of three it may be chance"
    assert Plausibility.sum([on, on]).moving == 48


def test_road_users_without_a_state_at_the_last_observed_step_are_counted() -> None:
    scenario = convoy()
    now = scenario.num_observed - 1
    counts = Plausibility.of(hidden(scenario, (0, now), np.s_[1, now:]))  # the second has left
    assert (counts.unplaced, counts.passing) == (1, 23)
    assert counts.gaps == "1 of 23 road users without a state at the last observed step"
    assert Plausibility.of(scenario).gaps == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda velocity, turn: rotate(velocity, np.broadcast_to(-turn[:, None], velocity.shape[:2])),
        lambda velocity, turn: 1.94 * velocity,
        lambda velocity, turn: velocity[..., ::-1],
        lambda velocity, turn: 0.0 * velocity,
    ],
)
def test_velocities_that_contradict_positions_are_a_figure(change: Callable[..., np.ndarray]) -> None:
    with pytest.warns(UserWarning, match=r"velocity: \d+% of the velocities of moving road users contradict"):
        scenario = convoy(change)
    [problem] = Plausibility.of(scenario).problems()[-1:]
    frame = "they must be in m/s along the x and y axes of the positions, not of the vehicle"
    assert problem.endswith(f"{frame}, and missing where unknown, not zero")


def test_velocities_of_pedestrians_are_compared_with_positions_as_noisy_as_a_tracker() -> None:
    rng = np.random.default_rng(0)
    velocity = np.broadcast_to(1.5 * unit_vector(rng.uniform(-np.pi, np.pi, (30, 1))), (30, 110, 2))
    noise = rng.normal(0, 0.1, velocity.shape)
    walk = noise + velocity.cumsum(axis=1) / 10
    zero = np.zeros_like(noise)
    Scenario.from_arrays(noise, num_observed=50, velocity=zero)
    Scenario.from_arrays(walk, num_observed=50, velocity=velocity)
    with pytest.warns(UserWarning, match=r"100% of the velocities .* \(all of these are zero\)"):
        Scenario.from_arrays(walk, num_observed=50, velocity=zero)
    with pytest.warns(UserWarning, match=r"of the velocities .* \(median angle"):
        Scenario.from_arrays(walk, num_observed=50, velocity=np.full_like(walk, 1.5))
