"""Scenarios -> features (NumPy, all scenes of a batch at once) -> graphs with flattened edges (torch)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import HeteroData

from trajpred.data.batch import ScenarioBatch
from trajpred.data.laplacian import laplacian_eigenvectors
from trajpred.data.scenario import Scenario
from trajpred.features.agents import AgentFeatures, agent_features, focal_poses
from trajpred.features.config import FeatureConfig, GraphConfig, SceneConfig
from trajpred.features.lane_paths import Routes
from trajpred.features.lanes import LaneFeatures, lane_features
from trajpred.features.ragged import rank_in_scene, starts
from trajpred.features.relations import edges_of, relation_kinds


@dataclass(frozen=True)
class SceneFeatures:
    """Features of ``S`` scenes.

    Attributes:
        scenario_id: ``[S]`` strings.
        origin: ``[S, 2]`` float64, city frame: the focal agent's last observed position, or that of the track
            seen last where the focal one has no observed state in the model's history.
        heading: ``[S]`` the focal agent's last observed heading, radians, city frame.
        step_s: ``[S]`` seconds between steps.
        recorded: ``[S]`` int64, how many future steps were recorded; later ones may be continued labels.
        agents, lanes: of all scenes, scene by scene.
    """

    scenario_id: NDArray[np.str_]
    origin: NDArray[np.float64]
    heading: NDArray[np.float32]
    step_s: NDArray[np.float64]
    recorded: NDArray[np.int64]
    agents: AgentFeatures
    lanes: LaneFeatures


def scene_features(batch: ScenarioBatch, config: FeatureConfig) -> SceneFeatures:
    """Compute the features of ``batch``; future states enter ``target`` alone.

    Example:
        >>> features = scene_features(ScenarioBatch.of([scenario]), FeatureConfig())
        >>> features.agents.history.shape
        (12, 50, 7)
    """
    batch = batch.window(config.history or batch.num_observed, config.future or batch.num_future)
    routes = Routes.of(batch.map, batch.lane_scene)
    focal = focal_poses(batch, routes)
    agents = agent_features(batch, routes, focal.position, config)
    lanes = lane_features(batch, focal.position, agents, config)
    heading = focal.heading.astype(np.float32)
    return SceneFeatures(
        scenario_id=batch.scenario_id,
        origin=focal.position,
        heading=heading,
        step_s=batch.step_s,
        recorded=(batch.recorded - batch.num_observed).clip(0, batch.num_future),
        agents=agents,
        lanes=lanes,
    )


class SceneBatch(HeteroData):
    """``S`` scenes as one flattened graph with node types ``agent`` and ``lane``, sorted by scene.

    Nodes hold the fields of ``AgentFeatures`` and ``LaneFeatures`` as tensors, with ``batch [N]`` (their
    scene) and ``ptr [S + 1]`` as in PyG's batches. The graph holds ``scenario_id`` (list), ``origin [S, 2]``
    float64, ``heading [S]``, ``step_s [S]`` and ``recorded [S]`` (future steps).

    A batch of one scene is an ordinary graph: PyG's ``Batch.from_data_list`` and ``DataLoader`` make the same
    batch of several as :func:`build_batch`, which computes all features at once and is faster.

    Example:
        >>> batch = build_batch([scenario], SceneConfig())
        >>> batch["agent"].history.shape, batch["lane", "to", "agent"].edge_index.shape
        (torch.Size([12, 50, 7]), torch.Size([2, 384]))
    """

    @property
    def num_graphs(self) -> int:
        """Return S."""
        return len(self.scenario_id)

    @property
    def names(self) -> list[str]:
        """Return the ids of the scenarios, of which PyG's collation makes lists of lists."""
        return [str(name) for name in np.hstack(self.scenario_id)]

    def __repr__(self) -> str:
        agents = self["agent"].num_nodes
        lanes = self["lane"].num_nodes
        return (
            f"SceneBatch({self.num_graphs} scenes: {agents} agents, {lanes} lanes, {self.num_edges:,} edges)"
        )


def build_batch(scenarios: Sequence[Scenario], config: SceneConfig) -> SceneBatch:
    """Build the graph of scenarios of one window length. Raises: DataError."""
    return scene_graph(scene_features(ScenarioBatch.of(scenarios), config.features), config.graph)


