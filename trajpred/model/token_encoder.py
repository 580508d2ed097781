"""The base class of scene encoders, and the tokens they return."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.errors import DataError
from trajpred.forecast import Attention
from trajpred.model.checkpoint import CONFIG, build, load_weights, read_checkpoint, weights_below
from trajpred.model.input_encoders import AgentEncoder, LaneEncoder
from trajpred.model.token_graph import TokenGraph

Encoder = TypeVar("Encoder", bound="TokenEncoder")


@dataclass
class SceneTokens:
    """The output of an encoder for a batch.

    Attributes:
        agent: ``[A, dim]``.
        lane: ``[L, dim]``.
        graph: poses and edges of the tokens.
    """

    agent: Tensor
    lane: Tensor
    graph: TokenGraph

    @property
    def nodes(self) -> Tensor:
        """Tokens of all agents of the batch, then of all lanes, ``[A + L, dim]``."""
        return torch.cat((self.agent, self.lane))


class TokenEncoder(nn.Module):
    """Encode a batch into one token per agent and lane. Subclass it to use an encoder of your own.

    A subclass implements :meth:`interact`, which exchanges information between the tokens.

    Args:
        dim: channels of a token.
        agent, lane: encoders of histories and polylines; :class:`AgentEncoder` and :class:`LaneEncoder` by
            default.

    Example:
        >>> class MeanEncoder(TokenEncoder):
        ...     def interact(self, x, graph):
        ...         return x + x.mean(0)
    """

    #: Whether :meth:`attention_weights` is implemented.
    has_attention: ClassVar[bool] = False

    def __init__(self, dim: int = 128, agent: nn.Module | None = None, lane: nn.Module | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.agent, self.lane = agent or AgentEncoder(dim), lane or LaneEncoder(dim)

    def interact(self, x: Tensor, graph: TokenGraph) -> Tensor:
        """Update the tokens of agents and lanes from each other: ``[A + L, dim]`` -> the same shape."""
        raise NotImplementedError

    def auxiliary_losses(self, batch: HeteroData) -> dict[str, Tensor]:
        """Return the encoder's own training losses, keyed by names of ``LossConfig``."""
        return {}

    def attention_weights(self, batch: HeteroData) -> list[Attention]:
        """Return the attention weights of every scene of ``batch``, in evaluation mode.

        Raises: DataError if the encoder does not report attention.
        """
        raise DataError(f"{type(self).__name__} does not report attention", field="encoder")

    def encode(self, batch: HeteroData) -> SceneTokens:
        """Encode all agents and lanes of a batch (:func:`trajpred.graph.scene_graph.scene_graph`)."""
        agent, lane, graph = batch["agent"], batch["lane"], TokenGraph.of(batch)
        agents = self.agent(agent.history, agent.object_type)
        lanes = self.lane(lane.points, lane.kind, lane.is_intersection, lane.marks)
        x = self.interact(torch.cat((agents, lanes)), graph)
        return SceneTokens(x[: graph.num_agents], x[graph.num_agents :], graph)

    forward = encode

    @classmethod
    def from_checkpoint(cls: type[Encoder], checkpoint: str | Path) -> Encoder:
        """Load the trained encoder of a forecaster, in evaluation mode.

        Args:
            checkpoint: path of a checkpoint, or name of weights that ship with the package.

        Raises: DataError.
        """
        content = read_checkpoint(checkpoint)
        state = weights_below(content["state_dict"], "forecaster.encoder.")
        return load_weights(build(cls, content[CONFIG]["encoder"]), state, checkpoint)
