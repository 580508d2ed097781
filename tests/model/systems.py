"""The systems of configs/model, and small models of them."""

from __future__ import annotations

import inspect
from pathlib import Path
from pydoc import locate
from typing import Any, get_args

import pytest
import torch
import yaml

from tests.conftest import ROOT
from trajpred.nn.edge_attention import Operator
from trajpred.training.lit_forecaster import LitForecaster

MODELS = ROOT / "configs" / "model"
CONFIGS = sorted(MODELS.glob("*.yaml"))
DEFAULT_MODEL = yaml.safe_load((MODELS / "small.yaml").read_text())["model"]
HEADS = ("mlp", "lstm", "attention")
#: Settings of any encoder or decoder that accepts them.
SMALL = {"dim": 16, "heads": 2, "dropout": 0.0, "edge_dropout": 0.0}


def _systems() -> list[Any]:
    """List every config, the star with each of its heads, and joint modes with each published operator."""
    systems = [pytest.param(path, {}, id=path.stem) for path in CONFIGS]
    for head in HEADS[1:]:
        star = MODELS / "gat_star.yaml"
        systems.append(pytest.param(star, {"head": head}, id=f"gat_star-{head}"))
    for name in get_args(Operator):
        joint = MODELS / "joint.yaml"
        systems.append(pytest.param(joint, {"attention": name}, id=f"decoder-{name}"))
    return systems


each_config = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
each_system = pytest.mark.parametrize(("path", "decoder"), _systems())


def small_settings(path: Path, layers: int = 2, heads: int = 2, **decoder: Any) -> dict[str, Any]:
    """Return the settings of the model of a config file with small sizes and without dropout."""
    config: dict[str, Any] = yaml.safe_load(path.read_text())["model"]
    config.setdefault("encoder", {"class_path": "trajpred.model.SceneEncoder"})
    config.setdefault("decoder", {"class_path": "trajpred.model.ModeDecoder"})
    for part in (config["encoder"], config["decoder"]):
        arguments = part.setdefault("init_args", {})
        accepted = inspect.signature(locate(part["class_path"])).parameters
        for name, value in SMALL.items():
            if name in accepted or name in arguments:
                arguments[name] = value
    config["encoder"]["init_args"] |= {"layers": layers, "heads": heads}
    config["decoder"]["init_args"] |= decoder
    return config


def small(path: Path, layers: int = 2, heads: int = 2, **decoder: Any) -> LitForecaster:
    """Build the system of a config file, with :func:`small_settings` and random weights."""
    torch.manual_seed(0)
    return LitForecaster.build(small_settings(path, layers, heads, **decoder))
