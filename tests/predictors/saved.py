"""Small models saved as checkpoints."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.model.small import small_config, small_model


def saved(folder: Path, seed: int = 0, joint: bool = True) -> Path:
    """Save a small model with random weights, as training does without a trainer."""
    decoder = small_config()["decoder"]
    decoder["init_args"]["joint"] = joint
    model, path = small_model(seed, decoder=decoder), folder / f"{seed}{joint}.ckpt"
    content = {"state_dict": model.state_dict()}
    model.on_save_checkpoint(content)
    torch.save(content, path)
    return path
