"""The article's pipeline: history, a star of neighbours by direction, global attention, lanes."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch_geometric.data import HeteroData

from trajpred.features.channels import EDGE_POSE, HISTORY, LENGTH_SCALE, PLANE, SPEED_SCALE, STATE, VALID
from trajpred.features.relations import (
    AGENT_TO_AGENT,
    AGENT_TO_LANE,
    EDGE_KINDS,
    LANE_TO_AGENT,
    edge_features,
)
from trajpred.geometry import Pose, direction, last_step, norm, relative_pose, rotate, unit_vector
from trajpred.model.attention import Pairs
from trajpred.model.token_encoder import SceneTokens, TokenEncoder, require_sizes
from trajpred.model.token_graph import EDGE_CHANNELS, TokenGraph
from trajpred.nn import mlp
from trajpred.nn.published.gat import GATEncoder, GATLayer
from trajpred.nn.published.padded_attention import PaddedAttention
from trajpred.scenario import OBJECT_TYPES


class TemporalEncoder(nn.Module):
    """Temporal self-attention over the observed steps of an agent.

    Shapes: history ``[A, T, len(HISTORY)]``, T up to 256 -> steps ``[A, T, dim]``, valid ``[A, T]``.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.state, self.time = mlp(len(HISTORY), dim, dim), nn.Embedding(256, dim)
        self.attention, self.norm = PaddedAttention(dim, num_attention_heads=heads), nn.LayerNorm(dim)

    def forward(self, history: Tensor) -> tuple[Tensor, Tensor]:
        valid = history[..., VALID] > 0
        # Counted backwards, so that the last step has the same index for every history length.
        age = torch.arange(history.shape[1] - 1, -1, -1, device=history.device)
        x = self.state(history) + self.time(age)
        return self.norm(x + self.attention(x, mask=valid)), valid


class StarSceneEncoder(TokenEncoder):
    """Encode every agent in turn as the target of a star graph of its neighbours by direction.

    Temporal self-attention over every history, once per agent; stacked GAT layers over the stars, whose
    nodes hold history and state of their agents and whose target row is kept; global self-attention between
    the agents of a scene; cross-attention from the target to its history and its neighbours, from lanes to
    the agents near them, and from the target to its lanes.

    Args:
        dim: channels of a token.
        heads, layers: of the stacked GAT encoder.
        neighbors: sectors around a target, each with its nearest neighbour.
        relative_pose: give the edges of the stars the sender's pose in the receiver's frame.
        completion: share of the observed steps that are masked and reconstructed from the others as an
            auxiliary objective (masked-trajectory completion); 0 disables it.
        dropout, options: of the GAT layers (:class:`~trajpred.nn.GATLayer`).

    Attention is reported of the GAT layers and of the cross-attention to the neighbours (both in the star of
    each agent), between the agents, and to the lanes; not of the attention to the history.
    """

    options_of: ClassVar = GATLayer

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
        self.neighbors, self.relative_pose, self.completion = neighbors, relative_pose, completion
        self.node = nn.Linear(state_channels(neighbors), dim)
        edge_channels = len(EDGE_POSE) if relative_pose else 0
        self.stars = GATEncoder(
            dim, heads, layers, edge_channels=edge_channels, repeat_input=True, dropout=dropout, **options
        )
        self.pose, self.everyone = nn.Linear(4, dim), PaddedAttention(dim, num_attention_heads=heads)
        self.to_lane, self.to_agent = nn.Linear(EDGE_CHANNELS, dim), nn.Linear(EDGE_CHANNELS, dim)
        self.cross = nn.ModuleDict(
            {
                name: PaddedAttention(dim, num_attention_heads=heads)
                for name in ("history", "neighbors", "lanes", "agents")
            }
        )
        self.norms = nn.ModuleDict({name: nn.LayerNorm(dim) for name in ("star", "everyone", *self.cross)})
        self.fill_in = mlp(dim, dim, 2) if completion else None

    def encode(self, batch: HeteroData) -> SceneTokens:
        graph, lanes = TokenGraph.of(batch), self.encode_lanes(batch)
        steps, valid = self.agent(batch["agent"].history)

        stars = Stars.of(batch, self.neighbors)
        nodes = self.node(stars.state) + newest(steps, valid)[stars.agent]
        (kept, edges, target), features = stars.flatten(), None
        if self.relative_pose:
            sender, receiver = stars.agent.flatten()[kept][edges]
            pose = Pose(batch["agent"].position, batch["agent"].heading)
            ends = pose[sender].rows, pose[receiver].rows
            features = edge_features(*ends, torch.zeros_like(sender), 1)[:-1].T
        x = self.norms["star"](self.stars(nodes.flatten(0, 1)[kept], edges, target, features))

        agents = graph.agents
        mask = agents.pad(torch.ones_like(batch["agent"].heading)) > 0
        attended = self.everyone(agents.pad(x + self.pose(graph.focal_poses[: graph.num_agents])), mask=mask)
        x = self.norms["everyone"](x + agents.unpad(attended))
        x = self._cross_attend("history", x, steps, valid)
        x = self._cross_attend("neighbors", x, nodes[:, 1:], stars.present[:, 1:])
        lanes = self._cross_attend_over("agents", lanes, x, self.to_agent, batch, AGENT_TO_LANE)
        x = self._cross_attend_over("lanes", x, lanes, self.to_lane, batch, LANE_TO_AGENT)
        return SceneTokens(x, lanes, graph)

    def attended(self, name: str, weight: Any, graph: TokenGraph, batch: HeteroData) -> list[Pairs]:
        if name == "everyone":
            return [Pairs.of_scenes(weight, graph.agents, graph.num_agents)]
        if name == "cross.lanes":
            to_lane = graph.index.new_tensor([[graph.num_agents], [0]])
            return [Pairs(batch[LANE_TO_AGENT].edge_index + to_lane, weight)]
        stars = Stars.of(batch, self.neighbors)
        if name == "cross.neighbors":
            present = stars.present[:, 1:]
            index = torch.stack((stars.agent[:, 1:], stars.agent[:, :1].expand_as(present)))
            return [Pairs(index[:, present], weight[:, :, 0].mT[present])]
        if name != "stars":
            return []
        kept, _, target = stars.flatten()
        return [
            Pairs(stars.agent.flatten()[kept][edges[:, read]], alpha[read])
            for edges, alpha in weight
            for read in (torch.isin(edges[1], target),)
        ]

    def _cross_attend(self, name: str, x: Tensor, z: Tensor, mask: Tensor) -> Tensor:
        """Attend from each row of ``x`` ``[R, dim]`` to its own ``z`` ``[R, m, dim]``."""
        return self.norms[name](x + self.cross[name](x[:, None], z, key_mask=mask)[:, 0])

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
        from_, _, to = relation
        features = edge_features(
            Pose(batch[from_].position, batch[from_].heading)[sender].rows,
            Pose(batch[to].position, batch[to].heading)[receiver].rows,
            batch[relation].edge_kind,
            len(EDGE_KINDS),
        )
        attended = self.cross[name](x, z[sender] + pose(features.T), receiver=receiver)
        return self.norms[name](x + attended)

    def auxiliary_losses(self, batch: HeteroData) -> dict[str, Tensor]:
        """Masked-trajectory completion: mean distance (in units of 10 m) at the masked steps."""
        if self.fill_in is None:
            return {}
        history = batch["agent"].history
        masked = (torch.rand_like(history[..., 0]) < self.completion) & (history[..., VALID] > 0)
        # Masked steps keep their position in time and their validity.
        is_state = torch.arange(len(HISTORY), device=history.device) != VALID
        visible = history * ~(masked[..., None] & is_state)
        position = history[..., : len(PLANE)]
        error = torch.linalg.vector_norm(self.fill_in(self.agent(visible)[0]) - position, dim=-1)
        return {"completion": (error * masked).sum() / masked.sum().clamp(min=1)}


