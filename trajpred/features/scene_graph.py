"""Scenarios -> features (NumPy, all scenes of a batch at once) -> graphs with flattened edges (torch).

The edges of a graph are the nearest senders and the topology of the lanes; their features are relative poses.
The same functions serve the padded scenes of a training batch and, traced for one scene, the exported graph.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import HeteroData

from trajpred.data.batch import ScenarioBatch
from trajpred.data.geometry import POSE_SCALE, laplacian_eigenvectors
from trajpred.data.ragged import rank_in_scene
from trajpred.data.scenario import Scenario
from trajpred.features.agents import AgentFeatures, agent_features, focal_poses
from trajpred.features.config import (
    DISTANCES,
    HISTORY,
    LANE_MARKS,
    LANE_POINT,
    PLANE,
    TOPOLOGY,
    FeatureConfig,
    GraphConfig,
    SceneConfig,
    other_side,
)
from trajpred.features.lane_paths import Routes
from trajpred.features.lanes import LaneFeatures, lane_features

LANE_TO_LANE = ("lane", "to", "lane")
LANE_TO_AGENT = ("lane", "to", "agent")
AGENT_TO_AGENT = ("agent", "to", "agent")
AGENT_TO_LANE = ("agent", "to", "lane")
RELATIONS = (AGENT_TO_AGENT, LANE_TO_AGENT, AGENT_TO_LANE, LANE_TO_LANE)
#: Kinds of edges: node types of sender and receiver, or the sending lane's relation to the receiving lane.
#: The first entry means "no edge" in adjacency matrices.
EDGE_KINDS = ("none", "agent_agent", "lane_agent", "agent_lane", "lane_lane", *TOPOLOGY)

#: Widths (m) of the Gaussian kernels: the gap to the next centre.
_WIDTHS = (2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 40.0)
#: Below this distance (m) the bearing vector shrinks to zero.
_NEAR = 0.1
#: The channels of fields changed by reflection, in addition to headings and topology.
REFLECTED = {
    "origin": PLANE,
    "position": PLANE,
    "velocity": PLANE,
    "anchors": PLANE,
    "target": PLANE,
    "history": HISTORY,
    "points": LANE_POINT,
    "marks": LANE_MARKS,
}


@dataclass(frozen=True)
class SceneFeatures:
    """Features of ``S`` scenes.

    Attributes:
        scenario_id: ``[S]`` strings.
        origin: ``[S, 2]`` float64, city frame: last observed position of the focal agent, or of the track
            seen last if the focal one has no observed state in the model's history.
        heading: ``[S]`` the focal agent's last observed heading, radians, city frame.
        step_s: ``[S]`` seconds between steps.
        recorded: ``[S]`` int64, how many future steps were recorded; later ones may be continued labels.
        agents, lanes: features of all scenes, scene by scene.
    """

    scenario_id: NDArray[np.str_]
    origin: NDArray[np.float64]
    heading: NDArray[np.float32]
    step_s: NDArray[np.float64]
    recorded: NDArray[np.int64]
    agents: AgentFeatures
    lanes: LaneFeatures


def scene_features(batch: ScenarioBatch, config: FeatureConfig) -> SceneFeatures:
    """Compute the features of ``batch``; future states enter only ``target``.

    Example:
        >>> features = scene_features(ScenarioBatch.of([scenario]), FeatureConfig())
        >>> features.agents.history.shape
        (12, 50, 7)
    """
    batch = batch.window(config.history or None, config.future or None)
    routes = Routes.of(batch.map, batch.lane_scene)
    focal = focal_poses(batch, routes)
    agents = agent_features(batch, routes, focal.position, config)
    lanes = lane_features(batch, focal.position, agents, config)
    return SceneFeatures(
        scenario_id=batch.scenario_id,
        origin=focal.position,
        heading=focal.heading.astype(np.float32),
        step_s=batch.step_s,
        recorded=(batch.recorded - batch.num_observed).clip(0, batch.num_future),
        agents=agents,
        lanes=lanes,
    )


def mirrored(scenes: SceneFeatures, chosen: NDArray[np.bool_]) -> SceneFeatures:
    """Reflect the ``chosen`` scenes ``[S]`` about the city's x axis (y becomes -y).

    Models read only relative poses, so any axis gives the same result. Left and right marks are exchanged
    unchanged: av2 names the parts of a mark from the lane outwards.
    """
    agents, lanes = scenes.agents, scenes.lanes
    kind = lanes.topology_kind
    receiver = lanes.topology[1]
    on_chosen = chosen[lanes.scene][receiver]
    kind = np.where(on_chosen, other_side(TOPOLOGY)[kind], kind)
    return replace(
        scenes,
        **_reflected(scenes, chosen),
        agents=replace(agents, **_reflected(agents, chosen[agents.scene])),
        lanes=replace(lanes, **_reflected(lanes, chosen[lanes.scene]), topology_kind=kind),
    )


def _reflected(
    record: SceneFeatures | AgentFeatures | LaneFeatures, chosen: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """Return the fields of ``record`` that change, with the ``chosen`` rows reflected."""
    values: dict[str, NDArray[Any]] = {"heading": np.where(chosen, -record.heading, record.heading)}
    for name, channels in REFLECTED.items():
        if hasattr(record, name):
            values[name] = channels.reflect(getattr(record, name), chosen)
    return values


class SceneBatch(HeteroData):
    """``S`` scenes as one flattened graph with node types ``agent`` and ``lane``, sorted by scene.

    Nodes hold the fields of ``AgentFeatures`` and ``LaneFeatures`` as tensors, with ``batch [N]`` (their
    scene) and ``ptr [S + 1]`` as in PyG's batches. The graph holds ``scenario_id`` (list), ``origin [S, 2]``
    float64, ``heading [S]``, ``step_s [S]`` and ``recorded [S]`` (future steps).

    A batch of one scene is an ordinary graph: PyG's ``Batch.from_data_list`` and ``DataLoader`` combine
    several into the same batch as :func:`build_batch`, which computes all features at once and is faster.

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
        """Return the scenarios' ids, which PyG's collation turns into lists of lists."""
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
    agent, agent_valid = _padded(scenes.agents.position, scenes.agents.scene, len(scenes.scenario_id))
    lane, lane_valid = _padded(scenes.lanes.position, scenes.lanes.scene, len(scenes.scenario_id))
    relations = relation_kinds(agent, agent_valid, lane, lane_valid, topology, config)
    for relation, kinds in relations.items():
        sender_type, _, receiver_type = relation
        scene, receiver, sender, kind = edges_of(kinds)
        sender = sender + data[sender_type].ptr[scene]
        receiver = receiver + data[receiver_type].ptr[scene]
        data[relation].edge_index = torch.stack((sender, receiver))
        data[relation].edge_kind = kind.long()
    return data


