"""Callbacks of a run: learning curves and pictures in TensorBoard, checkpoints, and clean interruption."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from trajpred.errors import require
from trajpred.graph.data_module import SceneDataset
from trajpred.metrics import columns, metric_of
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.viz.scene import draw_scene

#: Signals that stop a run: Ctrl-C, ``kill`` and schedulers, SLURM before its time limit (not on Windows).
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
#: Exit code of a run that was stopped and can be resumed: EX_TEMPFAIL, "try again".
STOPPED = 75
#: A Ctrl-C within this time is the same one, forwarded by a launcher.
_REPEATED_S = 2.0
#: Tags of the pictures and of the histogram.
PICTURES, ERRORS = "predictions", "minFDE6 of the focal agents (m)"


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
    """Draw the first validation scenes with their forecasts into TensorBoard.

    Args:
        scenes: number of scenes; 0 disables the pictures.
        every_n_validations: draw after every n-th validation.
    """

    def __init__(self, scenes: int = 4, every_n_validations: int = 1) -> None:
        require(scenes >= 0, "scenes", f"must not be negative, is {scenes}")
        require(every_n_validations > 0, "every_n_validations", f"must be positive, is {every_n_validations}")
        self.scenes, self.every, self.validations = scenes, every_n_validations, 0

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        writer = writer_of(trainer)
        if writer is None or not self.scenes:
            return
        self.validations += 1
        data = getattr(trainer.val_dataloaders, "dataset", None)
        drawn = (self.validations - 1) % self.every == 0
        if drawn and isinstance(data, SceneDataset) and isinstance(pl_module, LitForecaster):
            writer.add_figure(PICTURES, self.draw(pl_module, data), trainer.global_step)

    def draw(self, model: LitForecaster, data: SceneDataset) -> Figure:
        """Draw the first scenes of ``data`` side by side, with the model's forecasts."""
        rows = range(min(self.scenes, len(data)))
        batch = data[rows].to(model.device)
        figure = Figure(figsize=(4.2 * len(rows), 4.8), layout="compressed")
        panels = figure.subplots(1, len(rows), squeeze=False)[0]
        for row, forecast, axes in zip(rows, model.forecaster.forecast(batch), panels, strict=True):
            draw_scene(data.store[row], forecast, axes=axes)
        return figure


class LearningRate(LearningRateMonitor):
    """Log the learning rate; does nothing without a logger."""

    def on_train_start(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        if trainer.loggers:
            super().on_train_start(trainer, *args, **kwargs)


class RunCheckpoint(ModelCheckpoint):
    """Lightning's callback, which keeps its best checkpoint when the folder of the run has moved.

    Lightning compares absolute paths: in a moved run the next checkpoint would count as the best one.
    """

    @property
    def state_key(self) -> str:
        """Lightning's own key, so that checkpoints do not depend on this class."""
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__, 1)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        paths = {name: self._moved(x) for name, x in state_dict.items() if name.endswith("_model_path")}
        best = {self._moved(path): score for path, score in state_dict["best_k_models"].items()}
        if all(Path(path).is_file() for path in best):
            state_dict = {**state_dict, **paths, "best_k_models": best, "dirpath": self.dirpath}
        super().load_state_dict(state_dict)
        if not Path(self.best_model_path).is_file():
            self.best_model_path = ""

    def _moved(self, path: str) -> str:
        return str(Path(self.dirpath or "") / Path(path).name) if path else path


class StoppedError(Exception):
    """Training was stopped by a signal, after saving ``checkpoint``."""

    def __init__(self, checkpoint: str) -> None:
        super().__init__(checkpoint)
        self.checkpoint = checkpoint


class RecentCheckpoint(RunCheckpoint):
    """Lightning's callback, which also saves before each validation and when a signal stops the run.

    After one of :data:`SIGNALS` in any process, all processes finish their step or validation batch and raise
    :class:`StoppedError`. A second Ctrl-C raises KeyboardInterrupt.

    No checkpoint is written between accumulated gradients and their step. After the last step of an epoch it
    is written when validation starts, or at the end of an epoch without validation: Lightning counts the
    epochs of a run that resumes from within its last batch wrongly.
    """

    requested_at: float | None = None
    stop_at_epoch_end = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:  # replaces Lightning's handlers, which restores all at the end
                signal.signal(number, self._request_stop)
            # A signal that Lightning's handler received before; its exit code would be 0.
            if trainer._signal_connector.received_sigterm:
                trainer._signal_connector.received_sigterm = False
                self._request_stop(signal.SIGTERM, None)

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested_at is None:
            self.requested_at = now
        elif number == signal.SIGINT and now - self.requested_at > _REPEATED_S:
            raise KeyboardInterrupt

    def _stop_requested(self, trainer: pl.Trainer) -> bool:
        """Return whether any process received a signal; all processes must call this together."""
        return bool(trainer.strategy.reduce_boolean_decision(self.requested_at is not None, all=False))

    def _save_and_stop(self, trainer: pl.Trainer) -> None:
        if not self._should_skip_saving_checkpoint(trainer):
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))
        raise StoppedError(self.best_model_path)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *batch: Any) -> None:
        stop, loop = self._stop_requested(trainer), trainer.fit_loop
        validates = loop._data_fetcher and loop.epoch_loop._should_check_val_fx(loop._data_fetcher)
        if loop._should_accumulate() or validates:
            return
        if loop.epoch_loop.batch_progress.is_last_batch:
            self.stop_at_epoch_end = stop
            return
        if stop:
            self._save_and_stop(trainer)
        super().on_train_batch_end(trainer, pl_module, *batch)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.stop_at_epoch_end:
            self._save_and_stop(trainer)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._should_skip_saving_checkpoint(trainer):
            return
        # The state within the first validation batch, from which Lightning resumes with the validation.
        progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
        progress.reset()
        progress.increment_ready()
        progress.increment_started()
        self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))
        progress.reset()

    def on_validation_batch_end(self, trainer: pl.Trainer, *batch: Any) -> None:
        # Nothing is saved here, since averaged weights may replace the model's during validation.
        fits = trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking
        if fits and self._stop_requested(trainer):
            raise StoppedError(self.best_model_path)
