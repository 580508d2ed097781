"""Train to the end, or until a signal: what stops a training, in one sentence."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from trajpred.errors import DataError
from trajpred.model.pretrained import LAST
from trajpred.training.checkpoint_io import STOPPED, StoppedError
from trajpred.training.data_module import SceneData
from trajpred.training.distributed import is_lost_connection
from trajpred.training.lit_forecaster import LitForecaster


def best_checkpoint(trainer: pl.Trainer) -> Path | None:
    """Return the best checkpoint, or the last one if no validation has run; None if none was saved."""
    for callback in trainer.checkpoint_callbacks:
        if isinstance(callback, ModelCheckpoint) and callback.best_model_path:
            return Path(callback.best_model_path)
    return None


def fit(trainer: pl.Trainer, model: LitForecaster, data: SceneData, checkpoint: Path | None) -> None:
    """Train to the end, from ``checkpoint`` if there is one.

    Raises: SystemExit if a signal stops the run, or another process is lost.
    """
    try:
        trainer.fit(model, data, ckpt_path=checkpoint, weights_only=True)
    except StoppedError as stop:
        if trainer.is_global_zero:
            print(f"\nStopped as requested; saved {stop.checkpoint}. {_advice(Path(stop.checkpoint))}")
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