def _add_nodes(data: SceneBatch, node: str, features: AgentFeatures | LaneFeatures) -> None:
    """Add the agents or lanes of all scenes to the graph: their fields except scene index and topology."""
    store = data[node]
    for name, value in vars(features).items():
        if name == "scene" or name.startswith("topology"):
            continue
        is_text = value.dtype.kind in "OUT"
        store[name] = value if is_text else torch.from_numpy(value)
    scenes = len(data.scenario_id)
    scene = features.scene
    store.batch = torch.from_numpy(scene)
    store.ptr = torch.from_numpy(np.searchsorted(scene, np.arange(scenes + 1)))
    store.num_nodes = len(scene)
    # PyG's collation keeps each scene's node slices here: on the host, even if the batch is not.
    store._num_nodes = np.bincount(scene, minlength=scenes).tolist()


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


def _padded(position: NDArray[np.float32], scene: NDArray[np.int64], scenes: int) -> tuple[Tensor, Tensor]:
    """Pad the nodes of each scene to the largest one: positions ``[S, most, 2]``, validity ``[S, most]``."""
    most = int(np.bincount(scene, minlength=scenes).max())
    padded = np.zeros((scenes, most, 2), np.float32)
    valid = np.zeros((scenes, most), np.bool_)
    place = rank_in_scene(scene)
    padded[scene, place] = position
    valid[scene, place] = True
    return torch.from_numpy(padded), torch.from_numpy(valid)


