"""The LightningModule: training, validation and optimisation of a forecaster."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch_geometric.data import HeteroData

from trajpred.graph.config import SceneConfig
from trajpred.metrics import ForecastMetrics, agent_metrics
from trajpred.model.checkpoint import CONFIG, build
from trajpred.model.forecaster import Forecaster
from trajpred.model.scene_decoder import Prediction, SceneDecoder
from trajpred.model.token_encoder import TokenEncoder
from trajpred.scenario import TrackCategory
from trajpred.training.distributed import (
    mean_over_processes,
    of_all_processes,
    process_count,
    sum_over_processes,
)
from trajpred.training.finite import FiniteGuard
from trajpred.training.objective import LossConfig, prediction_losses
from trajpred.training.optimizer import OptimizerConfig, configure

#: Where a checkpoint keeps the states of torch's random generators, a dict for each process.
RANDOM = "trajpred_random"


class LitForecaster(pl.LightningModule):
    """A :class:`~trajpred.model.forecaster.Forecaster` with its losses, metrics and optimiser.

    Args:
        encoder, decoder: the two halves, chosen by class path from a config.
        history, step_s: observed steps, and seconds between steps, the model is made for (from the data).
        scene: what the model sees of a scenario.
        loss: weights of the losses.
        optimizer: learning rate and its schedule.
    """

    def __init__(
        self,
        encoder: TokenEncoder,
        decoder: SceneDecoder,
        history: int = 50,
        step_s: float = 0.1,
        scene: SceneConfig = SceneConfig(),
        loss: LossConfig = LossConfig(),
        optimizer: OptimizerConfig = OptimizerConfig(),
    ) -> None:
        super().__init__()
        self.forecaster = Forecaster(encoder, decoder, history, step_s, scene)
        self.loss, self.optimizer_config = loss, optimizer
        self.val_metrics = ForecastMetrics()
        self.guard = FiniteGuard()
        #: The plain values this was built from; what a checkpoint needs to be loaded again.
        self.config: dict[str, Any] = {}

    @classmethod
    def build(cls, config: dict[str, Any]) -> LitForecaster:
        """From plain values, as they stand under ``model:`` in a YAML config and in a checkpoint."""
        model = build(cls, config)
        model.config = config
        return model

    def forward(self, batch: HeteroData) -> Prediction:
        self.forecaster.check(batch)
        return self.forecaster(batch)

    def setup(self, stage: str) -> None:
        """Let every process draw a dropout of its own; restoring a checkpoint comes after this."""
        if self.trainer.global_rank:
            torch.manual_seed(torch.initial_seed() + self.trainer.global_rank)

    def training_step(self, batch: HeteroData, _: int) -> Tensor:
        losses = self.losses(batch)
        self.guard.add(losses, batch.scenario_id)
        size, shown = batch.num_graphs, mean_over_processes(losses)
        self.log_dict({f"train/{name}": value for name, value in shown.items()}, batch_size=size)
        self.log("loss", shown["loss"], prog_bar=True, logger=False, batch_size=size)
        return losses["loss"]

    def losses(self, batch: HeteroData) -> dict[str, Tensor]:
        """Every loss by name and their weighted sum, ``loss``."""
        self.forecaster.check(batch)
        tokens, decoder = self.forecaster.encoder.encode(batch), self.forecaster.decoder
        # Who has no future to learn from is seen, but costs no modes.
        learned = batch["agent"].target_mask.any(1).nonzero()[:, 0]
        losses = prediction_losses(decoder(tokens, batch, agents=learned), batch, self.loss, agents=learned)
        if decoder.joint:
            worlds = decoder(tokens, batch, joint=True)
            joint = prediction_losses(worlds, batch, self.loss, joint=True)
            losses |= {f"joint_{name}": value for name, value in joint.items()}
            losses["loss"] = losses["loss"] + self.loss.joint * joint["loss"]
        for name, value in self.forecaster.encoder.auxiliary_losses(batch).items():
            losses |= {name: value, "loss": losses["loss"] + getattr(self.loss, name) * value}
        return losses

    def validation_step(self, batch: HeteroData, _: int) -> Tensor:
        """Judge one batch; returns minFDE6 of its focal agents, metres, for callbacks."""
        prediction = self(batch)
        agent = batch["agent"]
        loss = prediction_losses(prediction, batch, self.loss)["loss"]
        # Of all processes: the loss of each is its part of a mean over the agents of all.
        scenes = int(sum_over_processes(torch.tensor(batch.num_graphs, device=self.device)))
        self.log("val/loss", loss, batch_size=scenes, sync_dist=True)
        # The groups of trajpred.evaluation: an agent out of sight at the last observed step is not judged.
        seen = agent.elapsed_s == 0
        groups = {
            "focal": seen & (agent.category == TrackCategory.FOCAL),
            "scored": seen & (agent.category >= TrackCategory.SCORED),
            "all": seen,
        }
        probability = prediction.logits.softmax(-1)
        judged = (prediction.trajectory, probability, agent.target, agent.target_mask)
        self.val_metrics.update(*judged, groups)
        path, p, target, valid = (values[groups["focal"]] for values in judged)
        return agent_metrics(path, p, target, valid, ks=(6,), names=("minFDE",))["minFDE6"]

    def on_validation_epoch_end(self) -> None:
        results = self.val_metrics.compute()
        self.val_metrics.reset()
        for group, metrics in results.items():
            for name, value in metrics.items():
                if name != "count":
                    shown = group == "focal" and name in ("minADE6", "minFDE6")
                    self.log(f"val/{group}/{name}", float(value), prog_bar=shown, sync_dist=True)

    def configure_optimizers(self) -> Any:
        return configure(self, self.optimizer_config, int(self.trainer.estimated_stepping_batches))

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Log the norm of all gradients, see that it is finite, and clip by it: one pass over them.

        Raises: DataError naming the weights, losses or gradients that are not finite.
        """
        gradients = {name: p.grad for name, p in self.named_parameters() if p.grad is not None}
        norm = torch.nn.utils.get_total_norm(gradients.values())
        self.log("train/grad_norm", norm)
        # Scaled float16 gradients may overflow; the scaler then leaves out the step.
        scaled = getattr(self.trainer.precision_plugin, "scaler", None) is not None
        when = f"step {self.global_step} (epoch {self.current_epoch})"
        self.guard.check(self, gradients, torch.zeros_like(norm) if scaled else norm, when)
        if gradient_clip_val and gradient_clip_algorithm in (None, "norm"):
            torch.nn.utils.clip_grads_with_norm_(self.parameters(), gradient_clip_val, norm)
        else:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[CONFIG] = self.config
        # Dropout of a resumed run then draws what it would have drawn.
        cuda = [torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else []
        checkpoint[RANDOM] = of_all_processes({"cpu": torch.get_rng_state(), "cuda": cuda})

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        states = checkpoint.get(RANDOM, [])
        states = [states] if isinstance(states, dict) else states  # as one process wrote it before
        if len(states) != process_count():
            return
        own = states[self.trainer.global_rank]
        torch.set_rng_state(own["cpu"])
        if own["cuda"] and self.device.type == "cuda":
            torch.cuda.set_rng_state(own["cuda"][0], self.device)
