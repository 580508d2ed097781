"""The best checkpoint of a moved run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from trajpred.training.checkpoint_io import RunCheckpoint


def best_of(folder: Path, cls: type[ModelCheckpoint] = RunCheckpoint) -> ModelCheckpoint:
    return cls(folder, "best", monitor="val/loss", enable_version_counter=False)


@pytest.mark.parametrize("kept", [True, False])
def test_a_moved_run_knows_its_best_checkpoint_if_it_is_there(tmp_path: Path, kept: bool) -> None:
    before, path = best_of(tmp_path / "before"), str(tmp_path / "before" / "best.ckpt")
    before.best_k_models, before.kth_best_model_path = {path: torch.tensor(1.5)}, path
    before.best_model_path, before.best_model_score = path, torch.tensor(1.5)
    folder = tmp_path / "now"
    folder.mkdir()
    now = best_of(folder)
    if kept:
        (folder / "best.ckpt").touch()
        now.load_state_dict(before.state_dict())
        assert now.best_model_path == now.kth_best_model_path == str(folder / "best.ckpt")
        assert now.best_model_score == 1.5 and now.best_k_models == {str(folder / "best.ckpt"): 1.5}
    else:
        with pytest.warns(UserWarning, match="dirpath has changed"):
            now.load_state_dict(before.state_dict())
        assert (now.best_k_models, now.best_model_path, now.best_model_score) == ({}, "", None)
    assert now.state_key == best_of(folder, ModelCheckpoint).state_key
