"""nearest and scene_graph: who hears whom."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import HeteroData

from tests.graph.scenes import features_of, straight
from trajpred.graph.channels import TOPOLOGY
from trajpred.graph.config import FeatureConfig, GraphConfig, SceneConfig
from trajpred.graph.relations import EDGE_KINDS, LANE_TO_LANE, RELATIONS, nearest
from trajpred.graph.scene_graph import build_batch, scene_graph
from trajpred.lane_map import LaneMap
from trajpred.scenario import Scenario

DENSE = GraphConfig(5, 4, 3, 2, agent_radius_m=40.0, lane_radius_m=30.0)
BOUNDS = {
    ("agent", "agent"): (DENSE.agent_agent_k, DENSE.agent_radius_m),
    ("lane", "agent"): (DENSE.lane_agent_k, DENSE.lane_radius_m),
    ("agent", "lane"): (DENSE.agent_lane_k, DENSE.lane_radius_m),
    ("lane", "lane"): (DENSE.lane_lane_k, DENSE.lane_radius_m),
}

# Integers make ties frequent and keep every distance away from the radii.
lengths = st.lists(st.one_of(st.integers(0, 4), st.just(float("inf"))), max_size=8)


@settings(deadline=None)
@given(st.lists(lengths, min_size=1, max_size=4), st.integers(0, 10), st.sampled_from([0.5, 2.5, torch.inf]))
def test_nearest_are_the_first_k_of_a_stable_sort(rows: list[list[float]], k: int, radius: float) -> None:
    columns = max(map(len, rows))
    distance = torch.full((len(rows), columns), torch.inf)
    for i, row in enumerate(rows):
        distance[i, : len(row)] = torch.tensor(row)
    rank = distance.argsort(stable=True).argsort()
    expected = (rank < k) & (distance <= radius) & distance.isfinite()
    assert torch.equal(nearest(distance, k, radius), expected)


def pairs(index: Tensor) -> list[tuple[int, int]]:
    return [(int(j), int(i)) for j, i in index.T]


def check_form(graph: HeteroData) -> None:
    for relation in RELATIONS:
        index, kind = graph[relation].edge_index, graph[relation].edge_kind
        assert index.dtype == torch.int64 and len(kind) == index.shape[1]
        assert (index[1].diff() >= 0).all(), "not sorted by receiver"
        assert len(set(pairs(index))) == index.shape[1], "a pair twice"
        assert relation[0] != relation[2] or not (index[0] == index[1]).any(), "a self loop"
        assert (index < torch.tensor([[graph[relation[0]].num_nodes], [graph[relation[2]].num_nodes]])).all()
        near, topology = EDGE_KINDS.index(f"{relation[0]}_{relation[2]}"), EDGE_KINDS.index(TOPOLOGY[0])
        assert ((kind == near) | ((relation == LANE_TO_LANE) & (kind >= topology))).all()


def test_edges_are_sorted_unique_and_of_the_right_kind(scenario: Scenario) -> None:
    check_form(build_batch([scenario], SceneConfig()))
    check_form(build_batch([scenario], SceneConfig(graph=DENSE)))


def test_a_batch_keeps_the_form(sample_scenarios: list[Scenario]) -> None:
    scenarios = [*sample_scenarios[:3], straight(2)]
    graphs = [build_batch([s], SceneConfig()) for s in scenarios]
    batch = build_batch(scenarios, SceneConfig())
    check_form(batch)
    for relation in RELATIONS:
        scene = [
            batch[node].batch[ends]
            for node, ends in zip(relation[::2], batch[relation].edge_index, strict=True)
        ]
        assert torch.equal(*scene), "an edge between scenes"
        assert batch[relation].num_edges == sum(g[relation].num_edges for g in graphs)


@pytest.mark.parametrize("ends", BOUNDS)
def test_edges_keep_to_their_number_and_radius(scenario: Scenario, ends: tuple[str, str]) -> None:
    graph, (k, radius) = build_batch([scenario], SceneConfig(graph=DENSE)), BOUNDS[ends]
    store = graph[ends[0], "to", ends[1]]
    place = {name: graph[name].position.double().numpy() for name in ends}
    near = (store.edge_kind == EDGE_KINDS.index(f"{ends[0]}_{ends[1]}")).numpy()
    sender, receiver = store.edge_index.numpy()
    distance = np.linalg.norm(place[ends[0]][sender] - place[ends[1]][receiver], axis=1)
    count = np.bincount(receiver[near], minlength=graph[ends[1]].num_nodes)
    assert distance[near].max() <= radius + 1e-3 and count.max() == k
    # Every receiver hears as many as there are, up to k: nobody near is left out.
    every = np.linalg.norm(place[ends[1]][:, None] - place[ends[0]], axis=-1)
    around = (every <= radius).sum(1) - (ends[0] == ends[1])
    topology = np.bincount(receiver[~near], minlength=len(count))
    assert (count + topology >= np.minimum(around, k)).all()


def test_lane_topology_is_kept_beyond_number_and_radius(scenario: Scenario) -> None:
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
def test_scenes_with_next_to_nothing(cars: int, lane_map: list[list[list[float]]] | None) -> None:
    graph = build_batch([straight(cars, map=lane_map)], SceneConfig())
    check_form(graph)
    lanes = 0 if lane_map is None else 1
    numbers = (cars * (cars - 1), cars * lanes, cars * lanes, 0)
    assert tuple(graph[relation].num_edges for relation in RELATIONS) == numbers
    twice = build_batch([straight(cars, map=lane_map)] * 2, SceneConfig())
    assert twice["lane"].num_nodes == 2 * lanes


def test_track_ids_are_those_of_the_agents(scenario: Scenario) -> None:
    graph = build_batch([scenario], SceneConfig())
    index = [scenario.tracks.index(name) for name in graph["agent"].track_id.tolist()]
    assert index == graph["agent"].track.tolist() and scenario.focal in index


def test_a_scene_without_a_map_loses_nothing_else(scenario: Scenario) -> None:
    graphs = [build_batch([s], SceneConfig()) for s in (scenario, replace(scenario, map=LaneMap()))]
    assert torch.equal(graphs[0]["agent"].history, graphs[1]["agent"].history)
    assert torch.equal(*(g["agent", "to", "agent"].edge_index for g in graphs))
