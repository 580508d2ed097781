"""mirrored: the features of a scene in a mirror, for those of many that are chosen."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from tests.graph.scenes import features_of, in_a_mirror, moved, straight
from trajpred.graph.config import FeatureConfig
from trajpred.graph.features import SceneFeatures, scene_features
from trajpred.graph.transforms import AugmentConfig, augment, mirrored
from trajpred.lane_map import MARK_TYPES, LaneMap
from trajpred.scenario import Scenario
from trajpred.scenario_batch import ScenarioBatch


@pytest.fixture(scope="module")
def scenes(sample_scenarios: list[Scenario]) -> list[Scenario]:
    """Real scenes and one without a map."""
    crowded, sparse = sample_scenarios[0], sample_scenarios[-1]
    return [crowded, sparse, replace(sparse, map=LaneMap()), moved(crowded, angle=2.0), sample_scenarios[5]]


def features(scenes: list[Scenario]) -> SceneFeatures:
    return scene_features(ScenarioBatch.of(scenes), FeatureConfig())


def edges(scenes: SceneFeatures) -> set[tuple[int, int, int]]:
    """Topology without an order."""
    return set(zip(*scenes.lanes.topology.tolist(), scenes.lanes.topology_kind.tolist(), strict=True))


def assert_same(a: SceneFeatures, b: SceneFeatures, atol: float = 0.0) -> None:
    assert edges(a) == edges(b)
    for x, y in ((a, b), (a.agents, b.agents), (a.lanes, b.lanes)):
        for name in {f.name for f in fields(x)} - {"agents", "lanes", "topology", "topology_kind"}:
            one, two = getattr(x, name), getattr(y, name)
            assert one.dtype == two.dtype, name
            if one.dtype.kind == "f":
                np.testing.assert_allclose(one, two, rtol=0, atol=atol, err_msg=name)
            else:
                assert np.array_equal(one, two), name


@pytest.mark.parametrize("chosen", [[1, 1, 1, 1, 1], [0, 1, 1, 0, 1], [1, 0, 0, 1, 0]], ids=str)
def test_features_in_a_mirror_are_those_of_the_scene_in_a_mirror(
    scenes: list[Scenario], chosen: list[int]
) -> None:
    truth = [in_a_mirror(s) if turned else s for s, turned in zip(scenes, chosen, strict=True)]
    found = mirrored(features(scenes), np.array(chosen, bool))
    assert_same(found, features(truth), atol=1e-5)
    assert len(set(found.lanes.topology_kind.tolist())) == 4 and len(np.unique(found.lanes.marks)) > 2


def test_a_mirror_in_a_mirror_shows_the_scene(scenes: list[Scenario]) -> None:
    before, every = features(scenes), np.ones(len(scenes), bool)
    assert_same(mirrored(mirrored(before, every), every), before)
    assert np.array_equal(mirrored(mirrored(before, every), every).lanes.topology, before.lanes.topology)


def test_a_left_turn_becomes_a_right_turn_beside_the_other_mark() -> None:
    angle = np.linspace(0, 1, 110)
    left = Scenario.from_arrays(
        30 * np.stack((np.sin(angle), 1 - np.cos(angle)), -1)[None],
        num_observed=50,
        map=replace(
            LaneMap.from_centerlines([[[0, 0], [9, 0]]]),
            left_mark=np.array([MARK_TYPES.index("SOLID_DASH_WHITE")], np.int8),
        ),
    )
    before = features_of(left)
    after = mirrored(before, np.array([True]))
    assert before.agents.target[0, -1, 1] > 1 and after.agents.target[0, -1, 1] < -1
    assert after.lanes.marks.tolist() == [[0, MARK_TYPES.index("SOLID_DASH_WHITE")]]


def test_a_scene_is_mirrored_as_often_as_asked_and_by_its_own_number() -> None:
    many, keys = features([straight(2)] * 400), np.arange(400)
    many = replace(many, heading=np.ones(400, np.float32))

    def turned(mirror: float, keys: np.ndarray = keys) -> np.ndarray:
        return augment(many, AugmentConfig(mirror=mirror), keys).heading < 0

    assert not turned(0.0).any() and turned(1.0).all()
    assert 0.2 < turned(0.3).mean() < 0.4
    assert np.array_equal(turned(0.3, keys[::-1]), turned(0.3)[::-1])
