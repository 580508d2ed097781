"""Train from a config and a store, writing checkpoints and TensorBoard curves."""

from __future__ import annotations

import inspect
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from pydoc import locate
from typing import Any

import pytorch_lightning as pl
import torch
from jsonargparse import ArgumentError, Namespace
from pytorch_lightning.callbacks import ModelCheckpoint, TQDMProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from pytorch_lightning.utilities.exceptions import MisconfigurationException, SIGTERMException

from trajpred.data.environment import command_words
from trajpred.data.files import naming_disk_errors
from trajpred.data.registry import import_words, note_import
from trajpred.errors import DataError, require
from trajpred.evaluation.results import read_results
from trajpred.model.checkpoint import CONFIG, TRAINING, read_checkpoint, training_facts
from trajpred.model.pretrained import CHECKPOINTS, LAST
from trajpred.store import ScenarioStore, ensure_store
from trajpred.store.sample import sample_store
from trajpred.training.checkpoint_io import (
    PREVIOUS,
    STOPPED,
    BestCheckpoint,
    LastCheckpoint,
    newest_checkpoint,
)
from trajpred.training.data_module import SceneData, lost_worker, without_held_out
from trajpred.training.distributed import (
    check_precision,
    choose_devices,
    computes_faster_in_bf16,
    is_lost_connection,
)
from trajpred.training.fine_tune import Start
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.training.record import EVALUATION, RunHistory, RunLogger, RunProgress, TrainingRecord, lock_run
from trajpred.training.settings import differences, explain, read_settings

#: Defaults of the trainer: the sample in the repository, a minute and a half on two cores.
TRAINER_DEFAULTS: dict[str, Any] = {
    "accelerator": "auto",
    "max_epochs": 60,
    "gradient_clip_val": 1.0,
    "check_val_every_n_epoch": 10,
    "log_every_n_steps": 5,
    "num_sanity_val_steps": 0,
    "enable_model_summary": False,
    "use_distributed_sampler": False,  # SceneData distributes the scenes itself
    "plugins": [{"class_path": "trajpred.training.checkpoint_io.AtomicCheckpointIO"}],
    "logger": {
        "class_path": "trajpred.training.record.RunLogger",
        "init_args": {"save_dir": "runs", "name": "forecaster"},
    },
}
#: What to do where nothing is left to train.
MORE = "give more epochs with --trainer.max_epochs, or steps with --trainer.max_steps"
#: Description of the command in its help.
DESCRIPTION = "Train, then compare the best checkpoint with lane following and constant velocity."
#: Defaults of other options; the store is the sample's.
DEFAULTS: dict[str, Any] = {
    "data.batch_size": 4,
    "data.augment": {"drop_agents": 0.1, "drop_lanes": 0.1, "truncate_history": 0.2},
    "model.encoder": {"class_path": "trajpred.model.SceneEncoder"},
    "model.decoder": {"class_path": "trajpred.model.ModeDecoder"},
    "best.monitor": "val/scored/minFDE6",
    "best.filename": "best",
    "best.enable_version_counter": False,
}


def best_checkpoint(trainer: pl.Trainer) -> Path | None:
    """Return the best checkpoint, or the last one if no validation has run; None if none was saved."""
    for callback in trainer.checkpoint_callbacks:
        if isinstance(callback, ModelCheckpoint) and callback.best_model_path:
            return Path(callback.best_model_path)
    last = last_checkpoint(trainer)
    return last if last.is_file() else None


def last_checkpoint(trainer: pl.Trainer) -> Path:
    """Return where the run saves its last checkpoint."""
    return next(saver.path for saver in trainer.checkpoint_callbacks if isinstance(saver, LastCheckpoint))


