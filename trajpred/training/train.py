"""Training from one config: store -> checkpoint, TensorBoard, and the validation table."""

from __future__ import annotations

import logging
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from filelock import FileLock, Timeout
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import TensorBoardLogger

from trajpred.errors import DataError, require
from trajpred.evaluation import evaluate, format_table, write_results
from trajpred.graph.data_module import SceneData
from trajpred.model.checkpoint import CONFIG, load_matching, read_checkpoint
from trajpred.predictors import load_predictor
from trajpred.store import ScenarioStore
from trajpred.store.sample import SAMPLE_STORE, ensure_store
from trajpred.training.callbacks import LearningCurves, PredictionPictures
from trajpred.training.checkpoint_io import LAST, PREVIOUS, newest_good
from trajpred.training.distributed import is_lost
from trajpred.training.interruption import STOPPED, RecentCheckpoint, StoppedError
from trajpred.training.lit_forecaster import LitForecaster
from trajpred.training.run_checkpoint import RunCheckpoint
from trajpred.training.training_record import TrainingRecord

#: What ``tools/train.py`` does without a config: the shipped sample, in a minute and a half on two cores.
TRAINER_DEFAULTS: dict[str, Any] = {
    # Not "auto": Apple's GPUs have no float64, which origins and metric sums need.
    "accelerator": "gpu" if torch.cuda.is_available() else "cpu",
    "max_epochs": 60,
    "gradient_clip_val": 1.0,
    "check_val_every_n_epoch": 10,
    "log_every_n_steps": 5,
    "num_sanity_val_steps": 0,
    "enable_model_summary": False,
    "use_distributed_sampler": False,  # SceneData shares out the scenes itself
    "plugins": [{"class_path": "trajpred.training.checkpoint_io.AtomicCheckpointIO"}],
    "logger": {
        "class_path": "pytorch_lightning.loggers.TensorBoardLogger",
        "init_args": {"save_dir": "runs", "name": "forecaster", "default_hp_metric": False},
    },
}
DEFAULTS: dict[str, Any] = {
    "data.store": str(SAMPLE_STORE),
    "data.batch_size": 4,
    "data.augment": {"drop_agents": 0.1, "drop_lanes": 0.1, "truncate_history": 0.2},
    "model.encoder": {"class_path": "trajpred.model.SceneEncoder"},
    "model.decoder": {"class_path": "trajpred.model.ModeDecoder"},
    "best.monitor": "val/scored/minFDE6",
    "best.filename": "best",
    "best.enable_version_counter": False,
    "last.filename": "last",
    "last.save_on_train_epoch_end": True,
    "last.enable_version_counter": False,
    # Lightning's callback saves by epochs or by time: two of them write the same file.
    "recent.filename": "last",
    "recent.train_time_interval": "00:05:00",
    "recent.enable_version_counter": False,
}


#: How long to wait for another training of the same run to end.
_LOCK_S = 10.0


