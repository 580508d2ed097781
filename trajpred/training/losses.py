"""Losses on multi-modal futures: winner-takes-all regression, and a mixture for the probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from trajpred.data.geometry import last_step, norm
from trajpred.data.tracks import MOVING_M, TrackCategory
from trajpred.errors import require, require_not_negative
from trajpred.metrics import average_error
from trajpred.model.scene_decoder import Prediction
from trajpred.nn.segment import segment_mean
from trajpred.training.distributed import process_count, sum_over_processes


@dataclass(frozen=True)
class LossConfig:
    """Weights of the losses, and of the agents by category.

    Attributes:
        proposal: error and scale of the winning mode before refinement.
        refinement: error and scale of the winning mode after refinement.
        mode: endpoint mixture NLL, which trains the probabilities.
        joint: all three losses of the joint futures, if the decoder has them.
        regularization: auxiliary loss of some encoders, an L2 penalty.
        completion: auxiliary loss of some encoders, the completion of masked trajectories.
        auxiliary: weights of other losses of encoder and decoder by name, 1 by default.
        pseudo_labels: weight of a future step that was not recorded but predicted by a teacher.
        pseudo_label_end: exponent of the likelihood of the last pseudo-label in ``mode``.
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
    pseudo_labels: float = 1.0
    pseudo_label_end: float = 0.25
    focal: float = 1.0
    scored: float = 1.0
    others: float = 0.2

    def __post_init__(self) -> None:
        weights = dict(vars(self))
        require_not_negative(**weights.pop("auxiliary"), **weights)
        agents = self.focal + self.scored + self.others
        require(agents > 0, "model.loss", "needs a positive weight of focal, scored or other agents")


class Labels(NamedTuple):
    """The true futures of ``B`` agents of a batch, in the agents' frames.

    Attributes:
        agents: ``[B]`` rows of the batch.
        scene: ``[B]``, scene of each agent.
        target: ``[B, F, 2]`` metres.
        valid: ``[B, F]``, whether there is a label.
        recorded: ``[B, F]``, whether the label was recorded, not continued by a model.
        step_weight: ``[B, F]``, 0 without a label.
        weight: ``[B]`` by category, larger for agents that represent others not drawn; 0 without a label.
        scenes: number of scenes of the batch.
    """

    agents: Tensor
    scene: Tensor
    target: Tensor
    valid: Tensor
    recorded: Tensor
    step_weight: Tensor
    weight: Tensor
    scenes: int

    @classmethod
    def of(cls, batch: HeteroData, config: LossConfig) -> Labels:
        """Return the labels of all agents."""
        agent = batch["agent"]
        valid = agent.target_mask
        row = torch.arange(len(valid), device=valid.device)
        step = torch.arange(valid.shape[1], device=valid.device)
        recorded = valid & (step < batch.recorded[agent.batch][:, None])
        step_weight = torch.full_like(agent.target[..., 0], config.pseudo_labels).masked_fill(recorded, 1.0)
        weight = torch.full_like(agent.heading, config.others)
        # torch.compile compares tensors only with plain numbers.
        weight = weight.masked_fill(agent.category == int(TrackCategory.SCORED), config.scored)
        weight = weight.masked_fill(agent.category == int(TrackCategory.FOCAL), config.focal)
        weight = weight * valid.any(1)
        scenes = len(batch.recorded)
        return cls(row, agent.batch, agent.target, valid, recorded, step_weight * valid, weight, scenes)

    def select(self, rows: Tensor) -> Labels:
        """Select the agents ``rows`` ``[N]``."""
        of_agents = {name: getattr(self, name)[rows] for name in self._fields if name != "scenes"}
        return self._replace(**of_agents)

    def draw(self, stationary_fraction: float) -> Labels:
        """Draw the agents of a training step: all moving ones, and a random fraction of the stationary ones.

        Most agents are stationary and contribute little signal. Drawn ones are weighted up to represent the
        rest, so the expected loss is the loss over all agents.
        """
        distance = norm(self.target).masked_fill(~self.valid, 0.0).amax(1)
        stands = distance < MOVING_M
        drawn = self.valid.any(1)
        if stationary_fraction < 1:
            draw = torch.rand(stands.shape, device=stands.device)
            drawn = drawn & (~stands | (draw < stationary_fraction))
        importance = torch.where(stands, 1 / stationary_fraction, 1.0)
        rows = drawn.nonzero()[:, 0]
        return self._replace(weight=self.weight * importance).select(rows)

    def scene_average(self, values: Tensor) -> Tensor:
        """Return the weighted mean of ``values`` ``[B, K]`` over the agents of each scene, for each agent."""
        weight = self.weight[:, None]
        total = segment_mean(values * weight, self.scene, self.scenes)
        return (total / segment_mean(weight, self.scene, self.scenes).clamp(min=1e-6))[self.scene]


