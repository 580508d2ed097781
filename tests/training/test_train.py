"""A run's folder belongs to one training at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytorch_lightning as pl
from pytorch_lightning.loggers import TensorBoardLogger

from trajpred.errors import DataError
from trajpred.training import train


def trainer(folder: Path, version: str) -> pl.Trainer:
    logger = TensorBoardLogger(folder, name="run", version=version)
    return pl.Trainer(accelerator="cpu", logger=logger, enable_checkpointing=False)


@pytest.mark.filterwarnings("ignore")
def test_nobody_else_goes_on_with_a_run_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "LOCK_S", 0.0)
    said = pytest.raises(DataError, match=r"run.a: another training is writing here")
    first, other, second = (train.lock_run(trainer(tmp_path, version)) for version in "aba")
    with first, other, said, second:
        pytest.fail("two at once")
    with train.lock_run(trainer(tmp_path, "a")):
        pass
