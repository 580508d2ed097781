"""What a decoder says, and the plain pieces that decoders and losses share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import HeteroData


@dataclass
class Prediction:
    """Futures of the agents of a batch, each in the frame of its agent (last observed pose).

    Attributes:
        trajectory: ``[A, K, F, 2]`` metres.
        scale: ``[A, K, F, 2]`` metres, Laplace scales of x and y.
        logits: ``[A, K]`` unnormalised log-probabilities of the modes.
        proposal, proposal_scale: the same before refinement, where the decoder refines.
    """

    trajectory: Tensor
    scale: Tensor
    logits: Tensor
    proposal: Tensor | None = None
    proposal_scale: Tensor | None = None


def scene_mean(values: Tensor, scene: Tensor, scenes: int) -> Tensor:
    """Mean of ``values`` ``[A, K]`` over the agents of each scene: ``[scenes, K]``; ``scene`` ``[A]``."""
    count = torch.bincount(scene, minlength=scenes).clamp(min=1)[:, None]
    return values.new_zeros(scenes, values.shape[1]).index_add(0, scene, values) / count


def constant_velocity(velocity: Tensor, elapsed_s: Tensor, step_s: Tensor, horizon: int) -> Tensor:
    """``[A, horizon, 2]`` metres, own frame: every agent drives on as it was last seen.

    Args:
        velocity: ``[A, 2]`` m/s, own frame.
        elapsed_s: ``[A]`` since it was last seen; step_s: ``[A]`` between steps.
    """
    steps = torch.arange(1, horizon + 1, device=velocity.device, dtype=velocity.dtype)
    after = steps * step_s[:, None] + elapsed_s[:, None]
    return velocity[:, None] * after[..., None]


def driving_on(batch: HeteroData, horizon: int) -> Tensor:
    """:func:`constant_velocity` of all agents of ``batch``."""
    agent = batch["agent"]
    step = torch.as_tensor(batch.step_s, dtype=agent.velocity.dtype, device=agent.velocity.device)
    step = step.reshape(-1).index_select(0, agent.batch)
    return constant_velocity(agent.velocity, agent.elapsed_s, step, horizon)