def state_channels(sectors: int) -> int:
    """Count the channels of a node of a star: :data:`STATE`, one-hot type and sector."""
    return len(STATE) + len(OBJECT_TYPES) + sectors


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
        agent, (sender, receiver) = batch["agent"], batch[AGENT_TO_AGENT].edge_index
        poses = Pose(agent.position, agent.heading)
        position = relative_pose(poses[sender], poses[receiver]).position
        # The first sector is centred straight ahead.
        bearing = torch.remainder(direction(position) + torch.pi / sectors, 2 * torch.pi)
        sector = (bearing * sectors / (2 * torch.pi)).long().clamp(max=sectors - 1)
        target = torch.arange(agent.num_nodes, device=sender.device)[:, None]
        neighbor = first_of_least(norm(position), receiver * sectors + sector, target.shape[0] * sectors)
        found = (neighbor < sender.shape[0]).unflatten(0, (-1, sectors))
        neighbor = torch.cat((sender, sender.new_zeros(1)))[neighbor].unflatten(0, (-1, sectors))
        nodes = torch.cat((target, torch.where(found, neighbor, target)), 1)
        relative = relative_pose(poses[nodes], poses[target])
        state = (
            relative.position / LENGTH_SCALE,
            rotate(agent.velocity[nodes], relative.heading) / SPEED_SCALE,
            unit_vector(relative.heading),
            one_hot(agent.object_type[nodes], len(OBJECT_TYPES)),
            torch.eye(sectors + 1, device=sender.device)[:, 1:].expand(nodes.shape[0], -1, -1),
        )
        return cls(nodes, torch.cat((torch.ones_like(target).bool(), found), 1), torch.cat(state, -1))

    def flatten(self) -> tuple[Tensor, Tensor, Tensor]:
        """Connect the nodes of all stars as in :func:`~trajpred.nn.flatten_stars`.

        Returns:
            ``[N]``, nodes of the graph: rows of ``[A · n]``; ``edge_index`` between them; ``target_index``.
        """
        present, row = self.present.flatten(), torch.arange(self.present.numel(), device=self.present.device)
        # Exported graphs keep empty sectors, without edges: their number of nodes must not depend on data.
        kept = row if torch.compiler.is_exporting() else row[present]
        number = torch.zeros_like(row).index_copy(0, kept, row[: kept.shape[0]]).view_as(self.present)
        into = torch.stack((number, number[:, :1].expand_as(number)))
        edges = torch.cat((into, into[:, :, 1:].flip(0)), 2)
        known = torch.cat((self.present, self.present[:, 1:]), 1)
        return kept, edges[:, known], number[:, 0]


def first_of_least(value: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """Return the index of the first least ``value`` ``[E]`` of each group; E for a group without values."""
    least = value.new_full((num_groups,), torch.inf).scatter_reduce(0, group, value, "amin")
    none, index = value.shape[0], torch.arange(value.shape[0], device=value.device)
    candidate = torch.where(value == least[group], index, none)
    return group.new_full((num_groups,), none).scatter_reduce(0, group, candidate, "amin")


def newest(steps: Tensor, valid: Tensor) -> Tensor:
    """Return the last observed step of each agent: ``[A, T, dim]``, ``[A, T]`` -> ``[A, dim]``."""
    return steps[torch.arange(steps.shape[0], device=steps.device), last_step(valid)]
