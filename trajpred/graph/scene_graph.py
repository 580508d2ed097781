"""Scenario -> features -> SceneGraph: a HeteroData of agents and lanes with typed relations.

Every relation holds ``edge_index [2, E]`` (row 0 sender, row 1 receiver, sorted by receiver) and
``edge_kind [E]``, an index into :data:`EDGE_KINDS`. Edge features are relative poses; the model computes
them once per forward from the nodes' poses (:mod:`trajpred.graph.edge_features`), so a batch stays small.
PyG's ``Batch`` flattens scenes by node offsets and keeps the order by receiver.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from trajpred.graph.augment import AugmentConfig, augment
from trajpred.graph.features import TOPOLOGY, FeatureConfig, SceneFeatures, scene_features
from trajpred.scenario import Scenario

LANE_TO_LANE = ("lane", "to", "lane")
LANE_TO_AGENT = ("lane", "to", "agent")
AGENT_TO_AGENT = ("agent", "to", "agent")
AGENT_TO_LANE = ("agent", "to", "lane")
RELATIONS = (AGENT_TO_AGENT, LANE_TO_AGENT, AGENT_TO_LANE, LANE_TO_LANE)
#: What an edge says of its sender. The first entry stands for "no edge" in adjacency matrices.
EDGE_KINDS = ("none", "agent_agent", "lane_agent", "agent_lane", "lane_lane", *TOPOLOGY)


@dataclass(frozen=True)
class GraphConfig:
    """Who hears whom: the ``k`` nearest senders within ``radius`` metres of each receiver.

    ``k`` bounds memory on crowded scenes; lane topology is kept beyond both.
    """

    agent_agent_k: int = 32
    lane_agent_k: int = 32
    agent_lane_k: int = 16
    lane_lane_k: int = 16
    agent_radius_m: float = 100.0
    lane_radius_m: float = 60.0


@dataclass(frozen=True)
class SceneConfig:
    """All that decides what a model sees of a scenario; saved with every checkpoint."""

    features: FeatureConfig = FeatureConfig()
    graph: GraphConfig = GraphConfig()


def build_graph(
    scenario: Scenario,
    config: SceneConfig,
    variation: AugmentConfig | None = None,
    random: np.random.Generator | None = None,
) -> HeteroData:
    """One scenario as a graph, varied if ``variation`` and ``random`` are given; agents' ids beside it."""
    features = scene_features(scenario, config.features)
    if variation is not None and random is not None:
        features = augment(features, variation, random)
    data = scene_graph(features, config.graph)
    data.track_ids = scenario.tracks.track_id[features.agents.track]
    return data


def scene_graph(scene: SceneFeatures, config: GraphConfig) -> HeteroData:
    """Turn one scene's features into a graph; no edge is there twice, no node is its own neighbour."""
    data = HeteroData()
    data.scenario_id, data.step_s = scene.scenario_id, scene.step_s
    data.origin, data.heading = torch.from_numpy(scene.origin)[None], torch.tensor([scene.heading])
    for node, features in (("agent", scene.agents), ("lane", scene.lanes)):
        for f in fields(features):
            if not f.name.startswith("topology"):
                data[node][f.name] = torch.from_numpy(getattr(features, f.name))
        data[node].num_nodes = len(features.position)
    agent, lane = data["agent"].position, data["lane"].position
    near = {
        AGENT_TO_AGENT: nearest(agent, agent, config.agent_agent_k, config.agent_radius_m, loops=False),
        LANE_TO_AGENT: nearest(lane, agent, config.lane_agent_k, config.lane_radius_m),
        AGENT_TO_LANE: nearest(agent, lane, config.agent_lane_k, config.lane_radius_m),
        LANE_TO_LANE: nearest(lane, lane, config.lane_lane_k, config.lane_radius_m, loops=False),
    }
    for relation, adjacency in near.items():
        kind = adjacency * EDGE_KINDS.index(f"{relation[0]}_{relation[2]}")
        if relation == LANE_TO_LANE:
            sender, receiver = torch.from_numpy(scene.lanes.topology)
            kind[receiver, sender] = EDGE_KINDS.index(TOPOLOGY[0]) + torch.from_numpy(
                scene.lanes.topology_kind
            )
        receiver, sender = kind.nonzero(as_tuple=True)
        data[relation].edge_index = torch.stack((sender, receiver))
        data[relation].edge_kind = kind[receiver, sender]
    return data


def nearest(sender: Tensor, receiver: Tensor, k: int, radius: float, loops: bool = True) -> Tensor:
    """The ``k`` nearest senders within ``radius`` of each receiver, as an adjacency matrix.

    Args:
        sender: ``[S, 2]`` metres; receiver: ``[R, 2]``.
        loops: whether sender i may serve receiver i (False where both are the same nodes).

    Returns:
        ``[R, S]`` int64, 1 for an edge.
    """
    distance = torch.cdist(receiver, sender, compute_mode="donot_use_mm_for_euclid_dist")
    if not loops:
        distance.fill_diagonal_(torch.nan)  # sorts last, and is within no radius
    chosen = distance.topk(min(k, len(sender)), dim=1, largest=False).indices
    adjacency = torch.zeros_like(distance, dtype=torch.int64).scatter_(1, chosen, 1)
    return adjacency * (distance <= radius)
