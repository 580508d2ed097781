"""Losses on multi-modal futures: winner-takes-all regression, and a mixture for the probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from trajpred.data.geometry import last_step, norm
from trajpred.data.tracks import MOVING_M, TrackCategory
from trajpred.errors import require, require_not_negative
from trajpred.metrics import average_error
from trajpred.model.scene_decoder import Prediction, scene_mean
from trajpred.training.distributed import process_count, sum_over_processes


@dataclass(frozen=True)
class LossConfig:
    """Weights of the losses, and of the agents by category.

    Attributes:
        proposal: error and scale of the winning mode before refinement.
        refinement: error and scale of the winning mode after refinement.
        mode: end-point mixture NLL, which trains the probabilities.
        joint: all three losses of the joint futures, if the decoder has them.
        regularization: auxiliary loss of some encoders, an L2 penalty.
        completion: auxiliary loss of some encoders, the completion of masked trajectories.
        auxiliary: weights of other losses of encoder and decoder by name, 1 by default.
        continued: weight of a future step that was not recorded but continued by a model.
        continued_end: exponent of the likelihood of the last continued step in ``mode``.
        focal: weight of a focal agent.
        scored: weight of a scored agent.
        others: weight of any other agent.
    """

    proposal: float = 1.0
    refinement: float = 1.0
    mode: float = 1.0
    joint: float = 1.0
    regularization: float = 1.0
    completion: float = 1.0
    auxiliary: dict[str, float] = field(default_factory=dict)
    continued: float = 1.0
    continued_end: float = 0.25
    focal: float = 1.0
    scored: float = 1.0
    others: float = 0.2

    def __post_init__(self) -> None:
        weights = dict(vars(self))
        require_not_negative(**weights.pop("auxiliary"), **weights)
        agents = self.focal + self.scored + self.others
        require(agents > 0, "model.loss", "needs a positive weight of focal, scored or other agents")


def prediction_losses(
    prediction: Prediction,
    batch: HeteroData,
    config: LossConfig,
    joint: bool = False,
    agents: Tensor | None = None,
    importance: Tensor | None = None,
) -> dict[str, Tensor]:
    """Compute ``proposal``, ``refinement``, ``mode``, their weighted sum ``loss``, and ``minADE`` for logs.

    With several groups of modes, each loss is averaged over the groups, and ``loss`` includes ``merged``, the
    loss of the merged forecast.

    Each loss is a weighted mean over agents. With several processes, all of them must call this function, and
    the mean of their results is the mean over the agents of all processes (DDP averages gradients).

    Args:
        joint: select one winning world per scene instead of one mode per agent.
        agents: rows of ``batch`` that ``prediction`` contains; all by default.
        importance: factor of the weight of each of these agents; 1 by default. See :func:`draw_agents`.
    """
    agent = batch["agent"]
    modes = prediction.separate()
    groups = prediction.groups
    assert groups == 1 or not joint, "joint modes are one group"
    if agents is None:
        agents = torch.arange(len(agent.target), device=agent.target.device)
    if importance is None:
        importance = torch.ones_like(agent.heading[agents])
    rows = agents.repeat_interleave(groups)
    target = agent.target[rows]
    valid = agent.target_mask[rows]
    scene = agent.batch[rows]
    step = torch.arange(target.shape[1], device=target.device)
    recorded = valid & (step < batch.recorded[scene][:, None])
    step_weight = torch.full_like(target[..., 0], config.continued).masked_fill(recorded, 1.0) * valid
    weight = agent_weight(batch, config)[rows] * importance.repeat_interleave(groups)
    mean_weight = as_mean(weight)

    def scene_average(values: Tensor) -> Tensor:
        """Return the weighted mean over the agents of each scene, repeated for each agent."""
        mean_weight_of_scene = scene_mean(weight[:, None], scene, batch.num_graphs).clamp(min=1e-6)
        mean_of_scene = scene_mean(values * weight[:, None], scene, batch.num_graphs)
        return (mean_of_scene / mean_weight_of_scene)[scene]

    def winner_losses(trajectory: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Return the negative log-likelihood and the average displacement of the best modes."""
        error = average_displacement(trajectory, target, valid)
        best = (scene_average(error) if joint else error).argmin(1)
        nll = winner_takes_all(trajectory, scale, target, step_weight, best)
        best_error = error.gather(1, best[:, None])[:, 0]
        return (nll * mean_weight).sum(), (best_error * mean_weight).sum()

    last, end_nll = labels_nll(modes, target, recorded, valid, config.continued_end)
    mixture = mixture_nll(modes.logits, scene_average(end_nll) if joint else end_nll)
    mixture = mixture * step_weight.gather(1, last[:, None])[:, 0]  # less where the last step is continued
    refinement, min_ade = winner_losses(modes.trajectory, modes.scale)
    losses = {"refinement": refinement, "mode": (mixture * mean_weight).sum()}
    if modes.proposal is not None and modes.proposal_scale is not None:
        losses["proposal"], _ = winner_losses(modes.proposal, modes.proposal_scale)
    weighted = [getattr(config, name) * value for name, value in losses.items()]
    total = torch.stack(weighted).sum()
    if groups == 1:
        return losses | {"loss": total, "minADE": min_ade}
    # The losses of each group keep the groups diverse; the merged loss trains what is returned.
    merged = prediction_losses(prediction.merged(), batch, config, joint, agents, importance)
    losses["merged"] = merged["loss"]
    return losses | {"loss": total + merged["loss"], "minADE": merged["minADE"]}


