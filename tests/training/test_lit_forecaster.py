"""The LightningModule: every parameter is trained, checkpoints predict the same, averages are validated."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.callbacks import EMAWeightAveraging, ModelCheckpoint

from tests.conftest import ROOT
from tests.graph.conftest import store_path  # noqa: F401
from tests.model.small import TOLERANCE, batch_of, small_config, small_model
from trajpred.graph.config import SceneConfig
from trajpred.graph.data_module import SceneData
from trajpred.model import Forecaster
from trajpred.scenario import Scenario
from trajpred.training.lit_forecaster import LitForecaster

#: Parameters whose gradient is zero: a constant added to all logits changes nothing.
WITHOUT_EFFECT = {"forecaster.decoder.logit_head.2.bias"}
#: Small scenes make training cheap.
SMALL_SCENES = {"features": {"max_agents": 8, "max_lanes": 24}, "graph": {"lane_agent_k": 8}}
DECAY = 0.7


def trainer(folder: Path, **options: Any) -> pl.Trainer:
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    off = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(default_root_dir=folder, accelerator="cpu", **off, **options)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("both", {}),
        ("both", {"norm": "pre"}),
        ("decoder", {"refine_layers": 0}),
        *(("both", {"pose": pose}) for pose in ("bias", "values", "none")),
    ],
)
def test_every_parameter_of_every_variant_is_trained(
    real: list[Scenario], part: str, change: dict[str, Any]
) -> None:
    """DDP waits for all gradients."""
    config = small_config()
    for each in ("encoder", "decoder"):
        config[each]["init_args"] |= change if part in (each, "both") else {}
    model = LitForecaster.build(config).train()
    model.losses(batch_of(real[:2]))["loss"].backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]
    zero = {name for name, p in model.named_parameters() if p.grad.abs().max() < 1e-6}
    # Without poses the bias depends on the kind of edge only, of which there is one between joint modes.
    constant = {n for n in zero if "across_bias" in n and change.get("pose") in ("values", "none")}
    assert zero - constant == WITHOUT_EFFECT


def test_a_few_steps_reduce_every_loss(real: list[Scenario]) -> None:
    model, batch = small_model().train(), batch_of(real[:1])
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    history = []
    for _ in range(20):
        losses = model.losses(batch)
        optimizer.zero_grad()
        losses["loss"].backward()
        optimizer.step()
        history.append({name: float(value.detach()) for name, value in losses.items()})
    for name in ("loss", "proposal", "refinement", "minADE", "joint_loss"):
        assert history[-1][name] < 0.95 * history[0][name], name


class WeightsAfterSteps(pl.Callback):
    """Record the weights after every step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        self.steps.append({name: value.clone() for name, value in module.state_dict().items()})


@dataclass
class Run:
    """A finished training.

    Attributes:
        model: the trained model; steps: its weights after each step.
        checkpoint: the last checkpoint; loss: its validation loss.
    """

    model: LitForecaster
    steps: list[dict[str, torch.Tensor]]
    checkpoint: Path
    loss: float


def fit(store: Path, folder: Path, *average: pl.Callback) -> Run:
    """Train two epochs of two steps."""
    weights, saver = WeightsAfterSteps(), ModelCheckpoint(folder)
    run = trainer(folder, max_epochs=2, num_sanity_val_steps=0, callbacks=[*average, weights, saver])
    model, data = small_model(seed=4, scene=SMALL_SCENES).train(), SceneData(store, batch_size=5, seed=3)
    run.fit(model, data)
    assert data.scene == model.forecaster.scene != SceneConfig(), "data are built as the model asks"
    return Run(model, weights.steps, Path(saver.best_model_path), float(run.callback_metrics["val/loss"]))


@pytest.fixture(scope="module")
def plain(
    store_path: Path,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    return fit(store_path, tmp_path_factory.mktemp("plain"))


def test_a_checkpoint_of_lightning_predicts_what_the_trained_model_does(
    plain: Run, real: list[Scenario]
) -> None:
    loaded, batch = Forecaster.load(plain.checkpoint), batch_of(real)
    assert loaded.scene == plain.model.scene and loaded.config == plain.model.config and not loaded.training
    found, expected = loaded(batch), plain.model.eval()(batch)
    assert all(torch.equal(getattr(found, name), getattr(expected, name)) for name in TOLERANCE)
    assert any(not torch.equal(value, plain.steps[-1][name]) for name, value in plain.steps[0].items())


def test_averaged_weights_are_validated_and_saved_and_do_not_disturb_training(
    store_path: Path,  # noqa: F811
    tmp_path: Path,
    plain: Run,
) -> None:
    config = yaml.safe_load((ROOT / "configs" / "trainer" / "average.yaml").read_text())
    [callback] = config["trainer"]["callbacks"]
    assert callback["class_path"] == "pytorch_lightning.callbacks.EMAWeightAveraging"
    average = EMAWeightAveraging(**{**callback["init_args"], "decay": DECAY})
    run = fit(store_path, tmp_path / "averaged", average)
    steps = run.steps
    for step, expected in zip(steps, plain.steps, strict=True):
        assert all(torch.equal(step[name], expected[name]) for name in step)
    loaded = Forecaster.load(run.checkpoint)
    for name, value in loaded.state_dict().items():
        mean = steps[0][f"forecaster.{name}"].double()
        for step in steps[1:]:
            mean = DECAY * mean + (1 - DECAY) * step[f"forecaster.{name}"].double()
        torch.testing.assert_close(value.double(), mean, rtol=1e-5, atol=1e-7, msg=name)
    model = small_model(scene=SMALL_SCENES)
    model.forecaster.load_state_dict(loaded.state_dict())
    [again] = trainer(tmp_path / "again").validate(model, SceneData(store_path, batch_size=5), verbose=False)
    assert again["val/loss"] == pytest.approx(run.loss, rel=1e-5)
    assert abs(run.loss - plain.loss) > 1e-4 * abs(run.loss), "validation uses the averaged weights"
