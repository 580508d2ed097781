"""Facts and curves of a training, kept in its checkpoints; its folder, and the report it leaves there."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from filelock import FileLock, Timeout
from pytorch_lightning.loggers import TensorBoardLogger
from torch import Tensor

from trajpred.errors import DataError, require
from trajpred.evaluation import evaluate, write_results
from trajpred.evaluation.report import beside, show, tables, to_markdown
from trajpred.evaluation.results import environment, store_facts
from trajpred.model.checkpoint import TRAINING
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore
from trajpred.store.sample import store_words
from trajpred.training.data_module import SceneData
from trajpred.viz.curves import draw_curves
from trajpred.viz.scene import draw_scene, save_scene

#: Files in the folder of a run. ``evaluation.json`` is the input of ``trajpred compare``.
CURVES, EVALUATION, TABLES, WORST = "curves.png", "evaluation.json", "evaluation.md", "worst_{}.png"
#: The metric of the focal agent that chooses the worst scenes.
WORST_BY = "minFDE6"
DPI = 110
#: Seconds to wait for another training of the same run to end.
LOCK_S = 10.0


def batch_order(record: dict[str, Any]) -> dict[str, Any]:
    """Select the facts of a record that determine the batches of an epoch; older records lack some.

    Of the store only the training split counts: other splits may have changed.
    """
    names = "seed", "batch_size", "accumulate_grad_batches", "memory_gb", "hold_out", "stores", "processes"
    facts = {name: record[name] for name in names if name in record}
    store = record.get("store") or {}
    origin = {name: store[name] for name in ("source", "config") if name in store}
    return facts | ({"store": {**origin, "train": store.get("scenarios", {}).get("train")}} if origin else {})


class TrainingRecord(pl.Callback):
    """Write the facts of the run into every checkpoint, as plain values under :data:`TRAINING`.

    ``recipe`` (the logger's name, the same for all seeds), ``seed``, ``epoch`` (the current one, from 1),
    ``epochs`` (planned), ``steps``, ``batch_size`` (scenes of a step, over all processes and accumulated
    batches), ``accumulate_grad_batches``, ``processes``, ``memory_gb`` (of each process, None without a
    bound), ``hold_out`` (share of the training scenes), ``stores`` and ``window`` (as in the config),
    ``precision``, ``wall_s`` (including earlier runs), ``weights`` (the checkpoint fine-tuned from, or None),
    and ``store`` and ``environment`` when the run started.

    Raises: DataError if a run resumes within an epoch and its batches would be different.
    """

    def __init__(self, weights: str | None = None) -> None:
        self.weights = weights
        self.earlier_s = 0.0
        #: Facts that must not change, of a run that resumes within an epoch.
        self.required: dict[str, Any] = {}
        self.start_s = time.monotonic()
        self.fixed: dict[str, Any] = {}

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Recorded at the start, since the package's files may change during training.
        self.start_s = time.monotonic()
        self.fixed = {
            "recipe": trainer.logger.name if trainer.logger else None,
            "epochs": trainer.max_epochs,
            "precision": str(trainer.precision),
            "environment": environment(),
        }
        data = getattr(trainer, "datamodule", None)
        if isinstance(data, SceneData):
            accumulate = trainer.accumulate_grad_batches
            self.fixed |= {"seed": data.seed, "batch_size": data.batch_size * accumulate}
            self.fixed |= {"accumulate_grad_batches": accumulate, "processes": trainer.world_size}
            self.fixed |= {"memory_gb": data.memory_gb, "hold_out": data.hold_out}
            self.fixed |= {"stores": data.stores, "window": data.window}
            self.fixed["store"] = store_facts(data.store)
        current = batch_order(self.fixed)
        for name, value in self.required.items():
            same = current.get(name) == value
            if name == "processes" and isinstance(data, SceneData):
                same = same or data.steps_per_epoch(value) == data.steps_per_epoch(trainer.world_size)
            require(same, "resume", f"continues within an epoch, which needs the same {name}: {value}")

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        earlier = checkpoint.get(TRAINING, {})
        self.earlier_s, self.weights = earlier.get("wall_s", 0.0), earlier.get("weights")
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        within = progress["current"]["completed"] > 0 and not progress["is_last_batch"]
        self.required = batch_order(earlier) if within else {}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        wall_s = round(self.earlier_s + time.monotonic() - self.start_s, 1)
        reached = {"epoch": trainer.current_epoch + 1, "steps": trainer.global_step, "wall_s": wall_s}
        checkpoint[TRAINING] = {**self.fixed, "weights": self.weights, **reached}


def epochs_done(trainer: pl.Trainer) -> float:
    """Return the number of epochs trained, with the share of the current one."""
    batches = trainer.fit_loop.epoch_loop.batch_progress.current.ready
    return trainer.current_epoch + min(1.0, batches / trainer.num_training_batches)


class RunHistory(pl.Callback):
    """Collect the curves of a run; they survive stops, since they are part of its checkpoints.

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
        self._sum, self._batches = 0.0, 0

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._sum = self._sum + trainer.callback_metrics["train/loss"]
        self._batches += 1

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if not trainer.sanity_checking:
            metrics = {k: float(x) for k, x in trainer.callback_metrics.items() if k.startswith("val/")}
            self._add(trainer, metrics)

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._add(trainer, {"train/loss": self.loss})

    def _add(self, trainer: pl.Trainer, values: dict[str, float]) -> None:
        self.rows.setdefault(trainer.global_step, {}).update(values, epoch=epochs_done(trainer))

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "sum": float(self._sum), "batches": self._batches}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows, self._sum, self._batches = (state_dict[name] for name in ("rows", "sum", "batches"))


