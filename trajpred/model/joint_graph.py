"""Agents and lanes of a batch as the nodes of one graph: all agents first, then all lanes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from trajpred.geometry import Pose, relative_pose, unit_vector
from trajpred.graph.edge_features import edge_channels, edge_features
from trajpred.graph.scene_graph import EDGE_KINDS, RELATIONS
from trajpred.nn import Padding

#: Channels of ``JointGraph.features``.
EDGE_CHANNELS = edge_channels(len(EDGE_KINDS))


@dataclass
class JointGraph:
    """The four relations as one, made once per forward and used by encoder and decoder.

    Attributes:
        poses: ``[N, 2]``, ``[N]``, N = A + L, in each scene's own frame.
        index: ``[2, E]`` sender, receiver; kind: ``[E]``, index into ``EDGE_KINDS``.
        scene: ``[N]`` which scene a node belongs to.
        padding: where nodes lie in scenes padded to one size, agents first.
        agents: ``Padding`` of the agents alone.
        heading: ``[S]`` of each scene's focal agent, radians; its position is the scene's origin.
    """

    poses: Pose[Tensor]
    index: Tensor
    kind: Tensor
    scene: Tensor
    padding: Padding
    agents: Padding
    heading: Tensor

    @classmethod
    def of(cls, batch: HeteroData) -> JointGraph:
        """From a batch of :func:`~trajpred.graph.scene_graph.scene_graph`."""
        agent, lane = batch["agent"], batch["lane"]
        start = {"agent": 0, "lane": agent.num_nodes}
        index = [
            batch[relation].edge_index
            + torch.tensor([[start[relation[0]]], [start[relation[2]]]]).to(agent.batch)
            for relation in RELATIONS
        ]
        agents, lanes = (Padding.of(node.batch, node.ptr) for node in (agent, lane))
        return cls(
            Pose(torch.cat((agent.position, lane.position)), torch.cat((agent.heading, lane.heading))),
            torch.cat(index, 1),
            torch.cat([batch[relation].edge_kind for relation in RELATIONS]),
            torch.cat((agent.batch, lane.batch)),
            agents.beside(lanes),
            agents,
            batch.heading,
        )

    def __len__(self) -> int:
        return len(self.scene)

    @property
    def num_agents(self) -> int:
        return len(self.agents.slot)

    def chosen(self, agents: Tensor) -> Padding:
        """``Padding`` of these ``agents`` ``[B]`` alone, ascending."""
        scene = self.scene[agents]
        count = torch.bincount(scene, minlength=self.agents.scenes)
        return Padding.of(scene, torch.cat((count.new_zeros(1), count.cumsum(0))))

    @cached_property
    def features(self) -> Tensor:
        """``[E, EDGE_CHANNELS]`` relative poses and kinds of the edges."""
        sender, receiver = self.index
        return edge_features(self.poses[sender], self.poses[receiver], self.kind, len(EDGE_KINDS))

    @cached_property
    def focal_poses(self) -> Tensor:
        """``[N, 4]`` pose of every node seen from its scene's focal agent: place (30 m), cosine, sine."""
        heading = self.heading[self.scene]
        seen = relative_pose(self.poses, Pose(torch.zeros_like(self.poses.position), heading))
        return torch.cat((seen.position / 30.0, unit_vector(seen.heading)), -1)

    def edges(self, sender_agents: bool, receiver_agents: bool) -> Tensor:
        """Positions in ``index`` of the edges from agents (or lanes) to agents (or lanes)."""
        kinds = (self.index < self.num_agents) == self.index.new_tensor(
            [[sender_agents], [receiver_agents]]
        ).bool()
        return kinds.all(0).nonzero()[:, 0]
