"""The layers of the mode decoder, and the poses at which modes are anchored again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from trajpred.features.channels import LENGTH_SCALE
from trajpred.geometry import Pose, direction, to_global
from trajpred.model.scene_encoder import RelativePose, pose_bias
from trajpred.model.token_graph import MODE_EDGE_CHANNELS
from trajpred.nn import EdgeAttention, GraphAttention, GraphTransformerLayer
from trajpred.nn.edge_attention import Operator

#: Displacement (m) around which the heading of the agent fades in as the direction of a mode.
STATIONARY_M = 2.0
#: Displacement (m) of the last second around which the direction of the whole mode fades in.
STOPPED_M = 1.0
#: Steps of the last second of a mode, and the one before them.
LAST_STEPS = 11


@dataclass(frozen=True)
class ModeLayers:
    """Builder of the decoder's layers and attention biases; attributes are the decoder's arguments."""

    dim: int
    heads: int
    dropout: float
    drop_path: float
    norm: Literal["post", "pre"]
    pose: RelativePose
    attention: Operator | Literal["graph_attention"]

    @property
    def published(self) -> bool:
        """Whether the operator is a published one, which reads features instead of bias and poses."""
        return self.attention != "graph_attention"

    def bias(self) -> nn.Module:
        """Build the map from edge features to one additive score per head."""
        if self.published:
            return NoBias()
        return pose_bias(MODE_EDGE_CHANNELS, self.heads, self.pose)

    def layer(self, poses: bool) -> GraphTransformerLayer:
        """Build one layer, over a relation with or without ``poses``."""
        operator: nn.Module
        if self.attention == "graph_attention":
            reads_poses = poses and self.pose in ("both", "values")
            operator = GraphAttention(self.dim, self.heads, poses=reads_poses)
        else:
            channels = MODE_EDGE_CHANNELS if poses else 0
            operator = EdgeAttention(self.attention, self.dim, self.heads, channels)
        return GraphTransformerLayer(
            operator,
            self.dim,
            dropout=self.dropout,
            drop_path=self.drop_path,
            norm=self.norm,
        )

    def pairs(self, count: int) -> nn.ModuleList:
        """Build ``count`` pairs: mode ← scene with poses, then mode ↔ mode without."""
        layers = nn.ModuleList()
        for _ in range(count):
            layers.append(self.layer(poses=True))
            layers.append(self.layer(poses=False))
        return layers


class NoBias(nn.Module):
    """The bias of published operators, which read the features themselves: zeros ``[1, E]``."""

    def forward(self, features: Tensor) -> Tensor:
        return features.new_zeros(1, features.shape[1])


def scaled_paths(trajectory: Tensor) -> Tensor:
    """``[A, K, F, 2]`` metres -> ``[A · K, 2 · F]``, in the unit that the networks read."""
    return trajectory.flatten(0, 1).flatten(1) / LENGTH_SCALE


def end_pose(trajectory: Tensor, agents: Pose[Tensor]) -> Pose[Tensor]:
    """Return the pose at the end of each mode in the common frame, ``[A·K, 2]`` and ``[A·K]``.

    Args:
        trajectory: ``[A, K, F, 2]`` metres in the frames of the ``agents``, detached.
        agents: their poses, ``[A]``.
    """
    # Short displacements have no meaningful direction. The direction of the whole mode, and then that of the
    # agent, fade in smoothly: a threshold would make the heading of stopping modes jump.
    end = trajectory[:, :, -1]
    start_of_last = trajectory[:, :, -min(LAST_STEPS, trajectory.shape[2])]
    last = end - start_of_last
    ahead = nn.functional.pad(_fading(end, STATIONARY_M), (0, 1))
    turn = direction(last + _fading(last, STOPPED_M) * end + ahead)
    agent_position = agents.position[:, None]
    agent_heading = agents.heading[:, None]
    position = to_global(end, agent_position, agent_heading)
    heading = agent_heading + turn
    return Pose(position.flatten(0, 1), heading.flatten())


def _fading(displacement: Tensor, scale: float) -> Tensor:
    """Weigh displacements ``[..., 2]`` by a Gaussian, ``[..., 1]``: 1 at 0, near 0 beyond ``scale``."""
    squared = (displacement**2).sum(-1, keepdim=True)
    return torch.exp(-squared / scale**2)
