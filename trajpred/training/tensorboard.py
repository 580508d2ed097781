"""What TensorBoard shows of a run: learning curves, and pictures of validation scenes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytorch_lightning as pl
from matplotlib.figure import Figure
from pytorch_lightning.loggers import TensorBoardLogger

from trajpred.errors import require
from trajpred.graph.data_module import SceneDataset
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.viz.scene import draw_scene

#: Tag of the pictures. TensorBoard sorts by tags: train/loss stays first.
PICTURES = "val pictures"
#: Inches and pixels per inch: TensorBoard shows pictures small, so that text must be large in them.
SIZE, DPI = (4.4, 4.86), 170


class RunLogger(TensorBoardLogger):
    """Lightning's logger without its curve of the epoch: TensorBoard sorts by name and opens on train/loss.

    Args:
        save_dir, name, version: the run's folder is ``save_dir/name/version``, by default a new
            ``runs/forecaster/version_N``.
    """

    def __init__(
        self, save_dir: str = "runs", name: str = "forecaster", version: int | str | None = None
    ) -> None:
        super().__init__(save_dir, name, version, default_hp_metric=False)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        super().log_metrics({name: x for name, x in metrics.items() if name != "epoch"}, step)


class PredictionPictures(pl.Callback):
    """Draw the first validation scenes with their forecasts into TensorBoard, by the weights validated.

    Args:
        scenes: number of scenes; 0 disables the pictures.
    """

    def __init__(self, scenes: int = 4) -> None:
        require(scenes >= 0, "scenes", f"must not be negative, is {scenes}")
        self.scenes = scenes

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        *_: Any,
    ) -> None:
        logger = next((x for x in trainer.loggers if isinstance(x, TensorBoardLogger)), None)
        # Averaged weights replace the model's until the last batch only.
        due = self.scenes and not batch_idx and not trainer.sanity_checking and trainer.is_global_zero
        if logger is None or not due:
            return
        data = getattr(trainer.val_dataloaders, "dataset", None)
        if isinstance(data, SceneDataset) and isinstance(pl_module, LitForecaster):
            for row, figure in enumerate(self.draw(pl_module, data)):
                logger.experiment.add_figure(f"{PICTURES}/scene {row + 1}", figure, trainer.global_step)

    def draw(self, model: LitForecaster, data: SceneDataset) -> Iterator[Figure]:
        """Draw the first scenes of ``data`` with the model's forecasts."""
        rows = range(min(self.scenes, len(data)))
        forecasts = model.forecaster.forecast(data[rows].to(model.device))
        for row, forecast in zip(rows, forecasts, strict=True):
            figure = Figure(figsize=SIZE, dpi=DPI)
            yield draw_scene(data.store[row], forecast, axes=figure.add_axes((0.01, 0.01, 0.98, 0.887)))
