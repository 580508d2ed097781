"""Build one graph with typed relations from the agents and lanes of many scenes.

Every relation holds ``edge_index [2, E]`` (row 0 sender, row 1 receiver, sorted by receiver) and
``edge_kind [E]``, an index into :data:`~trajpred.features.relations.EDGE_KINDS`. Edge features are relative
poses; the model computes them once per forward from the nodes' poses
(:func:`~trajpred.features.relations.edge_features`), so a batch stays small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import HeteroData

from trajpred.features.config import GraphConfig, SceneConfig
from trajpred.features.ragged import place_within, starts
from trajpred.features.relations import relation_kinds
from trajpred.features.scene_features import SceneFeatures, scene_features
from trajpred.laplacian import laplacian_eigenvectors
from trajpred.scenario import Scenario
from trajpred.scenario_batch import ScenarioBatch


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
        agents, lanes = (self[kind].num_nodes for kind in ("agent", "lane"))
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
    for name in ("origin", "heading", "recorded"):
        data[name] = torch.from_numpy(getattr(scenes, name))
    data.step_s = torch.from_numpy(scenes.step_s.astype(np.float32))
    for node, features in (("agent", scenes.agents), ("lane", scenes.lanes)):
        data[node].update(_tensors(features))
        data[node].batch = torch.from_numpy(features.scene)
        data[node].ptr = torch.from_numpy(starts(features.scene, data.num_graphs))
        data[node].num_nodes = len(features.scene)
        # Where PyG's collation notes the nodes of each scene: on the host, even if the batch is not.
        data[node]._num_nodes = np.bincount(features.scene, minlength=data.num_graphs).tolist()
    topology = _topology(scenes)
    if config.eigenvectors:
        graphs = zip(topology.numpy(), data["lane"]._num_nodes, strict=True)
        found = [laplacian_eigenvectors(graph[:n, :n] > 0, config.eigenvectors) for graph, n in graphs]
        data["lane"].eigenvectors = torch.from_numpy(np.concatenate(found).astype(np.float32))
    for relation, kind in _adjacency(scenes, topology, config).items():
        scene, receiver, sender = at = kind.nonzero(as_tuple=True)  # sorted by receiver
        first, second = (data[node].ptr[scene] for node in relation[::2])
        data[relation].edge_index = torch.stack((sender + first, receiver + second))
        data[relation].edge_kind = kind[at].long()
    return data


def _tensors(features: Any) -> dict[str, Any]:
    """Convert the fields of a record to tensors, except strings, the scene index and topology."""
    return {
        name: value if value.dtype.kind in "OUT" else torch.from_numpy(value)
        for name, value in vars(features).items()
        if name != "scene" and not name.startswith("topology")
    }


def _topology(scenes: SceneFeatures) -> Tensor:
    """Return the topology of all lanes, padded: ``[S, most, most]`` int8 as for ``relation_kinds``."""
    S, lanes = len(scenes.scenario_id), scenes.lanes
    most = int(np.bincount(lanes.scene, minlength=S).max())
    topology = torch.zeros((S, most, most), dtype=torch.int8)
    place, (sender, receiver) = place_within(lanes.scene), lanes.topology
    at = (lanes.scene[receiver], place[receiver], place[sender])
    topology.numpy()[at] = 1 + lanes.topology_kind
    return topology


def _adjacency(
    scenes: SceneFeatures, topology: Tensor, config: GraphConfig
) -> dict[tuple[str, str, str], Tensor]:
    """Build the relations of all scenes, padded to the largest: ``[S, receivers, senders]`` int8."""
    S = len(scenes.scenario_id)
    agent, lane = (_padded(nodes.position, nodes.scene, S) for nodes in (scenes.agents, scenes.lanes))
    return relation_kinds(*agent, *lane, topology, config)


def _padded(position: NDArray[np.float32], scene: NDArray[np.int64], scenes: int) -> tuple[Tensor, Tensor]:
    """Pad the nodes of each scene to the largest one: positions ``[S, most, 2]``, validity ``[S, most]``."""
    most = int(np.bincount(scene, minlength=scenes).max())
    padded, valid = np.zeros((scenes, most, 2), np.float32), np.zeros((scenes, most), np.bool_)
    at = scene, place_within(scene)
    padded[at], valid[at] = position, True
    return torch.from_numpy(padded), torch.from_numpy(valid)
