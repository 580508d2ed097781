"""The LightningModule: every parameter is trained, and checkpoints predict the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor
from torch_geometric.data import HeteroData

from tests.conftest import rejects
from tests.model.small import TOLERANCE, batch_of, small_config, small_model
from tests.model.systems import DEFAULT_MODEL
from tests.training.runs import SMALL_SCENES, trainer
from trajpred.data.scenario import Scenario
from trajpred.features.config import SceneConfig
from trajpred.model import Forecaster
from trajpred.training.augmentation import AugmentConfig
from trajpred.training.data_module import SceneData
from trajpred.training.lit_forecaster import RANDOM, LitForecaster
from trajpred.training.losses import average_displacement, winner_takes_all

#: Parameters whose gradient is zero: a constant added to all logits changes nothing.
WITHOUT_EFFECT = {"forecaster.decoder.logit_head.2.bias"}


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("both", {}),
        ("both", {"norm": "pre"}),
        ("decoder", {"refine_layers": 0}),
        ("both", {"pose": "bias"}),
        ("both", {"pose": "values"}),
        ("both", {"pose": "none"}),
    ],
)
def test_every_variant_s_parameters_are_trained(
    real: list[Scenario], part: str, change: dict[str, Any]
) -> None:
    """DDP waits for all gradients."""
    config = small_config()
    for name in ("encoder", "decoder"):
        if part in (name, "both"):
            config[name]["init_args"] |= change
    model = LitForecaster.build(config).train()
    model.losses(batch_of(real[:1]))["loss"].backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]
    zero = {name for name, p in model.named_parameters() if p.grad.abs().max() < 1e-6}
    # Without poses the bias depends on the kind of edge only, of which there is one between joint modes.
    if change.get("pose") in ("values", "none"):
        zero = {name for name in zero if "across_bias" not in name}
    assert zero == WITHOUT_EFFECT


@pytest.mark.slow  # two minutes of tracing
def test_a_compiled_training_step_is_the_plain_one(real: list[Scenario]) -> None:
    """Losses and gradients of ``torch.compile`` without code generation, for scenes of several sizes."""
    config = small_config()
    for part in ("encoder", "decoder"):
        config[part]["init_args"]["dropout"] = 0.0
    model = LitForecaster.build(config).train()
    compiled = torch.compile(model.losses, backend="aot_eager", dynamic=True)
    for scenes in (real[:2], real[2:5]):
        batch = batch_of(scenes)
        expected = loss_and_gradients(model, model.losses, batch)
        values = loss_and_gradients(model, compiled, batch)
        torch.testing.assert_close(values, expected, rtol=1e-4, atol=1e-5)


def loss_and_gradients(model: LitForecaster, losses: Callable[..., Any], batch: HeteroData) -> list[Tensor]:
    model.zero_grad()
    loss = losses(batch)["loss"]
    loss.backward()
    return [loss.detach(), *[p.grad.clone() for p in model.parameters()]]


def test_a_checkpoint_predicts_what_the_trained_model_does(store_path: Path, tmp_path: Path) -> None:
    saver = ModelCheckpoint(tmp_path)
    run = trainer(tmp_path, max_steps=2, limit_val_batches=0, callbacks=[saver])
    model = small_model(seed=4, scene=SMALL_SCENES).train()
    data = SceneData(store_path, batch_size=5)
    run.fit(model, data)
    assert data.scene == model.forecaster.scene != SceneConfig(), "data are built as the model asks"
    loaded = Forecaster.load(saver.best_model_path)
    [batch] = data.val_dataloader()
    assert loaded.scene == data.scene
    assert loaded.config == model.config
    assert not loaded.training
    prediction = loaded(batch)
    expected = model.eval()(batch)
    for name in TOLERANCE:
        assert torch.equal(getattr(prediction, name), getattr(expected, name)), name
    fresh = small_model(seed=4).state_dict()
    trained = model.state_dict()
    assert any(not torch.equal(trained[name], fresh[name]) for name in fresh)


class Losses(pl.Callback):
    """The loss of every step."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.values.append(float(trainer.callback_metrics["train/loss"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "precision"), [(0, "32-true"), (1, "32-true"), (2, "32-true"), (0, "bf16-mixed")]
)
def test_the_default_model_converges(store_path: Path, tmp_path: Path, seed: int, precision: Any) -> None:
    """A hundred steps with all variations, from several seeds and in bfloat16."""
    torch.manual_seed(seed)
    losses = Losses()
    model = LitForecaster.build(DEFAULT_MODEL).train()
    options = {"gradient_clip_val": 1.0, "limit_val_batches": 0, "enable_checkpointing": False}
    run = trainer(tmp_path, max_epochs=34, precision=precision, callbacks=[losses], **options)
    augment = AugmentConfig(drop_agents=0.1, drop_lanes=0.1, truncate_history=0.2, mirror=0.5)
    run.fit(model, SceneData(store_path, augment, batch_size=4, seed=seed))
    loss = np.array(losses.values)
    assert len(loss) == 102
    assert np.isfinite(loss).all()
    assert loss[20:].max() < loss[:5].mean()
    assert loss[-20:].mean() < 0.5 * loss[:5].mean()


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_an_auxiliary_loss_has_the_weight_of_the_config(
    real: list[Scenario], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    batch = batch_of(real[:1])
    before = small_model().losses(batch)
    for weights, weight in (({}, 1.0), ({"extra": 0.4}, 0.4)):
        model = small_model(loss={"auxiliary": weights})
        auxiliary = {"extra": torch.tensor(0.25)}
        monkeypatch.setattr(getattr(model.forecaster, part), "auxiliary_losses", lambda *_: auxiliary)  # noqa: B023
        after = model.losses(batch)
        added = after["loss"].detach() - before["loss"].detach()
        assert float(added) == pytest.approx(0.25 * weight, abs=1e-5)
        assert after["extra"] == 0.25
    auxiliary = {"mode": torch.tensor(0.25)}
    rejects("auxiliary_losses': mode is the name of another loss", model.losses, batch)
    unknown = small_model(loss={"auxiliary": {"jerk": 1.0}})
    rejects("model.loss.auxiliary.jerk': no such loss; the model has: none", unknown.losses, batch)


def test_auxiliary_losses_get_the_weights_of_the_built_in_ones(
    real: list[Scenario], monkeypatch: pytest.MonkeyPatch, store_path: Path, tmp_path: Path
) -> None:
    """Where the built-in losses have no weight, the same loss from outside trains and validates the same."""
    alone = {"proposal": 0.0, "refinement": 1.0, "mode": 0.0, "others": 0.3}
    model = small_model(loss=alone, stationary_fraction=0.5)
    own = small_model(loss=alone | {"refinement": 0.0}, stationary_fraction=0.5)

    def refinement(prediction: Any, batch: Any, agents: Tensor, weight: Tensor) -> dict[str, Tensor]:
        agent = batch["agent"]
        target = agent.target[agents]
        valid = agent.target_mask[agents]
        error = average_displacement(prediction.trajectory, target, valid)
        loss = winner_takes_all(prediction.trajectory, prediction.scale, target, valid * 1.0, error.argmin(1))
        return {"own": (loss * weight).sum()}

    monkeypatch.setattr(own.forecaster.decoder, "auxiliary_losses", refinement)
    batch = batch_of(real[:2])
    losses = []
    for module in (model, own):
        torch.manual_seed(3)  # of the agents that are drawn
        losses.append(float(module.losses(batch, joint=False)["loss"].detach()))
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    validated = []
    for module in (model, own):
        run = trainer(tmp_path, max_epochs=1)
        [found] = run.validate(module, SceneData(store_path, batch_size=4), verbose=False)
        validated.append(found["val/loss"])
    assert validated[1] == pytest.approx(validated[0], rel=1e-4)


def test_another_number_of_processes_says_that_it_draws_other_random_numbers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = small_model()
    model.trainer = trainer(tmp_path)
    checkpoint = {"state_dict": model.state_dict()}
    state = torch.get_rng_state()
    model.on_load_checkpoint(checkpoint | {RANDOM: [{"cpu": state}] * 2})
    assert "warning: processes: 2 before, 1 now" in capsys.readouterr().err
    model.on_load_checkpoint(checkpoint)
    assert not capsys.readouterr().err


class JointSteps(pl.Callback):
    """The steps in which joint futures were trained."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_before_optimizer_step(self, trainer: pl.Trainer, module: Any, *_: Any) -> None:
        if module.forecaster.decoder.joint_mode.weight.grad is not None:
            self.steps.append(trainer.global_step)


def test_joint_futures_are_trained_in_every_so_many_steps(store_path: Path, tmp_path: Path) -> None:
    model = LitForecaster.build(small_config(scene=SMALL_SCENES, joint_every=3))
    joint = JointSteps()
    data = SceneData(store_path, batch_size=2)
    trainer(tmp_path, max_epochs=1, limit_val_batches=0, callbacks=[joint]).fit(model, data)
    assert joint.steps == [0, 3]
    rejects("joint_every", lambda: LitForecaster.build(small_config(joint_every=0)))
