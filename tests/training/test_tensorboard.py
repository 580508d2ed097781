"""What TensorBoard receives, read back from its event files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from av2.datasets.motion_forecasting.eval.metrics import compute_fde
from matplotlib.figure import Figure
from pytorch_lightning.callbacks import EMAWeightAveraging
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2

from tests.model.small import small_model
from tests.training.test_lit_forecaster import SMALL_SCENES, trainer
from trajpred.graph.data_module import SceneData, SceneDataset
from trajpred.graph.scene_graph import build_batch
from trajpred.store import ScenarioStore
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.training.tensorboard import (
    CURVES,
    ERRORS,
    PICTURES,
    LearningCurves,
    PredictionPictures,
    RunLogger,
)


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


def read(file: Path) -> EventAccumulator:
    return EventAccumulator(str(file), dict.fromkeys(("histograms", "images", "tensors"), 0)).Reload()


@pytest.fixture(scope="module")
def run(store_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[LitForecaster, EventAccumulator]:
    folder = tmp_path_factory.mktemp("runs")
    callbacks = [LearningCurves(), PredictionPictures(scenes=2, every_n_validations=2)]
    model = fit(store_path, folder, callbacks, RunLogger(str(folder)), 2)
    return model, read(next(folder.rglob("events*")))


def test_the_histogram_holds_av2_s_error_of_the_focal_agents(
    run: tuple[LitForecaster, EventAccumulator], store_path: Path
) -> None:
    model, events = run
    first, last = events.Histograms(ERRORS)  # none of the sanity check
    assert first.step < last.step
    scenarios, error = ScenarioStore(store_path, "val"), []
    batch = build_batch(list(scenarios), model.forecaster.scene)
    for scene, forecast in zip(scenarios, model.eval().forecaster.forecast(batch), strict=True):
        modes = forecast.trajectory[forecast.rows(np.array([scene.focal_id]))[0]]
        truth = scene.tracks.position[scene.focal, scene.num_observed :]
        error.append(compute_fde(modes, truth).min())
    value = last.histogram_value
    found = [value.num, value.min, value.max, value.sum, value.sum_squares]
    expected = [5, min(error), max(error), sum(error), sum(x**2 for x in error)]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_every_chart_has_curves_and_pictures_come_every_second_validation(
    run: tuple[LitForecaster, EventAccumulator],
) -> None:
    events = run[1]
    [layout] = events.Tensors("custom_scalars__config__")
    parsed = layout_pb2.Layout.FromString(layout.tensor_proto.string_val[0])
    assert [category.title for category in parsed.category] == list(CURVES)
    charts = [chart for category in parsed.category for chart in category.chart]
    logged = set(events.Tags()["scalars"])
    assert {tag.split("/")[0] for tag in logged} == {"train", "update", "val"}
    found = [{t for t in logged for each in chart.multiline.tag if re.match(each, t)} for chart in charts]
    assert all(found)
    missing = logged - set().union(*found)
    assert {tag.rsplit("/", 1)[1] for tag in missing} <= {"MR1", "brier-minFDE1"}
    for scene in (1, 2):
        [image] = events.Images(f"{PICTURES}/scene {scene}")
        assert image.step == events.Histograms(ERRORS)[0].step
        assert image.width > 700, "large enough to be read"
    groups = {tag.split("/")[0] for tags in events.Tags().values() if isinstance(tags, list) for tag in tags}
    assert sorted(groups - {"custom_scalars__config__"})[0] == "train", "where TensorBoard opens"


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
    callbacks = [LearningCurves(), PredictionPictures(scenes=1)]
    fit(store_path, tmp_path, callbacks, False, 1)
    assert not list(tmp_path.rglob("events*"))
    monkeypatch.setattr(pl.Trainer, "is_global_zero", property(lambda self: False))
    fit(store_path, tmp_path, callbacks, RunLogger(str(tmp_path)), 1)
    for file in tmp_path.rglob("events*"):
        tags = read(file).Tags()
        assert not {"images", "histograms", "tensors"} & {kind for kind, found in tags.items() if found}
