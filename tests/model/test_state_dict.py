"""Checkpoints outlive commits: the names and sizes of the weights are pinned.

After a change that is meant, run ``TRAJPRED_PIN=1 pytest tests/model/test_state_dict.py`` and say so.
"""

from __future__ import annotations

import os
from pathlib import Path

from trajpred.model import LitForecaster, ModeDecoder, SceneEncoder

PINNED = Path(__file__).with_name("state_dict_keys.txt")


def test_weights_keep_their_names_and_sizes() -> None:
    model = LitForecaster(SceneEncoder(), ModeDecoder(joint=True))
    found = [f"{name} {list(value.shape)}" for name, value in sorted(model.state_dict().items())]
    if os.environ.get("TRAJPRED_PIN"):
        PINNED.write_text("\n".join(found) + "\n")
    assert found == PINNED.read_text().splitlines()


def test_joint_modes_add_weights_and_change_none() -> None:
    without, joint = (
        LitForecaster(SceneEncoder(), ModeDecoder(joint=kind)).state_dict() for kind in (False, True)
    )
    added = {name.split(".")[2] for name in joint.keys() - without.keys()}
    assert without.keys() < joint.keys() and added == {"joint_mode", "across", "across_bias"}
    assert all(joint[name].shape == value.shape for name, value in without.items())
