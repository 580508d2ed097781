"""A run that is stopped at random, several times in a row, ends with the same files as one that was not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.training.command import call, environment
from tests.training.random_stops import Campaign, tiny_store
from tests.training.test_resume import (
    assert_same_weights,
    ignored_signals,  # noqa: F401
    train,
    train_command,
    weights_of,
)
from trajpred.training.callbacks import STOPPED

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="on Windows every signal ends a process at once"
)
#: All of these fail if a checkpoint is saved in the last batch of an epoch without validation.
FEW = (0, 7, 9, 10, 13)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_store(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("seeds", [FEW, pytest.param(range(100, 220), marks=pytest.mark.slow)])
def test_a_run_that_is_stopped_at_random_ends_as_if_it_had_not_been(
    tiny: Path, tmp_path: Path, seeds: Sequence[int]
) -> None:
    campaign = Campaign(tiny, tmp_path)
    assert not [difference for seed in seeds for difference in campaign.sequence(seed)]


@pytest.mark.slow
def test_so_do_two_processes(tiny: Path, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = call([*launcher, "-m", "tests.training.random_stops", str(tiny), str(tmp_path), "0", "20"])
    assert done.stdout == "20 sequences of 2 processes\n", done.stdout + done.stderr


@pytest.mark.slow
def test_so_does_the_command_that_is_stopped_from_outside(tiny: Path, tmp_path: Path) -> None:
    random, options = np.random.default_rng(0), ["--trainer.max_epochs=40"]
    assert train(tiny, tmp_path / "whole", *options).returncode == 0
    runs = tmp_path / "stopped"
    folder = runs / "forecaster" / "version_0"
    last = folder / "checkpoints" / "last.ckpt"
    for name in ("SIGKILL", "SIGTERM", "SIGKILL", "SIGINT", "SIGKILL"):
        before = last.stat().st_mtime_ns if last.exists() else 0
        resume = [f"--resume={folder}"] if before else []
        command = train_command(tiny, runs, *options, *resume)
        with subprocess.Popen(command, env=environment(), cwd=ROOT, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and (not last.exists() or last.stat().st_mtime_ns == before):
                time.sleep(0.01)
            time.sleep(random.uniform(0, 0.5))
            process.send_signal(signal.Signals[name])
        assert process.returncode == (-signal.SIGKILL if name == "SIGKILL" else STOPPED)
    assert train(tiny, runs, *options, f"--resume={folder}").returncode == 0
    assert_same_weights(weights_of(tmp_path / "whole"), weights_of(runs))
