"""A store of the sample and a short training run, shared by the tests of all commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SAMPLE, run

#: Settings of a small model.
SMALL = [
    "--model.encoder.init_args.dim=16",
    "--model.encoder.init_args.heads=2",
    "--model.encoder.init_args.layers=1",
    "--model.decoder.init_args.dim=16",
    "--model.decoder.init_args.heads=2",
    "--model.decoder.init_args.propose_layers=1",
    "--trainer.accelerator=cpu",
    "--trainer.enable_progress_bar=false",
]


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "store with spaces"
    assert run("prepare", "--source", "argoverse2", "--raw", SAMPLE, "--store", folder, "--workers", 1) == 0
    return folder


@pytest.fixture(scope="session")
def trained(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two epochs."""
    runs = tmp_path_factory.mktemp("runs")
    args = ["--trainer.max_epochs=2", "--trainer.check_val_every_n_epoch=1", "--data.workers=0"]
    where = [f"--data.store={store}", f"--trainer.logger.init_args.save_dir={runs}"]
    assert run("train", *SMALL, *args, *where) == 0
    return runs / "forecaster" / "version_0"
