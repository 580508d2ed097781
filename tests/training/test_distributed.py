"""Several processes train what one process does, stop together, and do not wait for a lost one."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import distributed

from tests.conftest import ROOT
from tests.training.command import assert_same_weights, call, last_weights, signal_at, tiny
from trajpred.training.checkpoint_io import STOPPED, newest_checkpoint
from trajpred.training.train import train

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or not distributed.is_available(), reason="needs Linux"),
]
#: Ten scenes: four, three and three to a step, so that with two processes most steps are shared unevenly.
STEPS = 3
EPOCHS = 2
LOST = "another process has ended or hangs"


def command(runs: Path, store: Path, processes: int, *args: str, dropout: float = 0.0) -> list[str]:
    """The command that trains a tiny model with four scenes per step on any number of processes."""
    trainer = {"devices": processes, "max_epochs": EPOCHS}
    trainer |= {"check_val_every_n_epoch": 1, "log_every_n_steps": 1}
    ddp = [f"--config={ROOT / 'configs' / 'trainer' / 'ddp.yaml'}"] if processes > 1 else []
    settings = [
        f"--model.encoder.init_args.dropout={dropout}",
        f"--model.decoder.init_args.dropout={dropout}",
        "--data.batch_size=4",
        "--pictures.scenes=0",
    ]
    return [str(ROOT / "tools" / "train.py"), *ddp, *tiny(store, runs, *settings, *args, **trainer)]


def torchrun(arguments: Sequence[str]) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return [*launcher, *arguments]


def curves(run: Path) -> dict[str, list[float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run)).Reload()
    values = {}
    for name in events.Tags()["scalars"]:
        values[name] = [event.value for event in events.Scalars(name)]
    return values


def folder(runs: Path) -> Path:
    return runs / "forecaster" / "version_0"


def test_two_processes_train_what_one_trains(store_path: Path, tmp_path: Path) -> None:
    """Curves and weights agree up to the rounding of float32.

    Except the bias of all logits: softmax ignores it, so its gradient is rounding, which Adam scales to full
    steps.
    """
    train(command(tmp_path / "one", store_path, 1)[1:])
    two = call(torchrun(command(tmp_path / "two", store_path, 2)))
    assert two.returncode == 0, two.stderr
    for printed in ("CPU, 2 processes", f"epoch {EPOCHS}/{EPOCHS} ", "Results in "):
        assert two.stdout.count(printed) == 1, "the first process alone prints"
    alone = curves(folder(tmp_path / "one"))
    together = curves(folder(tmp_path / "two"))
    assert alone.keys() == together.keys() >= {"train/loss", "train/mode", "update/grad_norm", "val/loss"}
    assert len(alone["train/loss"]) == STEPS * EPOCHS
    assert len(alone["val/loss"]) == EPOCHS
    for name, values in alone.items():
        assert together[name] == pytest.approx(values, rel=2e-5), name
    a = last_weights(tmp_path / "one")
    b = last_weights(tmp_path / "two")
    for name in a.keys() - {"forecaster.decoder.logit_head.2.bias"}:
        torch.testing.assert_close(a[name], b[name], rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("rank", [0, 1])
def test_processes_end_with_a_message_when_one_is_killed(store_path: Path, tmp_path: Path, rank: int) -> None:
    start = time.monotonic()
    kill = signal_at(STEPS + 1, "SIGKILL", rank)
    done = call(torchrun(command(tmp_path, store_path, 2, *kill, "--trainer.max_epochs=1000")))
    assert done.returncode != 0, done.stderr
    assert f"process {1 - rank} stops: {LOST}" in done.stderr, done.stderr
    assert f"exitcode  : {-signal.SIGKILL}" in done.stderr
    assert time.monotonic() - start < 120
    assert newest_checkpoint(folder(tmp_path))[1]["global_step"] == STEPS


def test_a_hanging_process_is_abandoned_after_the_timeout(store_path: Path, tmp_path: Path) -> None:
    stop = [*signal_at(STEPS + 1, "SIGSTOP", rank=1), "--trainer.strategy.init_args.timeout=00:00:20"]
    # Lightning's own launcher; torchrun waits half a minute more for the hanging process. `call` returns
    # when no process holds its output any more, so the hanging one must have ended too.
    done = call([sys.executable, *command(tmp_path, store_path, 2, *stop, "--trainer.max_epochs=1000")])
    assert done.returncode != 0, done.stderr
    assert f"process 0 stops: {LOST}" in done.stderr, done.stderr
    assert newest_checkpoint(folder(tmp_path))[1]["global_step"] == STEPS


def test_processes_stop_together_and_resume_with_their_own_dropout(store_path: Path, tmp_path: Path) -> None:
    """A signal to one process stops all; the resumed run ends with the same weights, bit for bit."""

    def start(name: str, *args: str) -> subprocess.CompletedProcess[str]:
        return call([sys.executable, *command(tmp_path / name, store_path, 2, *args, dropout=0.3)])

    assert start("whole").returncode == 0
    done = start("stopped", *signal_at(STEPS + 1, "SIGTERM", rank=1))
    assert done.returncode == STOPPED, done.stderr
    assert done.stdout.count("Stopped as requested") == 1, done.stderr
    path, content = newest_checkpoint(folder(tmp_path / "stopped"))
    states = [state["cpu"] for state in content["trajpred_random"]]
    assert content["global_step"] == STEPS + 2
    assert len(states) == 2
    assert not torch.equal(*states), "dropout differs between processes"
    assert start("stopped", f"--resume={path}").returncode == 0
    assert_same_weights(last_weights(tmp_path / "stopped"), last_weights(tmp_path / "whole"))
