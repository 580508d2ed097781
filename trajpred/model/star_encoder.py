"""The trajectory-prediction article's pipeline: own history, a star of neighbours, everyone, the lanes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.graph.agents import HISTORY_CHANNELS
from trajpred.model.joint_graph import EDGE_CHANNELS, JointGraph
from trajpred.model.star_graph import stars, state_channels
from trajpred.model.token_encoder import SceneTokens, TokenEncoder
from trajpred.nn import mlp
from trajpred.nn.published.gat import GATEncoder
from trajpred.nn.published.padded_attention import PaddedAttention, merge_tensors


class TemporalEncoder(nn.Module):
    """Temporal self-attention over an agent's own observed steps.

    Shapes: history ``[A, T, HISTORY_CHANNELS]``, T up to 256 -> steps ``[A, T, dim]``, valid ``[A, T]``.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.state, self.time = mlp(HISTORY_CHANNELS, dim, dim), nn.Embedding(256, dim)
        self.attention, self.norm = PaddedAttention(dim, heads), nn.LayerNorm(dim)

    def forward(self, history: Tensor) -> tuple[Tensor, Tensor]:
        valid = history[..., -1] > 0
        # Counted back from the present, so that the latest step is the same for every history length.
        ago = torch.arange(history.shape[1] - 1, -1, -1, device=history.device)
        x = self.state(history) + self.time(ago)
        return self.norm(x + self.attention(x, mask=valid)), valid


class StarSceneEncoder(TokenEncoder):
    """Every agent in turn is the target of a star graph of its neighbours by direction.

    Temporal self-attention over the own history; stacked GAT layers over the stars, of which the target's
    row is kept; global self-attention among the agents of a scene; cross-attention from the target to its
    history and its neighbours, from lanes to the agents near them, and from the target to its lanes.

    Args:
        dim: channels of a token.
        heads, layers: of the stacked GAT encoder.
        neighbors: sectors around a target, each with its nearest neighbour.
        conv: ``gat`` or ``gatv2``.
        dropout: inside the GAT layers.
        completion: share of the observed steps that are hidden and to be filled in again from the others, as
            an auxiliary objective (masked-trajectory completion); 0 for none.
    """

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
        self.pose, self.everyone = nn.Linear(4, dim), PaddedAttention(dim, heads)
        self.to_lane, self.to_agent = nn.Linear(EDGE_CHANNELS, dim), nn.Linear(EDGE_CHANNELS, dim)
        self.cross = nn.ModuleDict(
            {name: PaddedAttention(dim, heads) for name in ("history", "neighbors", "lanes", "agents")}
        )
        self.norms = nn.ModuleDict({name: nn.LayerNorm(dim) for name in ("star", "everyone", *self.cross)})
        self.fill_in = mlp(dim, dim, 2) if completion else None

    def encode(self, batch: HeteroData) -> SceneTokens:
        graph, agent, lane = JointGraph.of(batch), batch["agent"], batch["lane"]
        steps, seen = self.agent(agent.history)
        lanes = self.lane(lane.points, lane.kind, lane.is_intersection, lane.marks)

        star = stars(batch, graph, self.neighbors)
        rows, counts = star.neighbors
        nodes = self.node(star.state)
        # The target brings its history into its star.
        nodes = nodes.index_add(0, star.graphs.target_index, _latest(steps, seen))
        x = self.norms["star"](self.stars(nodes, star.graphs.edge_index, star.graphs.target_index))

        agents = graph.agents
        mask = agents.pad(torch.ones_like(agent.heading)) > 0
        heard = self.everyone(agents.pad(x + self.pose(graph.focal_poses[: graph.num_agents])), mask=mask)
        x = self.norms["everyone"](x + agents.unpad(heard))
        x = self._hear("history", x, steps, seen)
        x = self._hear("neighbors", x, *merge_tensors(nodes[rows], counts))
        # Lanes first learn who is on them, then the targets ask the lanes.
        lanes = self._hear("agents", lanes, *self._along(graph, True, False, x, self.to_agent))
        x = self._hear("lanes", x, *self._along(graph, False, True, lanes, self.to_lane))
        return SceneTokens(x, lanes, graph)

    forward = encode

    def _hear(self, name: str, x: Tensor, z: Tensor, mask: Tensor) -> Tensor:
        """``x`` ``[R, dim]`` attends to its own ``z`` ``[R, m, dim]``."""
        return self.norms[name](x + self.cross[name](x[:, None], z, key_mask=mask)[:, 0])

    def _along(
        self, graph: JointGraph, from_agents: bool, to_agents: bool, sender: Tensor, pose: nn.Linear
    ) -> tuple[Tensor, Tensor]:
        """What each receiver's edges bring, sender and relative pose: ``[R, m, dim]``, ``[R, m]``."""
        edges = graph.edges(from_agents, to_agents)
        index = graph.index[:, edges] - graph.index.new_tensor(
            [[0 if from_agents else graph.num_agents], [0 if to_agents else graph.num_agents]]
        )
        receivers = graph.num_agents if to_agents else len(graph) - graph.num_agents
        brought = sender[index[0]] + pose(graph.features[edges])
        return merge_tensors(brought, torch.bincount(index[1], minlength=receivers))

    def auxiliary_losses(self, batch: HeteroData) -> dict[str, Tensor]:
        """Masked-trajectory completion: mean distance (in units of 10 m) at the hidden steps."""
        if self.fill_in is None:
            return {}
        history = batch["agent"].history
        hidden = (torch.rand_like(history[..., 0]) < self.completion) & (history[..., -1] > 0)
        # Hidden steps keep their place in time and their mask, and lose everything else.
        shown = torch.cat((history[..., :-1] * ~hidden[..., None], history[..., -1:]), -1)
        error = torch.linalg.vector_norm(self.fill_in(self.agent(shown)[0]) - history[..., :2], dim=-1)
        return {"completion": (error * hidden).sum() / hidden.sum().clamp(min=1)}


def _latest(steps: Tensor, valid: Tensor) -> Tensor:
    """The last valid step of each agent: ``[A, dim]``."""
    time = torch.arange(valid.shape[1], device=valid.device)
    last = torch.where(valid, time, 0).amax(1)
    return steps[torch.arange(len(steps), device=steps.device), last]
