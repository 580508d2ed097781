"""Training commands in processes of their own, and a callback that sends them signals."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from tests.conftest import ROOT
from trajpred.training.checkpoint_io import newest_checkpoint


class SignalAt(pl.Callback):
    """Send the process of ``rank`` a signal after ``step`` steps, at the event ``when`` of Lightning.

    The processes that load its scenes receive it too, as from SLURM and systemd. By name, since not every
    system has every signal.
    """

    def __init__(self, step: int, name: str, when: str = "train_batch_start", rank: int = 0) -> None:
        def send(trainer: pl.Trainer, *_: Any) -> None:
            if (trainer.global_step, trainer.global_rank) == (step, rank):
                for loading in multiprocessing.active_children():
                    os.kill(loading.pid or 0, signal.Signals[name])
                os.kill(os.getpid(), signal.Signals[name])

        setattr(self, f"on_{when}", send)


def tiny(store: Path, runs: Path, *args: str, **trainer: object) -> list[str]:
    """Return the settings of a training of a tiny model, with ``args`` and settings of the ``trainer``."""
    settings = [
        "--model.encoder.init_args.layers=1",
        "--model.encoder.init_args.dim=16",
        "--model.encoder.init_args.heads=2",
        "--model.decoder.init_args.propose_layers=1",
        "--model.decoder.init_args.dim=16",
        "--model.decoder.init_args.heads=2",
        "--trainer.accelerator=cpu",
        f"--trainer.logger.init_args.save_dir={runs}",
    ]
    settings += [f"--trainer.{name}={value}" for name, value in trainer.items()]
    return [*settings, f"--data.store={store}", *args]


def signal_at(step: int, name: str, rank: int = 0) -> list[str]:
    """Return the options that add a ``SignalAt``."""
    option = "--trainer.callbacks"
    return [
        f"{option}=tests.training.command.SignalAt",
        f"{option}.init_args.step={step}",
        f"{option}.init_args.name={name}",
        f"{option}.init_args.rank={rank}",
    ]


def last_weights(runs: Path) -> dict[str, torch.Tensor]:
    """Return the weights of the newest checkpoint of the first run below ``runs``."""
    _, content = newest_checkpoint(runs / "forecaster" / "version_0")
    weights: dict[str, torch.Tensor] = content["state_dict"]
    return weights


def assert_same_weights(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert torch.equal(value, expected[name]), name


def environment() -> dict[str, str]:
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def call(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
    )
