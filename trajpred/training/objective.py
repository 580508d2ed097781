"""What a forecaster is trained for: the losses of a prediction against a batch's targets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from trajpred.model.scene_decoder import Prediction, scene_mean
from trajpred.scenario import TrackCategory
from trajpred.training.distributed import process_count, sum_over_processes
from trajpred.training.losses import average_displacement, endpoint_nll, mixture_nll, winner_takes_all


@dataclass(frozen=True)
class LossConfig:
    """Weights of the losses, and of agents by category.

    Attributes:
        proposal, refinement: of the winning mode before and after refinement: its error and its scale.
        mode: end-point mixture NLL, which trains the probabilities.
        joint: all three again for the joint futures, where the decoder has them.
        regularization, completion: what some encoders add: an L2 penalty, and masked-trajectory completion.
        focal, scored, others: how much an agent of that category counts.
    """

    proposal: float = 1.0
    refinement: float = 1.0
    mode: float = 1.0
    joint: float = 1.0
    regularization: float = 1.0
    completion: float = 1.0
    focal: float = 1.0
    scored: float = 1.0
    others: float = 0.2


def prediction_losses(
    prediction: Prediction,
    batch: HeteroData,
    config: LossConfig,
    joint: bool = False,
    agents: Tensor | None = None,
) -> dict[str, Tensor]:
    """``proposal``, ``refinement``, ``mode`` and their weighted sum ``loss``; ``minADE`` to look at.

    Every agent has its own winner; with ``joint`` one world wins for all agents of a scene. ``agents``: the
    rows that ``prediction`` is of, if not all.

    Each loss is a mean over agents by weight. Where several processes train together, all of them must call
    this, and the mean of what they return is the mean over the agents of all: DDP averages gradients.
    """
    agent, p = batch["agent"], prediction
    given = agent.target, agent.target_mask, agent_weight(batch, config), agent.batch
    target, valid, weight, scene = (x if agents is None else x[agents] for x in given)
    mean_weight = process_count() * weight / sum_over_processes(weight.sum()).clamp(min=1e-6)

    def scene_weighted(values: Tensor) -> Tensor:
        """Mean over each scene's agents by weight, back at every agent: ``[A, K]``."""
        share = scene_mean(weight[:, None], scene, batch.num_graphs).clamp(min=1e-6)
        total = scene_mean(values * weight[:, None], scene, batch.num_graphs)
        return (total / share)[scene]

    def stage(trajectory: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        error = average_displacement(trajectory, target, valid)
        best = (scene_weighted(error) if joint else error).argmin(1)
        nll = winner_takes_all(trajectory, scale, target, valid, best)
        return (nll * mean_weight).sum(), (error.gather(1, best[:, None])[:, 0] * mean_weight).sum()

    end = endpoint_nll(p.trajectory, p.scale, target, valid)
    mixture = mixture_nll(p.logits, scene_weighted(end) if joint else end)
    refinement, error = stage(p.trajectory, p.scale)
    losses = {"refinement": refinement, "mode": (mixture * mean_weight).sum()}
    if p.proposal is not None and p.proposal_scale is not None:
        losses["proposal"] = stage(p.proposal, p.proposal_scale)[0]
    total = torch.stack([getattr(config, name) * value for name, value in losses.items()]).sum()
    return {**losses, "loss": total, "minADE": error}


def agent_weight(batch: HeteroData, config: LossConfig) -> Tensor:
    """``[A]``: by category, 0 for agents without a valid future step."""
    agent = batch["agent"]
    weight = torch.full_like(agent.heading, config.others)
    weight = weight.masked_fill(agent.category == TrackCategory.SCORED, config.scored)
    weight = weight.masked_fill(agent.category == TrackCategory.FOCAL, config.focal)
    return weight * agent.target_mask.any(1)
