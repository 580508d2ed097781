"""The record of a run: facts and curves in its checkpoints, its folder, and the lines it prints."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from filelock import FileLock, Timeout
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import TensorBoardLogger
from torch import Tensor
from tqdm import tqdm

from trajpred.data.environment import command_words
from trajpred.data.resample import same_step
from trajpred.errors import DataError, require
from trajpred.evaluation.origin import counted, environment, store_facts
from trajpred.model.checkpoint import TRAINING

#: Facts that, with the store, determine the batches of an epoch.
BATCH_FACTS = (
    "seed",
    "batch_size",
    "accumulate_grad_batches",
    "memory_gb",
    "hold_out",
    "stores",
    "processes",
)
#: The results as numbers, in the folder of a run, the input of ``trajpred compare``.
EVALUATION = "evaluation.json"
#: Seconds to wait for another training of the same run to end.
LOCK_S = 10.0
#: Maximum seconds between two lines of a run.
LINE_S = 120.0


def batch_order(record: dict[str, Any]) -> dict[str, Any]:
    """Select the facts that determine the batches of an epoch.

    Only the training split of the store counts: other splits may have changed.
    """
    facts = {name: record[name] for name in BATCH_FACTS}
    store = record["store"]
    train = store["scenarios"]["train"]
    facts["store"] = {"source": store["source"], "config": store["config"], "train": train}
    return facts


class TrainingRecord(pl.Callback):
    """Write the facts of the run into every checkpoint, as plain values under :data:`TRAINING`.

    ``recipe`` (the logger's name, the same for all seeds), ``seed``, ``epoch`` (the current one, from 1),
    ``epochs`` (planned), ``steps``, ``batch_size`` (scenes of a step, over all processes and accumulated
    batches), ``accumulate_grad_batches``, ``processes``, ``memory_gb`` (of each process, None without a
    bound), ``hold_out`` (share of the training scenes), ``stores`` (as in the config),
    ``precision``, ``wall_s`` (including earlier runs), ``weights`` (the checkpoint fine-tuned from, or None),
    ``licence`` (of these weights), and ``store`` and ``environment`` when the run started.

    Raises: DataError if a run resumes within an epoch and its batches would be different.
    """

    def __init__(self, weights: str | None = None) -> None:
        self.weights = weights
        self.licence = ""
        self.earlier_s = 0.0
        #: Facts that must not change if a run resumes within an epoch.
        self.required: dict[str, Any] = {}
        self.start_s = time.monotonic()
        self.fixed: dict[str, Any] = {}

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Record the facts that do not change during the run, and check those needed to resume."""
        # Recorded at the start, since the package's files may change during training.
        self.start_s = time.monotonic()
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        self.fixed = {
            "recipe": trainer.logger.name if trainer.logger else None,
            "epochs": trainer.max_epochs,
            "precision": str(trainer.precision),
            "environment": environment(),
            "seed": data.seed,
            "batch_size": data.batch_size * trainer.accumulate_grad_batches,
            "accumulate_grad_batches": trainer.accumulate_grad_batches,
            "processes": trainer.world_size,
            "memory_gb": data.memory_gb,
            "hold_out": data.hold_out,
            "stores": data.stores,
            "store": store_facts(data.store),
        }
        current = batch_order(self.fixed)
        for name, value in self.required.items():
            same = current[name] == value
            if name == "processes":
                same = same or data.steps_per_epoch(value) == data.steps_per_epoch(trainer.world_size)
            require(same, "resume", f"continues within an epoch, which needs the same {name}: {value}")

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        earlier = checkpoint[TRAINING]
        self.earlier_s = earlier["wall_s"]
        self.weights = earlier["weights"]
        self.licence = earlier["licence"]
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        within = progress["current"]["completed"] > 0 and not progress["is_last_batch"]
        self.required = batch_order(earlier) if within else {}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the facts of the run so far."""
        wall_s = round(self.earlier_s + time.monotonic() - self.start_s, 1)
        checkpoint[TRAINING] = self.fixed | {
            "weights": self.weights,
            "licence": self.licence,
            "epoch": trainer.current_epoch + 1,
            "steps": trainer.global_step,
            "wall_s": wall_s,
        }


def epochs_done(trainer: pl.Trainer) -> float:
    """Return the number of epochs trained, including the fraction of the current one."""
    batches = trainer.fit_loop.epoch_loop.batch_progress.current.ready
    return trainer.current_epoch + min(1.0, batches / trainer.num_training_batches)


class RunHistory(pl.Callback):
    """Collect the curves of a run; they are part of its checkpoints and thus survive stops.

    Attributes:
        rows: by optimiser step, at the end of each epoch and after each validation: ``epoch`` (those done),
            ``train/loss`` (mean over the epoch, at its end), and the logged ``val/…``.
    """

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, float]] = {}
        self._sum: Tensor | float = 0.0
        self._batches = 0

    @property
    def loss(self) -> float:
        """The mean training loss of the current epoch so far; reading it synchronises a GPU."""
        return float(self._sum) / max(1, self._batches)

    def on_train_epoch_start(self, *_: Any) -> None:
        self._sum = 0.0
        self._batches = 0

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._sum = self._sum + trainer.callback_metrics["train/loss"]
        self._batches += 1

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if not trainer.sanity_checking:
            metrics = trainer.callback_metrics
            validation = {name: float(x) for name, x in metrics.items() if name.startswith("val/")}
            self._add(trainer, validation)

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._add(trainer, {"train/loss": self.loss})

    def _add(self, trainer: pl.Trainer, values: dict[str, float]) -> None:
        self.rows.setdefault(trainer.global_step, {}).update(values, epoch=epochs_done(trainer))

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "sum": float(self._sum), "batches": self._batches}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = state_dict["rows"]
        self._sum = state_dict["sum"]
        self._batches = state_dict["batches"]


class RunProgress(pl.Callback):
    """Print the device, the model and its data, then a line per epoch, and at least every :data:`LINE_S`.

    Args:
        history: the curves of the run, updated before this callback.
    """

    def __init__(self, history: RunHistory) -> None:
        self.history = history
        #: Step at which the run starts or resumes.
        self.first = 0
        self.start_s = 0.0
        self.printed_s = 0.0
        #: The validation that has not been printed yet.
        self.news = ""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.first = trainer.global_step
        self.start_s = time.monotonic()
        self.printed_s = self.start_s
        for name, text in describe(trainer, pl_module):
            pl_module.print(f"{name:<11} {text}")
        sys.stdout.flush()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        if not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:  # the end of the epoch follows
            self._print_if_due(trainer, pl_module)

    def on_validation_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        self._print_if_due(trainer, module, f"validates {batch_idx + 1}/{int(sum(trainer.num_val_batches))}")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remember the line about a validation."""
        # Shown later, because the best checkpoint is chosen after this.
        row = self.history.rows.get(trainer.global_step, {})
        if "val/loss" not in row:
            return
        self.news = f"validation loss {row['val/loss']:.3f}, focal"
        for name in ("minADE6", "minFDE6"):
            key = f"val/focal/{name}"
            if key in row:
                self.news += f" {name} {row[key]:.2f}"

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._print(trainer, pl_module)

    def _print_if_due(self, trainer: pl.Trainer, module: pl.LightningModule, note: str = "") -> None:
        if time.monotonic() - self.printed_s >= LINE_S:
            self._print(trainer, module, note)

    def _print(self, trainer: pl.Trainer, module: pl.LightningModule, note: str = "") -> None:
        self.printed_s = time.monotonic()
        loss = note or f"loss {self.history.loss:.3f}"
        parts = [_position(trainer), self._times(trainer), loss, _best(trainer), self.news]
        self.news = ""
        module.print("   ".join(part for part in parts if part))
        sys.stdout.flush()

    def _times(self, trainer: pl.Trainer) -> str:
        """Return the time since the start, the time left, and the scenes per second."""
        elapsed = time.monotonic() - self.start_s
        done = trainer.global_step - self.first
        text = tqdm.format_interval(elapsed)
        if not done:
            return text
        left = elapsed / done * (trainer.estimated_stepping_batches - trainer.global_step)
        scenes = trainer.datamodule.batch_size * trainer.accumulate_grad_batches  # type: ignore[attr-defined]
        rate = done * scenes / elapsed
        return f"{text}, {tqdm.format_interval(left)} left, {rate:.3g} scenes/s"


def _position(trainer: pl.Trainer) -> str:
    """Return the epochs done (with a decimal within an epoch) and the steps done, each with its total."""
    done = f"{epochs_done(trainer):.1f}".removesuffix(".0")
    if (trainer.max_epochs or 0) > 0:
        done = f"{done:>{len(str(trainer.max_epochs))}}/{trainer.max_epochs}"
    total = trainer.estimated_stepping_batches
    return f"epoch {done}   step {trainer.global_step:{len(str(total))}}/{total}"


def _best(trainer: pl.Trainer) -> str:
    """Return the best value so far of the metric that chooses the best checkpoint."""
    best = trainer.checkpoint_callback
    if not isinstance(best, ModelCheckpoint) or not best.monitor or best.best_model_score is None:
        return ""
    name = best.monitor.removeprefix("val/").replace("/", " ")
    return f"best {name} {float(best.best_model_score):.3f}"


def describe(trainer: Any, module: Any) -> Iterator[tuple[str, str]]:
    """Yield names and descriptions of what is about to be trained: a LitForecaster on SceneData."""
    yield "device", _device(trainer)
    data = trainer.datamodule
    validation = data.validation_scenes()
    yield "scenes", f"{len(data.training_scenes()):,} for training, {len(validation):,} for validation"
    model = module.forecaster
    own_s = validation[0].step_s
    store = str(data.store)
    if not same_step(own_s, model.step_s):
        store += f", resampled from steps of {own_s:.3g} s to {model.step_s:.3g} s"
    yield "store", store
    parameters = sum(p.numel() for p in module.parameters())
    kinds = f"{type(model.encoder).__name__} and {type(model.decoder).__name__}"
    yield "model", f"{kinds}, {parameters:,} parameters"
    seconds = f"{model.history * model.step_s:.3g} s and {model.horizon * model.step_s:.3g} s"
    steps = f"reads {model.history} and predicts {model.horizon} steps of {model.step_s:.3g} s"
    yield "steps", f"{steps} ({seconds})"
    scenes = f"{data.batch_size * trainer.accumulate_grad_batches} scenes"
    if data.memory_gb is not None:
        scenes = f"at most {scenes}"
    training = f"{trainer.estimated_stepping_batches:,} steps of {scenes}"
    if (trainer.max_epochs or 0) > 0:
        training = f"{trainer.max_epochs} epochs, {training}"
    yield "training", training
    if trainer.global_step:
        yield "resumes", f"after {trainer.global_step:,} steps"
    if isinstance(trainer.logger, TensorBoardLogger):  # trainer.log_dir would wait for the other processes
        yield "results", trainer.logger.log_dir
        yield "curves", f"tensorboard --logdir {command_words(trainer.logger.log_dir)}"


def _device(trainer: pl.Trainer) -> str:
    """Describe the devices, processes, threads and precision of a training."""
    kind = trainer.strategy.root_device.type
    processes = trainer.world_size
    precision = "" if str(trainer.precision).startswith("32") else f", {trainer.precision}"
    if kind == "cuda":
        return f"{processes} x {torch.cuda.get_device_name()}{precision}"
    threads = counted([torch.get_num_threads()], "thread")
    if processes > 1:
        threads = f"{processes} processes, each with {threads}"
    return f"{kind.upper()}, {threads}{precision}"


@contextmanager
def lock_run(trainer: pl.Trainer) -> Iterator[None]:
    """Hold the lock of a run's folder. Raises: DataError if another training holds it."""
    with ExitStack() as stack:
        if trainer.is_global_zero and isinstance(trainer.logger, TensorBoardLogger):
            run = Path(trainer.logger.log_dir)
            run.mkdir(parents=True, exist_ok=True)
            try:
                # The data workers of a killed training live for a few seconds and hold its lock.
                stack.enter_context(FileLock(run / ".training.lock").acquire(timeout=LOCK_S))
            except Timeout:
                raise DataError("another training is writing here", file=run) from None
        yield


class RunLogger(TensorBoardLogger):
    """Lightning's logger without its epoch curve: TensorBoard sorts by name and opens on train/loss.

    Args:
        save_dir: folder of all runs; this run's folder is ``save_dir/name/version``.
        name: name of the recipe.
        version: version of the run; by default a new ``version_N``.
    """

    def __init__(
        self, save_dir: str = "runs", name: str = "forecaster", version: int | str | None = None
    ) -> None:
        super().__init__(save_dir, name, version, default_hp_metric=False)

    def create_folder(self) -> None:
        """Create the folder of a new run, not shared with any other training that starts at the same time."""
        number = self.version
        while isinstance(number, int):  # a version given by name may exist
            try:
                Path(self.root_dir, f"version_{number}").mkdir(parents=True)
            except FileExistsError:
                number += 1
                continue
            super().__init__(self.save_dir, self.name, number, default_hp_metric=False)
            return

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        curves = {name: value for name, value in metrics.items() if name != "epoch"}
        super().log_metrics(curves, step)
