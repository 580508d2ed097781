"""Pictures of the same validation scenes while a model trains."""

from __future__ import annotations

import pytorch_lightning as pl
from matplotlib.figure import Figure
from pytorch_lightning.loggers import TensorBoardLogger

from trajpred.graph.dataset import SceneDataset
from trajpred.model import LitForecaster
from trajpred.viz.scene import draw_scene


class PredictionPictures(pl.Callback):
    """Draws the first validation scenes with their forecasts into TensorBoard.

    Args:
        scenes: how many; 0 draws none.
        every_n_validations: draw after each n-th validation.
    """

    def __init__(self, scenes: int = 4, every_n_validations: int = 1) -> None:
        self.scenes, self.every, self.seen = scenes, every_n_validations, 0

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.sanity_checking or not trainer.is_global_zero or not self.scenes:
            return
        self.seen += 1
        data = getattr(trainer.val_dataloaders, "dataset", None)
        logger = next((x for x in trainer.loggers if isinstance(x, TensorBoardLogger)), None)
        if logger is None or (self.seen - 1) % self.every:
            return
        if isinstance(data, SceneDataset) and isinstance(pl_module, LitForecaster):
            logger.experiment.add_figure("predictions", self.draw(pl_module, data), trainer.global_step)

    def draw(self, model: LitForecaster, data: SceneDataset) -> Figure:
        """The first scenes of ``data`` side by side, with the model's forecasts."""
        rows = range(min(self.scenes, len(data)))
        batch = data[rows].to(model.device)
        figure = Figure(figsize=(4.2 * len(rows), 4.8), layout="compressed")
        panels = figure.subplots(1, len(rows), squeeze=False)[0]
        for row, forecast, axes in zip(rows, model.forecaster.forecast(batch), panels, strict=True):
            draw_scene(data.store[row], forecast, axes=axes)
        return figure
