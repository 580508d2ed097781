"""Scene graphs: form and number of edges, topology, and batches equal to single scenes."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from tests.features.scenes import features_of, straight
from trajpred.features.channels import TOPOLOGY
from trajpred.features.config import FeatureConfig, GraphConfig, SceneConfig
from trajpred.features.relations import EDGE_KINDS, LANE_TO_LANE, RELATIONS
from trajpred.features.scene_features import scene_features
from trajpred.features.scene_graph import build_batch, scene_graph
from trajpred.scenario import Scenario
from trajpred.scenario_batch import ScenarioBatch

DENSE = GraphConfig(5, 4, 3, 2, agent_radius_m=40.0, lane_radius_m=30.0)
BOUNDS = {
    ("agent", "agent"): (DENSE.agent_agent_k, DENSE.agent_radius_m),
    ("lane", "agent"): (DENSE.lane_agent_k, DENSE.lane_radius_m),
    ("agent", "lane"): (DENSE.agent_lane_k, DENSE.lane_radius_m),
    ("lane", "lane"): (DENSE.lane_lane_k, DENSE.lane_radius_m),
}


def pairs(index: Tensor) -> list[tuple[int, int]]:
    return [(int(j), int(i)) for j, i in index.T]


def check_form(graph: HeteroData) -> None:
    for relation in RELATIONS:
        index, kind = graph[relation].edge_index, graph[relation].edge_kind
        assert index.dtype == torch.int64 and len(kind) == index.shape[1]
        assert (index[1].diff() >= 0).all(), "not sorted by receiver"
        assert len(set(pairs(index))) == index.shape[1], "a duplicate edge"
        assert relation[0] != relation[2] or not (index[0] == index[1]).any(), "a self loop"
        assert (index < torch.tensor([[graph[relation[0]].num_nodes], [graph[relation[2]].num_nodes]])).all()
        near, topology = EDGE_KINDS.index(f"{relation[0]}_{relation[2]}"), EDGE_KINDS.index(TOPOLOGY[0])
        assert ((kind == near) | ((relation == LANE_TO_LANE) & (kind >= topology))).all()


def test_edges_are_sorted_unique_and_of_a_valid_kind(scenario: Scenario) -> None:
    check_form(build_batch([scenario], SceneConfig()))
    check_form(build_batch([scenario], SceneConfig(graph=DENSE)))


@pytest.mark.parametrize("ends", BOUNDS)
def test_edges_respect_number_and_radius(scenario: Scenario, ends: tuple[str, str]) -> None:
    graph, (k, radius) = build_batch([scenario], SceneConfig(graph=DENSE)), BOUNDS[ends]
    store = graph[ends[0], "to", ends[1]]
    place = {name: graph[name].position.double().numpy() for name in ends}
    near = (store.edge_kind == EDGE_KINDS.index(f"{ends[0]}_{ends[1]}")).numpy()
    sender, receiver = store.edge_index.numpy()
    distance = np.linalg.norm(place[ends[0]][sender] - place[ends[1]][receiver], axis=1)
    count = np.bincount(receiver[near], minlength=graph[ends[1]].num_nodes)
    assert distance[near].max() <= radius + 1e-3 and count.max() == k
    # Receivers attend to every sender within the radius, up to k.
    every = np.linalg.norm(place[ends[1]][:, None] - place[ends[0]], axis=-1)
    around = (every <= radius).sum(1) - (ends[0] == ends[1])
    topology = np.bincount(receiver[~near], minlength=len(count))
    assert (count + topology >= np.minimum(around, k)).all()


def test_related_lanes_are_connected_at_any_distance(scenario: Scenario) -> None:
    config = FeatureConfig()
    features = features_of(scenario, config)
    graph = scene_graph(features, GraphConfig(lane_lane_k=1, lane_radius_m=0.5))
    store = graph[LANE_TO_LANE]
    kinds = {
        pair: EDGE_KINDS[kind]
        for pair, kind in zip(pairs(store.edge_index), store.edge_kind.tolist(), strict=True)
    }
    expected: dict[tuple[int, int], set[str]] = {}
    for s, r, k in zip(*features.lanes.topology.tolist(), features.lanes.topology_kind.tolist(), strict=True):
        expected.setdefault((s, r), set()).add(TOPOLOGY[k])
    assert expected and all(kinds[pair] in names for pair, names in expected.items())
    assert all(kinds[pair] == "lane_lane" for pair in kinds.keys() - expected.keys())


@pytest.mark.parametrize("cars", [1, 3])
@pytest.mark.parametrize("lane_map", [None, [[[0, 0], [50, 0]]]], ids=["no map", "one lane"])
def test_minimal_scenes(cars: int, lane_map: list[list[list[float]]] | None) -> None:
    graph = build_batch([straight(cars, map=lane_map)], SceneConfig())
    check_form(graph)
    lanes = 0 if lane_map is None else 1
    numbers = (cars * (cars - 1), cars * lanes, cars * lanes, 0)
    assert tuple(graph[relation].num_edges for relation in RELATIONS) == numbers
    twice = build_batch([straight(cars, map=lane_map)] * 2, SceneConfig())
    assert twice["lane"].num_nodes == 2 * lanes


#: Limits that bind in the sample.
TIGHT = FeatureConfig(max_agents=9, max_lanes=30, lane_radius_m=50.0)


@pytest.mark.parametrize("config", [FeatureConfig(), TIGHT], ids=["default", "tight"])
def test_features_of_a_batch_are_those_of_its_scenes(scenes: list[Scenario], config: FeatureConfig) -> None:
    together = scene_features(ScenarioBatch.of(scenes), config)
    edges, kinds = together.lanes.topology, together.lanes.topology_kind
    order = np.argsort(together.lanes.scene[edges[1]], kind="stable")  # they come kind by kind
    all_lanes = replace(together.lanes, topology=edges[:, order], topology_kind=kinds[order])
    alone = [features_of(scenario, config) for scenario in scenes]
    counts = {
        "scene": [1] * len(scenes),
        "track": [len(scenario.tracks) for scenario in scenes],
        "topology": [len(one.lanes.kind) for one in alone],
    }
    first = {name: np.cumsum([0, *each[:-1]]) for name, each in counts.items()}
    agents, lanes = [one.agents for one in alone], [one.lanes for one in alone]
    for found, parts in ((together, alone), (together.agents, agents), (all_lanes, lanes)):
        for name in {f.name for f in fields(found)} - {"agents", "lanes"}:
            each = [getattr(part, name) for part in parts]
            if name in first:
                each = [x + start for x, start in zip(each, first[name], strict=True)]
            expected = np.concatenate(each, axis=-1 if name == "topology" else 0)
            assert getattr(found, name).dtype == expected.dtype
            if name == "points":  # interpolated along another arc length
                np.testing.assert_allclose(found.points, expected, rtol=0, atol=1e-6)
            else:
                np.testing.assert_array_equal(getattr(found, name), expected, err_msg=name)
    assert edges.shape[1] > 0
