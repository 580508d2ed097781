"""Small models with fixed random weights, and batches of scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from trajpred.data.scenario import Scenario
from trajpred.features.config import SceneConfig
from trajpred.features.scene_graph import build_batch
from trajpred.model import Prediction
from trajpred.training.lit_forecaster import LitForecaster

#: The fields of a Prediction, and how far float32 lets them differ (metres, nats).
TOLERANCE = {"proposal": 2e-3, "proposal_scale": 2e-3, "trajectory": 2e-3, "scale": 2e-3, "logits": 1e-3}


#: The settings of a still smaller model, for exports and trainings.
SIZES = {"dim": 16, "heads": 2}
TINY: dict[str, Any] = {
    "encoder": {"class_path": "trajpred.model.SceneEncoder", "init_args": {**SIZES, "layers": 1}},
    "decoder": {"class_path": "trajpred.model.ModeDecoder", "init_args": {**SIZES, "propose_layers": 1}},
}


def small_config(**model: Any) -> dict[str, Any]:
    """A tiny model as it would stand in a YAML file, with joint futures."""
    sizes = {"dim": 32, "heads": 4}
    encoder = {**sizes, "layers": 2}
    decoder = {**sizes, "propose_layers": 1, "joint": True}
    return {
        "encoder": {"class_path": "trajpred.model.SceneEncoder", "init_args": encoder},
        "decoder": {"class_path": "trajpred.model.ModeDecoder", "init_args": decoder},
        **model,
    }


def small_model(seed: int = 0, **model: Any) -> LitForecaster:
    """In evaluation mode, its weights drawn from ``seed``."""
    torch.manual_seed(seed)
    return LitForecaster.build(small_config(**model)).eval()


def batch_of(scenarios: Sequence[Scenario]) -> HeteroData:
    return build_batch(scenarios, SceneConfig())


def evaluate_as(model: LitForecaster, evaluation: str) -> LitForecaster:
    """Switch ``model`` to ``dense`` or ``edges``."""
    model.forecaster.encoder.evaluation = model.forecaster.decoder.evaluation = evaluation
    return model


def assert_same(prediction: Prediction, expected: Prediction, rows: Tensor | slice = slice(None)) -> None:
    """``prediction`` equals ``rows`` of ``expected`` to within :data:`TOLERANCE`."""
    for name, tolerance in TOLERANCE.items():
        a = getattr(prediction, name)
        b = getattr(expected, name)[rows]
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance, msg=lambda text, n=name: f"{n}: {text}")


def largest_change(prediction: Prediction, expected: Prediction) -> float:
    """Metres between two predictions at most."""
    return float((prediction.trajectory - expected.trajectory).abs().max())


def checkpoint_of(model: LitForecaster, path: Path, prefix: str = "") -> Path:
    """Save ``model`` as Lightning would, with the weights whose names start with ``prefix`` only."""
    weights = {name: value for name, value in model.state_dict().items() if name.startswith(prefix)}
    content = {"state_dict": weights}
    model.on_save_checkpoint(content)
    torch.save(content, path)
    return path


def saved(folder: Path, seed: int = 0, joint: bool = True) -> Path:
    """Save a small model with random weights."""
    config = small_config()
    config["decoder"]["init_args"]["joint"] = joint
    return checkpoint_of(small_model(seed, **config), folder / f"{seed}{joint}.ckpt")
