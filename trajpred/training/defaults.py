"""Defaults of the train command: it trains the default model on the sample in the repository."""

from __future__ import annotations

from typing import Any

from trajpred.store.sample import SAMPLE_STORE

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
        "class_path": "trajpred.training.tensorboard.RunLogger",
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
    "last.filename": "last",
    "last.save_on_train_epoch_end": True,
    "last.enable_version_counter": False,
    # One callback of Lightning saves by epochs or by time, so two of them write the same file.
    "recent.filename": "last",
    "recent.train_time_interval": "00:05:00",
    "recent.enable_version_counter": False,
}