def distances(receiver: Tensor, sender: Tensor) -> Tensor:
    """Compute metres between positions ``[..., R, 2]`` and ``[..., S, 2]``: ``[..., R, S]``."""
    x = sender[..., None, :, 0] - receiver[..., :, None, 0]
    y = sender[..., None, :, 1] - receiver[..., :, None, 1]
    return x.mul_(x).add_(y.mul_(y)).sqrt_()  # in place: fresh memory costs more than the arithmetic


def nearest(distance: Tensor, k: int, radius: float) -> Tensor:
    """Select each receiver's ``k`` nearest senders within ``radius``; ties go to the first ones.

    Args:
        distance: ``[..., R, S]`` metres, infinite for senders that must not be selected.

    Returns:
        ``[..., R, S]`` bool.
    """
    if k == 0:
        return torch.zeros_like(distance, dtype=torch.bool)
    # topk needs k columns, whose number is unknown while exporting.
    missing = k if torch.compiler.is_exporting() else max(0, k - distance.shape[-1])
    columns = torch.nn.functional.pad(distance, (0, missing), value=torch.inf)
    kth = columns.topk(k, largest=False, sorted=False).values.amax(-1, keepdim=True)
    near = distance <= kth.clamp(max=min(radius, torch.finfo(distance.dtype).max))
    if torch.compiler.is_exporting() or bool((near.sum(-1, dtype=torch.int32) > k).any()):
        # Several senders at the k-th distance, which is rare: keep the first ones.
        closer = distance < kth
        tied = distance == kth
        room = k - closer.sum(-1, keepdim=True, dtype=torch.int32)
        near = near & (closer | (tied & (tied.cumsum(-1, dtype=torch.int32) <= room)))
    return near


def relation_kinds(
    agent: Tensor,
    agent_valid: Tensor,
    lane: Tensor,
    lane_valid: Tensor,
    topology: Tensor,
    config: GraphConfig,
) -> dict[tuple[str, str, str], Tensor]:
    """Build the adjacency matrices of all relations; no node is its own neighbour.

    Args:
        agent: ``[..., A, 2]`` metres.
        agent_valid: ``[..., A]``, False for padding, which gets no edges.
        lane: ``[..., L, 2]`` metres.
        lane_valid: ``[..., L]``, False for padding, which gets no edges.
        topology: ``[..., L, L]`` integers, receiver by sender: 0, or 1 + index into ``TOPOLOGY``. Related
            lanes are connected at any distance, in excess of ``lane_lane_k``.

    Returns:
        For each of :data:`RELATIONS`, ``[..., receivers, senders]`` with the dtype of ``topology``: index
        into :data:`EDGE_KINDS`.
    """
    # Padding is at infinity: beyond every radius, and NaN metres (inf - inf) from other padding.
    position = {
        "agent": torch.where(agent_valid[..., None], agent, torch.inf),
        "lane": torch.where(lane_valid[..., None], lane, torch.inf),
    }
    limits = {
        AGENT_TO_AGENT: (config.agent_agent_k, config.agent_radius_m),
        LANE_TO_AGENT: (config.lane_agent_k, config.lane_radius_m),
        AGENT_TO_LANE: (config.agent_lane_k, config.lane_radius_m),
        LANE_TO_LANE: (config.lane_lane_k, config.lane_radius_m),
    }
    kinds = {}
    for relation, (k, radius) in limits.items():
        sender, _, receiver = relation
        distance = distances(position[receiver], position[sender])
        if sender == receiver:
            loop = torch.eye(distance.shape[-1], dtype=torch.bool, device=distance.device)
            distance = distance.masked_fill_(loop, torch.inf)
        near = nearest(distance, k, radius)
        kinds[relation] = near.to(topology.dtype) * EDGE_KINDS.index(f"{sender}_{receiver}")
    related = topology + (EDGE_KINDS.index(TOPOLOGY[0]) - 1)
    kinds[LANE_TO_LANE] = torch.where(topology > 0, related, kinds[LANE_TO_LANE])
    return kinds


