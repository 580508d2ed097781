"""Training from one config: store -> checkpoint, TensorBoard, and the validation table."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI

from trajpred.evaluation import evaluate, format_table, load_predictor
from trajpred.graph.dataset import SceneData
from trajpred.model import LitForecaster
from trajpred.model.checkpoint import read_checkpoint
from trajpred.sample import SAMPLE_STORE, ensure_store
from trajpred.store import ScenarioStore
from trajpred.viz.callback import PredictionPictures

#: What ``tools/train.py`` does without a config: the shipped sample, in about two minutes on two cores.
TRAINER_DEFAULTS: dict[str, Any] = {
    "max_epochs": 60,
    "gradient_clip_val": 1.0,
    "check_val_every_n_epoch": 10,
    "log_every_n_steps": 5,
    "num_sanity_val_steps": 0,
    "enable_model_summary": False,
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
}


class TrainCLI(LightningCLI):
    """Model, data and trainer from YAML files and the command line; history and horizon from the data."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_lightning_class_args(ModelCheckpoint, "best")
        parser.add_lightning_class_args(ModelCheckpoint, "last")
        parser.add_lightning_class_args(PredictionPictures, "pictures")
        parser.add_lightning_class_args(LearningRateMonitor, "learning_rate_monitor")
        parser.add_argument("--resume", type=Path | None, help="go on from this checkpoint (last.ckpt)")
        parser.set_defaults(DEFAULTS)
        parser.link_arguments("seed_everything", "data.seed", compute_fn=int)

    def before_instantiate_classes(self) -> None:
        store = ensure_store(Path(self.config.data.store))
        history, horizon = ScenarioStore(store, "train").lengths
        self.config.model.history = history
        self.config.model.decoder.init_args.horizon = horizon

    def instantiate_classes(self) -> None:
        super().instantiate_classes()
        self.model.config = self.config.model.as_dict()


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
    resume = cli.config.resume
    if resume is not None:
        read_checkpoint(resume)  # one clear sentence for a file that is none
    cli.trainer.fit(cli.model, cli.datamodule, ckpt_path=resume, weights_only=True)
    # The best checkpoint; the last one where no validation has run.
    saved = [c.best_model_path for c in cli.trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint)]
    checkpoint = next(filter(None, saved), None)
    if cli.trainer.is_global_zero and checkpoint is not None:
        _report(cli.datamodule.store, Path(checkpoint))


def _report(store: Path, checkpoint: Path) -> None:
    run = checkpoint.parent.parent
    predictors = [load_predictor(name) for name in ("constant_velocity", checkpoint)]
    results = [evaluate(p, ScenarioStore(store, "val"), progress=False) for p in predictors]
    (run / "evaluation.json").write_text(json.dumps([r.to_json() for r in results], indent=1) + "\n")
    focal, scored = format_table(results), format_table(results, "scored")
    print(f"\nValidation, {results[0].scenarios} scenarios, focal agents (metres; MR: share > 2 m):\n{focal}")
    print(f"\nAll scored agents:\n{scored}")
    shown = f"--store {store} --checkpoint {checkpoint}"
    print(f"\nSee its predictions:    python tools/visualize.py {shown} --out pictures")
    print(f"Score it again:         python tools/evaluate.py {shown} --split val")
    print(f"Learning curves:        tensorboard --logdir {run}")


def _hush() -> None:
    """Keep the screen for what a user can act on."""
    torch.set_float32_matmul_precision("high")
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    for message in (
        "LightningCLI's args",
        ".*does not have many workers",
        ".*logging interval",
        ".*LeafSpec",
        "The dirpath has changed",
    ):
        warnings.filterwarnings("ignore", message)
