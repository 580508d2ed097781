"""What TensorBoard shows while a model trains: scenes, how errors are distributed, curves by plain names."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from pytorch_lightning.loggers import TensorBoardLogger
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from trajpred.errors import require
from trajpred.graph.dataset import SceneDataset
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.viz.scene import draw_scene

#: Tags of the pictures and of the histogram.
PICTURES, ERRORS = "predictions", "minFDE6 of the focal agents (m)"
#: What is validated, as a person would ask for it.
_METRICS = {
    "Average error, best of 6 (m): minADE6": "minADE6",
    "Final error, best of 6 (m): minFDE6": "minFDE6",
    "The same, unlikely ones penalised: brier-minFDE6": "brier-minFDE6",
    "Share missed by more than 2 m, best of 6: MR6": "MR6",
    "Average error, likeliest (m): minADE1": "minADE1",
    "Final error, likeliest (m): minFDE1": "minFDE1",
}


def _chart(*tags: str) -> list[Any]:
    """Curves in one chart; ``tags`` are regular expressions."""
    return ["Multiline", list(tags)]


def _validation(group: str) -> dict[str, list[Any]]:
    # A chart each: TensorBoard colours by run, so that two curves of a run look the same.
    return {title: _chart(f"val/{group}/{name}$") for title, name in _METRICS.items()}


#: TensorBoard's tab "Custom scalars": the curves that training logs, sorted by what one wants to know.
CURVES: dict[str, dict[str, list[Any]]] = {
    "Validation, focal agents": _validation("focal"),
    "Validation, scored agents": _validation("scored"),
    "Validation, all agents": _validation("all"),
    "Losses": {
        "Training": _chart("train/loss$"),
        "Validation": _chart("val/loss$"),
        "Parts of the training loss": _chart("train/(?!loss$|minADE$|grad_norm$)"),
    },
    "Training": {
        "Average error on its batches, best future (m): minADE": _chart("train/minADE$"),
        "Learning rate": _chart("lr-"),
        "Norm of all gradients": _chart("train/grad_norm$"),
    },
}


def writer_of(trainer: pl.Trainer) -> SummaryWriter | None:
    """What writes to TensorBoard; None on all processes but the first and where nothing is logged there."""
    logger = next((x for x in trainer.loggers if isinstance(x, TensorBoardLogger)), None)
    return logger.experiment if logger is not None and trainer.is_global_zero else None


class LearningCurves(pl.Callback):
    """Sorts the curves in TensorBoard, and shows how the errors of the focal agents are distributed.

    The histogram is of the validation scenes of the first process.
    """

    def __init__(self) -> None:
        self.errors: list[Tensor] = []

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        writer = writer_of(trainer)
        if writer is not None:
            writer.add_custom_scalars(CURVES)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.errors = []

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *args: Any, **kwargs: Any
    ) -> None:
        if isinstance(outputs, Tensor):
            self.errors.append(outputs)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        writer = None if trainer.sanity_checking else writer_of(trainer)
        if writer is None or not self.errors:
            return
        errors = torch.cat(self.errors).float().cpu()
        known = errors[errors.isfinite()]
        if len(known):
            writer.add_histogram(ERRORS, known, trainer.global_step)


class PredictionPictures(pl.Callback):
    """Draws the first validation scenes with their forecasts into TensorBoard.

    Args:
        scenes: how many; 0 draws none.
        every_n_validations: draw after each n-th validation.
    """

    def __init__(self, scenes: int = 4, every_n_validations: int = 1) -> None:
        require(scenes >= 0, "scenes", f"must not be negative, is {scenes}")
        require(every_n_validations > 0, "every_n_validations", f"must be positive, is {every_n_validations}")
        self.scenes, self.every, self.seen = scenes, every_n_validations, 0

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        writer = None if trainer.sanity_checking else writer_of(trainer)
        if writer is None or not self.scenes:
            return
        self.seen += 1
        data = getattr(trainer.val_dataloaders, "dataset", None)
        if (self.seen - 1) % self.every:
            return
        if isinstance(data, SceneDataset) and isinstance(pl_module, LitForecaster):
            writer.add_figure(PICTURES, self.draw(pl_module, data), trainer.global_step)

    def draw(self, model: LitForecaster, data: SceneDataset) -> Figure:
        """The first scenes of ``data`` side by side, with the model's forecasts."""
        rows = range(min(self.scenes, len(data)))
        batch = data[rows].to(model.device)
        figure = Figure(figsize=(4.2 * len(rows), 4.8), layout="compressed")
        panels = figure.subplots(1, len(rows), squeeze=False)[0]
        for row, forecast, axes in zip(rows, model.forecaster.forecast(batch), panels, strict=True):
            draw_scene(data.store[row], forecast, axes=axes)
        return figure
