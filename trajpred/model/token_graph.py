"""The graph of a batch's tokens: agents and lanes as its nodes, all agents first; and edges to any poses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from trajpred.data.geometry import POSE_SCALE, Pose, relative_pose, unit_vector
from trajpred.features.config import edge_channels
from trajpred.features.scene_graph import AGENT_TO_AGENT, EDGE_KINDS, RELATIONS, distances, edge_features
from trajpred.nn import Layout
from trajpred.nn.segment import LOWEST

#: Channels of :attr:`TokenGraph.features`.
EDGE_CHANNELS = len(edge_channels(EDGE_KINDS))
#: The last part of the radius, in which attention fades out.
FADE = 0.2
#: What a mode attends to: its own agent, other agents, lanes.
MODE_EDGE_KINDS = ("own", "agent", "lane")
MODE_EDGE_CHANNELS = len(edge_channels(MODE_EDGE_KINDS))


@dataclass
class TokenGraph:
    """The four relations of a batch as one edge list, built once per forward for encoder and decoder.

    Attributes:
        poses: ``[N, 2]`` metres and ``[N]`` radians, N = A + L, in the frame of each scene.
        index: ``[2, E]`` sender and receiver.
        kind: ``[E]`` index into ``EDGE_KINDS``.
        num_agent_edges: number of edges between agents, which come first.
        scene: ``[N]`` scene of each node.
        padding: layout of the nodes in their scenes, agents first.
        agents: layout of the agents alone.
        heading: ``[S]`` radians, of each scene's focal agent; its position is the scene's origin.
        eigenvectors: :func:`~trajpred.nn.laplacian_positional_encoding` of the lanes by their topology,
            ``[L, k]``, where the batch holds it: it is made with the batch, and ONNX cannot compute it.
        all_pairs: whether the edges are all pairs of nodes of one scene, those of kind "none" included, so
            that no size depends on the data: what an exported graph of fixed sizes computes.
    """

    poses: Pose[Tensor]
    index: Tensor
    kind: Tensor
    num_agent_edges: int
    scene: Tensor
    padding: Layout
    agents: Layout
    heading: Tensor
    eigenvectors: Tensor | None = None
    all_pairs: bool = False

    @classmethod
    def of(cls, batch: HeteroData) -> TokenGraph:
        """Build the graph of a batch of :func:`~trajpred.features.scene_graph.scene_graph`."""
        agent, lane = batch["agent"], batch["lane"]
        first_row = {"agent": 0, "lane": agent.num_nodes}
        senders = []
        receivers = []
        kinds = []
        for relation in RELATIONS:
            source, _, target = relation
            sender, receiver = batch[relation].edge_index
            senders.append(sender + first_row[source])
            receivers.append(receiver + first_row[target])
            kinds.append(batch[relation].edge_kind)
        agents = Layout.of(agent.batch, agent.ptr, getattr(agent, "_num_nodes", None))
        lanes = Layout.of(lane.batch, lane.ptr, getattr(lane, "_num_nodes", None))
        position = torch.cat((agent.position, lane.position))
        heading = torch.cat((agent.heading, lane.heading))
        return cls(
            poses=Pose(position, heading),
            index=torch.stack((torch.cat(senders), torch.cat(receivers))),
            kind=torch.cat(kinds),
            num_agent_edges=batch[AGENT_TO_AGENT].edge_kind.shape[0],
            scene=torch.cat((agent.batch, lane.batch)),
            padding=agents.beside(lanes),
            agents=agents,
            heading=batch.heading,
            eigenvectors=lane.eigenvectors if "eigenvectors" in lane else None,
            all_pairs="all_pairs" in batch,
        )

    @property
    def num_nodes(self) -> int:
        """N = A + L."""
        return self.padding.num_nodes

    @property
    def num_agents(self) -> int:
        return self.agents.num_nodes

    def layout_of(self, agents: Tensor) -> Layout:
        """Return the layout of a subset of the agents, rows ``[B]`` in ascending order."""
        scene = self.scene[agents]
        zeros = self.agents.count.new_zeros(self.agents.scenes)
        count = zeros.index_add(0, scene, torch.ones_like(scene))
        pointer = torch.nn.functional.pad(count.cumsum(0), (1, 0))
        return Layout.of(scene, pointer)

    @cached_property
    def features(self) -> Tensor:
        """Relative poses and kinds of the edges, ``[E, EDGE_CHANNELS]``."""
        sender = self.poses.rows.index_select(1, self.index[0])
        receiver = self.poses.rows.index_select(1, self.index[1])
        return edge_features(sender, receiver, self.kind, len(EDGE_KINDS)).T

    @cached_property
    def focal_poses(self) -> Tensor:
        """Pose of every node in its focal agent's frame, ``[N, 4]``: scaled position, cosine, sine."""
        origin = torch.zeros_like(self.poses.position)
        focal = Pose(origin, self.heading[self.scene])
        relative = relative_pose(self.poses, focal)
        return torch.cat((relative.position / POSE_SCALE, unit_vector(relative.heading)), -1)


