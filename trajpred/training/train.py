"""Train from one config and a store, to checkpoints and TensorBoard."""

from __future__ import annotations

import inspect
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pydoc import locate
from typing import Any

import pytorch_lightning as pl
import torch
from jsonargparse import ArgumentError
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.utilities.exceptions import MisconfigurationException, SIGTERMException

from trajpred.data.files import naming_disk_errors
from trajpred.data.resample import same_step
from trajpred.errors import DataError, require
from trajpred.model.checkpoint import CONFIG, load_matching, read_checkpoint
from trajpred.model.pretrained import CHECKPOINTS, LAST
from trajpred.store import ScenarioStore
from trajpred.store.sample import SAMPLE_STORE, ensure_store
from trajpred.training.checkpoint_io import (
    PREVIOUS,
    STOPPED,
    BestCheckpoint,
    LastCheckpoint,
    newest_checkpoint,
)
from trajpred.training.data_module import SceneData, without_held_out
from trajpred.training.distributed import check_precision, choose_devices, is_lost_connection
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.training.progress import RunProgress
from trajpred.training.record import RunHistory, RunLogger, TrainingRecord, lock_run
from trajpred.training.settings import LINKED, check_files, configs_first, differences, explain

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
#: Defaults of all other options.
DEFAULTS: dict[str, Any] = {
    "data.store": str(SAMPLE_STORE),
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


def fit(trainer: pl.Trainer, model: LitForecaster, data: SceneData, checkpoint: Path | None) -> None:
    """Train to the end, from ``checkpoint`` if there is one.

    Raises: SystemExit if a signal stops the run, or another process is lost.
    """
    try:
        trainer.fit(model, data, ckpt_path=checkpoint, weights_only=True)
    except SIGTERMException:
        if trainer.is_global_zero:
            saved = last_checkpoint(trainer)
            print(f"\nStopped as requested; saved {saved}. {_advice(saved)}")
        # A launcher sees the exit code of one process; Lightning would kill this one if a child failed.
        sys.exit(STOPPED if trainer.local_rank == 0 else 0)
    except MisconfigurationException as error:
        raise DataError(f"these settings cannot be used: {error}") from error
    except torch.OutOfMemoryError as error:
        advice = "lower --data.batch_size, or give --data.memory_gb"
        raise DataError(f"the GPU's memory is full: {advice} ({error})") from error
    except RuntimeError as error:
        if "find_unused_parameters" in str(error):
            problem = "parameters without a gradient cannot be trained by several processes"
            advice = "give --trainer.devices 1, or --trainer.strategy ddp_find_unused_parameters_true"
            raise DataError(f"{problem}: {advice}") from error
        if trainer.world_size == 1 or not is_lost_connection(error):
            raise
        if trainer.strategy.launcher is not None:  # a process that hangs would outlive this one
            trainer.strategy.launcher.kill(getattr(signal, "SIGKILL", signal.SIGTERM))
        lost = f"process {trainer.global_rank} stops: another process has ended or hangs, see its message"
        sys.exit(f"error: {lost}. Continue with --resume. ({str(error).splitlines()[0]})")


def _advice(checkpoint: Path) -> str:
    run = checkpoint.parent.parent
    settings = [] if (run / "config.yaml").is_file() else ["..."]
    resume = ["--resume", str(run if checkpoint.name == LAST else checkpoint)]
    return f"Resume with:\n  trajpred train {shlex.join([*settings, *resume])}"


@dataclass(frozen=True)
class TrainedRun:
    """A training that has reached its end.

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


#: What the command does, in its help.
DESCRIPTION = "Train, then print the validation table of the best checkpoint beside constant velocity."
#: An abbreviation would hide a mistyped name.
STRICT = {"exit_on_error": False, "allow_abbrev": False}


class TrainCLI(LightningCLI):
    """Build model, data and trainer from YAML files and options; window lengths come from the data."""

    #: The checkpoint to resume from, if any.
    resume: Path | None = None
    #: The settings of the logger of a run that is resumed in its folder.
    logger: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.history = RunHistory()
        super().__init__(*args, **kwargs)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_lightning_class_args(BestCheckpoint, "best")
        parser.add_lightning_class_args(LastCheckpoint, "last")
        parser.add_argument("--pictures.scenes", type=int, default=4, help="worst scenes to draw at the end")
        parser.add_lightning_class_args(TrainingRecord, "record")
        parser.add_argument("--resume", type=Path | None, help="folder or checkpoint of a run to resume")
        parser.add_argument("--weights", type=str | None, help="checkpoint or shipped name to fine-tune")
        for target, source in LINKED.items():
            parser.link_arguments(source, target)
        parser.set_defaults(DEFAULTS)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        self.args: list[str] = args
        args = configs_first(args)
        check_files(args)
        try:
            super().parse_arguments(parser, args)
        except ArgumentError as error:
            raise explain(error, parser, args) from None
        seed = self.config.seed_everything
        accumulate = self.config.trainer.accumulate_grad_batches
        require(0 <= seed < 2**32, "seed_everything", f"must be 0 to {2**32 - 1}, is {seed}")
        require(accumulate > 0, "trainer.accumulate_grad_batches", f"must be positive, is {accumulate}")
        require(self.config.pictures.scenes >= 0, "pictures.scenes", "must not be negative")

    def before_instantiate_classes(self) -> None:
        config = self.config
        check_precision(config.trainer.precision)
        with one_sentence():  # YAML can write names that no file has
            store = ensure_store(Path(config.data.store))
        train = ScenarioStore(store, "train")
        val = ScenarioStore(store, "val")
        validated = val
        if config.data.val_half is not None:
            validated = val.halved(config.data.val_half)
        scenes = min(len(without_held_out(train, config.data.hold_out)), len(validated))
        if config.model.joint_every > 1 and config.model.decoder.init_args.get("joint", False):
            scenes = 1  # weights without a gradient in some steps: one process
        self.devices = choose_devices(config.trainer, config.data.batch_size, scenes, self.args)
        if config.data.window is None:
            advice = "give --data.window, the observed and future steps of the model"
            differ = f"train has {train.lengths}, val {val.lengths}: {advice}"
            require(train.lengths == val.lengths, "steps", differ)
        history, horizon = config.data.window or train.lengths
        self._set_window(history, horizon)
        _require_scenarios(train, store)
        step_s = round(train[0].step_s, 3)
        config.model.step_s = step_s
        for path in config.data.stores or {}:
            other = ScenarioStore(path, "train")
            _require_scenarios(other, path)
            other_s = other[0].step_s
            rates = f"{path} has steps of {other_s:g} s, {store} of {step_s:g} s"
            require(same_step(other_s, step_s), "data.stores", rates)
        if config.resume is not None:
            config.resume = self._resume_from(config.resume)

    def _set_window(self, history: int, horizon: int) -> None:
        """Set the model's observed and future steps; a config may only repeat them, or have the defaults."""
        model = self.config.model
        decoder = model.decoder.init_args
        _require_default_or_equal("model.history", model.history, 50, history)
        cls: Any = locate(model.decoder.class_path)
        parameters = inspect.signature(cls).parameters
        needed = f"the constructor of {cls.__name__} must take horizon, the future steps, set from the data"
        require("horizon" in parameters, "model.decoder", needed)
        default = parameters["horizon"].default
        _require_default_or_equal("model.decoder.init_args.horizon", decoder.horizon, default, horizon)
        model.history = history
        decoder.horizon = horizon

    def _resume_from(self, path: Path) -> Path:
        """Find the checkpoint to resume from, check its config, and set its run's folder.

        A checkpoint outside the folder of a run starts a new one.
        """
        checkpoint, content = newest_checkpoint(path)
        require("optimizer_states" in content, "resume", f"{checkpoint} contains weights only")
        complete = all(content.get(part) for part in ("optimizer_states", "lr_schedulers", "loops"))
        advice = "fine-tune its weights with --weights"
        require(complete, "resume", f"{checkpoint} lacks parts of the state of a training: {advice}")
        other = differences(content[CONFIG], self.config.model.as_dict(), "model")
        problem = f"{checkpoint} was trained with other model settings ({', '.join(other)})"
        advice = "give its config.yaml, or start from its weights with --weights"
        require(not other, "resume", f"{problem}: {advice}")
        folder = checkpoint.resolve().parent
        if self.config.trainer.logger and folder.name == CHECKPOINTS:
            run = folder.parent
            self.logger = self._first_logger()
            self.logger.save_dir = str(run.parent.parent)
            self.logger.name = run.parent.name
            self.logger.version = run.name
        return checkpoint

    def _first_logger(self) -> Any:
        """Return the settings of the logger that decides on the folder of the run."""
        logger = self.config.trainer.logger
        if isinstance(logger, list):
            logger = logger[0]
        problem = "must be given with its class_path, so that a resumed run keeps its folder"
        require(hasattr(logger, "init_args"), "trainer.logger", problem)
        return logger.init_args

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Add the curves of the run, and show its progress as this package does unless it is disabled."""
        callbacks: list[pl.Callback] = [self.history]
        if self.config.trainer.enable_progress_bar is not False:
            callbacks.append(RunProgress(self.history))
        self.trainer_defaults = self.trainer_defaults | {"callbacks": callbacks}
        return super().instantiate_trainer(**self.devices, **kwargs)

    def instantiate_classes(self) -> None:
        with one_sentence():
            super().instantiate_classes()
        self.model.config = self.config.model.as_dict()
        weights = self.config.weights
        if weights is not None and self.config.resume is None:
            new = load_matching(self.model, read_checkpoint(weights)["state_dict"], weights)
            if self.trainer.is_global_zero:
                parts = ", ".join(name.removeprefix("forecaster.") for name in new)
                print(f"Fine-tunes {weights}; newly initialised: {parts or 'none'}")
        if self.trainer.is_global_zero and self.logger is None and isinstance(self.trainer.logger, RunLogger):
            self.trainer.logger.create_folder()
        # The config.yaml that is saved then describes how to repeat the run, not how to resume it.
        self.resume = self.config.resume
        self.config.resume = None
        if self.logger is not None:
            self.logger.version = None


@contextmanager
def one_sentence() -> Iterator[None]:
    """Report whatever constructors raise about the values of settings as a DataError."""
    try:
        yield
    except (DataError, OSError):
        raise
    except Exception as error:  # Lightning's classes raise anything
        raise DataError(f"these settings cannot be used: {error or type(error).__name__}") from error


def _require_scenarios(train: ScenarioStore, path: str | Path) -> None:
    """Raise DataError about the store at ``path`` if its training split is empty."""
    if not len(train):
        raise DataError("split 'train' holds no scenario", file=path)


def _require_default_or_equal(name: str, value: int, default: int, of_data: int) -> None:
    problem = f"is {value}, the data have {of_data}; it is taken from the data"
    require(value in (default, of_data), name, problem)


def train(args: Sequence[str] | None = None) -> TrainedRun | None:
    """Train a model, or resume a run, as the settings say.

    Args:
        args: the settings as ``--NAME VALUE``, by default those of the command line.

    Returns:
        The finished run; None in all processes but the first, and if no checkpoint was saved.
    """
    cli = TrainCLI(
        LitForecaster,
        SceneData,
        run=False,
        args=sys.argv[1:] if args is None else list(args),
        seed_everything_default=0,
        auto_configure_optimizers=False,
        trainer_defaults=TRAINER_DEFAULTS,
        save_config_kwargs={"overwrite": True},
        parser_kwargs={"prog": "trajpred train", "description": DESCRIPTION} | STRICT,
    )
    folder = Path(cli.trainer.log_dir or cli.trainer.default_root_dir)
    with lock_run(cli.trainer), naming_disk_errors(folder):
        fit(cli.trainer, cli.model, cli.datamodule, cli.resume)
    checkpoint = best_checkpoint(cli.trainer)
    if checkpoint is None and cli.resume is not None and cli.trainer.checkpoint_callbacks:
        finished = "has been trained to its end: give more epochs with --trainer.max_epochs"
        raise DataError(finished, file=cli.resume)
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
