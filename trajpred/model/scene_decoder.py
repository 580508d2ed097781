"""The base class of decoders, their predictions, and their constant-velocity starting point."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from trajpred.data.modes import join
from trajpred.errors import DataError, quoted, require
from trajpred.model.token_encoder import PAGE, SceneTokens


@dataclass
class Prediction:
    """Futures of the agents of a batch, each in the frame of its agent (last observed pose).

    Attributes:
        trajectory: ``[A, K, F, 2]`` metres.
        scale: ``[A, K, F, 2]`` metres, Laplace scales of x and y.
        logits: ``[A, K]`` unnormalised log-probabilities of the modes.
        proposal: trajectory before refinement, if the decoder refines.
        proposal_scale: scale before refinement, if the decoder refines.
        groups: number of groups of modes, one after another. Each is trained as a forecast of its own, and
            :meth:`merged` makes one of them.
    """

    trajectory: Tensor
    scale: Tensor
    logits: Tensor
    proposal: Tensor | None = None
    proposal_scale: Tensor | None = None
    groups: int = 1

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name, without those that the decoder does not give."""
        return {name: x for name, x in vars(self).items() if isinstance(x, Tensor)}

    def merged(self) -> Prediction:
        """Merge all groups into the modes of the last one; a single group stays as it is."""
        if self.groups == 1:
            return self
        logits = self.logits.unflatten(1, (self.groups, -1))
        probability = logits.softmax(2).flatten(1) / self.groups
        share, weight = join(self.trajectory, probability, logits.shape[2])
        trajectory = _weighted_sum(share, self.trajectory)
        scale = _weighted_sum(share, self.scale)
        return Prediction(trajectory, scale, weight.log())

    def separate(self) -> Prediction:
        """Return each group as the modes of an agent of its own: ``[A · groups, K / groups, …]``."""
        parts = {}
        for name, x in self.tensors.items():
            parts[name] = x.unflatten(1, (self.groups, -1)).flatten(0, 1)
        return Prediction(**parts)


def _weighted_sum(share: Tensor, x: Tensor) -> Tensor:
    """Sum the modes ``[A, M, F, 2]`` with weights ``share`` ``[A, K, M]``: ``[A, K, F, 2]``."""
    return torch.bmm(share, x.flatten(2)).unflatten(2, x.shape[2:])


class SceneDecoder(nn.Module):
    """Decode scene tokens into K futures per agent. Subclass it to use a decoder of your own.

    The constructor of a subclass takes ``horizon``, which training sets from the data.

    Args:
        horizon: future steps F.
        dim: channels of a token, equal to the encoder's.
        modes: futures per agent K.
        joint: whether the decoder also learns joint futures (``forward(..., joint=True)``).

    Example: docs/how-to/own-model.md trains a decoder of ten lines.
    """

    def __init__(self, horizon: int = 60, dim: int = 128, modes: int = 6, joint: bool = False) -> None:
        super().__init__()
        require(modes > 0, "modes", f"must be positive, is {modes}")
        self.horizon = horizon
        self.dim = dim
        self.modes = modes
        self.joint = joint
        self.register_forward_hook(_require_prediction)

    @property
    def anchor_steps(self) -> int:
        """Future steps of the agents' anchors that it reads; 0 if it reads none."""
        return 0

    def forward(
        self, tokens: SceneTokens, batch: HeteroData, joint: bool = False, agents: Tensor | None = None
    ) -> Prediction:
        """Predict the futures of the agents of ``batch``, each in the frame of its agent.

        Args:
            tokens: the encoder's output for ``batch``.
            batch: of the agents to predict.
            joint: predict joint futures: mode k of all agents of a scene is one possible world, and their
                ``logits`` are equal.
            agents: ``[B]`` rows of the agents to predict, ascending; all of them by default.

        Raises:
            ValueError: if ``joint`` is not supported.
        """
        raise DataError(f"{type(self).__name__} must have a forward, see {PAGE}", field="decoder")

    def auxiliary_losses(
        self, prediction: Prediction, batch: HeteroData, agents: Tensor
    ) -> dict[str, Tensor]:
        """Return own losses on a marginal prediction by name; one that ``LossConfig`` lacks has weight 1.

        Args:
            prediction: what :meth:`forward` returned for ``agents``.
            agents: ``[B]`` rows of ``batch`` that it contains.
        """
        return {}


def _require_prediction(decoder: nn.Module, _: object, prediction: object) -> None:
    """Raise :class:`DataError` if a decoder returned anything but a prediction."""
    if not isinstance(prediction, Prediction):
        problem = f"{type(decoder).__name__} must return a Prediction, returned {quoted(prediction)}"
        raise DataError(f"{problem}, see {PAGE}", field="decoder")


def constant_velocity(velocity: Tensor, elapsed_s: Tensor, step_s: Tensor, horizon: int) -> Tensor:
    """Extrapolate at constant velocity: ``[A, horizon, 2]`` metres, own frames.

    Args:
        velocity: ``[A, 2]`` m/s, own frames.
        elapsed_s: ``[A]`` seconds since the agent was last observed.
        step_s: ``[A]`` seconds between steps.
    """
    steps = torch.arange(1, horizon + 1, device=velocity.device, dtype=velocity.dtype)
    after = steps * step_s[:, None] + elapsed_s[:, None]
    return velocity[:, None] * after[..., None]


def constant_velocity_of(batch: HeteroData, horizon: int) -> Tensor:
    """Apply :func:`constant_velocity` to all agents of ``batch``."""
    agent = batch["agent"]
    velocity = agent.velocity
    scene_step = torch.as_tensor(batch.step_s, dtype=velocity.dtype, device=velocity.device)
    step_s = scene_step.reshape(-1).index_select(0, agent.batch)
    return constant_velocity(velocity, agent.elapsed_s, step_s, horizon)


def scene_mean(values: Tensor, scene: Tensor, scenes: int) -> Tensor:
    """Average ``values`` ``[A, K]`` over the agents of each scene ``[A]``: ``[scenes, K]``."""
    total = values.new_zeros(scenes, values.shape[1]).index_add(0, scene, values)
    # Unlike bincount, this does not make a GPU wait.
    count = values.new_zeros(scenes).index_add(0, scene, values.new_ones(len(scene)))
    return total / count.clamp(min=1)[:, None]