def fade_out(distance: Tensor, radius: float) -> Tensor:
    """Return logarithmic weights of attention: 0, and from 80 % of the radius on down to -14 at its end.

    Without it, a future would jump by metres when a node crosses the radius.
    """
    weight = (distance - radius) / (-FADE * radius)
    return weight.clamp(1e-6, 1.0).log()


def all_pairs(rows: int, columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return row and column of every cell of a matrix, row by row: ``[rows · columns]`` each."""
    row = torch.arange(rows, device=device).repeat_interleave(columns)
    return row, torch.arange(columns, device=device).repeat(rows)


def radius_edges(
    graph: TokenGraph, poses: Pose[Tensor], radius: float, agents: Tensor, modes: Layout
) -> tuple[Tensor, Tensor, Tensor]:
    """Connect each pose to the nodes within ``radius`` metres and to its own agent.

    Args:
        graph: whose nodes are the senders.
        poses: ``[M]``, the receivers.
        radius: in metres.
        agents: ``[M]`` agent of each pose, ascending.
        modes: layout of the poses in their scenes.

    Returns:
        ``index [2, E]`` sorted by receiver, features ``[MODE_EDGE_CHANNELS, E]``, and what is added to the
        scores ``[E]``: :func:`fade_out`, 0 for the own agent. With ``graph.all_pairs``, pairs are not
        selected, and those that are no edges get :data:`~trajpred.nn.segment.LOWEST`.
    """
    # Infinity and NaN keep padding apart from everything, including other padding.
    receivers = modes.pad(poses.position, fill=torch.inf)
    senders = graph.padding.pad(graph.poses.position, fill=torch.nan)
    if torch.compiler.is_exporting():  # ONNX has no cdist
        distance = distances(receivers, senders)
    else:
        distance = torch.cdist(receivers, senders, compute_mode="donot_use_mm_for_euclid_dist")
    own_pair = modes.slot * graph.padding.size + graph.padding.within.index_select(0, agents)
    near = (distance <= radius).flatten().index_fill(0, own_pair, True).view(distance.shape)
    if graph.all_pairs:
        row, column = all_pairs(modes.size, graph.padding.size, near.device)
        scene = torch.zeros_like(row)
    else:
        scene, row, column = near.nonzero(as_tuple=True)
    if torch.compiler.is_exporting():
        torch._check(scene.shape[0] > 0)  # each mode has its own agent; PyG's GATConv asks
    receiver = modes.node(scene, row)
    sender = graph.padding.node(scene, column)
    is_own = sender == agents.index_select(0, receiver)
    kind = 1 + (sender >= graph.num_agents).long()
    kind.masked_fill_(is_own, 0)
    sender_rows = graph.poses.rows.index_select(1, sender)
    receiver_rows = poses.rows.index_select(1, receiver)
    features = edge_features(sender_rows, receiver_rows, kind, len(MODE_EDGE_KINDS))
    fading = fade_out(distance[scene, row, column], radius).masked_fill_(is_own, 0.0)
    if graph.all_pairs:
        fading = fading.masked_fill(~near.flatten(), LOWEST)
    return torch.stack((sender, receiver)), features, fading
