"""Scene graphs: form and number of edges, their features, topology, and batches equal to single scenes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import HeteroData

from tests.scenes import features_of, straight
from trajpred.data.batch import ScenarioBatch
from trajpred.data.geometry import Pose, rotate
from trajpred.data.scenario import Scenario
from trajpred.features.config import (
    DISTANCES,
    TOPOLOGY,
    FeatureConfig,
    GraphConfig,
    SceneConfig,
    edge_channels,
)
from trajpred.features.scene_graph import (
    EDGE_KINDS,
    LANE_TO_LANE,
    RELATIONS,
    build_batch,
    edge_features,
    nearest,
    scene_features,
    scene_graph,
)

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
        sender, _, receiver = relation
        index = graph[relation].edge_index
        kind = graph[relation].edge_kind
        assert index.dtype == torch.int64
        assert len(kind) == index.shape[1]
        assert (index[1].diff() >= 0).all(), "not sorted by receiver"
        assert len(set(pairs(index))) == index.shape[1], "a duplicate edge"
        assert sender != receiver or not (index[0] == index[1]).any(), "a self loop"
        assert (index[0] < graph[sender].num_nodes).all()
        assert (index[1] < graph[receiver].num_nodes).all()
        valid = kind == EDGE_KINDS.index(f"{sender}_{receiver}")
        if relation == LANE_TO_LANE:
            valid |= kind >= EDGE_KINDS.index(TOPOLOGY[0])
        assert valid.all()


def test_edges_are_sorted_unique_and_of_a_valid_kind(scenario: Scenario) -> None:
    check_form(build_batch([scenario], SceneConfig()))
    check_form(build_batch([scenario], SceneConfig(graph=DENSE)))


@pytest.mark.parametrize("ends", BOUNDS)
def test_edges_respect_number_and_radius(scenario: Scenario, ends: tuple[str, str]) -> None:
    graph = build_batch([scenario], SceneConfig(graph=DENSE))
    k, radius = BOUNDS[ends]
    store = graph[ends[0], "to", ends[1]]
    of_senders = graph[ends[0]].position.double().numpy()
    of_receivers = graph[ends[1]].position.double().numpy()
    near = (store.edge_kind == EDGE_KINDS.index(f"{ends[0]}_{ends[1]}")).numpy()
    sender, receiver = store.edge_index.numpy()
    distance = np.linalg.norm(of_senders[sender] - of_receivers[receiver], axis=1)
    count = np.bincount(receiver[near], minlength=len(of_receivers))
    assert distance[near].max() <= radius + 1e-3
    assert count.max() == k
    # Receivers attend to every sender within the radius, up to k.
    every = np.linalg.norm(of_receivers[:, None] - of_senders, axis=-1)
    around = (every <= radius).sum(1)
    if ends[0] == ends[1]:
        around -= 1  # itself
    topology = np.bincount(receiver[~near], minlength=len(count))
    assert (count + topology >= np.minimum(around, k)).all()


def test_related_lanes_are_connected_at_any_distance(scenario: Scenario) -> None:
    config = FeatureConfig()
    features = features_of(scenario, config)
    graph = scene_graph(features, GraphConfig(lane_lane_k=1, lane_radius_m=0.5))
    store = graph[LANE_TO_LANE]
    related: dict[tuple[int, int], set[str]] = {}
    topology = features.lanes.topology.T.tolist()
    for (sender, receiver), kind in zip(topology, features.lanes.topology_kind, strict=True):
        related.setdefault((sender, receiver), set()).add(TOPOLOGY[kind])
    connected = set()
    for pair, kind in zip(pairs(store.edge_index), store.edge_kind, strict=True):
        assert EDGE_KINDS[kind] in related.get(pair, {"lane_lane"})
        connected.add(pair)
    assert related
    assert related.keys() <= connected


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


#: Rounding (m) of what is interpolated along another arc length in a batch.
ROUNDED_M = {"points": 1e-6, "anchors": 1e-5}
#: Limits that bind in the sample.
TIGHT = FeatureConfig(max_agents=9, max_lanes=30, lane_radius_m=50.0, anchor_steps=20)


@pytest.mark.parametrize("config", [FeatureConfig(), TIGHT], ids=["default", "tight"])
def test_features_of_a_batch_are_those_of_its_scenes(scenes: list[Scenario], config: FeatureConfig) -> None:
    together = scene_features(ScenarioBatch.of(scenes), config)
    edges = together.lanes.topology
    kinds = together.lanes.topology_kind
    order = np.argsort(together.lanes.scene[edges[1]], kind="stable")  # they come kind by kind
    all_lanes = replace(together.lanes, topology=edges[:, order], topology_kind=kinds[order])
    alone = [features_of(scenario, config) for scenario in scenes]
    agents = [features.agents for features in alone]
    lanes = [features.lanes for features in alone]
    # Rows of a batch are numbered on from scene to scene.
    counts = {
        "scene": [1] * len(scenes),
        "track": [len(scenario.tracks) for scenario in scenes],
        "topology": [len(part.kind) for part in lanes],
    }
    check_parts(together, alone, counts)
    check_parts(together.agents, agents, counts)
    check_parts(all_lanes, lanes, counts)
    assert edges.shape[1] > 0


def check_parts(batch: Any, parts: list[Any], counts: dict[str, list[int]]) -> None:
    """Check that every field of the batch joins those of its scenes."""
    for field in fields(batch):
        name = field.name
        if name in ("agents", "lanes"):
            continue
        values = [getattr(part, name) for part in parts]
        if name in counts:
            first = np.cumsum([0, *counts[name][:-1]])
            values = [value + start for value, start in zip(values, first, strict=True)]
        expected = np.concatenate(values, axis=-1 if name == "topology" else 0)
        joined = getattr(batch, name)
        assert joined.dtype == expected.dtype
        if name in ROUNDED_M:
            np.testing.assert_allclose(joined, expected, rtol=0, atol=ROUNDED_M[name])
        else:
            np.testing.assert_array_equal(joined, expected, err_msg=name)


KINDS = 3
HEADINGS = torch.linspace(-3.1, 3.1, 25, dtype=torch.float64)
# Integers make ties frequent and keep every distance away from the radii.
lengths = st.lists(st.one_of(st.integers(0, 4), st.just(float("inf"))), max_size=8)


@given(st.lists(lengths, min_size=1, max_size=4), st.integers(0, 10), st.sampled_from([0.5, 2.5, torch.inf]))
def test_nearest_are_the_first_k_of_a_stable_sort(rows: list[list[float]], k: int, radius: float) -> None:
    columns = max(len(row) for row in rows)
    distance = torch.full((len(rows), columns), torch.inf)
    for i, row in enumerate(rows):
        distance[i, : len(row)] = torch.tensor(row)
    rank = distance.argsort(stable=True).argsort()
    expected = (rank < k) & (distance <= radius) & distance.isfinite()
    assert torch.equal(nearest(distance, k, radius), expected)


def test_edge_features_are_the_closed_form() -> None:
    random = np.random.default_rng(0)
    sender = random.normal(0, 40, (20, 2))
    receiver = random.normal(0, 40, (20, 2))
    sender_heading, receiver_heading = random.uniform(-4, 4, (2, 20))
    kind = random.integers(0, KINDS, 20)
    cos = np.cos(receiver_heading)
    sin = np.sin(receiver_heading)
    dx, dy = (sender - receiver).T
    ahead = cos * dx + sin * dy
    left = cos * dy - sin * dx
    distance = np.hypot(dx, dy)
    channels = []
    for centre, width in zip(DISTANCES, (2, 3, 5, 8, 12, 20, 30, 40), strict=True):
        channels.append(np.exp(-((distance - centre) ** 2) / (2 * width**2)))
    channels += [ahead / 30, left / 30]
    channels += [ahead / distance, left / distance]
    turned = sender_heading - receiver_heading
    channels += [np.cos(turned), np.sin(turned)]
    one_hot = np.eye(KINDS)[kind]
    expected = np.concatenate((np.stack(channels, -1), one_hot), -1)

    sender_pose = Pose(torch.from_numpy(sender), torch.from_numpy(sender_heading))
    receiver_pose = Pose(torch.from_numpy(receiver), torch.from_numpy(receiver_heading))
    features = edge_features(sender_pose.rows, receiver_pose.rows, torch.from_numpy(kind), KINDS)
    assert features.T.shape == (20, len(edge_channels("abc")))
    np.testing.assert_allclose(features.T, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("apart", [0.0, 1e-3, 5.0])
def test_rotating_both_ends_changes_nothing(apart: float) -> None:
    """Including coinciding ends, where atan2 would depend on the sign of zero."""
    ahead = torch.tensor([apart, 0.0], dtype=torch.float64).expand(len(HEADINGS), 2)
    place = torch.tensor([3.0, -4.0], dtype=torch.float64).expand(len(HEADINGS), 2)
    receiver = Pose(place, HEADINGS)
    sender = Pose(place + rotate(ahead, HEADINGS), HEADINGS + 0.5)
    features = edge_features(sender.rows, receiver.rows, torch.zeros(len(HEADINGS), dtype=torch.int64), KINDS)
    torch.testing.assert_close(features, features[:, :1].expand_as(features), rtol=0, atol=1e-9)
