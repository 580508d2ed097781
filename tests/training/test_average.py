"""``configs/trainer/average.yaml``: the average is what is validated and saved; training does not notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.callbacks import EMAWeightAveraging, ModelCheckpoint

from tests.conftest import ROOT
from tests.graph.conftest import store_path  # noqa: F401
from tests.model.small import small_model
from tests.training.test_lit_forecaster import trainer
from trajpred.graph.data_module import SceneData
from trajpred.model import Forecaster

DECAY = 0.7


class Weights(pl.Callback):
    """The weights after every step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        self.steps.append({name: value.double() for name, value in module.state_dict().items()})


def fit(store: Path, folder: Path, *average: pl.Callback) -> tuple[Weights, Path, float]:
    """Three epochs, validated after each: the weights of each step, the last checkpoint, its loss."""
    weights, saver = Weights(), ModelCheckpoint(folder)
    run = trainer(folder, max_epochs=3, num_sanity_val_steps=0, callbacks=[*average, weights, saver])
    run.fit(small_model(seed=4).train(), SceneData(store, batch_size=5, seed=3))
    return weights, Path(saver.best_model_path), float(run.callback_metrics["val/loss"])


@pytest.fixture(scope="module")
def options() -> dict[str, Any]:
    """What the config gives the callback, with a decay for a few steps."""
    config = yaml.safe_load((ROOT / "configs" / "trainer" / "average.yaml").read_text())
    [callback] = config["trainer"]["callbacks"]
    assert callback["class_path"] == "pytorch_lightning.callbacks.EMAWeightAveraging"
    return {**callback["init_args"], "decay": DECAY}


def test_the_average_is_validated_and_saved(
    store_path: Path,  # noqa: F811
    tmp_path: Path,
    options: dict[str, Any],
) -> None:
    weights, path, loss = fit(store_path, tmp_path / "averaged", EMAWeightAveraging(**options))
    plain, _, other_loss = fit(store_path, tmp_path / "plain")
    assert len(weights.steps) == 6
    for step, undisturbed in zip(weights.steps, plain.steps, strict=True):
        assert all(torch.equal(step[name], undisturbed[name]) for name in step)

    loaded = Forecaster.load(path)
    for name, value in loaded.state_dict().items():
        expected = weights.steps[0][name]
        for step in weights.steps[1:]:
            expected = DECAY * expected + (1 - DECAY) * step[name]
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-7, msg=name)
    data = SceneData(store_path, batch_size=5)
    [again] = trainer(tmp_path / "again").validate(loaded, data, verbose=False)
    assert again["val/loss"] == pytest.approx(loss, rel=1e-5)
    assert abs(loss - other_loss) > 1e-3 * abs(loss), "averaged or not, validation says the same"