def mode_losses(
    modes: Prediction,
    labels: Labels,
    config: LossConfig,
    average: Callable[[Tensor], Tensor] = lambda errors: errors,
) -> dict[str, Tensor]:
    """Compute ``proposal``, ``refinement``, ``mode``, their weighted sum ``loss``, and ``minADE`` for logs.

    Each is a weighted mean over agents. With several processes, all of them must call this function, and the
    mean of their results is the mean over the agents of all processes (DDP averages gradients).

    Args:
        average: maps errors ``[B, K]`` to the criterion for choosing an agent's best mode; by default its own
            error.
    """
    mean_weight = as_mean(labels.weight)

    def winner_losses(trajectory: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Return the negative log-likelihood and the average displacement of the best modes."""
        error = average_displacement(trajectory, labels.target, labels.valid)
        best = average(error).argmin(1)
        nll = winner_takes_all(trajectory, scale, labels.target, labels.step_weight, best)
        best_error = error.gather(1, best[:, None])[:, 0]
        return (nll * mean_weight).sum(), (best_error * mean_weight).sum()

    last, end_nll = labels_nll(modes, labels, config.pseudo_label_end)
    mixture = mixture_nll(modes.logits, average(end_nll))
    mixture = mixture * labels.step_weight.gather(1, last[:, None])[:, 0]  # less for continued labels
    refinement, min_ade = winner_losses(modes.trajectory, modes.scale)
    losses = {"refinement": refinement, "mode": (mixture * mean_weight).sum()}
    if modes.proposal is not None and modes.proposal_scale is not None:
        losses["proposal"], _ = winner_losses(modes.proposal, modes.proposal_scale)
    weighted = [getattr(config, name) * value for name, value in losses.items()]
    return losses | {"loss": torch.stack(weighted).sum(), "minADE": min_ade}


def joint_losses(modes: Prediction, labels: Labels, config: LossConfig) -> dict[str, Tensor]:
    """Compute the losses of :func:`mode_losses` with one best mode for all agents of a scene."""
    return mode_losses(modes, labels, config, labels.scene_average)


def group_losses(prediction: Prediction, labels: Labels, config: LossConfig) -> dict[str, Tensor]:
    """Compute the losses of :func:`mode_losses` for a forecast with one or several groups of modes.

    The mean of the groups' own losses keeps them diverse; ``merged``, included in ``loss``, trains the merged
    forecast.
    """
    if prediction.groups == 1:
        return mode_losses(prediction, labels, config)
    row = torch.arange(len(labels.scene), device=labels.scene.device)
    repeated = labels.select(row.repeat_interleave(prediction.groups))
    losses = mode_losses(prediction.separate(), repeated, config)
    merged = mode_losses(prediction.merged(), labels, config)
    total = losses["loss"] + merged["loss"]
    return losses | {"merged": merged["loss"], "loss": total, "minADE": merged["minADE"]}


def as_mean(weight: Tensor) -> Tensor:
    """Scale weights so that a weighted sum is a mean over the agents of all processes, as DDP averages."""
    return process_count() * weight / sum_over_processes(weight.sum()).clamp(min=1e-6)


def add_auxiliary(
    losses: dict[str, Tensor], auxiliary: dict[str, Tensor], config: LossConfig
) -> dict[str, Tensor]:
    """Add the losses of encoder and decoder to the others, and to their sum ``loss``.

    Raises: DataError if a name is duplicate, or ``config`` has a weight for a missing loss.
    """
    total = losses["loss"]
    for name, value in auxiliary.items():
        require(name not in losses, "auxiliary_losses", f"{name} is the name of another loss")
        weight = config.auxiliary.get(name, 1.0)
        if name in ("regularization", "completion"):
            weight = getattr(config, name)
        total = total + weight * value
    for name in config.auxiliary:
        names = ", ".join(auxiliary) or "none"
        require(name in auxiliary, f"model.loss.auxiliary.{name}", f"no such loss; the model has: {names}")
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

    μ is detached in the NLL. If it were trained through the NLL, its gradient would be scaled by 1/b,
    smallest where the error is largest: 150 epochs on the sample's training scenes then end at a focal
    minFDE6 of 3.9 m instead of 0.5 m.

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


def labels_nll(modes: Prediction, labels: Labels, exponent: float) -> tuple[Tensor, Tensor]:
    """Add the NLL of the last recorded and, tempered, of the last continued label of each mode: ``[A, K]``.

    Probabilities are learned mainly from the last recorded label: a continued label was drawn from a model
    and does not show which future is real, but it separates modes that diverge only after the recording ends,
    such as those of an agent still waiting at a light.

    Returns: the step ``[A]`` of the last recorded label, or of the last label if none was recorded; the sum,
        in which a label that is both counts once.
    """
    end = last_step(labels.valid)
    last = last_step(labels.recorded).where(labels.recorded.any(1), end)
    nll = endpoint_nll(modes.trajectory, modes.scale, labels.target, last)
    later = endpoint_nll(modes.trajectory, modes.scale, labels.target, end)
    return last, nll + exponent * later * (end > last)[:, None]


def mixture_nll(logits: Tensor, nll: Tensor) -> Tensor:
    """Compute -log Σ_k π_k exp(-nll_k) with π = softmax(logits): ``[..., K]`` -> ``[...]``."""
    return -torch.logsumexp(logits.log_softmax(-1) - nll, -1)
