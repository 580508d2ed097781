"""The article's pipeline: history, a star of neighbours by direction, global attention, lanes."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.features.channels import EDGE_POSE, HISTORY, PLANE, VALID
from trajpred.features.relations import AGENT_TO_LANE, EDGE_KINDS, LANE_TO_AGENT, edge_features
from trajpred.geometry import Pose
from trajpred.model.attention import Pairs
from trajpred.model.stars import Stars, newest, state_channels
from trajpred.model.token_encoder import SceneTokens, TokenEncoder, require_sizes
from trajpred.model.token_graph import EDGE_CHANNELS, TokenGraph
from trajpred.nn import mlp
from trajpred.nn.published.gat import GATEncoder, GATLayer
from trajpred.nn.published.padded_attention import PaddedAttention

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

    Temporal self-attention over every history, once per agent; stacked GAT layers over the stars, whose
    nodes hold history and state of their agents and whose target row is kept; global self-attention between
    the agents of a scene; cross-attention from the target to its history and its neighbours, from lanes to
    the agents near them, and from the target to its lanes.

    Args:
        dim: channels of a token.
        heads: attention heads.
        layers: of the stacked GAT encoder.
        neighbors: sectors around a target, each with its nearest neighbour.
        relative_pose: give the edges of the stars the sender's pose in the receiver's frame.
        completion: share of the observed steps that are masked and reconstructed from the others as an
            auxiliary objective (masked-trajectory completion); 0 disables it.
        dropout: of the GAT layers.
        options: further arguments of the GAT layers (:class:`~trajpred.nn.GATLayer`).

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
        # Poses of the senders: of lanes that agents attend to, and of agents that lanes attend to.
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
            # Neighbours in a star are no tokens of the scene: only what the target attends to is reported.
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
            # There is one kind of edges: its channel, the last one, is constant and omitted.
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
