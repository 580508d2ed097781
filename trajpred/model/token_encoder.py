"""What all scene encoders share: one token per agent and lane, and how they are found in a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.model.agent_encoder import AgentEncoder
from trajpred.model.checkpoint import CONFIG, below, build, load_weights, read_checkpoint
from trajpred.model.joint_graph import JointGraph
from trajpred.model.lane_encoder import LaneEncoder

Encoder = TypeVar("Encoder", bound="TokenEncoder")


@dataclass
class SceneTokens:
    """What an encoder says of a batch.

    Attributes:
        agent: ``[A, dim]``; lane: ``[L, dim]``.
        graph: the nodes' poses and edges.
    """

    agent: Tensor
    lane: Tensor
    graph: JointGraph

    @property
    def joint(self) -> Tensor:
        """``[A + L, dim]``: all agents of the batch, then all lanes."""
        return torch.cat((self.agent, self.lane))


class TokenEncoder(nn.Module):
    """Histories and polylines -> tokens; a subclass lets them hear each other in :meth:`interact`.

    Args:
        dim: channels of a token.
        agent, lane: what makes the tokens, if not the default encoders.
    """

    def __init__(self, dim: int = 128, agent: nn.Module | None = None, lane: nn.Module | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.agent, self.lane = agent or AgentEncoder(dim), lane or LaneEncoder(dim)

    def interact(self, x: Tensor, graph: JointGraph) -> Tensor:
        """``[A + L, dim]`` tokens of agents and lanes -> the same, each knowing its surroundings."""
        raise NotImplementedError

    def auxiliary_losses(self, batch: HeteroData) -> dict[str, Tensor]:
        """What the encoder adds to the training loss, under names of ``LossConfig``."""
        return {}

    def encode(self, batch: HeteroData) -> SceneTokens:
        """Tokens of all agents and lanes of a batch (:func:`trajpred.graph.scene_graph.scene_graph`)."""
        agent, lane, graph = batch["agent"], batch["lane"], JointGraph.of(batch)
        agents = self.agent(agent.history, agent.object_type)
        lanes = self.lane(lane.points, lane.kind, lane.is_intersection, lane.marks)
        x = self.interact(torch.cat((agents, lanes)), graph)
        return SceneTokens(x[: graph.num_agents], x[graph.num_agents :], graph)

    forward = encode

    @classmethod
    def from_checkpoint(cls: type[Encoder], checkpoint: str | Path) -> Encoder:
        """The trained encoder of a forecaster's checkpoint, or of weights that ship by their name.

        In evaluation mode. Raises: DataError.
        """
        content = read_checkpoint(checkpoint)
        state = below(content["state_dict"], "forecaster.encoder.")
        return load_weights(build(cls, content[CONFIG]["encoder"]), state, checkpoint)
