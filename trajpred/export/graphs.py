"""The graphs of a bundle as modules: functions of one scene's tensors, around the trained modules.

Sizes: ``A`` agents, ``L`` lane segments and crossings, ``N = A + L``, ``B`` agents to predict. Rows whose
``valid`` is False are padding: no node attends to them, and their outputs are undefined.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trajpred.data.geometry import Pose
from trajpred.features.config import GraphConfig
from trajpred.features.relations import (
    AGENT_TO_AGENT,
    AGENT_TO_LANE,
    EDGE_KINDS,
    LANE_TO_AGENT,
    LANE_TO_LANE,
    distances,
    edge_features,
    relation_kinds,
)
from trajpred.model.mode_decoder import ModeDecoder
from trajpred.model.scene_decoder import constant_velocity
from trajpred.model.scene_encoder import SceneEncoder
from trajpred.model.token_graph import MODE_EDGE_KINDS, fade_out
from trajpred.nn import DenseRelation


@dataclass
class Nodes:
    """Agents and lanes of one scene as the nodes of a graph, agents first.

    Attributes:
        poses: ``[N, 2]``, ``[N]``.
        valid: ``[N]``, False for padding.
        agents: A.
    """

    poses: Pose[Tensor]
    valid: Tensor
    agents: int

    @classmethod
    def of(cls, agents: Pose[Tensor], agent_valid: Tensor, lanes: Pose[Tensor], lane_valid: Tensor) -> Nodes:
        position = torch.cat((agents.position, lanes.position))
        heading = torch.cat((agents.heading, lanes.heading))
        valid = torch.cat((agent_valid, lane_valid))
        return cls(Pose(position, heading), valid, agents=agents.heading.shape[0])

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
    A = nodes.agents
    position = nodes.poses.position
    valid = nodes.valid
    kinds = relation_kinds(position[:A], valid[:A], position[A:], valid[A:], topology, config)
    of_agents = torch.cat((kinds[AGENT_TO_AGENT], kinds[LANE_TO_AGENT]), 1)
    of_lanes = torch.cat((kinds[AGENT_TO_LANE], kinds[LANE_TO_LANE]), 1)
    return torch.cat((of_agents, of_lanes))


class Encoder(nn.Module):
    """Histories and lane tokens -> tokens of agents and lanes in their surroundings.

    Inputs and outputs: ``SIGNATURES["encoder"]``.
    """

    def __init__(self, encoder: SceneEncoder, config: GraphConfig) -> None:
        super().__init__()
        self.encoder = encoder
        self.config = config

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
        *unused: Tensor,
    ) -> tuple[Tensor, Tensor]:
        lanes = Pose(lane_position, lane_heading)
        nodes = Nodes.of(Pose(agent_position, agent_heading), agent_valid, lanes, lane_valid)
        kind = scene_kinds(nodes, lane_topology, self.config)
        poses = nodes.poses
        senders = poses.rows[:, None]
        receivers = poses.rows[..., None]
        bias = self.encoder.bias(edge_features(senders, receivers, kind, len(EDGE_KINDS)))
        relation = DenseRelation.of_pairs(bias, kind > 0, (poses, poses))
        tokens = torch.cat((self.encoder.agent(history, object_type), lane_token))
        tokens = self.encoder.apply_layers(tokens, relation)
        return tokens[: nodes.agents], tokens[nodes.agents :]


class Decoder(nn.Module):
    """Tokens -> futures of the agents ``target``, in their own frames.

    Inputs and outputs: ``SIGNATURES["decoder"]``.

    Args:
        temperature: divides the logits.
    """

    def __init__(self, decoder: ModeDecoder, temperature: float = 1.0) -> None:
        super().__init__()
        self.decoder = decoder
        self.temperature = temperature

    def forward(
        self,
        agent_token: Tensor,
        lane_context: Tensor,
        agent_position: Tensor,
        agent_heading: Tensor,
        agent_valid: Tensor,
        agent_velocity: Tensor,
        agent_elapsed_s: Tensor,
        agent_anchors: Tensor,
        lane_position: Tensor,
        lane_heading: Tensor,
        lane_valid: Tensor,
        target: Tensor,
        step_s: Tensor,
        *unused: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        agents = Pose(agent_position, agent_heading)
        lanes = Pose(lane_position, lane_heading)
        nodes = Nodes.of(agents, agent_valid, lanes, lane_valid)
        targets = Pose(agent_position.index_select(0, target), agent_heading.index_select(0, target))

        def relation(stage: int, poses: Pose[Tensor]) -> DenseRelation:
            modes = self.decoder.mode.num_embeddings
            agent = target if stage == 0 else target.repeat_interleave(modes)
            return self._relation(stage, nodes, poses, agent)

        anchors = agent_anchors.index_select(0, target)
        velocity = agent_velocity.index_select(0, target)
        elapsed_s = agent_elapsed_s.index_select(0, target)
        steps_s = step_s.expand(elapsed_s.shape[0])
        steady = constant_velocity(velocity, elapsed_s, steps_s, self.decoder.horizon)
        start = self.decoder.start(anchors, steady)
        scene = torch.cat((agent_token, lane_context))
        token = agent_token.index_select(0, target)
        prediction = self.decoder.decode(token, scene, targets, start, relation).merged()
        probability = (prediction.logits / self.temperature).softmax(-1)
        return prediction.trajectory, prediction.scale, probability

    def _relation(self, stage: int, nodes: Nodes, poses: Pose[Tensor], agent: Tensor) -> DenseRelation:
        """Relate each of ``poses`` ``[M]`` to the nodes within the radius and to its own ``agent``."""
        node = torch.arange(nodes.valid.shape[0], device=agent.device)
        is_self = node == agent[:, None]
        distance = nodes.distance(poses)
        radius = self.decoder.radius[stage]
        edge = (distance <= radius) | is_self
        node_kind = torch.where(node >= nodes.agents, 2, 1)
        kind = torch.where(is_self, torch.zeros_like(node_kind), node_kind)
        senders = nodes.poses.rows[:, None]
        receivers = poses.rows[..., None]
        features = edge_features(senders, receivers, kind, len(MODE_EDGE_KINDS))
        fading = fade_out(distance, radius).where(~is_self, 0.0)
        bias = self.decoder.scene_bias(stage, features, fading)
        return DenseRelation.of_pairs(bias, edge, (nodes.poses, poses), complete=True)
