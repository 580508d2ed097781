"""The article's pipeline: history, a star of neighbours by direction, global attention, lanes."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.geometry import direction, norm, relative_pose, rotate, unit_vector
from trajpred.graph.channels import HISTORY, LENGTH_SCALE, PLANE, SPEED_SCALE, STATE, VALID
from trajpred.model.attention import Pairs
from trajpred.model.token_encoder import SceneTokens, TokenEncoder
from trajpred.model.token_graph import EDGE_CHANNELS, TokenGraph
from trajpred.nn import mlp
from trajpred.nn.published.gat import GATEncoder
from trajpred.nn.published.padded_attention import PaddedAttention, pad_samples
from trajpred.nn.star import FlatGraphs, flatten_stars
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

    Temporal self-attention over the history; stacked GAT layers over the stars, whose target row is kept;
    global self-attention between the agents of a scene; cross-attention from the target to its history and
    its neighbours, from lanes to the agents near them, and from the target to its lanes.

    Args:
        dim: channels of a token.
        heads, layers: of the stacked GAT encoder.
        neighbors: sectors around a target, each with its nearest neighbour.
        conv: ``gat`` or ``gatv2``.
        dropout: inside the GAT layers.
        completion: share of the observed steps that are masked and reconstructed from the others as an
            auxiliary objective (masked-trajectory completion); 0 disables it.

    Attention is reported of the GAT layers and of the cross-attention to the neighbours (both in the star of
    each agent), between the agents, and to the lanes; not of the attention to the history.
    """

    attending: ClassVar = (GATEncoder, PaddedAttention)

    def __init__(
        self,
        dim: int = 128,
        heads: int = 4,
        layers: int = 2,
        neighbors: int = 8,
        conv: Literal["gat", "gatv2"] = "gatv2",
        dropout: float = 0.1,
        completion: float = 0.0,
    ) -> None:
        super().__init__(dim, agent=TemporalEncoder(dim, heads))
        self.neighbors, self.completion = neighbors, completion
        self.node = nn.Linear(state_channels(neighbors), dim)
        self.stars = GATEncoder(dim, heads, layers, conv=conv, dropout=dropout)
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
        graph, agent, lanes = TokenGraph.of(batch), batch["agent"], self.encode_lanes(batch)
        steps, valid = self.agent(agent.history)

        stars, state, rows, _ = star_graphs(batch, graph, self.neighbors)
        # The target's node also receives the last token of its history.
        last = torch.where(valid, torch.arange(valid.shape[1], device=valid.device), 0).amax(1)
        newest = steps[torch.arange(steps.shape[0], device=steps.device), last]
        nodes = self.node(state).index_add(0, stars.target_index, newest)
        x = self.norms["star"](self.stars(nodes, stars.edge_index, stars.target_index))

        agents = graph.agents
        mask = agents.pad(torch.ones_like(agent.heading)) > 0
        attended = self.everyone(agents.pad(x + self.pose(graph.focal_poses[: graph.num_agents])), mask=mask)
        x = self.norms["everyone"](x + agents.unpad(attended))
        x = self._cross_attend("history", x, steps, valid)
        x = self._cross_attend("neighbors", x, *pad_samples(nodes[rows], stars.ptr.diff() - 1))
        lanes = self._cross_attend("agents", lanes, *self._senders(graph, True, False, x, self.to_agent))
        x = self._cross_attend("lanes", x, *self._senders(graph, False, True, lanes, self.to_lane))
        return SceneTokens(x, lanes, graph)

    forward = encode

    def attended(self, name: str, weight: Any, graph: TokenGraph, batch: HeteroData) -> list[Pairs]:
        if name == "everyone":
            return [Pairs.of_scenes(weight, graph.agents, graph.num_agents)]
        if name == "cross.lanes":
            sender, receiver = graph.index[:, graph.edges_between(False, True)]
            return [Pairs.of_lists(weight, sender, torch.bincount(receiver, minlength=graph.num_agents))]
        if name not in ("stars", "cross.neighbors"):
            return []
        stars, _, rows, agent = star_graphs(batch, graph, self.neighbors)
        if name == "cross.neighbors":
            return [Pairs.of_lists(weight, agent[rows], stars.ptr.diff() - 1)]
        target = torch.zeros_like(agent, dtype=torch.bool).index_fill(0, stars.target_index, True)
        return [Pairs(agent[edges[:, target[edges[1]]]], alpha[target[edges[1]]]) for edges, alpha in weight]

    def _cross_attend(self, name: str, x: Tensor, z: Tensor, mask: Tensor) -> Tensor:
        """Attend from each row of ``x`` ``[R, dim]`` to its own ``z`` ``[R, m, dim]``."""
        return self.norms[name](x + self.cross[name](x[:, None], z, key_mask=mask)[:, 0])

    def _senders(
        self, graph: TokenGraph, from_agents: bool, to_agents: bool, sender: Tensor, pose: nn.Linear
    ) -> tuple[Tensor, Tensor]:
        """Gather each receiver's senders with their relative poses: ``[R, m, dim]``, mask ``[R, m]``."""
        edges = graph.edges_between(from_agents, to_agents)
        index = graph.index[:, edges] - graph.index.new_tensor(
            [[0 if from_agents else graph.num_agents], [0 if to_agents else graph.num_agents]]
        )
        receivers = graph.num_agents if to_agents else graph.num_nodes - graph.num_agents
        values = sender[index[0]] + pose(graph.features[edges])
        return pad_samples(values, torch.bincount(index[1], minlength=receivers))

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