def scene_graph(scenes: SceneFeatures, config: GraphConfig) -> SceneBatch:
    """Build the graph of featurised scenes, without duplicate edges and self loops."""
    data = SceneBatch()
    data.scenario_id = scenes.scenario_id.tolist()
    data.origin = torch.from_numpy(scenes.origin)
    data.heading = torch.from_numpy(scenes.heading)
    data.recorded = torch.from_numpy(scenes.recorded)
    data.step_s = torch.from_numpy(scenes.step_s.astype(np.float32))
    _add_nodes(data, "agent", scenes.agents)
    _add_nodes(data, "lane", scenes.lanes)
    topology = _topology(scenes)
    if config.eigenvectors:
        sizes = data["lane"]._num_nodes
        data["lane"].eigenvectors = _eigenvectors(topology, sizes, config.eigenvectors)
    for relation, kinds in _adjacency(scenes, topology, config).items():
        sender_type, _, receiver_type = relation
        scene, receiver, sender, kind = edges_of(kinds)
        sender = sender + data[sender_type].ptr[scene]
        receiver = receiver + data[receiver_type].ptr[scene]
        data[relation].edge_index = torch.stack((sender, receiver))
        data[relation].edge_kind = kind.long()
    return data


def _add_nodes(data: SceneBatch, node: str, features: AgentFeatures | LaneFeatures) -> None:
    """Add the agents or lanes of all scenes to the graph."""
    store = data[node]
    store.update(_tensors(features))
    store.batch = torch.from_numpy(features.scene)
    store.ptr = torch.from_numpy(starts(features.scene, data.num_graphs))
    store.num_nodes = len(features.scene)
    # Where PyG's collation notes the nodes of each scene: on the host, even if the batch is not.
    store._num_nodes = np.bincount(features.scene, minlength=data.num_graphs).tolist()


def _tensors(features: AgentFeatures | LaneFeatures) -> dict[str, Any]:
    """Convert the fields of a record to tensors, except strings, the scene index and topology."""
    tensors: dict[str, Any] = {}
    for name, value in vars(features).items():
        if name == "scene" or name.startswith("topology"):
            continue
        is_text = value.dtype.kind in "OUT"
        tensors[name] = value if is_text else torch.from_numpy(value)
    return tensors


def _eigenvectors(topology: Tensor, sizes: list[int], count: int) -> Tensor:
    """Compute ``count`` eigenvectors of each scene's topology: ``[L, count]``."""
    vectors: list[NDArray[np.float64]] = []
    for graph, size in zip(topology.numpy(), sizes, strict=True):
        vectors.append(laplacian_eigenvectors(graph[:size, :size] > 0, count))
    return torch.from_numpy(np.concatenate(vectors).astype(np.float32))


def _topology(scenes: SceneFeatures) -> Tensor:
    """Return the topology of all lanes, padded: ``[S, most, most]`` int8 as for ``relation_kinds``."""
    S = len(scenes.scenario_id)
    lanes = scenes.lanes
    most = int(np.bincount(lanes.scene, minlength=S).max())
    topology = np.zeros((S, most, most), np.int8)
    place = rank_in_scene(lanes.scene)
    sender, receiver = lanes.topology
    topology[lanes.scene[receiver], place[receiver], place[sender]] = 1 + lanes.topology_kind
    return torch.from_numpy(topology)


def _adjacency(
    scenes: SceneFeatures, topology: Tensor, config: GraphConfig
) -> dict[tuple[str, str, str], Tensor]:
    """Build the relations of all scenes, padded to the largest: ``[S, receivers, senders]`` int8."""
    S = len(scenes.scenario_id)
    agent, agent_valid = _padded(scenes.agents.position, scenes.agents.scene, S)
    lane, lane_valid = _padded(scenes.lanes.position, scenes.lanes.scene, S)
    return relation_kinds(agent, agent_valid, lane, lane_valid, topology, config)


def _padded(position: NDArray[np.float32], scene: NDArray[np.int64], scenes: int) -> tuple[Tensor, Tensor]:
    """Pad the nodes of each scene to the largest one: positions ``[S, most, 2]``, validity ``[S, most]``."""
    most = int(np.bincount(scene, minlength=scenes).max())
    padded = np.zeros((scenes, most, 2), np.float32)
    valid = np.zeros((scenes, most), np.bool_)
    place = rank_in_scene(scene)
    padded[scene, place] = position
    valid[scene, place] = True
    return torch.from_numpy(padded), torch.from_numpy(valid)
