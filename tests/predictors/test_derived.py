"""Predictors of perturbed scenarios, and of scenarios as they were seen earlier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT, rejects
from tests.scenes import hidden
from trajpred.data.forecast import Forecast
from trajpred.data.resample import resample
from trajpred.data.scenario import Scenario
from trajpred.predictors import EnsemblePredictor, load_predictor
from trajpred.predictors.derived import (
    StreamedForecast,
    StreamedPredictor,
    completed,
    of_same_seconds,
    perturbed,
)
from trajpred.predictors.perturbations import ALL, PERTURBATIONS
from trajpred.predictors.predict import predict
from trajpred.predictors.predictor import Predictor
from trajpred.store import ScenarioStore


@pytest.fixture
def scenario(sample_scenarios: list[Scenario]) -> Scenario:
    return next(s for s in sample_scenarios if s.has_future and len(s.tracks) > 20)


def test_perturbed_predictor_sees_the_perturbed_scenario(scenario: Scenario) -> None:
    steady = load_predictor("constant_velocity")
    one = {predictor.name.split(", ")[1]: predictor for predictor in perturbed(steady, "all")}
    assert list(one) == ALL
    assert set(ALL) > set(PERTURBATIONS)
    assert perturbed(steady, None) == []
    plain = steady([scenario])[0]
    blind = one["no-map"]([scenario])[0]
    noisy = one["noise"]([scenario])[0]
    assert np.array_equal(plain.trajectory, blind.trajectory)
    assert not np.array_equal(plain.trajectory, noisy.trajectory)
    [short] = perturbed(steady, None, [0.5])
    [late] = short([scenario])
    assert short.name == "constant_velocity, history of 0.5 s"
    assert len(late.track_id) <= len(plain.track_id)
    for seconds in (0.0, 5.2):
        [short] = perturbed(steady, None, [seconds])
        rejects("must be more than 0 and at most the 5 s of the scenarios", short, [scenario])
    for names in (["noise", "fog"], ["all", "fog"], ["noise+fog"]):
        rejects("'fog' is not one of no-map", perturbed, steady, names)


def streamed(scenario: Scenario, **options: float) -> StreamedForecast:
    [found] = StreamedPredictor(load_predictor("lane_following"), **options)([scenario])  # type: ignore[arg-type]
    assert isinstance(found, StreamedForecast)
    return found


def test_an_update_is_the_forecast_of_the_recording_until_then(scenario: Scenario) -> None:
    found = streamed(scenario)
    assert [*found.earlier] == [10, 5]
    for steps, update in [*found.earlier.items(), (0, found)]:
        ended = scenario.window(scenario.num_observed - steps, later=-steps)
        [expected] = load_predictor("lane_following")([ended])
        rows = update.rows(expected.track_id)
        assert len(rows) == len(update.track_id)
        assert (rows >= 0).all()
        np.testing.assert_allclose(update.trajectory[rows], expected.trajectory, rtol=0, atol=1e-6)
        assert isinstance(update, Forecast)
        assert update.validate()


def test_no_update_before_the_focal_track_is_seen(scenario: Scenario) -> None:
    late = hidden(scenario, np.s_[scenario.focal, :40])
    assert not streamed(late).earlier
    assert [*streamed(late, every_s=0.4).earlier] == [8, 4]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"every_s": 0.01}, "every_s.: must be at least a step of 0.1 s"),
        ({"every_s": 2.5}, "must be at most 2.4 s for 3 updates within the 50 observed steps"),
        ({"every_s": 0.0}, "every_s.: must be positive"),
        ({"updates": 1}, "updates.: must be 2 or more"),
        ({"updates": 60, "every_s": 0.1}, "updates.: must be at most 50, the number of observed steps"),
    ],
)
def test_impossible_updates_are_rejected(options: dict[str, float], problem: str, scenario: Scenario) -> None:
    rejects(problem, streamed, scenario, **options)


def test_predictions_files_are_rejected(store_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.parquet"
    predict(load_predictor("constant_velocity"), ScenarioStore(store_path, "val"), out, progress=False)
    file = load_predictor(out)
    for one in (file, EnsemblePredictor([load_predictor("lane_following"), file])):
        rejects("a predictions file contains one update only", StreamedPredictor, one)


def test_compared_predictors_forecast_the_seconds_of_the_shortest(scenario: Scenario) -> None:
    """A model of 3 s beside constant velocity, whose forecast of 6 s is cut; also at another time step."""
    teacher = load_predictor(ROOT / "datasets" / "argoverse1" / "trained" / "teacher.pt")
    steady = load_predictor("constant_velocity")
    for recorded, steps in ((scenario, 30), (resample(scenario, 0.25), 12)):
        whole = steady([recorded])[0].trajectory
        of_teacher, of_steady = of_same_seconds([teacher, steady])
        [short] = of_teacher([recorded])
        [cut] = of_steady([recorded])
        assert short.trajectory.shape[2] == cut.trajectory.shape[2] == steps
        assert np.array_equal(cut.trajectory, whole[:, :, :steps])
    [alone] = of_same_seconds([steady])
    assert alone.steps(scenario) == 60


class SomeTracks(Predictor):
    """Lane following, of every other track, and of none in the scenarios whose ids are ``left_out``."""

    name = "some tracks"
    left_out: tuple[str, ...] = ()
    last_step: int | None = None

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        forecasts = []
        for forecast in load_predictor("lane_following")(scenarios):
            is_kept = np.arange(len(forecast.track_id)) % 2 == 0
            if forecast.scenario_id in self.left_out:
                is_kept[:] = False
            arrays = {name: values[is_kept] for name, values in forecast.arrays.items()}
            arrays["trajectory"] = arrays["trajectory"][:, :, : self.last_step]
            forecasts.append(Forecast(forecast.scenario_id, **arrays))
        return forecasts


def test_what_is_left_out_is_predicted_at_constant_velocity(sample_scenarios: list[Scenario]) -> None:
    scenarios = [scenario for scenario in sample_scenarios if scenario.has_future][:3]
    predictor = SomeTracks()
    predictor.left_out = (scenarios[1].scenario_id,)
    lanes = load_predictor("lane_following")(scenarios)
    steady = load_predictor("constant_velocity")(scenarios)
    wholes = [completed(*pair) for pair in zip(predictor(scenarios), scenarios, strict=True)]
    for own, other, forecast in zip(lanes, steady, wholes, strict=True):
        forecast.validate()
        assert sorted(forecast.track_id) == sorted(other.track_id)
        places = {name: row for row, name in enumerate(forecast.track_id.tolist())}
        for row, name in enumerate(own.track_id.tolist()):
            found = forecast.trajectory[places[name]]
            if row % 2 == 0 and own.scenario_id not in predictor.left_out:
                assert np.array_equal(found, own.trajectory[row])
                assert np.array_equal(forecast.probability[places[name]], own.probability[row])
            else:
                assert (found == other.trajectory[row]).all()
                assert forecast.probability[places[name]][0] == 1
    predictor.last_step = -1
    rejects("steps': must be 60 of scenario", completed, predictor(scenarios)[0], scenarios[0])
