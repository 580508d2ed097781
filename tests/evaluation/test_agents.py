"""Scored agents: groups, facts and manoeuvres, against the tracks themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import rejects
from tests.scenes import straight
from trajpred.data.forecast import Forecast
from trajpred.data.geometry import wrap_angle
from trajpred.data.motion import MOVED_M
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES, TrackCategory
from trajpred.evaluation.agents import MANOEUVRES, ScoredAgents, groups_of, manoeuvres, truth_of
from trajpred.evaluation.score import score_agents
from trajpred.evaluation.table import FACTS
from trajpred.predictors import load_predictor

STEPS = np.arange(1, 61) / 60
Path2 = tuple[NDArray[np.float64], NDArray[np.float64]]


def test_groups_contain_visible_agents_with_a_future() -> None:
    valid = np.ones((5, 110), bool)
    valid[1, 49] = valid[2, 50:] = valid[3, 80] = False
    scored, unscored = TrackCategory.SCORED, TrackCategory.UNSCORED
    scenario = straight(5, valid=valid, category=[3, scored, scored, scored, unscored])
    found = {name: np.flatnonzero(member).tolist() for name, member in groups_of(scenario).items()}
    assert found == {"focal": [0], "scored": [0, 3], "moving": [0, 4], "all": [0, 3, 4]}, (
        "one step is missing"
    )


def test_moving_agents_end_three_metres_from_where_they_were_seen_last() -> None:
    scenario = straight(3)
    position = scenario.tracks.position.copy()
    now = position[:, 49:50]
    position[:, 50:] = now + np.array([1.0, 0.0])
    position[:, 80] += 9.0  # there and back again
    for agent, distance in enumerate((2.99, 3.0, 3.01)):
        position[agent, -1] = now[agent, 0] + np.array([0.0, distance])
    tracks = replace(scenario.tracks, position=position)
    assert groups_of(replace(scenario, tracks=tracks))["moving"].tolist() == [False, True, True]


def test_facts_are_those_of_the_tracks(rows: list[Scenario]) -> None:
    truth = truth_of(rows, 60)
    for i in range(0, len(truth["scene"]), 17):
        scenario = rows[truth["scene"][i]]
        tracks, now = scenario.tracks, scenario.num_observed - 1
        row = tracks.index(truth["track_id"][i])
        facts = {name: truth[name][i] for name in FACTS}
        assert facts["class"] == OBJECT_TYPES[tracks.object_type[row]]
        assert facts["city"] == scenario.city
        seen = tracks.position[tracks.valid[:, now], now]
        near = int((np.linalg.norm(seen - tracks.position[row, now], axis=1) <= 30).sum()) - 1
        speed = float(np.linalg.norm(tracks.velocity[row, now]))
        last = np.flatnonzero(tracks.valid[row])[-1]
        steady = tracks.position[row, now] + tracks.velocity[row, now] * (last - now) * scenario.step_s
        error = float(np.linalg.norm(steady - tracks.position[row, last]))
        found = [facts[name] for name in ("speed", "neighbours", "error")]
        assert found == pytest.approx([speed, near, error])


def test_forecasts_that_do_not_fit_are_rejected(rows: list[Scenario]) -> None:
    [forecast] = load_predictor("constant_velocity")(rows[:1])
    longer = Forecast.from_trajectories(
        forecast.scenario_id, forecast.track_id, np.concatenate([forecast.trajectory] * 2, 2),
        forecast.probability, origin=forecast.trajectory[:, 0, 0],
        origin_heading=np.zeros(len(forecast.track_id)), step_s=0.1,
    )  # fmt: skip
    broken = replace(forecast, trajectory=forecast.trajectory.copy())
    broken.trajectory[:, 0, 30] = np.nan
    unsure = replace(forecast, probability=np.full_like(forecast.probability, np.nan))
    cases = ((longer, "120 steps, 60 are known"), (broken, "not finite"), (unsure, "probability.*not finite"))
    for wrong, message in cases:
        rejects(message, ScoredAgents.of, rows[:1], [wrong])


def arc(length: float, turn: float) -> Path2:
    """A circular arc of a length (metres) that turns by ``turn`` radians, and its headings."""
    angle = turn * STEPS
    z = length / turn * (np.exp(1j * angle) - 1) / 1j if turn else length * STEPS + 0j
    return np.stack((z.real, z.imag), -1), angle


def aside(ahead: float, left: float) -> Path2:
    """A smooth step to the left while driving ahead, parallel at the end."""
    x, y = ahead * STEPS, left * (3 * STEPS**2 - 2 * STEPS**3)
    return np.stack((x, y), -1), np.arctan2(left * 6 * STEPS * (1 - STEPS), ahead)


@pytest.mark.parametrize(
    ("expected", "path"),
    [
        ("stationary", arc(1.9, 0)),
        ("straight", arc(2.1, 0)),
        ("straight", arc(60, np.deg2rad(25))),
        ("left turn", arc(30, np.deg2rad(90))),
        ("right turn", arc(30, -np.deg2rad(90))),
        ("U-turn", arc(25, np.deg2rad(170))),
        ("U-turn", arc(25, -np.deg2rad(170))),
        ("lane change", aside(60, 3.5)),
        ("lane change", aside(60, -3.5)),
        ("straight", aside(60, 1.5)),
        ("straight", aside(8, 3.5)),  # too steep
    ],
)
def test_manoeuvres_of_known_futures(expected: str, path: Path2) -> None:
    [found] = manoeuvres(path[0][None], path[1][None], np.ones((1, 60), bool))
    assert MANOEUVRES[found] == expected


@pytest.mark.parametrize("step_s", [0.1, 0.5])
@pytest.mark.parametrize("turned", [[49], [109], [48, 80, 109]], ids=str)
@pytest.mark.parametrize(
    ("expected", "path"),
    [
        ("straight", arc(60, 0)),
        ("left turn", arc(30, np.deg2rad(90))),
        ("U-turn", arc(25, np.deg2rad(170))),
        ("lane change", aside(60, 3.5)),
    ],
)
def test_headings_that_are_turned_round_make_no_manoeuvre(
    expected: str, path: Path2, turned: list[int], step_s: float
) -> None:
    """Neither the last observed heading nor the last future one, of a car that came straight along x."""
    position = np.concatenate((np.arange(-49, 1)[:, None] * [0.5, 0.0], path[0]))
    heading = np.concatenate((np.zeros(50), path[1]))
    heading[turned] = wrap_angle(heading[turned] + np.pi)
    scenario = Scenario.from_arrays(
        position[None], num_observed=50, step_s=step_s, heading=heading[None], track_id=["car"]
    )
    truth = truth_of([scenario], 60)
    assert truth["manoeuvre"].tolist() == [expected]
    np.testing.assert_allclose(truth["target_heading"][0], path[1], atol=1e-9)


def test_manoeuvres_use_valid_steps_only() -> None:
    future, heading = arc(30, np.deg2rad(90))
    valid = np.stack((STEPS < 0.2, STEPS < 0))  # 18 degrees of the turn, and nothing
    found = manoeuvres(np.stack((future, future)), np.stack((heading, heading)), valid)
    assert [MANOEUVRES[i] for i in found] == ["straight", "stationary"]


def test_a_car_that_starts_from_standing_heads_along_its_lane() -> None:
    """Where the data lack its heading, none is compared, and driving straight on is no turn."""
    time = np.arange(110) * 0.1
    north = np.maximum(time - 4.9, 0.0) ** 2
    east = 10 * time
    position = np.stack((np.stack((0 * time, north), -1), np.stack((east, 0 * time + 40), -1)))
    lanes = [[[0.0, -50.0], [0.0, 100.0]]]
    scenario = Scenario.from_arrays(position, num_observed=50, track_id=["starts", "drives"], map=lanes)
    agents = ScoredAgents.of([scenario], load_predictor("lane_following")([scenario]))
    assert agents.origin_heading == pytest.approx([np.pi / 2, 0.0])
    moved = north[50:] > MOVED_M
    assert np.array_equal(np.isfinite(agents.target_heading), [moved, np.ones(60, bool)])
    assert agents.truth["manoeuvre"].tolist() == ["straight", "straight"]
    found = {column.name: values for column, values in score_agents(agents, 0.1).items()}
    assert found["average heading error6"] == pytest.approx([0.0, 0.0], abs=1e-3)