def edges_of(kinds: Tensor) -> tuple[Tensor, ...]:
    """List the edges of an adjacency matrix ``[..., R, S]`` of :func:`relation_kinds`.

    Returns:
        The index along each axis ``[E]`` (the last two are receiver and sender), then the kind ``[E]``;
        sorted by receiver.
    """
    place = kinds.nonzero().unbind(1)
    return (*place, kinds[place])


def edge_features(sender: Tensor, receiver: Tensor, kind: Tensor, kinds: int) -> Tensor:
    """Compute edge features ``[C, ...]``, invariant to moving and rotating the whole scene.

    Args:
        sender, receiver: ``[4, ...]`` poses (:attr:`~trajpred.data.geometry.Pose.rows`) at both ends of each
            edge, broadcast together: ``[4, 1, S]`` and ``[4, R, 1]`` give all pairs ``[R, S]``.
        kind: ``[...]`` int64 below ``kinds``.

    Returns:
        The channels of :func:`~trajpred.features.config.edge_channels`: the sender's pose in the receiver's
        frame, and the one-hot kind.
    """
    constants = _created_constants if torch.compiler.is_compiling() else _kept_constants
    centre, slope, place, number = constants(sender.device, sender.dtype, kinds, kind.ndim)
    # Displacement and direction of the sender, turned into the receiver's frame.
    moved = sender - receiver * place
    cos = receiver[2]
    sin = receiver[3]
    x = moved[0::2]
    y = moved[1::2]
    forward = torch.addcmul(x * cos, y, sin)
    left = torch.addcmul(y * cos, x, sin, value=-1)
    position, heading_vector = torch.stack((forward, left), 1)
    distance = position[0].hypot(position[1])  # vectorised, unlike a norm over the first axis
    # At most 9: below -87, exp is denormal, and products with denormal numbers are slow.
    gap = (distance - centre).mul_(slope).clamp_(-9.0, 9.0)
    parts = (
        gap.mul_(gap).neg_().exp_(),  # in place: fresh memory costs more than the arithmetic
        position / POSE_SCALE,
        # atan2 would depend on the sign of zero, which depends on the receiver's heading.
        position / distance.clamp(min=_NEAR),
        heading_vector,
        # Faster than one_hot, which checks its input.
        (kind == number).to(distance.dtype),
    )
    return torch.cat(parts)


def _created_constants(device: torch.device, dtype: torch.dtype, kinds: int, ndim: int) -> tuple[Tensor, ...]:
    """Return centres (m) of the Gaussian kernels, 1 / (√2 · width), which rows of poses are positions, and
    the numbers of the kinds: ``[C, 1, ...]`` to be broadcast over ``ndim`` axes."""
    shape = (-1, *[1] * ndim)
    slopes = [0.5**0.5 / width for width in _WIDTHS]
    is_position = (1.0, 1.0, 0.0, 0.0)
    constants = (DISTANCES, slopes, is_position, range(kinds))
    with torch.inference_mode(False):  # what inference created could not be used in training
        return tuple(torch.tensor(x, device=device, dtype=dtype).view(shape) for x in constants)


#: Copied to each device once, because every copy stalls a GPU.
_kept_constants = functools.cache(_created_constants)
