"""Checkpoints outlive commits: the names and sizes of the weights are pinned.

After a change that is meant, run ``TRAJPRED_PIN=1 pytest tests/model/test_state_dict.py`` and say so.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from torch import nn

from tests.model.test_published_encoders import CONFIGS, HEADS
from trajpred.benchmark.model import DEFAULT_MODEL as DEFAULT
from trajpred.model import Forecaster, HeadDecoder, ModeDecoder, SceneEncoder
from trajpred.model import pretrained as weights
from trajpred.training.lit_forecaster import LitForecaster

PINNED = Path(__file__).with_name("state_dict_keys.txt")
#: The same of the published systems.
PINNED_OTHERS = Path(__file__).with_name("state_dict_keys_others.txt")


def listed(module: nn.Module) -> list[str]:
    return [f"{name} {list(value.shape)}" for name, value in sorted(module.state_dict().items())]


def pinned(found: list[str], path: Path) -> list[str]:
    """What ``path`` says; where that is asked for, it says ``found`` from now on."""
    if os.environ.get("TRAJPRED_PIN"):
        path.write_text("\n".join(found) + "\n")
    return path.read_text().splitlines()


def test_weights_keep_their_names_and_sizes() -> None:
    found = listed(LitForecaster(SceneEncoder(), ModeDecoder(joint=True)))
    assert found == pinned(found, PINNED)


def test_so_do_those_of_the_published_systems() -> None:
    """The encoders of ``configs/model`` but the default one, and the article's decoder with each head."""
    parts: dict[str, nn.Module] = {}
    for path in CONFIGS:
        encoder = LitForecaster.build(DEFAULT | yaml.safe_load(path.read_text())["model"]).forecaster.encoder
        if not isinstance(encoder, SceneEncoder):
            parts[path.stem] = encoder
    parts |= {f"HeadDecoder, {head}": HeadDecoder(head=head) for head in HEADS}
    found = [f"{name}: {line}" for name, part in parts.items() for line in listed(part)]
    assert len(parts) == 10 and found == pinned(found, PINNED_OTHERS)


@pytest.mark.parametrize("name", weights.list_models())
def test_weights_that_ship_fit(name: str) -> None:
    model = Forecaster.from_pretrained(name)  # refuses names or sizes that it does not know
    assert not model.training and all(x.isfinite().all() for x in model.state_dict().values())


def test_joint_modes_add_weights_and_change_none() -> None:
    without, joint = (
        LitForecaster(SceneEncoder(), ModeDecoder(joint=kind)).state_dict() for kind in (False, True)
    )
    added = {name.split(".")[2] for name in joint.keys() - without.keys()}
    assert without.keys() < joint.keys() and added == {"joint_mode", "across", "across_bias"}
    assert all(joint[name].shape == value.shape for name, value in without.items())
