"""What displacement does not tell, on scenes where the answer is known, and on real ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.evaluation.test_evaluate import Scattered
from tests.graph.conftest import store_path  # noqa: F401
from tests.graph.scenes import straight
from trajpred.evaluation import evaluate
from trajpred.evaluation.beyond import LEVELS, beyond_columns
from trajpred.evaluation.columns import in_worlds
from trajpred.evaluation.judged import Columns, Judged
from trajpred.evaluation.scores import Scores
from trajpred.forecast import Forecast
from trajpred.predictors import load_predictor
from trajpred.scenario import Scenario
from trajpred.store import ScenarioStore

SHARES = ("off-road", "wrong-way", "infeasible", "collision")
ROAD = [[[-100, 0], [300, 0]]]


def fan(scenario: Scenario, turn: Sequence[float], probability: Sequence[float]) -> Forecast:
    """Every track keeps its speed along one straight line per mode, turned by so many radians."""
    tracks, now = scenario.tracks, scenario.num_observed
    origin, velocity = tracks.position[:, now - 1], tracks.velocity[:, now - 1] @ [1, 1j]
    ahead = (velocity[:, None] * np.exp(1j * np.array(turn)))[..., None] * np.arange(1, 61) * 0.1
    path = origin[:, None, None] + np.stack((ahead.real, ahead.imag), -1)
    return Forecast.from_trajectories(
        scenario.scenario_id, tracks.track_id, path, np.tile(probability, (len(path), 1)),
        origin=origin, origin_heading=tracks.heading[:, now - 1], step_s=0.1,
    )  # fmt: skip


def scored(*said: tuple[Scenario, Forecast]) -> Columns:
    scenarios, forecasts = zip(*said, strict=True)
    some = Judged.of(scenarios, forecasts)
    return beyond_columns(some, scenarios, in_worlds(some))


def test_shares_are_the_probability_of_modes_that_do_so() -> None:
    """One car on one lane: ahead, aside into the field, and back where it came from."""
    scenario = straight(1, map=ROAD)
    found = scored((scenario, fan(scenario, [0.0, 0.5, np.pi], [0.5, 0.3, 0.2])))
    assert found["off-road"] == pytest.approx([0.3])
    assert found["wrong-way"] == pytest.approx([0.2])
    assert found["infeasible"] == pytest.approx([0.2]), "only turning on the spot is beyond a car"


def test_without_a_map_nobody_leaves_the_road() -> None:
    scenario = straight(1)
    said = fan(scenario, [0.0, 0.5], [0.5, 0.5])
    found = scored((scenario, said))
    assert np.isnan(found["off-road"]).all() and np.isnan(found["wrong-way"]).all()
    scores = Scores(beyond=True)
    scores.add([scenario], [said])
    assert "off-road" not in scores.means(SHARES)["focal"] and "spread" in scores.means(["spread"])["focal"]


def test_worlds_collide_where_paths_cross() -> None:
    scenario = straight(2, map=ROAD)
    ahead, meet = fan(scenario, [0.0, 0.0], [0.7, 0.3]), fan(scenario, [0.0, 0.0], [0.7, 0.3])
    meet.trajectory[1, 1] = meet.trajectory[0, 1]
    assert scored((scenario, ahead))["collision"] == pytest.approx([0, 0])
    assert scored((scenario, meet))["collision"] == pytest.approx([0.3, 0.3])


def test_real_scenes(store_path: Path) -> None:  # noqa: F811
    store = ScenarioStore(store_path, "val")
    found = evaluate(Scattered(), store, beyond=True, progress=False)
    assert set(SHARES) - {"collision"} < found.metrics["all"].keys()  # marginal ones are no worlds
    steady = evaluate(load_predictor("constant_velocity"), store, beyond=True, progress=False)
    assert steady.metrics["all"]["infeasible"] == 0 and "collision" in steady.metrics["scored"]
    for name in ("off-road", "infeasible"):
        assert 0 <= steady.metrics["all"][name] <= 1


def test_probabilities_and_scales_that_are_right_are_found_so() -> None:
    """Truths drawn from what the forecasts say."""
    random, scores = np.random.default_rng(0), Scores(beyond=True)
    probability = np.array([0.5, 0.3, 0.2])
    for _ in range(300):
        scenario = straight(1)
        forecast = fan(scenario, [0.0, 0.0, 0.0], probability)
        forecast.trajectory[:, 1] += [0, 100.0]
        forecast.trajectory[:, 2] -= [0, 100.0]
        scale = np.broadcast_to([2.0, 0.5], forecast.trajectory.shape).copy()
        forecast = Forecast(**{**vars(forecast), "scale": scale})
        truth = forecast.trajectory[0, random.choice(3, p=probability)]
        scenario.tracks.position[0, 50:] = truth + random.laplace(0, [2.0, 0.5], truth.shape)
        scores.add([scenario], [forecast])
    assert scores.calibration is not None
    found = scores.calibration.summary()["focal"]
    assert found["ECE"] < 0.05 and found["top ECE"] < 0.08
    for level, held in zip(LEVELS, found["coverage"].values(), strict=True):
        assert held == pytest.approx(level, abs=0.01)


def test_scenarios_with_fewer_modes_are_judged_by_those_they_have() -> None:
    """Beside six modes one has no spread, and there is no mode of probability 0 that never comes true."""
    scenarios = [straight(1, map=ROAD), straight(1, map=ROAD)]
    one, six = fan(scenarios[0], [0.0], [1.0]), fan(scenarios[1], [0.1 * i for i in range(6)], [1 / 6] * 6)
    both = Scores(beyond=True)
    both.add(scenarios, [one, six])
    spread = scored((scenarios[0], one), (scenarios[1], six))["spread"]
    assert np.isnan(spread).tolist() == [True, False]
    assert both.calibration is not None
    told = both.calibration.summary()["focal"]["reliability"]
    assert told["count"] == [6, 1] and told["frequency"][1] == 1.0
    apart = Scores(beyond=True)
    for scenario, forecast in zip(scenarios, (one, six), strict=True):
        apart.add([scenario], [forecast])
    assert apart.calibration is not None and apart.calibration.summary() == both.calibration.summary()
