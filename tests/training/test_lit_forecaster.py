"""The LightningModule: every parameter is trained, and checkpoints predict the same."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

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


def trainer(folder: Path, **options: Any) -> pl.Trainer:
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    off = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(default_root_dir=folder, accelerator="cpu", **(off | options))


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
    model.losses(batch_of(real[:1]))["loss"].backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]
    zero = {name for name, p in model.named_parameters() if p.grad.abs().max() < 1e-6}
    # Without poses the bias depends on the kind of edge only, of which there is one between joint modes.
    constant = {n for n in zero if "across_bias" in n and change.get("pose") in ("values", "none")}
    assert zero - constant == WITHOUT_EFFECT


def test_a_checkpoint_of_lightning_predicts_what_the_trained_model_does(
    store_path: Path, tmp_path: Path
) -> None:
    saver = ModelCheckpoint(tmp_path)
    run = trainer(tmp_path, max_steps=2, limit_val_batches=0, callbacks=[saver])
    model, data = small_model(seed=4, scene=SMALL_SCENES).train(), SceneData(store_path, batch_size=5)
    run.fit(model, data)
    assert data.scene == model.forecaster.scene != SceneConfig(), "data are built as the model asks"
    loaded, [batch] = Forecaster.load(saver.best_model_path), data.val_dataloader()
    assert loaded.scene == data.scene and loaded.config == model.config and not loaded.training
    found, expected = loaded(batch), model.eval()(batch)
    assert all(torch.equal(getattr(found, name), getattr(expected, name)) for name in TOLERANCE)
    fresh = small_model(seed=4).state_dict()
    assert any(not torch.equal(value, fresh[name]) for name, value in model.state_dict().items())
