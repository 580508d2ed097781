"""What a training writes for TensorBoard, read back from its event files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
from av2.datasets.motion_forecasting.eval.metrics import compute_fde
from pytorch_lightning.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2

from tests.graph.conftest import store_path  # noqa: F401
from tests.model.small import small_model
from trajpred.errors import DataError
from trajpred.graph.data_module import SceneData
from trajpred.store import ScenarioStore
from trajpred.training.callbacks import CURVES, ERRORS, PICTURES, LearningCurves, PredictionPictures
from trajpred.training.lit_forecaster import LitForecaster


def fit(
    store: Path, folder: Path, callbacks: Sequence[pl.Callback], logger: Any, epochs: int = 2
) -> LitForecaster:
    """Epochs of one batch, validated after each."""
    run = pl.Trainer(
        default_root_dir=folder,
        accelerator="cpu",
        max_epochs=epochs,
        limit_train_batches=1,
        num_sanity_val_steps=1,
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        callbacks=list(callbacks),
        logger=logger,
    )
    model = small_model(seed=4).train()
    run.fit(model, SceneData(store, batch_size=2, seed=3))
    return model


def read(file: Path) -> EventAccumulator:
    """All that it holds."""
    return EventAccumulator(str(file), dict.fromkeys(("histograms", "images", "tensors"), 0)).Reload()


@pytest.fixture(scope="module")
def run(
    store_path: Path,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[LitForecaster, EventAccumulator]:
    folder = tmp_path_factory.mktemp("runs")
    callbacks = [LearningCurves(), PredictionPictures(scenes=2, every_n_validations=2)]
    model = fit(store_path, folder, callbacks, TensorBoardLogger(folder, default_hp_metric=False))
    return model, read(next(folder.rglob("events*")))


def test_the_histogram_is_of_the_focal_agents_of_the_validation(
    run: tuple[LitForecaster, EventAccumulator],
    store_path: Path,  # noqa: F811
) -> None:
    """Each focal agent's error by av2, from forecasts in the city frame; nothing of the sanity check."""
    model, events = run
    first, last = events.Histograms(ERRORS)
    assert first.step < last.step
    data = SceneData(store_path, batch_size=5)
    data.setup("validate")
    [batch] = data.val_dataloader()
    scenarios, error = ScenarioStore(store_path, "val"), []
    for scene, forecast in zip(scenarios, model.eval().forecaster.forecast(batch), strict=True):
        modes = forecast.trajectory[forecast.rows(np.array([scene.focal_id]))[0]]
        truth = scene.tracks.position[scene.focal, scene.num_observed :]
        error.append(compute_fde(modes, truth).min())
    value = last.histogram_value
    assert value.num == len(scenarios) == 5
    found = [value.min, value.max, value.sum, value.sum_squares]
    expected = [min(error), max(error), sum(error), sum(x**2 for x in error)]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_every_curve_has_its_place_and_every_chart_its_curve(
    run: tuple[LitForecaster, EventAccumulator],
) -> None:
    events = run[1]
    [layout] = events.Tensors("custom_scalars__config__")
    parsed = layout_pb2.Layout.FromString(layout.tensor_proto.string_val[0])
    assert [category.title for category in parsed.category] == list(CURVES)
    charts = [chart for category in parsed.category for chart in category.chart]
    logged = {tag for tag in events.Tags()["scalars"] if tag != "epoch"}
    found = [{t for t in logged for each in chart.multiline.tag if re.match(each, t)} for chart in charts]
    empty = [chart.title for chart, tags in zip(charts, found, strict=True) if not tags]
    assert empty == ["Learning rate"], "logged by another callback"
    left = {
        f"val/{group}/{name}" for group in ("focal", "scored", "all") for name in ("MR1", "brier-minFDE1")
    }
    assert logged - set().union(*found) == left


def test_pictures_come_every_second_validation(run: tuple[LitForecaster, EventAccumulator]) -> None:
    images = run[1].Images(PICTURES)
    assert [image.step for image in images] == [run[1].Histograms(ERRORS)[0].step]
    assert images[0].width > 1.5 * images[0].height


@pytest.mark.parametrize("wrong", [{"scenes": -1}, {"every_n_validations": 0}, {"every_n_validations": -1}])
def test_impossible_numbers_are_refused_before_training(wrong: dict[str, int]) -> None:
    with pytest.raises(DataError, match=next(iter(wrong))):
        PredictionPictures(**wrong)


@pytest.mark.parametrize("callback", [LearningCurves(), PredictionPictures(scenes=1)])
def test_silent_without_a_logger_and_on_other_processes(
    callback: pl.Callback,
    store_path: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fit(store_path, tmp_path, [callback], False, epochs=1)
    assert not list(tmp_path.rglob("events*"))
    monkeypatch.setattr(pl.Trainer, "is_global_zero", property(lambda self: False))
    fit(store_path, tmp_path, [callback], TensorBoardLogger(tmp_path, default_hp_metric=False), epochs=1)
    for file in tmp_path.rglob("events*"):
        tags = read(file).Tags()
        assert not {"images", "histograms", "tensors"} & {kind for kind, found in tags.items() if found}
