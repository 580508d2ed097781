"""The parts of a forecaster as functions of one scene's tensors, which is what is exported. No second model:
these modules hold the trained ones and hand them their relations as matrices.

Sizes: ``A`` agents, ``L`` lane segments and crossings, ``N = A + L``, ``B`` agents to predict. Rows whose
``valid`` is False are padding: nobody hears them, and what comes out of them means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trajpred.geometry import Pose
from trajpred.graph.config import GraphConfig
from trajpred.graph.edge_features import pair_features
from trajpred.graph.relations import (
    AGENT_TO_AGENT,
    AGENT_TO_LANE,
    EDGE_KINDS,
    LANE_TO_AGENT,
    LANE_TO_LANE,
    distances,
    relation_kinds,
)
from trajpred.model.mode_decoder import MODE_EDGE_KINDS, ModeDecoder
from trajpred.model.scene_decoder import constant_velocity
from trajpred.model.scene_encoder import SceneEncoder
from trajpred.nn import EdgeBias, MatrixRelation


@dataclass
class Nodes:
    """Agents and lanes of one scene as the nodes of a graph, agents first.

    Attributes:
        poses: ``[N, 2]``, ``[N]``; valid: ``[N]``; agents: A.
    """

    poses: Pose[Tensor]
    valid: Tensor
    agents: int

    @classmethod
    def of(cls, agents: Pose[Tensor], agent_valid: Tensor, lanes: Pose[Tensor], lane_valid: Tensor) -> Nodes:
        position = torch.cat((agents.position, lanes.position))
        heading = torch.cat((agents.heading, lanes.heading))
        return cls(Pose(position, heading), torch.cat((agent_valid, lane_valid)), agents.heading.shape[0])

    def distance(self, poses: Pose[Tensor]) -> Tensor:
        """Compute the metres ``[M, N]`` from each of ``poses`` to each node, infinite for padding."""
        return torch.where(self.valid, distances(poses.position, self.poses.position), torch.inf)


def scene_kinds(nodes: Nodes, topology: Tensor, config: GraphConfig) -> Tensor:
    """Build the edges of a scene, as ``scene_graph`` does for a batch.

    Args:
        topology: ``[L, L]`` int64, receiver by sender: 0, or 1 + index into ``TOPOLOGY``.

    Returns:
        ``[N, N]`` int64, receiver by sender: index into ``EDGE_KINDS``.
    """
    A, position, valid = nodes.agents, nodes.poses.position, nodes.valid
    kinds = relation_kinds(position[:A], valid[:A], position[A:], valid[A:], topology, config)
    of_agents = torch.cat((kinds[AGENT_TO_AGENT], kinds[LANE_TO_AGENT]), 1)
    return torch.cat((of_agents, torch.cat((kinds[AGENT_TO_LANE], kinds[LANE_TO_LANE]), 1)))


class Encoder(nn.Module):
    """Histories and lane tokens -> tokens that know their surroundings (``SIGNATURES["encoder"]``)."""

    def __init__(self, encoder: SceneEncoder, config: GraphConfig) -> None:
        super().__init__()
        self.encoder, self.config = encoder, config

    def forward(
        self,
        history: Tensor,
        object_type: Tensor,
        agent_position: Tensor,
        agent_heading: Tensor,
        agent_valid: Tensor,
        lane_token: Tensor,
        lane_position: Tensor,
        lane_heading: Tensor,
        lane_valid: Tensor,
        lane_topology: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """``[A, dim]``, ``[L, dim]``."""
        lanes = Pose(lane_position, lane_heading)
        nodes = Nodes.of(Pose(agent_position, agent_heading), agent_valid, lanes, lane_valid)
        kind = scene_kinds(nodes, lane_topology, self.config)
        poses = nodes.poses
        bias = self.encoder.bias.of_pairs(pair_features(poses, poses, kind, len(EDGE_KINDS)))
        relation = MatrixRelation.of(bias, kind > 0, (poses, poses))
        tokens = torch.cat((self.encoder.agent(history, object_type), lane_token))
        heard = self.encoder.apply_layers(tokens, relation)
        return heard[: nodes.agents], heard[nodes.agents :]


class Decoder(nn.Module):
    """Tokens -> futures of the agents ``target`` (``SIGNATURES["decoder"]``).

    Args:
        temperature: probabilities are those of the logits divided by it.
    """

    def __init__(self, decoder: ModeDecoder, temperature: float = 1.0) -> None:
        super().__init__()
        self.decoder, self.temperature = decoder, temperature

    def forward(
        self,
        agent_token: Tensor,
        lane_context: Tensor,
        agent_position: Tensor,
        agent_heading: Tensor,
        agent_valid: Tensor,
        agent_velocity: Tensor,
        agent_elapsed_s: Tensor,
        lane_position: Tensor,
        lane_heading: Tensor,
        lane_valid: Tensor,
        target: Tensor,
        step_s: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Trajectory and scale ``[B, K, F, 2]`` in the frames of the agents, probability ``[B, K]``."""
        agents = Pose(agent_position, agent_heading)
        nodes = Nodes.of(agents, agent_valid, Pose(lane_position, lane_heading), lane_valid)
        chosen = Pose(agent_position.index_select(0, target), agent_heading.index_select(0, target))

        def around(stage: int, poses: Pose[Tensor]) -> MatrixRelation:
            owner = target if stage == 0 else target.repeat_interleave(self.decoder.modes)
            return self._around(stage, nodes, poses, owner)

        velocity, elapsed = (x.index_select(0, target) for x in (agent_velocity, agent_elapsed_s))
        start = constant_velocity(velocity, elapsed, step_s.expand(elapsed.shape[0]), self.decoder.horizon)
        scene = torch.cat((agent_token, lane_context))
        found = self.decoder.decode(agent_token.index_select(0, target), scene, chosen, start, around)
        return found.trajectory, found.scale, (found.logits / self.temperature).softmax(-1)

    def _around(self, stage: int, nodes: Nodes, poses: Pose[Tensor], owner: Tensor) -> MatrixRelation:
        """What lies near ``poses`` ``[M]`` of the agents ``owner``, and each one's own agent."""
        node = torch.arange(nodes.valid.shape[0], device=owner.device)
        own = node == owner[:, None]
        edge = (nodes.distance(poses) <= self.decoder.radius[stage]) | own
        other = torch.where(node >= nodes.agents, 2, 1)
        kind = torch.where(own, torch.zeros_like(other), other)
        features, bias = (
            pair_features(nodes.poses, poses, kind, len(MODE_EDGE_KINDS)),
            self.decoder.bias[stage],
        )
        assert isinstance(bias, EdgeBias)
        return MatrixRelation.of(bias.of_pairs(features), edge, (nodes.poses, poses))


class WholeForecaster(nn.Module):
    """Lane encoder, encoder and decoder as one graph (``SIGNATURES["forecaster"]``)."""

    def __init__(self, lane_encoder: nn.Module, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.lane_encoder, self.encoder, self.decoder = lane_encoder, encoder, decoder

    def forward(
        self,
        history: Tensor,
        object_type: Tensor,
        agent_position: Tensor,
        agent_heading: Tensor,
        agent_valid: Tensor,
        agent_velocity: Tensor,
        agent_elapsed_s: Tensor,
        points: Tensor,
        kind: Tensor,
        is_intersection: Tensor,
        marks: Tensor,
        lane_position: Tensor,
        lane_heading: Tensor,
        lane_valid: Tensor,
        lane_topology: Tensor,
        target: Tensor,
        step_s: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        agents = (agent_position, agent_heading, agent_valid)
        lanes = (lane_position, lane_heading, lane_valid)
        lane_token = self.lane_encoder(points, kind, is_intersection, marks)
        tokens = self.encoder(history, object_type, *agents, lane_token, *lanes, lane_topology)
        futures = self.decoder(*tokens, *agents, agent_velocity, agent_elapsed_s, *lanes, target, step_s)
        return (*futures, *tokens)