def is_at_end(content: dict[str, Any], trainer: Namespace) -> bool:
    """Return whether a checkpoint has reached the trainer's last epoch or step, as the loop decides."""
    epochs = content["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
    if trainer.max_epochs is not None and 0 <= trainer.max_epochs <= epochs:
        return True
    return bool(0 <= trainer.max_steps <= content["global_step"])


def has_results(run: Path) -> bool:
    """Return whether a run's folder has the results of its best checkpoint."""
    try:
        facts = training_facts(read_checkpoint(run))
        results = read_results(run / EVALUATION)
        return any(result.training.get("steps") == facts["steps"] for result in results)
    except DataError:
        return False


def fit(trainer: pl.Trainer, model: LitForecaster, data: SceneData, checkpoint: Path | None) -> None:
    """Train to the end, from ``checkpoint`` if there is one.

    Raises: SystemExit if a signal stops the run, or another process is lost.
    """
    try:
        trainer.fit(model, data, ckpt_path=checkpoint, weights_only=True)
    except SIGTERMException:
        if trainer.is_global_zero:
            saved = last_checkpoint(trainer)
            what = f"saved {saved}. {_advice(saved)}" if saved.is_file() else "nothing was trained yet."
            print(f"\nStopped as requested; {what}")
        # A launcher sees one process's exit code; Lightning would kill this process if a child failed.
        sys.exit(STOPPED if trainer.local_rank == 0 else 0)
    except MisconfigurationException as error:
        raise DataError(f"these settings cannot be used: {error}") from error
    except torch.OutOfMemoryError as error:
        advice = "lower --data.batch_size, or give --data.memory_gb"
        raise DataError(f"the GPU's memory is full: {advice} ({error})") from error
    except RuntimeError as error:
        if lost := lost_worker(error):
            raise lost from error
        if "find_unused_parameters" in str(error):
            problem = "parameters without a gradient cannot be trained by several processes"
            advice = "give --trainer.devices 1, or --trainer.strategy ddp_find_unused_parameters_true"
            raise DataError(f"{problem}: {advice}") from error
        if trainer.world_size == 1 or not is_lost_connection(error):
            raise
        if trainer.strategy.launcher is not None:  # a hanging process would outlive this one
            trainer.strategy.launcher.kill(getattr(signal, "SIGKILL", signal.SIGTERM))
        sentence = f"process {trainer.global_rank} stops: another process has ended or hangs, see its message"
        sys.exit(f"error: {sentence}. Continue with --resume. ({str(error).splitlines()[0]})")


def _advice(checkpoint: Path) -> str:
    run = checkpoint.parent.parent
    settings = [] if (run / "config.yaml").is_file() else ["..."]
    resume = [*import_words(), "--resume", str(run if checkpoint.name == LAST else checkpoint)]
    return f"Resume with:\n  trajpred train {command_words(*settings, *resume)}"


@dataclass(frozen=True)
class TrainedRun:
    """A finished training.

    Attributes:
        scenes: the validation scenes.
        checkpoint: the best checkpoint; the last one if no validation has run.
        folder: the folder of the run, None without a logger.
        history: its curves.
        pictures: number of worst scenes to draw.
    """

    scenes: ScenarioStore
    checkpoint: Path
    folder: Path | None
    history: RunHistory
    pictures: int


class SaveConfig(SaveConfigCallback):
    """Write ``config.yaml`` when the first step begins: rejected settings change nothing in a run."""

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        pass

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().setup(trainer, pl_module, "fit")


class TrainCLI(LightningCLI):
    """Build model, data and trainer from YAML files and options."""

    #: The weights that a new run is fine-tuned from, if any.
    start: Start | None = None
    #: The checkpoint to resume from, if any.
    resume: Path | None = None
    #: Whether nothing is left to train.
    at_end = False
    #: Logger settings for resuming a run in its folder.
    logger: Any = None

    def __init__(self, args: Sequence[str]) -> None:
        self.history = RunHistory()
        self.configs, settings, weights = read_settings(args)
        configs = list(map(str, self.configs))
        if weights is not None:
            self.start = Start.read(weights)
            configs.insert(0, self.start.settings)
        super().__init__(
            LitForecaster,
            SceneData,
            run=False,
            args=[*(f"--config={config}" for config in configs), *settings],
            seed_everything_default=0,
            auto_configure_optimizers=False,
            trainer_defaults=TRAINER_DEFAULTS,
            save_config_callback=SaveConfig,
            save_config_kwargs={"overwrite": True},
            # An abbreviation could hide a mistyped name.
            parser_kwargs={
                "prog": "trajpred train", "description": DESCRIPTION, "exit_on_error": False,
                "allow_abbrev": False,
            },
        )  # fmt: skip

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the options beside those of model, data and trainer."""
        parser.add_lightning_class_args(BestCheckpoint, "best")
        parser.add_lightning_class_args(LastCheckpoint, "last")
        parser.add_argument("--pictures.scenes", type=int, default=4, help="worst scenes to draw at the end")
        parser.add_lightning_class_args(TrainingRecord, "record")
        parser.add_argument(
            "--bf16", type=bool, default=False, help="train in bf16-mixed if that is faster on the device"
        )
        parser.add_argument("--resume", type=Path | None, help="folder or checkpoint of a run to resume")
        parser.add_argument("--weights", type=str | None, help="checkpoint or shipped name to fine-tune")
        parser.link_arguments("seed_everything", "data.seed")
        parser.link_arguments("weights", "record.weights")
        parser.set_defaults(DEFAULTS | {"data.store": str(sample_store())})

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the command line. Raises: DataError that explains a wrong setting."""
        try:
            super().parse_arguments(parser, args)
        except ArgumentError as error:
            raise explain(error, parser, self.configs) from None
        seed = self.config.seed_everything
        accumulate = self.config.trainer.accumulate_grad_batches
        require(0 <= seed < 2**32, "seed_everything", f"must be 0 to {2**32 - 1}, is {seed}")
        require(accumulate > 0, "trainer.accumulate_grad_batches", f"must be positive, is {accumulate}")
        require(self.config.pictures.scenes >= 0, "pictures.scenes", "must not be negative")

    def before_instantiate_classes(self) -> None:
        """Complete the settings: logger, store, devices, precision, steps, and where to resume."""
        config = self.config
        check_precision(config.trainer.precision)
        config.trainer.logger = with_run_folder(config.trainer.logger)
        with one_sentence():  # YAML allows names that no file can have
            store = ensure_store(Path(config.data.store), "--data.store")
        train = ScenarioStore(store, "train")
        val = ScenarioStore(store, "val")
        validated = val
        if config.data.val_half is not None:
            validated = val.halved(config.data.val_half)
        scenes = min(len(without_held_out(train, config.data.hold_out)), len(validated))
        if config.model.joint_every > 1 and config.model.decoder.init_args.get("joint", False):
            scenes = 1  # weights without a gradient in some steps: one process
        self.devices = choose_devices(config.trainer, config.data.batch_size, scenes)
        if config.bf16 and computes_faster_in_bf16(self.devices["accelerator"]):
            config.trainer.precision = "bf16-mixed"
        config.bf16 = False  # the saved config.yaml states the precision itself
        if not len(train):
            raise DataError("split 'train' contains no scenario", file=store)
        if config.model.step_s is None:
            config.model.step_s = round(train[0].step_s, 3)
        self._set_steps(train.resampled(config.model.step_s), val.resampled(config.model.step_s))
        if config.resume is not None:
            config.resume = self._resume_from(config.resume)

    def _set_steps(self, train: ScenarioStore, val: ScenarioStore) -> None:
        """Set the model's observed and future steps to the data's, unless they are given."""
        model = self.config.model
        if model.history is None or model.future is None:
            differ = f"train has {train.lengths}, val {val.lengths}: give model.history and model.future"
            require(train.lengths == val.lengths, "steps", differ)
            observed, future = train.lengths
            model.history = observed if model.history is None else model.history
            model.future = future if model.future is None else model.future
        decoder = model.decoder.init_args
        cls: Any = locate(model.decoder.class_path)
        parameters = inspect.signature(cls).parameters
        needed = f"the constructor of {cls.__name__} must take horizon, which is model.future"
        require("horizon" in parameters, "model.decoder", needed)
        repeated = decoder.horizon in (parameters["horizon"].default, model.future)
        problem = f"is {decoder.horizon}, model.future {model.future}: set only model.future"
        require(repeated, "model.decoder.init_args.horizon", problem)
        decoder.horizon = model.future

    def _model_config(self) -> dict[str, Any]:
        """Return the model's settings for checkpoints; the decoder's horizon states the future steps."""
        return {name: value for name, value in self.config.model.as_dict().items() if name != "future"}

    def _resume_from(self, path: Path) -> Path:
        """Find the checkpoint to resume from, check its config, and set its run's folder.

        A checkpoint outside a run's folder starts a new run.
        """
        checkpoint, content = newest_checkpoint(path)
        require("optimizer_states" in content, "resume", f"{checkpoint} contains weights only")
        parts = ("optimizer_states", "lr_schedulers", "loops", TRAINING)
        complete = all(content.get(part) for part in parts)
        advice = "fine-tune its weights with --weights"
        require(complete, "resume", f"{checkpoint} lacks parts of the state of a training: {advice}")
        other = differences(content[CONFIG], self._model_config(), "model")
        problem = f"{checkpoint} was trained with other model settings ({', '.join(other)})"
        advice = "give its config.yaml, or start from its weights with --weights"
        require(not other, "resume", f"{problem}: {advice}")
        folder = checkpoint.resolve().parent
        self.at_end = is_at_end(content, self.config.trainer)
        finished = f"{checkpoint} has already finished training: {MORE}"
        require(not self.at_end or folder.name == CHECKPOINTS, "resume", finished)
        logger = self.config.trainer.logger
        if logger and folder.name == CHECKPOINTS:
            if isinstance(logger, list):
                logger = logger[0]  # which determines the run's folder
            problem = "must be given with its class_path, so that a resumed run keeps its folder"
            require(hasattr(logger, "init_args"), "trainer.logger", problem)
            run = folder.parent
            self.logger = logger.init_args
            self.logger.save_dir = str(run.parent.parent)
            self.logger.name = run.parent.name
            self.logger.version = run.name
        return checkpoint

    def _require_known(self, monitor: str | None) -> None:
        """Raise DataError if a callback monitors a validation value that is never logged."""
        if monitor is None or not monitor.startswith("val/"):
            return
        metrics = self.model.val_metrics
        names = ["val/loss"]
        for group in metrics.groups:
            names += [f"val/{group}/{name}" for name in metrics.names]
        nearest = ", ".join(get_close_matches(monitor, names)) or "val/loss or val/moving/minFDE6"
        require(monitor in names, "monitor", f"no validation logs {monitor!r}: give {nearest}")

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Add the callbacks for the run's curves and printed lines; Lightning's bar is for terminals."""
        callbacks: list[pl.Callback] = [self.history]
        shown = self.config.trainer.enable_progress_bar is not False
        if shown:
            callbacks.append(RunProgress(self.history))
        with_bar = shown and sys.stdout.isatty()
        if with_bar:
            callbacks.append(TQDMProgressBar())
        self.trainer_defaults = self.trainer_defaults | {"callbacks": callbacks}
        return super().instantiate_trainer(**self.devices, **kwargs, enable_progress_bar=with_bar)

    def instantiate_classes(self) -> None:
        """Build model, data and trainer; load the weights to start from, and note where to resume."""
        with one_sentence():
            super().instantiate_classes()
        self.model.config = self._model_config()
        # The commands that are printed import the modules of the user's own classes.
        for part in (self.model.forecaster.encoder, self.model.forecaster.decoder):
            note_import(type(part))
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            self._require_known(getattr(callback, "monitor", None))
        if self.start is not None:
            lines = self.start.load_into(self.model)
            for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
                if isinstance(callback, TrainingRecord):
                    callback.licence = self.start.licence
            if self.trainer.is_global_zero:
                print("\n".join(lines))
        is_new_run = self.logger is None  # a resumed run stays in its folder
        if is_new_run and self.trainer.is_global_zero and isinstance(self.trainer.logger, RunLogger):
            self.trainer.logger.create_folder()
        # The config.yaml that is saved then describes how to repeat the run, not how to resume it.
        self.resume = self.config.resume
        self.config.resume = None
        if not is_new_run:
            self.logger.version = None


def with_run_folder(loggers: Any) -> Any:
    """Put a RunLogger before the others of ``trainer.logger``, which give a run no folder of its own."""
    if isinstance(loggers, bool | None):
        return loggers
    several = loggers if isinstance(loggers, list) else [loggers]
    run_logger = f"{RunLogger.__module__}.{RunLogger.__name__}"
    if any(logger.class_path == run_logger for logger in several):
        return loggers
    settings = Namespace(**TRAINER_DEFAULTS["logger"]["init_args"], version=None)
    return [Namespace(class_path=run_logger, init_args=settings), *several]


@contextmanager
def one_sentence() -> Iterator[None]:
    """Report any exception that constructors raise about settings as a DataError."""
    try:
        yield
    except (DataError, OSError):
        raise
    except Exception as error:  # Lightning's classes raise anything
        if missing := re.search(r"(?:pip install (?:-U )?'?|Requirement ')([\w-]+)", str(error)):
            raise DataError(f"these settings need a package: pip install {missing[1]}") from None
        raise DataError(f"these settings cannot be used: {error or type(error).__name__}") from error


def train(args: Sequence[str]) -> TrainedRun | None:
    """Train a model or resume a run, with settings ``--NAME VALUE``.

    Returns:
        The finished run; None in all processes but the first, if no checkpoint was saved, or if nothing was
        left to do.
    """
    cli = TrainCLI(args)
    folder = Path(cli.trainer.log_dir or cli.trainer.default_root_dir)
    if cli.at_end:
        if cli.trainer.is_global_zero:
            print(f"Nothing was trained: {cli.resume} has already finished training; {MORE}")
        if has_results(folder):
            return None
    with lock_run(cli.trainer), naming_disk_errors(folder):
        fit(cli.trainer, cli.model, cli.datamodule, cli.resume)
    checkpoint = best_checkpoint(cli.trainer)
    if checkpoint is None or not cli.trainer.is_global_zero:
        return None
    # The spare copy of the last checkpoint is only for resuming.
    checkpoint.with_name(PREVIOUS).unlink(missing_ok=True)
    return TrainedRun(
        scenes=cli.datamodule.validation_scenes(),
        checkpoint=checkpoint,
        folder=folder if cli.trainer.loggers else None,
        history=cli.history,
        pictures=cli.config.pictures.scenes,
    )
