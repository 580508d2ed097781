"""The star graphs of the article's pipeline: every agent with its nearest neighbours by direction."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import HeteroData

from trajpred.features.channels import LENGTH_SCALE, SPEED_SCALE, STATE
from trajpred.features.relations import AGENT_TO_AGENT
from trajpred.geometry import Pose, direction, last_step, norm, relative_pose, rotate, unit_vector
from trajpred.scenario import OBJECT_TYPES


def state_channels(sectors: int) -> int:
    """Count the channels of a node of a star: :data:`STATE`, one-hot type and sector."""
    return len(STATE) + len(OBJECT_TYPES) + sectors


class FlatStars(NamedTuple):
    """The nodes of all stars as one graph.

    Attributes:
        node: ``[N]``, rows of ``[A · n]``.
        edge_index: ``[2, E]``, edges between them.
        target: ``[A]``, the target of each star among them.
    """

    node: Tensor
    edge_index: Tensor
    target: Tensor


class Stars(NamedTuple):
    """The star of every agent: the target, then its nearest neighbour in each sector, n = 1 + sectors.

    Attributes:
        agent: ``[A, n]``, agent of each node; the target where a sector is empty.
        present: ``[A, n]`` bool, False where a sector is empty.
        state: ``[A, n, state_channels]``, in the frame of the target.
    """

    agent: Tensor
    present: Tensor
    state: Tensor

    @classmethod
    def of(cls, batch: HeteroData, sectors: int) -> Stars:
        """Select the neighbours among the senders of each agent."""
        agent = batch["agent"]
        sender, receiver = batch[AGENT_TO_AGENT].edge_index
        poses = Pose(agent.position, agent.heading)
        position = relative_pose(poses[sender], poses[receiver]).position
        # The first sector is centred straight ahead.
        bearing = torch.remainder(direction(position) + torch.pi / sectors, 2 * torch.pi)
        sector = (bearing * sectors / (2 * torch.pi)).long().clamp(max=sectors - 1)
        target = torch.arange(agent.num_nodes, device=sender.device)[:, None]
        num_sectors = target.shape[0] * sectors
        edge = first_of_least(norm(position), receiver * sectors + sector, num_sectors)
        occupied = (edge < sender.shape[0]).unflatten(0, (-1, sectors))
        # The last row stands in for the edge of an empty sector.
        senders = torch.cat((sender, sender.new_zeros(1)))
        neighbor = senders[edge].unflatten(0, (-1, sectors))
        nodes = torch.cat((target, torch.where(occupied, neighbor, target)), 1)
        present = torch.cat((torch.ones_like(target).bool(), occupied), 1)
        relative = relative_pose(poses[nodes], poses[target])
        sector_one_hot = torch.eye(sectors + 1, device=sender.device)[:, 1:]
        state = (
            relative.position / LENGTH_SCALE,
            rotate(agent.velocity[nodes], relative.heading) / SPEED_SCALE,
            unit_vector(relative.heading),
            one_hot(agent.object_type[nodes], len(OBJECT_TYPES)),
            sector_one_hot.expand(nodes.shape[0], -1, -1),
        )
        return cls(nodes, present, torch.cat(state, -1))

    def flatten(self) -> FlatStars:
        """Connect the nodes of all stars as in :func:`~trajpred.nn.flatten_stars`."""
        present = self.present.flatten()
        row = torch.arange(present.shape[0], device=present.device)
        # Exported graphs keep empty sectors, without edges: their number of nodes must not depend on data.
        node = row if torch.compiler.is_exporting() else row[present]
        number = torch.zeros_like(row).index_copy(0, node, row[: node.shape[0]])
        number = number.view_as(self.present)
        target = number[:, :1]
        to_target = torch.stack((number, target.expand_as(number)))
        to_neighbors = to_target[:, :, 1:].flip(0)
        edges = torch.cat((to_target, to_neighbors), 2)
        exists = torch.cat((self.present, self.present[:, 1:]), 1)
        return FlatStars(node, edges[:, exists], target[:, 0])


def first_of_least(value: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """Return the index of the first least ``value`` ``[E]`` of each group; E for a group without values."""
    least = value.new_full((num_groups,), torch.inf).scatter_reduce(0, group, value, "amin")
    count = value.shape[0]
    index = torch.arange(count, device=value.device)
    candidate = torch.where(value == least[group], index, count)
    return group.new_full((num_groups,), count).scatter_reduce(0, group, candidate, "amin")


def newest(steps: Tensor, valid: Tensor) -> Tensor:
    """Return the last observed step of each agent: ``[A, T, dim]``, ``[A, T]`` -> ``[A, dim]``."""
    agent = torch.arange(steps.shape[0], device=steps.device)
    return steps[agent, last_step(valid)]