def create_run_folder(logger: Any) -> None:
    """Create the folder of a new run, which no other training that starts at the same time can share."""
    # A version given by name may exist.
    while isinstance(logger, TensorBoardLogger) and not isinstance(logger.version, str):
        try:
            Path(logger.log_dir).mkdir(parents=True)
            break
        except FileExistsError:
            logger._version = None


@contextmanager
def lock_run(trainer: pl.Trainer) -> Iterator[None]:
    """Hold the lock of a run's folder. Raises: DataError if another training holds it."""
    with ExitStack() as stack:
        if trainer.is_global_zero and isinstance(trainer.logger, TensorBoardLogger):
            run = Path(trainer.logger.log_dir)
            run.mkdir(parents=True, exist_ok=True)
            try:
                # The data workers of a killed training live, and hold its lock, for some seconds.
                stack.enter_context(FileLock(run / ".training.lock").acquire(timeout=LOCK_S))
            except Timeout:
                raise DataError("another training is writing here", file=run) from None
        yield


def report(rows: ScenarioStore, checkpoint: Path, run: Path | None, history: RunHistory, scenes: int) -> None:
    """Evaluate ``checkpoint`` on the validation scenes, print the outcome, and fill the run's folder.

    Args:
        rows: the validation scenes.
        run: the folder; None without a logger, when nothing is written.
        history: curves of the run.
        scenes: number of worst scenes to draw.
    """
    print(f"\nEvaluating {checkpoint.name} on {len(rows):,} validation scenes", flush=True)
    predictor, constant_velocity = (load_predictor(name) for name in (checkpoint, "constant_velocity"))
    result, baseline = (evaluate(one, rows) for one in (predictor, constant_velocity))
    show([beside(result, baseline)], note="")
    if result.missing["all"]:
        print(f"{result.missing['all']} agents beyond the model's limits were not predicted.")
    if run is not None:
        write_results(run / EVALUATION, [baseline, result])
        (run / TABLES).write_text(to_markdown(tables(result)), encoding="utf-8")
        curves = draw_curves(history.rows, f"{run.parent.name}/{run.name}", result.training.get("steps"))
        save_scene(curves, run / CURVES, dpi=DPI)
        for number, name in enumerate(result.worst(WORST_BY, scenes), 1):
            scenario = rows[rows.index(name)]
            save_scene(draw_scene(scenario, predictor([scenario])[0]), run / WORST.format(number), dpi=DPI)
        _print_files(run, checkpoint)
    options = shlex.join(["--checkpoint", str(checkpoint), *store_words(rows.path)])
    print("Next:")
    print(f"  trajpred visualize {options} --out {shlex.quote(str((run or Path()) / 'pictures'))}")
    print(f"  trajpred evaluate {options} --by all")
    if run is not None and any(run.glob("events.*")):
        print(f"  tensorboard --logdir {shlex.quote(str(run))}")


def _print_files(run: Path, checkpoint: Path) -> None:
    """Print which files are where."""
    model = checkpoint.resolve()
    if model.is_relative_to(run.resolve()):
        model = model.relative_to(run.resolve())
    files = {
        CURVES: "learning curves",
        TABLES: "validation tables",
        EVALUATION: "the same and more, for trajpred compare",
        WORST.format(1): f"the validation scene with the largest {WORST_BY}; further ones follow",
        "config.yaml": "all settings",
        model.as_posix(): "the model",
    }
    files = {name: text for name, text in files.items() if (run / name).exists()}
    width = max(map(len, files))
    print(f"Results in {run}:")
    print("\n".join(f"  {name:<{width}}  {text}" for name, text in files.items()))
