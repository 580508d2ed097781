"""The LightningModule: training, validation and optimisation of a forecaster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from trajpred.errors import DataError
from trajpred.graph.scene_graph import SceneConfig
from trajpred.losses import endpoint_mixture_nll, masked_mean, winner, winner_takes_all
from trajpred.metrics import ForecastMetrics
from trajpred.model.checkpoint import CONFIG, build, load_weights, read_checkpoint
from trajpred.model.forecaster import Forecaster
from trajpred.model.mode_decoder import ModeDecoder, Prediction
from trajpred.model.optimizer import OptimizerConfig, configure
from trajpred.model.scene_encoder import SceneEncoder
from trajpred.scenario import TrackCategory


@dataclass(frozen=True)
class LossConfig:
    """Weights of the losses, and of agents by category.

    Attributes:
        proposal, refinement: winner-takes-all Laplace NLL before and after refinement.
        mode: end-point mixture NLL, which trains the probabilities.
        focal, scored, others: how much an agent of that category counts.
    """

    proposal: float = 1.0
    refinement: float = 1.0
    mode: float = 1.0
    focal: float = 1.0
    scored: float = 1.0
    others: float = 0.2


class LitForecaster(pl.LightningModule):
    """A :class:`~trajpred.model.forecaster.Forecaster` with its losses, metrics and optimiser.

    Args:
        encoder, decoder: the two halves, chosen by class path from a config.
        history: observed steps the model is made for (set from the data).
        scene: what the model sees of a scenario.
        loss: weights of the losses.
        optimizer: learning rate and its schedule.
    """

    def __init__(
        self,
        encoder: SceneEncoder,
        decoder: ModeDecoder,
        history: int = 50,
        scene: SceneConfig = SceneConfig(),
        loss: LossConfig = LossConfig(),
        optimizer: OptimizerConfig = OptimizerConfig(),
    ) -> None:
        super().__init__()
        self.forecaster = Forecaster(encoder, decoder)
        self.history, self.scene, self.loss, self.optimizer_config = history, scene, loss, optimizer
        self.val_metrics = ForecastMetrics()
        #: The plain values this was built from; what a checkpoint needs to be loaded again.
        self.config: dict[str, Any] = {}

    @classmethod
    def build(cls, config: dict[str, Any]) -> LitForecaster:
        """From plain values, as they stand under ``model:`` in a YAML config and in a checkpoint."""
        model = build(cls, config)
        model.config = config
        return model

    def forward(self, batch: HeteroData) -> Prediction:
        self.check(batch)
        return self.forecaster(batch)

    def check(self, batch: HeteroData) -> None:
        """Raise :class:`DataError` if the data's history or horizon are not the model's."""
        found = (batch["agent"].history.shape[1], batch["agent"].target.shape[1])
        made = (self.history, self.forecaster.decoder.horizon)
        if found[0] != made[0] or found[1] not in (made[1], 0):
            have = f"the data have {found[1]} from {found[0]}"
            raise DataError(f"this model predicts {made[1]} steps from {made[0]}, {have}")

    def training_step(self, batch: HeteroData, _: int) -> Tensor:
        losses = self.losses(self(batch), batch)
        size = batch.num_graphs
        self.log_dict({f"train/{name}": value for name, value in losses.items()}, batch_size=size)
        self.log("loss", losses["loss"], prog_bar=True, logger=False, batch_size=size)
        return losses["loss"]

    def losses(self, prediction: Prediction, batch: HeteroData) -> dict[str, Tensor]:
        """Every loss by name and their weighted sum, ``loss``."""
        agent, config = batch["agent"], self.loss
        target, valid = agent.target, agent.target_mask
        proposal_best = winner(prediction.proposal, target, valid)
        best = winner(prediction.trajectory, target, valid)
        scored, focal = agent.category == TrackCategory.SCORED, agent.category == TrackCategory.FOCAL
        weight = torch.full_like(target[:, 0, 0], config.others)
        weight = weight.masked_fill(scored, config.scored).masked_fill(focal, config.focal)
        weight = weight * valid.any(1)

        def mean(per_agent: Tensor) -> Tensor:
            return (per_agent * weight).sum() / weight.sum().clamp(min=1e-6)

        p = prediction
        losses = {
            "proposal": mean(winner_takes_all(p.proposal, p.proposal_scale, target, valid, proposal_best)),
            "refinement": mean(winner_takes_all(p.trajectory, p.scale, target, valid, best)),
            "mode": mean(endpoint_mixture_nll(p.trajectory, p.scale, p.logits, target, valid)),
        }
        total = torch.stack([getattr(config, name) * value for name, value in losses.items()]).sum()
        with torch.no_grad():
            row = torch.arange(len(best), device=best.device)
            error = torch.linalg.vector_norm(p.trajectory[row, best] - target, dim=-1)
            losses["minADE6"] = mean(masked_mean(error, valid))
        return {**losses, "loss": total}

    def validation_step(self, batch: HeteroData, _: int) -> None:
        prediction = self(batch)
        agent = batch["agent"]
        losses = self.losses(prediction, batch)
        self.log("val/loss", losses["loss"], batch_size=batch.num_graphs, sync_dist=True)
        # The groups of trajpred.evaluation: an agent out of sight at the last observed step is not judged.
        seen = agent.elapsed_s == 0
        groups = {
            "focal": seen & (agent.category == TrackCategory.FOCAL),
            "scored": seen & (agent.category >= TrackCategory.SCORED),
            "all": seen,
        }
        probability = prediction.logits.softmax(-1)
        self.val_metrics.update(prediction.trajectory, probability, agent.target, agent.target_mask, groups)

    def on_validation_epoch_end(self) -> None:
        results = self.val_metrics.compute()
        self.val_metrics.reset()
        for group, metrics in results.items():
            for name, value in metrics.items():
                if name != "count":
                    shown = group == "focal" and name in ("minADE6", "minFDE6")
                    self.log(f"val/{group}/{name}", float(value), prog_bar=shown)

    def configure_optimizers(self) -> Any:
        return configure(self, self.optimizer_config, int(self.trainer.estimated_stepping_batches))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[CONFIG] = self.config

    @classmethod
    def load(cls, checkpoint: str | Path) -> LitForecaster:
        """A trained model in evaluation mode. Raises: DataError if the file is no checkpoint of ours."""
        content = read_checkpoint(checkpoint)
        return load_weights(cls.build(content[CONFIG]), content["state_dict"], checkpoint)
