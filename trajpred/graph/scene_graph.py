"""Scenarios -> features -> SceneBatch: agents and lanes of many scenes as one graph with typed relations.

Every relation holds ``edge_index [2, E]`` (row 0 sender, row 1 receiver, sorted by receiver) and
``edge_kind [E]``, an index into :data:`EDGE_KINDS`. Edge features are relative poses; the model computes
them once per forward from the nodes' poses (:mod:`trajpred.graph.edge_features`), so a batch stays small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import HeteroData

from trajpred.graph.config import GraphConfig, SceneConfig
from trajpred.graph.features import SceneFeatures, scene_features
from trajpred.graph.lanes import TOPOLOGY
from trajpred.graph.ragged import place_within, starts
from trajpred.scenario import Scenario
from trajpred.scenario_batch import ScenarioBatch

LANE_TO_LANE = ("lane", "to", "lane")
LANE_TO_AGENT = ("lane", "to", "agent")
AGENT_TO_AGENT = ("agent", "to", "agent")
AGENT_TO_LANE = ("agent", "to", "lane")
RELATIONS = (AGENT_TO_AGENT, LANE_TO_AGENT, AGENT_TO_LANE, LANE_TO_LANE)
#: What an edge says of its sender. The first entry stands for "no edge" in adjacency matrices.
EDGE_KINDS = ("none", "agent_agent", "lane_agent", "agent_lane", "lane_lane", *TOPOLOGY)


class SceneBatch(HeteroData):
    """``S`` scenes as one flattened graph, node types ``agent`` and ``lane``, scene by scene.

    Nodes hold the fields of ``AgentFeatures`` and ``LaneFeatures`` as tensors, with ``batch [N]`` (their
    scene) and ``ptr [S + 1]`` as in PyG's batches. Of the scenes: ``scenario_id`` (list), ``origin [S, 2]``
    float64, ``heading [S]``, ``step_s [S]``.
    """

    @property
    def num_graphs(self) -> int:
        """S."""
        return len(self.scenario_id)


def build_batch(scenarios: Sequence[Scenario], config: SceneConfig) -> SceneBatch:
    """Scenarios of one window length as one graph. Raises: DataError."""
    return scene_graph(scene_features(ScenarioBatch.of(scenarios), config.features), config.graph)


def scene_graph(scenes: SceneFeatures, config: GraphConfig) -> SceneBatch:
    """Turn features into a graph; no edge is there twice, no node is its own neighbour."""
    data = SceneBatch()
    data.scenario_id = scenes.scenario_id.tolist()
    for name in ("origin", "heading"):
        data[name] = torch.from_numpy(getattr(scenes, name))
    data.step_s = torch.from_numpy(scenes.step_s.astype(np.float32))
    start = {}
    for node, features in (("agent", scenes.agents), ("lane", scenes.lanes)):
        start[node] = starts(features.scene, data.num_graphs)
        data[node].update(_tensors(features))
        data[node].batch, data[node].ptr = map(torch.from_numpy, (features.scene, start[node]))
        data[node].num_nodes = len(features.scene)
    for relation, kind in _adjacency(scenes, config).items():
        at = np.flatnonzero(kind)  # ascending, so edges are sorted by receiver
        scene, receiver, sender = np.unravel_index(at, kind.shape)
        index = np.stack((sender + start[relation[0]][scene], receiver + start[relation[2]][scene]))
        data[relation].edge_index = torch.from_numpy(index)
        data[relation].edge_kind = torch.from_numpy(kind.ravel()[at].astype(np.int64))
    return data


def _tensors(features: Any) -> dict[str, Any]:
    """The fields of a record as tensors; strings stay what they are, scene and topology have their places."""
    values = {f.name: getattr(features, f.name) for f in fields(features)}
    return {
        name: value if value.dtype.kind in "OUT" else torch.from_numpy(value)
        for name, value in values.items()
        if name != "scene" and not name.startswith("topology")
    }


def _adjacency(scenes: SceneFeatures, config: GraphConfig) -> dict[tuple[str, str, str], NDArray[np.int8]]:
    """For each relation ``[S, receivers, senders]`` index into :data:`EDGE_KINDS`, 0 for no edge."""
    S = len(scenes.scenario_id)
    agent, lane = (_padded(x.position, x.scene, S) for x in (scenes.agents, scenes.lanes))
    near = {
        AGENT_TO_AGENT: nearest(agent, agent, config.agent_agent_k, config.agent_radius_m, loops=False),
        LANE_TO_AGENT: nearest(lane, agent, config.lane_agent_k, config.lane_radius_m),
        AGENT_TO_LANE: nearest(agent, lane, config.agent_lane_k, config.lane_radius_m),
        LANE_TO_LANE: nearest(lane, lane, config.lane_lane_k, config.lane_radius_m, loops=False),
    }
    kinds = {
        relation: adjacency * np.int8(EDGE_KINDS.index(f"{relation[0]}_{relation[2]}"))
        for relation, adjacency in near.items()
    }
    place, (sender, receiver) = place_within(scenes.lanes.scene), scenes.lanes.topology
    at = (scenes.lanes.scene[receiver], place[receiver], place[sender])
    kinds[LANE_TO_LANE][at] = EDGE_KINDS.index(TOPOLOGY[0]) + scenes.lanes.topology_kind
    return kinds


def _padded(position: NDArray[np.float32], scene: NDArray[np.int64], scenes: int) -> NDArray[np.float32]:
    """``[S, most, 2]``: nodes scene by scene, NaN where a scene has fewer than the largest one."""
    most = int(np.bincount(scene, minlength=scenes).max())
    padded = np.full((scenes, most, 2), np.nan, np.float32)
    padded[scene, place_within(scene)] = position
    return padded


def nearest(
    sender: NDArray[np.float32], receiver: NDArray[np.float32], k: int, radius: float, loops: bool = True
) -> NDArray[np.bool_]:
    """The ``k`` nearest senders within ``radius`` of each receiver, as adjacency matrices.

    Args:
        sender: ``[S, M, 2]`` metres; receiver: ``[S, N, 2]``; NaN for places that are not taken.
        loops: whether sender i may serve receiver i (False where both are the same nodes).

    Returns:
        ``[S, N, M]``, True for an edge.
    """
    x, y = (receiver[..., None, axis] - sender[..., None, :, axis] for axis in (0, 1))
    distance = np.sqrt(x * x + y * y)
    if not loops:
        np.einsum("...ii->...i", distance)[...] = np.nan  # sorts last, and is within no radius
    within = distance <= radius
    if k < distance.shape[-1]:
        chosen = np.zeros_like(within)
        first = np.argpartition(distance, k, axis=-1)[..., :k]
        np.put_along_axis(chosen, first, True, axis=-1)
        within &= chosen
    return within
