"""What TensorBoard receives, read back from its event files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from pytorch_lightning.callbacks import EMAWeightAveraging
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.model.small import small_model
from tests.training.test_lit_forecaster import SMALL_SCENES, trainer
from trajpred.graph.data_module import SceneData, SceneDataset
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.training.tensorboard import PICTURES, PredictionPictures, RunLogger


def fit(
    store: Path, folder: Path, callbacks: Sequence[pl.Callback], logger: Any, epochs: int
) -> LitForecaster:
    """Train epochs of one batch, each followed by a validation."""
    run = trainer(
        folder,
        max_epochs=epochs,
        limit_train_batches=1,
        num_sanity_val_steps=1,
        log_every_n_steps=1,
        enable_checkpointing=False,
        callbacks=list(callbacks),
        logger=logger,
    )
    model = small_model(seed=4, scene=SMALL_SCENES).train()
    run.fit(model, SceneData(store, batch_size=2, seed=3))
    return model


def test_curves_and_pictures_are_logged_and_train_loss_comes_first(store_path: Path, tmp_path: Path) -> None:
    fit(store_path, tmp_path, [PredictionPictures(scenes=2)], RunLogger(str(tmp_path)), 2)
    events = EventAccumulator(str(next(tmp_path.rglob("events*"))), {"images": 0}).Reload()
    logged = events.Tags()["scalars"]
    assert {tag.split("/")[0] for tag in logged} == {"train", "update", "val"}
    assert sorted([*logged, PICTURES])[0].startswith("train/"), "where TensorBoard opens"
    for scene in (1, 2):
        images = events.Images(f"{PICTURES}/scene {scene}")
        assert len(images) == 2 and images[0].width > 700, "one of each validation, none of the sanity check"


def test_pictures_show_the_averaged_weights_that_are_validated(store_path: Path, tmp_path: Path) -> None:
    found: dict[str, list[torch.Tensor]] = {"validated": [], "drawn": [], "trained": []}

    def add(name: str, model: pl.LightningModule) -> None:
        found[name].append(torch.cat([p.detach().flatten() for p in model.parameters()]))

    class Pictures(PredictionPictures):
        def draw(self, model: LitForecaster, data: SceneDataset) -> Iterator[Figure]:
            add("drawn", model)
            return super().draw(model, data)

        def on_validation_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
            if not trainer.sanity_checking:
                add("validated", module)

        def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
            add("trained", module)

    average = EMAWeightAveraging(decay=0.5)
    fit(store_path, tmp_path, [Pictures(scenes=1), average], RunLogger(str(tmp_path)), 2)
    validated, drawn, trained = (found[name][-1] for name in ("validated", "drawn", "trained"))
    assert torch.equal(drawn, validated) and not torch.equal(drawn, trained)


def test_nothing_is_written_without_a_logger_and_by_other_processes(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callbacks = [PredictionPictures(scenes=1)]
    fit(store_path, tmp_path, callbacks, False, 1)
    assert not list(tmp_path.rglob("events*"))
    monkeypatch.setattr(pl.Trainer, "is_global_zero", property(lambda self: False))
    fit(store_path, tmp_path, callbacks, RunLogger(str(tmp_path)), 1)
    for file in tmp_path.rglob("events*"):
        assert not EventAccumulator(str(file)).Reload().Tags()["images"]
