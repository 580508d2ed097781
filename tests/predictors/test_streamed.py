"""Earlier updates know what was observed until then, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trajpred.errors import DataError
from trajpred.forecast import Forecast
from trajpred.predictors import load_predictor
from trajpred.predictors.derived import StreamedForecast, StreamedPredictor
from trajpred.predictors.ensemble import EnsemblePredictor
from trajpred.predictors.predict import predict
from trajpred.scenario import Scenario
from trajpred.store import ScenarioStore


def streamed(scenario: Scenario, **options: float) -> StreamedForecast:
    [found] = StreamedPredictor(load_predictor("lane_following"), **options)([scenario])  # type: ignore[arg-type]
    assert isinstance(found, StreamedForecast)
    return found


def ended(scenario: Scenario, steps: int) -> Scenario:
    """Cut the last steps of a recording, which has a shorter history then."""
    names, end = ("valid", "position", "heading", "velocity"), scenario.num_steps - steps
    tracks = replace(scenario.tracks, **{name: getattr(scenario.tracks, name)[:, :end] for name in names})
    observed = scenario.num_observed - steps
    return replace(scenario, tracks=tracks, timestamps_ns=scenario.timestamps_ns[:end], num_observed=observed)


def test_an_update_is_the_forecast_of_the_recording_until_then(sample_scenarios: list[Scenario]) -> None:
    scenario = next(one for one in sample_scenarios if one.has_future)
    found = streamed(scenario)
    assert [*found.earlier] == [10, 5]
    for steps, update in [*found.earlier.items(), (0, found)]:
        [expected] = load_predictor("lane_following")([ended(scenario, steps)])
        rows = update.rows(expected.track_id)
        assert len(rows) == len(update.track_id) and (rows >= 0).all()
        np.testing.assert_allclose(update.trajectory[rows], expected.trajectory, rtol=0, atol=1e-6)
        assert isinstance(update, Forecast) and update.validate()


def test_no_update_before_the_focal_track_is_seen(sample_scenarios: list[Scenario]) -> None:
    scenario = next(one for one in sample_scenarios if one.has_future)
    valid = scenario.tracks.valid.copy()
    valid[scenario.focal, :40] = False
    late = replace(scenario, tracks=replace(scenario.tracks, valid=valid))
    assert not streamed(late).earlier and [*streamed(late, every_s=0.4).earlier] == [8, 4]


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
def test_impossible_updates_are_rejected(
    options: dict[str, float], problem: str, sample_scenarios: list[Scenario]
) -> None:
    with pytest.raises(DataError, match=problem):
        streamed(sample_scenarios[0], **options)


def test_predictions_files_are_rejected(store_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.parquet"
    predict(load_predictor("constant_velocity"), ScenarioStore(store_path, "val"), out, progress=False)
    file = load_predictor(out)
    for one in (file, EnsemblePredictor([load_predictor("lane_following"), file])):
        with pytest.raises(DataError, match="a predictions file contains one update only"):
            StreamedPredictor(one)
