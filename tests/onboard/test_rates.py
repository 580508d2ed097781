"""At any rate and with jitter, the stream's forecast is that of the resampled scenario."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.onboard.rates import recorded_at
from tests.scenes import hidden, with_tracks
from trajpred.data.batch import ScenarioBatch
from trajpred.data.forecast import Forecast
from trajpred.data.resample import resample
from trajpred.data.scenario import Scenario
from trajpred.export.export_bundle import export_bundle
from trajpred.integrations.replay import detections
from trajpred.onboard import Detections, OnboardForecast, OnboardForecaster, StreamingForecaster
from trajpred.sources import argoverse1

RATES = (1.0, 3.0, 7.0, 10.0, 12.5, 25.0, 50.0)
#: Largest distance (m) of a stream's futures from those of the resampled scenario.
CLOSE_M = 0.05


def streamed(forecaster: OnboardForecaster, scenario: Scenario) -> OnboardForecast:
    """Stream the observed steps and return the last forecast."""
    stream = StreamingForecaster(forecaster, scenario.map, scenario.focal_id)
    last = scenario.num_observed - 1
    for step in range(last + 1):
        targets = None if step == last else []
        time_s = scenario.timestamps_ns[step] / 1e9
        found = stream.update(time_s, detections(scenario, step), targets=targets)
        assert not found.warnings
    return found


def largest_distance(found: Forecast, expected: Forecast) -> float:
    assert set(found.track_id.tolist()) == set(expected.track_id.tolist())
    apart = found.of(expected.track_id).trajectory - expected.trajectory
    return float(np.abs(apart).max())


def assert_same_forecasts(forecaster: OnboardForecaster, scenario: Scenario, rates: Sequence[float]) -> None:
    random = np.random.default_rng(0)
    for rate in rates:
        for jitter in (0.0, 0.3):
            recorded = recorded_at(scenario, rate, jitter, random)
            model_steps = resample(recorded, forecaster.bundle.step_s)
            expected = forecaster.forecast(ScenarioBatch.of([model_steps]))
            apart_m = largest_distance(streamed(forecaster, recorded), expected)
            assert apart_m < CLOSE_M, f"{scenario.scenario_id}, {rate} Hz, jitter {jitter}: {apart_m} m"


def real_scenes(count: int) -> Iterator[Scenario]:
    sequences = argoverse1.discover(ROOT / "datasets" / "argoverse1")["val"]
    for raw in sequences[:: len(sequences) // count][:count]:
        yield argoverse1.read(raw)


@pytest.mark.parametrize("rate", RATES[::3])
def test_forecasts_are_those_of_the_resampled_scenario(
    shared_forecaster: OnboardForecaster, scenes: list[Scenario], rate: float
) -> None:
    assert_same_forecasts(shared_forecaster, scenes[0], [rate])


@pytest.mark.parametrize("rate", [10.0, 20.0, 40.0])
def test_forecasts_are_a_continuous_function_of_stamps(
    shared_forecaster: OnboardForecaster, scenes: list[Scenario], rate: float
) -> None:
    """Of a tracker that misses 30 % of the detections: shaken by a microsecond, and from the scenario."""
    random = np.random.default_rng(1)
    recorded = recorded_at(scenes[1], rate, 0.0, random)
    dropped = random.random(recorded.tracks.valid.shape) < 0.3
    dropped[:, -1] = False
    recorded = hidden(recorded, dropped)
    recorded = with_tracks(recorded, np.flatnonzero(recorded.tracks.valid.any(axis=1)))
    found = streamed(shared_forecaster, recorded)
    model_steps = resample(recorded, shared_forecaster.bundle.step_s)
    expected = shared_forecaster.forecast(ScenarioBatch.of([model_steps]))
    assert largest_distance(found, expected) < 0.01
    for _ in range(3):
        shaken_ns = random.integers(-1000, 1001, recorded.num_steps)
        shaken = replace(recorded, timestamps_ns=recorded.timestamps_ns + shaken_ns)
        assert largest_distance(streamed(shared_forecaster, shaken), found) < 0.01


@pytest.mark.slow
def test_forecasts_of_real_scenes_are_those_of_the_resampled_scenario(
    sample_scenarios: list[Scenario], tmp_path: Path
) -> None:
    """150 scenes of Argoverse 1, each at one rate, with trained weights."""
    export_bundle("argoverse-nano", tmp_path / "bundle", sample_scenarios[:1], progress=False)
    forecaster = OnboardForecaster(tmp_path / "bundle", threads=1)
    for count, scenario in enumerate(real_scenes(150)):
        assert_same_forecasts(forecaster, scenario, [RATES[count % len(RATES)]])


@pytest.mark.parametrize("rate", [*RATES, 15.0, 33.0])
@pytest.mark.parametrize("given", ["positions", "headings", "velocities"])
def test_a_steady_car_is_exact_at_every_rate(stream: StreamingForecaster, rate: float, given: str) -> None:
    """At 15 m/s for 6 s, on a clock that jitters by 0.2 steps: the states at the model's steps are exact."""
    random = np.random.default_rng(0)
    steps = np.arange(int(6 * rate) + 1)
    times_s = 100.0 + (steps + random.uniform(-0.2, 0.2, len(steps))) / rate
    for time_s in times_s:
        found = Detections(["a"], [(15.0 * time_s, 0.0)])
        if given != "positions":
            found = found._replace(heading=[0.0])
        if given == "velocities":
            found = found._replace(velocity=[(15.0, 0.0)])
        assert not stream.update(time_s, found, targets=[]).warnings
    tracks = stream.tracks
    length = tracks.valid.shape[1]
    grid_s = times_s[-1] - 0.1 * np.arange(length)[::-1]
    assert length == stream.runtime.bundle.history
    assert tracks.valid.all()
    np.testing.assert_allclose(tracks.position[0, :, 0], 15.0 * grid_s, atol=1e-4)
    np.testing.assert_allclose(tracks.velocity[0, 20:, 0], 15.0, atol=1e-4)
    np.testing.assert_allclose(tracks.heading[0, 20:], 0.0, atol=1e-6)