def draw_agents(batch: HeteroData, standing_share: float) -> tuple[Tensor, Tensor]:
    """Draw the agents of a training step: all that move, and a random fraction of the stationary ones.

    Most agents are stationary and contribute little signal. Each one that is drawn is weighted up to stand
    for those that are not, so that the expectation of the loss is that over all agents.

    Returns: rows ``[B]`` of agents with labels, ascending, and the importance ``[B]`` of each.
    """
    agent = batch["agent"]
    distance = norm(agent.target).masked_fill(~agent.target_mask, 0.0).amax(1)
    stands = distance < MOVING_M
    labelled = agent.target_mask.any(1)
    if standing_share == 1:
        drawn = labelled
    else:
        draw = torch.rand(stands.shape, device=stands.device)
        drawn = labelled & (~stands | (draw < standing_share))
    importance = torch.where(stands, 1 / standing_share, 1.0)
    rows = drawn.nonzero()[:, 0]
    return rows, importance[rows]


def agent_weight(batch: HeteroData, config: LossConfig) -> Tensor:
    """Return the weights ``[A]`` by category, 0 for agents without a valid future step."""
    agent = batch["agent"]
    weight = torch.full_like(agent.heading, config.others)
    # torch.compile compares a tensor with a plain number only.
    weight = weight.masked_fill(agent.category == int(TrackCategory.SCORED), config.scored)
    weight = weight.masked_fill(agent.category == int(TrackCategory.FOCAL), config.focal)
    return weight * agent.target_mask.any(1)


def as_mean(weight: Tensor) -> Tensor:
    """Scale weights so that a weighted sum is a mean over the agents of all processes, as DDP averages."""
    return process_count() * weight / sum_over_processes(weight.sum()).clamp(min=1e-6)


def add_auxiliary(
    losses: dict[str, Tensor], auxiliary: dict[str, Tensor], config: LossConfig
) -> dict[str, Tensor]:
    """Add the losses of encoder and decoder to the others, and to their sum ``loss``.

    Raises: DataError if one has the name of another, or ``config`` has the weight of one that there is not.
    """
    total = losses["loss"]
    for name, value in auxiliary.items():
        require(name not in losses, "auxiliary_losses", f"{name} is the name of another loss")
        weight = config.auxiliary.get(name, 1.0)
        if name in ("regularization", "completion"):
            weight = getattr(config, name)
        total = total + weight * value
    for name in config.auxiliary:
        known = ", ".join(auxiliary) or "none"
        require(name in auxiliary, f"model.loss.auxiliary.{name}", f"no such loss; the model has: {known}")
    return losses | auxiliary | {"loss": total}


