"""Checkpoints outlive commits: names and shapes of all weights are pinned.

After an intended change, run ``TRAJPRED_PIN=1 pytest tests/model/test_state_dict.py``.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import get_args

import yaml
from torch import nn

from tests.model.systems import CONFIGS, DEFAULT_MODEL, HEADS
from trajpred.model import Forecaster, HeadDecoder, ModeDecoder, SceneEncoder
from trajpred.nn.edge_attention import Operator

PINNED = Path(__file__).with_name("state_dicts.json")


def digest(module: nn.Module) -> str:
    """Number of weights, and a hash of their names and shapes."""
    lines = [f"{name} {list(value.shape)}" for name, value in sorted(module.state_dict().items())]
    return f"{len(lines)} {hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:16]}"


def test_every_system_keeps_the_names_and_shapes_of_its_weights() -> None:
    parts: dict[str, nn.Module] = {"default": Forecaster(SceneEncoder(), ModeDecoder(joint=True))}
    for path in CONFIGS:
        config = DEFAULT_MODEL | yaml.safe_load(path.read_text())["model"]
        parts[path.stem] = Forecaster.build(config).encoder
    parts |= {f"HeadDecoder, {head}": HeadDecoder(head=head) for head in HEADS}
    operators = get_args(Operator)
    parts |= {f"ModeDecoder, {name}": ModeDecoder(attention=name, joint=True) for name in operators}
    digests = {name: digest(part) for name, part in parts.items()}
    if os.environ.get("TRAJPRED_PIN"):
        PINNED.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8", newline="\n")
    assert digests == json.loads(PINNED.read_text("utf-8"))
