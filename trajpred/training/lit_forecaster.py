"""The LightningModule: training, validation and optimisation of a forecaster."""

from __future__ import annotations

import math
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch_geometric.data import HeteroData

from trajpred.data.geometry import norm
from trajpred.errors import require
from trajpred.features.config import SceneConfig
from trajpred.metrics import ForecastMetrics, agent_groups
from trajpred.model.checkpoint import CONFIG, build, require_fitting
from trajpred.model.forecaster import Forecaster
from trajpred.model.scene_decoder import Prediction, SceneDecoder
from trajpred.model.scene_encoder import TokenEncoder
from trajpred.training import distributed
from trajpred.training.checkpoint_io import warn
from trajpred.training.losses import Labels, LossConfig, add_auxiliary, as_mean, group_losses, joint_losses
from trajpred.training.optimizer import FiniteGuard, OptimizerConfig, configure

#: Checkpoint key for the states of torch's random generators, by process and type of device.
RANDOM = "trajpred_random"


class LitForecaster(pl.LightningModule):
    """Train and validate a :class:`~trajpred.model.forecaster.Forecaster`.

    Args:
        encoder: any subclass, chosen by class path in a config.
        decoder: any subclass, chosen by class path in a config.
        history: number of last observed steps that the model reads; by default the data's.
        step_s: seconds between its steps; by default the data's. Data with other steps are resampled.
        scene: the agents and lanes that are the model's input, and their edges.
        loss: weights of the losses.
        optimizer: learning rate and schedule.
        joint_every: joint futures, if the decoder has them, are trained every ``joint_every`` steps:
            such a step takes 70 % longer.
        future: number of steps that it predicts, the decoder's horizon; by default the data's. Steps of
            history or future that the data lack are unknown.
        stationary_fraction: share of the stationary agents that a training step decodes, with correspondingly
            larger weight.
    """

    def __init__(
        self,
        encoder: TokenEncoder,
        decoder: SceneDecoder,
        history: int | None = None,
        step_s: float | None = None,
        scene: SceneConfig = SceneConfig(),
        loss: LossConfig = LossConfig(),
        optimizer: OptimizerConfig = OptimizerConfig(),
        joint_every: int = 1,
        future: int | None = None,
        stationary_fraction: float = 1.0,
    ) -> None:
        super().__init__()
        require(joint_every > 0, "joint_every", "must be positive")
        other = f"is {future}, the decoder's horizon {decoder.horizon}"
        require(future in (None, decoder.horizon), "future", other)
        share = f"must be more than 0 and at most 1, is {stationary_fraction}"
        require(0 < stationary_fraction <= 1, "stationary_fraction", share)
        self.joint_every = joint_every
        self.stationary_fraction = stationary_fraction
        # By default those of Argoverse 2.
        steps = 50 if history is None else history
        seconds = 0.1 if step_s is None else step_s
        self.forecaster = Forecaster(encoder, decoder, steps, seconds, scene)
        self.loss = loss
        self.optimizer_config = optimizer
        self.val_metrics = ForecastMetrics()
        self.guard = FiniteGuard()
        #: The plain values it was built from, for checkpoints.
        self.config: dict[str, Any] = {}

    @classmethod
    def build(cls, config: dict[str, Any]) -> LitForecaster:
        """Build from plain values, as under ``model:`` in a YAML config."""
        model = build(cls, config)
        model.config = config
        return model

    @property
    def scene(self) -> SceneConfig:
        """The forecaster's scene config, which the data module reads."""
        return self.forecaster.scene

    def forward(self, batch: HeteroData) -> Prediction:
        return self.forecaster(batch)

    def setup(self, stage: str) -> None:
        """Seed each process differently for dropout; a checkpoint is restored after this."""
        if self.trainer.global_rank:
            torch.manual_seed(torch.initial_seed() + self.trainer.global_rank)

    def training_step(self, batch: HeteroData, batch_idx: int) -> Tensor:
        """Return the loss of a batch, and log all losses."""
        joint = self.forecaster.decoder.joint and batch_idx % self.joint_every == 0
        losses = self.losses(batch, joint)
        self.guard.add(losses, batch.names)
        mean = distributed.mean_over_processes(losses)
        logged = {f"train/{name}": value for name, value in mean.items()}
        self.log_dict(logged, batch_size=batch.num_graphs)
        return losses["loss"]

    def losses(self, batch: HeteroData, joint: bool = True) -> dict[str, Tensor]:
        """Return every loss by name, and their weighted sum ``loss``.

        Args:
            joint: whether to compute the losses of joint futures, if the decoder has them.
        """
        decoder = self.forecaster.decoder
        tokens = self.forecaster.encoder.encode(batch)
        # The other agents are encoded but not decoded.
        labels = Labels.of(batch, self.loss)
        drawn = labels.draw(self.stationary_fraction)
        prediction = decoder(tokens, batch, agents=drawn.agents)
        losses = self.marginal_losses(prediction, batch, drawn)
        if decoder.joint and joint:
            of_worlds = joint_losses(decoder(tokens, batch, joint=True), labels, self.loss)
            losses |= {f"joint_{name}": value for name, value in of_worlds.items()}
            losses["loss"] = losses["loss"] + self.loss.joint * of_worlds["loss"]
        return losses

    def marginal_losses(self, prediction: Prediction, batch: HeteroData, labels: Labels) -> dict[str, Tensor]:
        """Return the losses of marginal futures, including the encoder's and decoder's, and their sum."""
        losses = group_losses(prediction, labels, self.loss)
        weight = as_mean(labels.weight)
        auxiliary = self.forecaster.encoder.auxiliary_losses(batch)
        auxiliary |= self.forecaster.decoder.auxiliary_losses(prediction, batch, labels.agents, weight)
        return add_auxiliary(losses, auxiliary, self.loss)

    def validation_step(self, batch: HeteroData, _: int) -> None:
        """Add a batch to the validation loss and metrics."""
        tokens = self.forecaster.encoder.encode(batch)
        modes = self.forecaster.decoder(tokens, batch)
        agent = batch["agent"]
        steps = max(1, int(batch.recorded.max()))  # the model's horizon may be longer than the data's
        prediction = modes.merged()
        target = agent.target[:, :steps]
        valid = agent.target_mask[:, :steps]
        loss = self.marginal_losses(modes, batch, Labels.of(batch, self.loss))["loss"]
        # Each process returns its part of a mean over all processes: weight it by the scenes of all.
        count = torch.tensor(batch.num_graphs, device=self.device)
        scenes = int(distributed.sum_over_processes(count))
        self.log("val/loss", loss, batch_size=scenes, sync_dist=True)
        # As in trajpred.evaluation, agents not observed at the last step are not evaluated.
        evaluated = (agent.elapsed_s == 0) & valid.any(1)
        groups = agent_groups(agent.category, evaluated, valid.all(1), norm(target[:, -1]))
        trajectory = prediction.trajectory[:, :, :steps]
        probability = prediction.logits.softmax(-1)
        self.val_metrics.update(trajectory, probability, target, valid, groups)

    def on_validation_epoch_end(self) -> None:
        results = self.val_metrics.compute()
        self.val_metrics.reset()
        for group, metrics in results.items():
            for name, value in metrics.items():
                if name != "count":
                    self.log(f"val/{group}/{name}", float(value), sync_dist=True)

    def configure_optimizers(self) -> Any:
        steps = self.trainer.estimated_stepping_batches
        problem = "or max_steps must be given: the learning rate decays until then"
        require(math.isfinite(steps), "trainer.max_epochs", problem)
        return configure(self, self.optimizer_config, int(steps))

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Log the learning rate and the norm of all gradients, which must be finite, and clip by the norm.

        Raises: DataError naming the weights, losses or gradients that are not finite.
        """
        gradients = {name: p.grad for name, p in self.named_parameters() if p.grad is not None}
        norm = torch.nn.utils.get_total_norm(gradients.values())
        self.log("update/grad_norm", norm)
        self.log("update/learning_rate", optimizer.param_groups[0]["lr"])
        # Scaled float16 gradients may overflow; the scaler then skips the step.
        scaled = getattr(self.trainer.precision_plugin, "scaler", None) is not None
        when = f"step {self.global_step} (epoch {self.current_epoch})"
        self.guard.check(self, gradients, torch.zeros_like(norm) if scaled else norm, when)
        if gradient_clip_val and gradient_clip_algorithm == "value":
            torch.nn.utils.clip_grad_value_(self.parameters(), gradient_clip_val)
        elif gradient_clip_val:
            torch.nn.utils.clip_grads_with_norm_(self.parameters(), gradient_clip_val, norm)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[CONFIG] = self.config
        # A resumed run continues the random streams of dropout.
        state = {"cpu": torch.get_rng_state()}
        if self.device.type != "cpu":
            module = torch.get_device_module(self.device)
            state[self.device.type] = module.get_rng_state(self.device)
        checkpoint[RANDOM] = distributed.gather_objects(state)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check that the weights fit, and continue the random streams of dropout."""
        resumed = self.trainer.ckpt_path or "checkpoint"
        require_fitting(self, checkpoint["state_dict"], resumed)
        states = checkpoint.get(RANDOM, [])
        count = distributed.process_count()
        if len(states) != count:
            if states:
                warn(f"processes: {len(states)} before, {count} now; dropout draws other random numbers")
            return
        state = states[self.trainer.global_rank]
        torch.set_rng_state(state["cpu"])
        device = self.trainer.strategy.root_device  # the model is moved there after its state was restored
        if device.type != "cpu" and device.type in state:
            torch.get_device_module(device).set_rng_state(state[device.type], device)