class LearningRate(LearningRateMonitor):
    """The learning rate among the curves; silent where nothing is logged."""

    def on_train_start(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        if trainer.loggers:
            super().on_train_start(trainer, *args, **kwargs)


class TrainCLI(LightningCLI):
    """Model, data and trainer from YAML files and the command line; window lengths from the data.

    Attributes: ``resume``, the checkpoint to go on from, if any.
    """

    resume: Path | None = None

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_lightning_class_args(RunCheckpoint, "best")
        parser.add_lightning_class_args(RunCheckpoint, "last")
        parser.add_lightning_class_args(RecentCheckpoint, "recent")
        parser.add_lightning_class_args(PredictionPictures, "pictures")
        parser.add_lightning_class_args(LearningCurves, "curves")
        parser.add_lightning_class_args(LearningRate, "learning_rate")
        parser.add_lightning_class_args(TrainingRecord, "record")
        parser.add_argument("--resume", type=Path | None, help="go on from this run's folder or checkpoint")
        parser.add_argument("--weights", type=str | None, help="start with those of this checkpoint or name")
        parser.link_arguments("weights", "record.weights")
        parser.set_defaults(DEFAULTS)
        parser.link_arguments("seed_everything", "data.seed", compute_fn=int)

    def before_instantiate_classes(self) -> None:
        config = self.config
        store = ensure_store(Path(config.data.store))
        train, val = ScenarioStore(store, "train"), ScenarioStore(store, "val")
        require(train.lengths == val.lengths, "steps", f"train has {train.lengths}, val {val.lengths}")
        history, horizon = train.lengths
        _agree("model.history", config.model.history, 50, history)
        _agree("model.decoder.init_args.horizon", config.model.decoder.init_args.horizon, 60, horizon)
        config.model.history, config.model.decoder.init_args.horizon = history, horizon
        config.model.step_s = round(train[0].step_s, 3)
        if config.resume is not None:
            config.resume = self._go_on(config.resume)

    def _go_on(self, given: Path) -> Path:
        """Resume in the run's own folder, with the model it was made for: the checkpoint to go on from."""
        checkpoint, content = newest_good(given)
        require("optimizer_states" in content, "resume", f"{checkpoint} holds weights alone")
        same = content[CONFIG] == self.config.model.as_dict()
        require(same, "resume", f"{checkpoint} was trained with other model settings; give its config.yaml")
        if self.config.trainer.logger:
            run, place = checkpoint.resolve().parent.parent, self.config.trainer.logger.init_args
            place.save_dir, place.name, place.version = str(run.parent.parent), run.parent.name, run.name
        return checkpoint

    def instantiate_classes(self) -> None:
        super().instantiate_classes()
        self.model.config = self.config.model.as_dict()
        weights = self.config.weights
        if weights is not None and self.config.resume is None:
            anew = load_matching(self.model, read_checkpoint(weights)["state_dict"], weights)
            if self.trainer.is_global_zero:
                print(f"Starts with the weights of {weights}; anew: {', '.join(anew) or 'none'}")
        if self.trainer.is_global_zero and self.config.resume is None:
            _claim(self.trainer.logger)
        # What is then kept as config.yaml tells how to repeat the run, not how to resume it.
        self.resume, self.config.resume = self.config.resume, None
        if self.resume is not None and self.config.trainer.logger:
            self.config.trainer.logger.init_args.version = None


def _claim(logger: Any) -> None:
    """Make the folder of a new run, so that no training that starts at the same time shares it."""
    # A folder asked for by its name may be there.
    while isinstance(logger, TensorBoardLogger) and not isinstance(logger.version, str):
        try:
            Path(logger.log_dir).mkdir(parents=True)
            break
        except FileExistsError:
            logger._version = None


@contextmanager
def _alone(trainer: pl.Trainer) -> Iterator[None]:
    """While this lasts nobody else goes on with the same run: two would tear its checkpoints.

    Raises: DataError if somebody does.
    """
    with ExitStack() as held:
        if trainer.is_global_zero and isinstance(trainer.logger, TensorBoardLogger):
            run = Path(trainer.logger.log_dir)
            run.mkdir(parents=True, exist_ok=True)
            try:
                # Loading workers outlive a killed training by some seconds, and hold its lock.
                held.enter_context(FileLock(run / ".training.lock").acquire(timeout=_LOCK_S))
            except Timeout:
                raise DataError("another training is writing here", file=run) from None
        yield


def _agree(name: str, given: int, default: int, found: int) -> None:
    require(given in (default, found), name, f"is {given}, the data have {found}; it is taken from the data")


def train(args: Sequence[str] | None = None) -> None:
    """Train, then print the validation table of the best checkpoint beside constant velocity."""
    _hush()
    cli = TrainCLI(
        LitForecaster,
        SceneData,
        run=False,
        args=None if args is None else list(args),
        seed_everything_default=0,
        auto_configure_optimizers=False,
        trainer_defaults=TRAINER_DEFAULTS,
        save_config_kwargs={"overwrite": True},
        parser_kwargs={"prog": "tools/train.py", "description": train.__doc__},
    )
    for logger in cli.trainer.loggers:
        if isinstance(logger, TensorBoardLogger) and cli.trainer.is_global_zero:
            print(f"Watch it learn:         {_tensorboard(Path(logger.log_dir))}")
    with _alone(cli.trainer):
        _fit(cli)
    # The best checkpoint; the last one where no validation has run.
    saved = [c.best_model_path for c in cli.trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint)]
    checkpoint = next(filter(None, saved), None)
    if cli.trainer.is_global_zero and checkpoint is not None:
        Path(checkpoint).with_name(PREVIOUS).unlink(missing_ok=True)
        _report(cli.datamodule.store, Path(checkpoint))


