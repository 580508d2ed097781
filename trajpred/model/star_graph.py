"""The article's graphs: around every agent a star of its nearest neighbour in each direction."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from trajpred.geometry import direction, norm, relative_pose, rotate, unit_vector
from trajpred.graph.config import LENGTH_SCALE, SPEED_SCALE
from trajpred.model.joint_graph import JointGraph
from trajpred.nn.star import FlatGraphs, flatten_stars
from trajpred.scenario import OBJECT_TYPES


def state_channels(sectors: int) -> int:
    """Channels of :class:`Stars` states: position, velocity, heading, one-hot type, one-hot sector."""
    return 6 + len(OBJECT_TYPES) + sectors


@dataclass
class Stars:
    """Stars around all agents of a batch, flattened; the target is the first node of its star.

    Attributes:
        graphs: their edges and the rows of their targets.
        state: ``[ΣM + A, state_channels]`` each node's state in the frame of its target.
    """

    graphs: FlatGraphs
    state: Tensor

    @property
    def neighbors(self) -> tuple[Tensor, Tensor]:
        """Rows of all neighbours, target by target, and how many each target has ``[A]``."""
        is_neighbor = torch.ones(len(self.state), dtype=torch.bool, device=self.state.device)
        is_neighbor[self.graphs.target_index] = False
        return is_neighbor.nonzero()[:, 0], self.graphs.ptr.diff() - 1


def stars(batch: HeteroData, graph: JointGraph, sectors: int) -> Stars:
    """The nearest neighbour of every agent in each of ``sectors`` directions; fewer where none is there."""
    edges = graph.index[:, graph.edges(True, True)]
    sender, receiver = edges
    seen = relative_pose(graph.poses[sender], graph.poses[receiver])
    # The first sector is centred straight ahead.
    turn = torch.remainder(direction(seen.position) + torch.pi / sectors, 2 * torch.pi)
    sector = (turn * sectors / (2 * torch.pi)).long().clamp(max=sectors - 1)

    place = receiver * sectors + sector
    order = norm(seen.position).argsort(stable=True)
    order = order[place[order].argsort(stable=True)]
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = place[order].diff() != 0
    chosen = order[first]

    counts = torch.bincount(receiver[chosen], minlength=graph.num_agents)
    graphs = flatten_stars(counts)
    sender, receiver, sector = sender[chosen], receiver[chosen], sector[chosen]
    agent = batch["agent"]
    turn = agent.heading[sender] - agent.heading[receiver]
    found = Stars(graphs, agent.velocity.new_zeros(len(graphs.batch), state_channels(sectors)))
    own = torch.zeros_like(agent.position), agent.velocity, torch.zeros_like(agent.heading)
    found.state[graphs.target_index] = _state(*own, agent.object_type, None, sectors)
    near = seen.position[chosen], rotate(agent.velocity[sender], turn), turn
    found.state[found.neighbors[0]] = _state(*near, agent.object_type[sender], sector, sectors)
    return found


def _state(
    position: Tensor, velocity: Tensor, heading: Tensor, kind: Tensor, sector: Tensor | None, sectors: int
) -> Tensor:
    one_hot = torch.nn.functional.one_hot
    where = position.new_zeros(len(kind), sectors) if sector is None else one_hot(sector, sectors)
    parts = (position / LENGTH_SCALE, velocity / SPEED_SCALE, unit_vector(heading))
    return torch.cat((*parts, one_hot(kind, len(OBJECT_TYPES)), where), -1)
