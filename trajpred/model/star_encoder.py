"""The article's encoder: a star graph for every agent with its nearest neighbours by direction."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch_geometric.data import HeteroData

from trajpred.data.geometry import Pose, direction, last_step, norm, relative_pose, rotate, unit_vector
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.features.config import EDGE_POSE, HISTORY, LENGTH_SCALE, PLANE, SPEED_SCALE, STATE, VALID
from trajpred.features.scene_graph import (
    AGENT_TO_AGENT,
    AGENT_TO_LANE,
    EDGE_KINDS,
    LANE_TO_AGENT,
    edge_features,
)
from trajpred.model.attention import Pairs
from trajpred.model.scene_encoder import EDGE_CHANNELS, SceneTokens, TokenEncoder, TokenGraph, require_sizes
from trajpred.nn import mlp
from trajpred.nn.published.gat import GATEncoder
from trajpred.nn.published.padded_attention import PaddedAttention


def state_channels(sectors: int) -> int:
    """Count the channels of a node of a star: :data:`STATE`, one-hot type and sector."""
    return len(STATE) + len(OBJECT_TYPES) + sectors


class FlatStars(NamedTuple):
    """The nodes of all stars in one graph.

    Attributes:
        node: ``[N]``, rows of ``[A · n]``.
        edge_index: ``[2, E]``, edges between these nodes.
        target: ``[A]``, row of each star's target among these nodes.
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
        """Select the neighbours among each agent's senders."""
        agent = batch["agent"]
        sender, receiver = batch[AGENT_TO_AGENT].edge_index
        poses = Pose(agent.position, agent.heading)
        position = relative_pose(poses[sender], poses[receiver]).position
        # The first sector is centred straight ahead.
        bearing = torch.remainder(direction(position) + torch.pi / sectors, 2 * torch.pi)
        sector = (bearing * sectors / (2 * torch.pi)).long().clamp(max=sectors - 1)
        target = torch.arange(agent.num_nodes, device=sender.device)[:, None]
        # The edge from the nearest neighbour in each sector of each star; one more for an empty sector.
        num_sectors = target.shape[0] * sectors
        edge = first_of_least(norm(position), receiver * sectors + sector, num_sectors)
        occupied = (edge < sender.shape[0]).unflatten(0, (-1, sectors))
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
        # Exported graphs keep empty sectors without edges: their number of nodes must not depend on the data.
        node = row if torch.compiler.is_exporting() else row[present]
        # The nodes that stay are numbered from 0; no edge uses the numbers of the others.
        number = torch.zeros_like(row).index_copy(0, node, row[: node.shape[0]])
        number = number.view_as(self.present)  # [A, n]
        target = number[:, :1]
        into_target = torch.stack((number, target.expand_as(number)))  # [2, A, n], with the target's loop
        into_neighbors = into_target[:, :, 1:].flip(0)  # the same edges reversed, without the loop
        edges = torch.cat((into_target, into_neighbors), 2)
        exists = torch.cat((self.present, self.present[:, 1:]), 1)
        return FlatStars(node, edges[:, exists], target[:, 0])