def star_graphs(
    batch: HeteroData, graph: TokenGraph, sectors: int
) -> tuple[FlatGraphs, Tensor, Tensor, Tensor]:
    """Build a star around every agent from its nearest neighbour in each of ``sectors`` directions.

    Returns:
        The stars, the target first; the state ``[ΣM + A, state_channels]`` of each node in the frame of its
        target; the rows of the neighbours, target by target; the agent ``[ΣM + A]`` of each node.
    """
    sender, receiver = graph.index[:, graph.edges_between(True, True)]
    relative = relative_pose(graph.poses[sender], graph.poses[receiver])
    # The first sector is centred straight ahead.
    bearing = torch.remainder(direction(relative.position) + torch.pi / sectors, 2 * torch.pi)
    sector = (bearing * sectors / (2 * torch.pi)).long().clamp(max=sectors - 1)

    group = receiver * sectors + sector
    order = norm(relative.position).argsort(stable=True)
    order = order[group[order].argsort(stable=True)]
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = group[order].diff() != 0
    nearest = order[first]

    graphs = flatten_stars(torch.bincount(receiver[nearest], minlength=graph.num_agents))
    sender, receiver, sector = sender[nearest], receiver[nearest], sector[nearest]
    agent = batch["agent"]
    turn = agent.heading[sender] - agent.heading[receiver]
    is_neighbor = torch.ones_like(graphs.batch, dtype=torch.bool)
    is_neighbor[graphs.target_index] = False
    state = agent.velocity.new_zeros(graphs.batch.shape[0], state_channels(sectors))
    own = torch.zeros_like(agent.position), agent.velocity, torch.zeros_like(agent.heading)
    state[graphs.target_index] = _state(*own, agent.object_type, None, sectors)
    neighbor = relative.position[nearest], rotate(agent.velocity[sender], turn), turn
    state[is_neighbor] = _state(*neighbor, agent.object_type[sender], sector, sectors)
    rows = is_neighbor.nonzero()[:, 0]
    return graphs, state, rows, graphs.batch.index_copy(0, rows, sender)


def _state(
    position: Tensor, velocity: Tensor, heading: Tensor, object_type: Tensor, sector: Tensor | None, n: int
) -> Tensor:
    one_hot = torch.nn.functional.one_hot
    sectors = position.new_zeros(object_type.shape[0], n) if sector is None else one_hot(sector, n)
    parts = (position / LENGTH_SCALE, velocity / SPEED_SCALE, unit_vector(heading))
    return torch.cat((*parts, one_hot(object_type, len(OBJECT_TYPES)), sectors), -1)