def laplace_nll(location: Tensor, scale: Tensor, target: Tensor) -> Tensor:
    """Compute the negative log-likelihood of independent Laplace distributions: Σ_xy log 2b + |x - μ| / b.

    Shapes: ``[..., 2]`` each -> ``[...]``; ``scale`` b > 0 in metres.
    """
    return (torch.log(2 * scale) + (target - location).abs() / scale).sum(-1)


def average_displacement(trajectory: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Compute the mean distance (metres) over the valid steps, detached: ``[A, K]``; 0 without any.

    Shapes: trajectory ``[A, K, F, 2]``, target ``[A, F, 2]``, valid ``[A, F]``.
    """
    error = average_error(trajectory.detach(), target, valid)
    return error.where(valid.any(1, keepdim=True), 0.0)


def winner_takes_all(
    trajectory: Tensor, scale: Tensor, target: Tensor, weight: Tensor, best: Tensor
) -> Tensor:
    """Average |x - μ| of mode ``best`` ``[A]`` plus the Laplace NLL of its scale over labels: ``[A]``.

    μ is detached in the NLL. Trained through the NLL, its gradient would be scaled by 1/b, smallest where the
    error is largest: 150 epochs on the sample's training scenes end at a focal minFDE6 of 3.9 m that way, and
    of 0.5 m this way.

    Shapes as :func:`average_displacement`; weight ``[A, F]`` of the labels, 0 without one.
    """
    row = torch.arange(len(best), device=best.device)
    location = trajectory[row, best]
    spread = scale[row, best]
    error = (target - location).abs().sum(-1)
    values = error + laplace_nll(location.detach(), spread, target)
    labelled = (weight > 0).sum(-1).clamp(min=1)
    return (values * weight).sum(-1) / labelled


def endpoint_nll(trajectory: Tensor, scale: Tensor, target: Tensor, last: Tensor) -> Tensor:
    """Compute the Laplace NLL of step ``last`` ``[A]`` under every detached mode: ``[A, K]``.

    Shapes as :func:`average_displacement`.
    """
    row = torch.arange(len(last), device=last.device)
    end = trajectory.detach()[row, :, last]
    spread = scale.detach()[row, :, last]
    return laplace_nll(end, spread, target[row, last][:, None])


def labels_nll(
    modes: Prediction, target: Tensor, recorded: Tensor, valid: Tensor, exponent: float
) -> tuple[Tensor, Tensor]:
    """Add the NLL of the last recorded and, tempered, of the last continued label of each mode: ``[A, K]``.

    Probabilities are learned from the last recorded label above all: a continued one was drawn from a model
    and says nothing about which future is real, but it separates modes that diverge only after the recording
    ends, such as those of an agent still waiting at a light.

    Returns: the step ``[A]`` of the last recorded label, without any that of the last one; the sum, to which
        a label that is both counts once.
    """
    end = last_step(valid)
    last = last_step(recorded).where(recorded.any(1), end)
    nll = endpoint_nll(modes.trajectory, modes.scale, target, last)
    later = endpoint_nll(modes.trajectory, modes.scale, target, end)
    return last, nll + exponent * later * (end > last)[:, None]


def mixture_nll(logits: Tensor, nll: Tensor) -> Tensor:
    """Compute -log Σ_k π_k exp(-nll_k) with π = softmax(logits): ``[..., K]`` -> ``[...]``."""
    return -torch.logsumexp(logits.log_softmax(-1) - nll, -1)
