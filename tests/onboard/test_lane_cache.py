"""Lanes are encoded once each, from nothing but the lane, and invalid maps change nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.onboard.changed_maps import bent, invalid_maps
from trajpred.data.batch import ScenarioBatch
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.onboard import OnboardForecaster


def test_each_lane_is_encoded_once(
    forecaster: OnboardForecaster, bundle: Path, scenes: list[Scenario]
) -> None:
    """Only new and changed lanes are encoded; another map object with known lanes is not."""
    scenario = scenes[1]
    first = forecaster.forecast(ScenarioBatch.of([scenario]))
    lanes = forecaster.localise(ScenarioBatch.of([scenario])).lanes
    known = forecaster.lanes.encoded
    assert known == len(lanes.row) > 0
    again = forecaster.forecast(ScenarioBatch.of([replace(scenario, map=replace(scenario.map))]))
    assert forecaster.lanes.encoded == known
    np.testing.assert_array_equal(again.trajectory, first.trajectory)

    row = int(lanes.row[lanes.row < len(scenario.map)][0])
    changed = ScenarioBatch.of([replace(scenario, map=bent(scenario.map, row))])
    found = forecaster.forecast(changed)
    assert forecaster.lanes.encoded == known + 1
    expected = OnboardForecaster(bundle).forecast(changed)
    np.testing.assert_allclose(found.trajectory, expected.trajectory, rtol=0, atol=1e-4)


def test_lanes_of_an_overlapping_tile_are_known(
    forecaster: OnboardForecaster, scenes: list[Scenario]
) -> None:
    """Positions along a lane are rounded differently beside other lanes: half of them were taken for new."""
    whole = scenes[1]
    rows = np.arange(1, len(whole.map), 2)
    tile = replace(whole, map=whole.map.take(rows, np.zeros(0, np.int64)))
    forecaster.forecast(ScenarioBatch.of([whole]))
    known = forecaster.lanes.encoded
    forecaster.forecast(ScenarioBatch.of([tile]))
    assert forecaster.lanes.encoded == known
    assert len(forecaster.localise(ScenarioBatch.of([tile])).lanes.row) > 10


def test_forecast_after_another_map_is_the_same(
    forecaster: OnboardForecaster, scenes: list[Scenario]
) -> None:
    one = ScenarioBatch.of([scenes[0]])
    other = ScenarioBatch.of([scenes[1]])
    first = forecaster.forecast(one)
    forecaster.forecast(other)
    np.testing.assert_allclose(forecaster.forecast(one).trajectory, first.trajectory, rtol=0, atol=1e-4)


def test_invalid_map_is_rejected_every_time(
    shared_forecaster: OnboardForecaster, scenes: list[Scenario]
) -> None:
    good, cache = scenes[0].map, shared_forecaster.lanes
    cache.set_map(good)
    for name, bad in invalid_maps(good).items():
        for _ in range(2):
            with pytest.raises(DataError):
                cache.set_map(bad)
            assert cache.map is good, name
