"""Tokens of lanes: one each, made once, of nothing but the lane itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trajpred.errors import DataError
from trajpred.graph.config import FeatureConfig
from trajpred.lane_map import LaneMap, Ragged
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.onboard.lane_cache import LaneCache
from trajpred.scenario import Scenario
from trajpred.scenario_batch import ScenarioBatch


def bent(lane_map: LaneMap, row: int) -> LaneMap:
    """The map with one lane's centerline changed."""
    values, line = lane_map.centerline.values.copy(), lane_map.centerline
    middle = (line.offsets[row] + line.offsets[row + 1]) // 2
    values[middle] += 0.5
    return replace(lane_map, centerline=replace(line, values=values))


def test_every_lane_is_encoded_once(forecaster: OnboardForecaster, scenes: list[Scenario]) -> None:
    scene = ScenarioBatch.of([scenes[1]])
    first = forecaster.forecast(scene)
    known = forecaster.lanes.encoded
    assert known == len(forecaster.localise(scene).lanes.row) > 0
    again = forecaster.forecast(scene)
    assert forecaster.lanes.encoded == known
    np.testing.assert_array_equal(again.trajectory, first.trajectory)


def test_only_the_lane_that_changed_is_encoded_again(
    forecaster: OnboardForecaster, bundle: Any, scenes: list[Scenario]
) -> None:
    scenario = scenes[1]
    forecaster.forecast(ScenarioBatch.of([scenario]))
    known, row = forecaster.lanes.encoded, 0
    near = forecaster.localise(ScenarioBatch.of([scenario])).lanes.row
    row = int(near[near < len(scenario.map)][0])
    changed = ScenarioBatch.of([replace(scenario, map=bent(scenario.map, row))])
    found = forecaster.forecast(changed)
    assert forecaster.lanes.encoded == known + 1
    fresh = OnboardForecaster(bundle).forecast(changed)
    np.testing.assert_allclose(found.trajectory, fresh.trajectory, rtol=0, atol=1e-4)


def test_another_map_and_back(forecaster: OnboardForecaster, scenes: list[Scenario]) -> None:
    """Tokens of lanes that left are forgotten; a map of the same lanes in another object costs nothing."""
    one, other = (ScenarioBatch.of([scene]) for scene in (scenes[0], scenes[-1]))
    first = forecaster.forecast(one)
    known = forecaster.lanes.encoded
    forecaster.forecast(ScenarioBatch.of([replace(scenes[0], map=replace(scenes[0].map))]))
    assert forecaster.lanes.encoded == known
    forecaster.forecast(other)
    np.testing.assert_allclose(forecaster.forecast(one).trajectory, first.trajectory, rtol=0, atol=1e-4)


def test_a_token_depends_on_one_lane_alone(forecaster: OnboardForecaster, scenes: list[Scenario]) -> None:
    scene = forecaster.localise(ScenarioBatch.of([scenes[0]]))
    looks = forecaster.lanes.looks(scene.lanes.row)
    [together] = forecaster.run("lane_encoder", looks)
    for row in (0, len(together) - 1):
        [single] = forecaster.run("lane_encoder", {name: x[row : row + 1] for name, x in looks.items()})
        np.testing.assert_allclose(single[0], together[row], rtol=0, atol=1e-5)
    np.testing.assert_allclose(scene.lanes.token, together, rtol=0, atol=1e-5)


def damaged_maps(good: LaneMap) -> dict[str, LaneMap]:
    """Maps of the shape that a map has, each with one thing that no map has."""
    line, lanes = good.centerline, len(good)
    far, narrow = line.values.copy(), Ragged(line.values[:, :1], line.offsets)
    far[1, 0] = 1e200
    pairs = Ragged(np.zeros((0, 2), np.int64), np.zeros(lanes + 1, np.int64))
    return {
        "is_intersection": replace(good, is_intersection=np.arange(lanes) * 7),
        "centerline": replace(good, centerline=Ragged(far, line.offsets)),
        "predecessors": replace(good, predecessors=pairs),
        "columns": replace(good, centerline=narrow),
    }


@pytest.mark.parametrize("which", ["is_intersection", "centerline", "predecessors", "columns"])
def test_a_damaged_map_is_refused_every_time(
    forecaster: OnboardForecaster, scenes: list[Scenario], which: str
) -> None:
    """Also when it is set again; who asks in between is told of the map before."""
    good, cache = scenes[0].map, forecaster.lanes
    cache.set_map(good)
    bad = damaged_maps(good)[which]
    for _ in range(2):
        with pytest.raises(DataError):
            cache.set_map(bad)
        assert cache.map is good


def test_a_map_that_cannot_be_right_changes_nothing(scenes: list[Scenario]) -> None:
    cache = LaneCache(lambda **looks: np.zeros((len(looks["kind"]), 4), np.float32), 4, FeatureConfig())
    good = scenes[0].map
    cache.set_map(good)
    line = good.centerline
    bad = [
        replace(
            good,
            centerline=replace(line, values=np.where(line.values == line.values[3], np.nan, line.values)),
        ),
        replace(good, lane_id=good.lane_id[:-1]),
        replace(good, centerline=Ragged(line.values, line.offsets[:-1])),
        None,
        "a map",
    ]
    for one in bad:
        with pytest.raises(DataError):
            cache.set_map(one)  # type: ignore[arg-type]
        assert cache.map is good