def first_of_least(value: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """Return the index of each group's first least ``value`` ``[E]``; E for a group without values."""
    least = value.new_full((num_groups,), torch.inf).scatter_reduce(0, group, value, "amin")
    count = value.shape[0]
    index = torch.arange(count, device=value.device)
    candidate = torch.where(value == least[group], index, count)
    return group.new_full((num_groups,), count).scatter_reduce(0, group, candidate, "amin")


def newest(steps: Tensor, valid: Tensor) -> Tensor:
    """Return the last observed step of each agent: ``[A, T, dim]``, ``[A, T]`` -> ``[A, dim]``."""
    agent = torch.arange(steps.shape[0], device=steps.device)
    return steps[agent, last_step(valid)]


#: Longest history of the temporal encoder.
MAX_STEPS = 256


class TemporalEncoder(nn.Module):
    """Temporal self-attention over the observed steps of an agent.

    Shapes: history ``[A, T, len(HISTORY)]``, T up to 256 -> steps ``[A, T, dim]``, valid ``[A, T]``.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.state = mlp(len(HISTORY), dim, dim)
        self.time = nn.Embedding(MAX_STEPS, dim)
        self.attention = PaddedAttention(dim, num_attention_heads=heads)
        self.norm = nn.LayerNorm(dim)

    def forward(self, history: Tensor) -> tuple[Tensor, Tensor]:
        valid = history[..., VALID] > 0
        # Counted backwards, so that the last step has the same index for every history length.
        age = torch.arange(history.shape[1] - 1, -1, -1, device=history.device)
        x = self.state(history) + self.time(age)
        x = self.norm(x + self.attention(x, mask=valid))
        return x, valid


class StarSceneEncoder(TokenEncoder):
    """Encode every agent in turn as the target of a star graph of its neighbours by direction.

    Temporal self-attention over every history, once per agent; stacked GAT layers over the stars, whose nodes
    contain their agents' history and state, keeping the target row; global self-attention between the agents
    of a scene; cross-attention from the target to its history and neighbours, from lanes to agents near them,
    and from the target to its lanes.

    Args:
        dim: channels of a token.
        heads: attention heads.
        layers: layers of the GAT encoder.
        neighbors: sectors around a target, each with its nearest neighbour.
        relative_pose: give the edges of the stars the sender's pose in the receiver's frame.
        completion: fraction of observed steps that are masked and reconstructed as an auxiliary objective
            (masked-trajectory completion); 0 disables it.
        dropout: rate in the GAT layers.
        options: further arguments of the GAT layers (:class:`~trajpred.nn.GATLayer`).

    Attention is reported for the GAT layers and the cross-attention to the neighbours (both within each
    agent's star), between the agents, and to the lanes; not for the attention to the history.
    """

    attending: ClassVar = (GATEncoder, PaddedAttention)

    def __init__(
        self,
        dim: int = 128,
        heads: int = 4,
        layers: int = 2,
        neighbors: int = 8,
        relative_pose: bool = False,
        completion: float = 0.0,
        dropout: float = 0.1,
        **options: Any,
    ) -> None:
        require_sizes(dim, heads, layers=layers)
        super().__init__(dim, agent=TemporalEncoder(dim, heads))
        self.neighbors = neighbors
        self.relative_pose = relative_pose
        self.completion = completion
        self.node = nn.Linear(state_channels(neighbors), dim)
        self.stars = GATEncoder(
            dim,
            heads,
            layers,
            edge_channels=len(EDGE_POSE) if relative_pose else 0,
            repeat_input=True,
            dropout=dropout,
            **options,
        )
        self.pose = nn.Linear(4, dim)
        self.everyone = PaddedAttention(dim, num_attention_heads=heads)
        # Poses of the senders: the lanes attended to by agents, and the agents attended to by lanes.
        self.to_lane = nn.Linear(EDGE_CHANNELS, dim)
        self.to_agent = nn.Linear(EDGE_CHANNELS, dim)
        self.cross = nn.ModuleDict()
        for name in ("history", "neighbors", "lanes", "agents"):
            self.cross[name] = PaddedAttention(dim, num_attention_heads=heads)
        self.norms = nn.ModuleDict()
        for name in ("star", "everyone", *self.cross):
            self.norms[name] = nn.LayerNorm(dim)
        self.fill_in: nn.Module | None = None
        if completion:
            self.fill_in = mlp(dim, dim, 2)

    def encode(self, batch: HeteroData) -> SceneTokens:
        """Encode the agents with their stars, then with all agents, neighbours and lanes as configured."""
        graph = TokenGraph.of(batch)
        lanes = self.encode_lanes(batch)
        steps, valid = self.agent(batch["agent"].history)

        stars = Stars.of(batch, self.neighbors)
        nodes = self.node(stars.state) + newest(steps, valid)[stars.agent]
        x = self._encode_stars(stars, nodes, batch)
        x = self._attend_to_everyone(x, graph)
        x = self._cross_attend("history", x, steps, valid)
        # Node 0 of a star is the agent itself, the others are its neighbours.
        x = self._cross_attend("neighbors", x, nodes[:, 1:], stars.present[:, 1:])
        lanes = self._cross_attend_over("agents", lanes, x, self.to_agent, batch, AGENT_TO_LANE)
        x = self._cross_attend_over("lanes", x, lanes, self.to_lane, batch, LANE_TO_AGENT)
        return SceneTokens(x, lanes, graph)

    def attended(self, name: str, weight: Any, graph: TokenGraph, batch: HeteroData) -> list[Pairs]:
        """Assign the attention of the stars, of all agents, and to neighbours or lanes."""
        if name == "everyone":
            return [Pairs.of_scenes(weight, graph.agents, graph.num_agents)]
        if name == "cross.lanes":
            # Tokens are those of all agents, then those of all lanes: lanes send.
            first_token = graph.index.new_tensor([[graph.num_agents], [0]])
            return [Pairs(batch[LANE_TO_AGENT].edge_index + first_token, weight)]
        stars = Stars.of(batch, self.neighbors)
        if name == "cross.neighbors":
            present = stars.present[:, 1:]
            index = torch.stack((stars.agent[:, 1:], stars.agent[:, :1].expand_as(present)))
            by_neighbor = weight[:, :, 0].mT  # [A, H, 1, n] -> [A, n, H]
            return [Pairs(index[:, present], by_neighbor[present])]
        if name != "stars":
            return []
        flat = stars.flatten()
        agent = stars.agent.flatten()[flat.node]
        layers = []
        for edges, alpha in weight:
            # Neighbours in a star are not tokens of the scene: only the target's attention is reported.
            into_target = torch.isin(edges[1], flat.target)
            layers.append(Pairs(agent[edges[:, into_target]], alpha[into_target]))
        return layers

    def _encode_stars(self, stars: Stars, nodes: Tensor, batch: HeteroData) -> Tensor:
        """Encode the ``nodes`` ``[A, n, dim]`` of all stars, and return the targets ``[A, dim]``."""
        flat = stars.flatten()
        features = None
        if self.relative_pose:
            sender, receiver = stars.agent.flatten()[flat.node][flat.edge_index]
            pose = Pose(batch["agent"].position, batch["agent"].heading)
            kind = torch.zeros_like(sender)
            # There is only one kind of edge: its channel, the last one, is constant and omitted.
            features = edge_features(pose[sender].rows, pose[receiver].rows, kind, 1)[:-1].T
        x = nodes.flatten(0, 1)[flat.node]
        return self.norms["star"](self.stars(x, flat.edge_index, flat.target, features))

    def _attend_to_everyone(self, x: Tensor, graph: TokenGraph) -> Tensor:
        """Attend from each agent ``[A, dim]`` to all agents of its scene, with their poses."""
        poses = graph.focal_poses[: graph.num_agents]
        mask = graph.agents.pad(x.new_ones(x.shape[0])) > 0
        padded = graph.agents.pad(x + self.pose(poses))
        attended = graph.agents.unpad(self.everyone(padded, mask=mask))
        return self.norms["everyone"](x + attended)

    def _cross_attend(self, name: str, x: Tensor, z: Tensor, mask: Tensor) -> Tensor:
        """Attend from each row of ``x`` ``[R, dim]`` to its own ``z`` ``[R, m, dim]``."""
        attended = self.cross[name](x[:, None], z, key_mask=mask)
        return self.norms[name](x + attended[:, 0])

    def _cross_attend_over(
        self,
        name: str,
        x: Tensor,
        z: Tensor,
        pose: nn.Linear,
        batch: HeteroData,
        relation: tuple[str, str, str],
    ) -> Tensor:
        """Attend from each row of ``x`` to its senders among ``z``, with their poses relative to it."""
        sender, receiver = batch[relation].edge_index
        source = batch[relation[0]]
        target = batch[relation[2]]
        sender_rows = Pose(source.position, source.heading)[sender].rows
        receiver_rows = Pose(target.position, target.heading)[receiver].rows
        kind = batch[relation].edge_kind
        features = edge_features(sender_rows, receiver_rows, kind, len(EDGE_KINDS))
        keys = z[sender] + pose(features.T)
        attended = self.cross[name](x, keys, receiver=receiver)
        return self.norms[name](x + attended)

    def auxiliary_losses(self, batch: HeteroData) -> dict[str, Tensor]:
        """Masked-trajectory completion: mean distance (in units of 10 m) at the masked steps."""
        if self.fill_in is None:
            return {}
        history = batch["agent"].history
        observed = history[..., VALID] > 0
        masked = (torch.rand_like(history[..., 0]) < self.completion) & observed
        # Masked steps keep their position in time and their validity.
        is_state = torch.arange(len(HISTORY), device=history.device) != VALID
        visible = history * ~(masked[..., None] & is_state)
        position = history[..., : len(PLANE)]
        steps, _ = self.agent(visible)
        error = torch.linalg.vector_norm(self.fill_in(steps) - position, dim=-1)
        return {"completion": (error * masked).sum() / masked.sum().clamp(min=1)}
