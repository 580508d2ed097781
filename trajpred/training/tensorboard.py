"""What TensorBoard shows of a run: learning curves, their layout, a histogram and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from pytorch_lightning.loggers import TensorBoardLogger
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from trajpred.errors import require
from trajpred.graph.data_module import SceneDataset
from trajpred.metrics import columns, metric_of
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.viz.scene import draw_scene

#: Tags of the pictures and of the histogram. TensorBoard sorts by them: train/loss stays first.
PICTURES, ERRORS = "val pictures", "val/focal/minFDE6 of each agent (m)"
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


def _chart(tag: str) -> list[Any]:
    """Return the layout of one chart; ``tag`` is a regular expression."""
    return ["Multiline", [tag]]


def _validation(group: str) -> dict[str, list[Any]]:
    # One curve per chart, since TensorBoard colours by run.
    charts = {}
    for name in columns("chart"):
        metric = metric_of(name)
        modes = "most probable future" if name == f"{metric.name}1" else f"best of {name[len(metric.name) :]}"
        unit = f" ({metric.unit})" if metric.unit else ""
        charts[f"{metric.label}, {modes}{unit}: {name}"] = _chart(f"val/{group}/{name}$")
    return charts


#: Layout of TensorBoard's tab "Custom scalars".
CURVES: dict[str, dict[str, list[Any]]] = {
    "Validation, focal agents": _validation("focal"),
    "Validation, scored agents": _validation("scored"),
    "Validation, moving agents": _validation("moving"),
    "Validation, all agents": _validation("all"),
    "Losses": {
        "Training": _chart("train/loss$"),
        "Validation": _chart("val/loss$"),
        "Parts of the training loss": _chart("train/(?!loss$|minADE$)"),
    },
    "Training": {
        "Average error on its batches, best future (m): minADE": _chart("train/minADE$"),
        "Learning rate": _chart("update/learning_rate$"),
        "Norm of all gradients": _chart("update/grad_norm$"),
    },
}


def writer_of(trainer: pl.Trainer) -> SummaryWriter | None:
    """Return TensorBoard's writer; None without one, in sanity checks, and beyond the first process."""
    logger = next((x for x in trainer.loggers if isinstance(x, TensorBoardLogger)), None)
    if logger is None or trainer.sanity_checking or not trainer.is_global_zero:
        return None
    return logger.experiment


class LearningCurves(pl.Callback):
    """Arrange the curves in TensorBoard, and add a histogram of the focal agents' final errors.

    The histogram covers the validation scenes of the first process.
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
        writer = writer_of(trainer)
        if writer is None or not self.errors:
            return
        errors = torch.cat(self.errors).float().cpu()
        if len(finite := errors[errors.isfinite()]):
            writer.add_histogram(ERRORS, finite, trainer.global_step)


class PredictionPictures(pl.Callback):
    """Draw the first validation scenes with their forecasts into TensorBoard, by the weights validated.

    Args:
        scenes: number of scenes; 0 disables the pictures.
        every_n_validations: draw after every n-th validation.
    """

    def __init__(self, scenes: int = 4, every_n_validations: int = 1) -> None:
        require(scenes >= 0, "scenes", f"must not be negative, is {scenes}")
        require(every_n_validations > 0, "every_n_validations", f"must be positive, is {every_n_validations}")
        self.scenes, self.every, self.validations = scenes, every_n_validations, 0

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        *_: Any,
    ) -> None:
        # Averaged weights replace the model's until the last batch only.
        writer = writer_of(trainer)
        if writer is None or not self.scenes or batch_idx:
            return
        self.validations += 1
        data = getattr(trainer.val_dataloaders, "dataset", None)
        drawn = (self.validations - 1) % self.every == 0
        if drawn and isinstance(data, SceneDataset) and isinstance(pl_module, LitForecaster):
            for row, figure in enumerate(self.draw(pl_module, data)):
                writer.add_figure(f"{PICTURES}/scene {row + 1}", figure, trainer.global_step)

    def draw(self, model: LitForecaster, data: SceneDataset) -> Iterator[Figure]:
        """Draw the first scenes of ``data`` with the model's forecasts."""
        rows = range(min(self.scenes, len(data)))
        forecasts = model.forecaster.forecast(data[rows].to(model.device))
        for row, forecast in zip(rows, forecasts, strict=True):
            figure = Figure(figsize=SIZE, dpi=DPI)
            yield draw_scene(data.store[row], forecast, axes=figure.add_axes((0.01, 0.01, 0.98, 0.887)))
