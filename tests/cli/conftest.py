"""A store of the sample and a short training run, shared by the tests of all commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SAMPLE, run
from tests.training.command import tiny


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "store with spaces"
    assert run("prepare", "--source", "argoverse2", "--raw", SAMPLE, "--store", folder, "--workers", 1) == 0
    return folder


@pytest.fixture(scope="session")
def trained(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two epochs."""
    runs = tmp_path_factory.mktemp("runs")
    trainer = {"max_epochs": 2, "check_val_every_n_epoch": 1, "enable_progress_bar": "false"}
    assert run("train", *tiny(store, runs, "--data.workers=0", **trainer)) == 0
    return runs / "forecaster" / "version_0"
