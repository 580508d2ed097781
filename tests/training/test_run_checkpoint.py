"""A run that was moved knows its best checkpoint."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from trajpred.training.callbacks import RunCheckpoint


def best_of(folder: Path, kind: type[ModelCheckpoint] = RunCheckpoint) -> ModelCheckpoint:
    return kind(folder, "best", monitor="val/loss", enable_version_counter=False)


@pytest.fixture
def moved(tmp_path: Path) -> tuple[Path, ModelCheckpoint]:
    """Where a run lies now, and its callback before."""
    before = best_of(tmp_path / "before")
    path = str(tmp_path / "before" / "best.ckpt")
    before.best_k_models, before.kth_best_model_path = {path: torch.tensor(1.5)}, path
    before.best_model_path, before.best_model_score = path, torch.tensor(1.5)
    (tmp_path / "now").mkdir()
    return tmp_path / "now", before


def test_the_best_one_is_known_where_the_run_lies_now(moved: tuple[Path, ModelCheckpoint]) -> None:
    folder, before = moved
    (folder / "best.ckpt").touch()
    now = best_of(folder)
    now.load_state_dict(before.state_dict())
    assert now.best_model_path == now.kth_best_model_path == str(folder / "best.ckpt")
    assert now.best_model_score == 1.5 and now.best_k_models == {str(folder / "best.ckpt"): 1.5}


def test_what_was_left_behind_is_not_claimed(moved: tuple[Path, ModelCheckpoint]) -> None:
    folder, before = moved
    now = best_of(folder)
    with pytest.warns(UserWarning, match="dirpath has changed"):
        now.load_state_dict(before.state_dict())
    assert now.best_k_models == {} and now.best_model_path == "" and now.best_model_score is None


def test_checkpoints_of_lightnings_own_callback_are_understood(tmp_path: Path) -> None:
    own, theirs = best_of(tmp_path), best_of(tmp_path, ModelCheckpoint)
    assert own.state_key == theirs.state_key and math.isinf(float(own.kth_value))
