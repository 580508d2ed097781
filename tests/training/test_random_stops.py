"""A run that is stopped at random, several times in a row, ends with the same files as one that was not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.training.command import call
from tests.training.random_stops import Campaign, tiny_store
from tests.training.test_resume import (
    ignored_signals,  # noqa: F401
)

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="on Windows every signal ends a process at once"
)
#: The first five fail if a checkpoint is saved in the last batch of an epoch without validation; the last one
#: accumulates gradients and validates within epochs.
FEW = (0, 7, 9, 10, 13, 12)


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