def _fit(cli: TrainCLI) -> None:
    """Train to the end. Raises: SystemExit with a sentence if told to stop, or if another process is gone."""
    trainer = cli.trainer
    try:
        trainer.fit(cli.model, cli.datamodule, ckpt_path=cli.resume, weights_only=True)
    except StoppedError as stop:
        if trainer.is_global_zero:
            print(f"\nStopped as asked; saved {stop.checkpoint}. {_how_to_go_on(Path(stop.checkpoint))}")
        # Whoever started the processes sees one of them; Lightning would kill this one if a child failed.
        sys.exit(STOPPED if trainer.local_rank == 0 else 0)
    except RuntimeError as error:
        if trainer.world_size == 1 or not is_lost(error):
            raise
        lost = f"process {trainer.global_rank} ends, for another one is gone or hangs; see what that one said"
        sys.exit(f"error: {lost}. --resume goes on from the last checkpoint. ({str(error).splitlines()[0]})")


def _how_to_go_on(checkpoint: Path) -> str:
    run = checkpoint.parent.parent
    config = ["--config", str(run / "config.yaml")] if (run / "config.yaml").is_file() else ["..."]
    resume = ["--resume", str(run if checkpoint.name == LAST else checkpoint)]
    return f"Go on with:\n  python tools/train.py {shlex.join([*config, *resume])}"


def _report(store: Path, checkpoint: Path) -> None:
    run = checkpoint.parent.parent
    predictors = [load_predictor(name) for name in ("constant_velocity", checkpoint)]
    results = [evaluate(p, ScenarioStore(store, "val"), progress=False) for p in predictors]
    write_results(run / "evaluation.json", results)
    focal, scored = format_table(results), format_table(results, "scored")
    print(f"\nValidation, {results[0].scenarios} scenarios, focal agents (metres; MR: share > 2 m):\n{focal}")
    print(f"\nAll scored agents:\n{scored}")
    if results[1].missing["all"]:
        print(f"\n{results[1].missing['all']} agents beyond the model's limits were not predicted.")
    own = [] if store == SAMPLE_STORE else ["--store", str(store)]
    shown = shlex.join([*own, "--checkpoint", str(checkpoint)])
    print(f"\nSee its predictions:    python tools/visualize.py {shown} --out pictures")
    print(f"Score it again:         python tools/evaluate.py {shown} --split val")
    print(f"Learning curves:        {_tensorboard(run)}")


def _tensorboard(run: Path) -> str:
    return f"tensorboard --logdir {shlex.quote(str(run))}"


def _hush() -> None:
    """Keep the screen for what a user can act on."""
    torch.set_float32_matmul_precision("high")
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    for message in (
        "LightningCLI's args",
        ".*does not have many workers",
        ".*logging interval",
        ".*LeafSpec",
        "Checkpoint directory .* is not empty",  # the run that goes on
        "You're resuming from a checkpoint that ended before",  # SceneLoader goes on where it ended
    ):
        warnings.filterwarnings("ignore", message)
