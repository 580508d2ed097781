"""Many scenes at once are each scene alone: features, variations and edges."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from tests.graph.scenes import features_of, straight
from trajpred.errors import DataError
from trajpred.graph.config import FeatureConfig, SceneConfig
from trajpred.graph.features import SceneFeatures, scene_features
from trajpred.graph.relations import RELATIONS
from trajpred.graph.scene_graph import build_batch
from trajpred.graph.transforms import AugmentConfig, augment
from trajpred.lane_map import LaneMap
from trajpred.scenario import Scenario
from trajpred.scenario_batch import ScenarioBatch

TIGHT = FeatureConfig(max_agents=9, max_lanes=30, lane_radius_m=50.0)


@pytest.fixture(scope="module")
def scenes(sample_scenarios: list[Scenario]) -> list[Scenario]:
    """Real scenes, one without a map between them, one with the lane ids of another."""
    crowded, sparse = sample_scenarios[0], sample_scenarios[-1]
    return [crowded, replace(sparse, map=LaneMap()), sparse, straight(3), crowded, sample_scenarios[5]]


def part(features: SceneFeatures, scene: int) -> SceneFeatures:
    """One scene of many, as if it were alone."""
    alone = {}
    for name in ("agents", "lanes"):
        nodes = getattr(features, name)
        mine = nodes.scene == scene
        alone[name] = {
            f.name: getattr(nodes, f.name)[mine] for f in fields(nodes) if "topology" not in f.name
        }
        alone[name]["scene"] = np.zeros(mine.sum(), np.int64)
    lanes = features.lanes
    first = np.searchsorted(lanes.scene, scene)
    edges = lanes.scene[lanes.topology[1]] == scene
    alone["lanes"] |= {
        "topology": lanes.topology[:, edges] - first,
        "topology_kind": lanes.topology_kind[edges],
    }
    own = {f.name: getattr(features, f.name)[scene : scene + 1] for f in fields(features)[:4]}
    return SceneFeatures(
        **own, agents=type(features.agents)(**alone["agents"]), lanes=type(lanes)(**alone["lanes"])
    )


def assert_same(a: object, b: object, skip: tuple[str, ...] = ()) -> None:
    for f in fields(a):  # type: ignore[arg-type]
        if f.name not in skip:
            np.testing.assert_array_equal(getattr(a, f.name), getattr(b, f.name), err_msg=f.name)


@pytest.mark.parametrize("config", [FeatureConfig(), TIGHT], ids=["default", "tight"])
def test_features(scenes: list[Scenario], config: FeatureConfig) -> None:
    together = scene_features(ScenarioBatch.of(scenes), config)
    counts = np.cumsum([0, *(len(s.tracks) for s in scenes)])
    for i, scenario in enumerate(scenes):
        found, alone = part(together, i), features_of(scenario, config)
        assert_same(found, alone, skip=("agents", "lanes"))
        assert_same(found.agents, alone.agents, skip=("track",))
        assert np.array_equal(found.agents.track - counts[i], alone.agents.track)
        points = (found.lanes.points, alone.lanes.points)  # interpolated along another arc length
        np.testing.assert_allclose(*points, rtol=0, atol=1e-6)
        assert_same(found.lanes, alone.lanes, skip=("points",))
    assert together.lanes.topology.shape[1] > 0


def test_variations(scenes: list[Scenario]) -> None:
    config = AugmentConfig(drop_agents=0.4, drop_lanes=0.4, truncate_history=0.6)
    keys = np.array([7, -1, 7, 3, 8, 2**62])
    features = scene_features(ScenarioBatch.of(scenes), FeatureConfig())
    varied = augment(features, config, keys)
    for i in range(len(scenes)):
        alone = augment(part(features, i), config, keys[i : i + 1])
        assert_same(part(varied, i).agents, alone.agents)
        assert_same(part(varied, i).lanes, alone.lanes)
    same_scene = [part(varied, i).agents.track_id.tolist() for i in (0, 4)]
    assert same_scene[0] != same_scene[1], "two keys, one variation"


def test_edges_stay_within_their_scene(scenes: list[Scenario]) -> None:
    batch = build_batch(scenes, SceneConfig())
    graphs = [build_batch([s], SceneConfig()) for s in scenes]
    assert batch.num_graphs == len(scenes) and batch.scenario_id == [s.scenario_id for s in scenes]
    for relation in RELATIONS:
        offset = torch.tensor([[0], [0]])
        index, kind = [], []
        for graph in graphs:
            index.append(graph[relation].edge_index + offset)
            kind.append(graph[relation].edge_kind)
            offset = offset + torch.tensor([[graph[node].num_nodes] for node in relation[::2]])
        assert torch.equal(batch[relation].edge_index, torch.cat(index, 1)), relation
        assert torch.equal(batch[relation].edge_kind, torch.cat(kind)), relation


def test_windows_of_different_lengths_make_no_batch(scenes: list[Scenario]) -> None:
    with pytest.raises(DataError, match="lengths differ"):
        ScenarioBatch.of([scenes[0], replace(scenes[0], num_observed=40)])
    with pytest.raises(DataError, match="must not be empty"):
        ScenarioBatch.of([])


def test_a_model_sees_the_same_on_any_device(scenes: list[Scenario]) -> None:
    batch = build_batch(scenes, SceneConfig())
    moved = build_batch(scenes, SceneConfig()).to("meta")
    assert moved["agent"].history.is_meta and moved.origin.is_meta
    assert moved["agent"].track_id is not None and moved.num_graphs == batch.num_graphs
