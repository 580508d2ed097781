"""A small model with random weights, exported once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training.test_lit_forecaster import trainer
from trajpred.export.export_bundle import export_bundle
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.predictors.checkpoint import CheckpointPredictor
from trajpred.scenario import Scenario
from trajpred.training.lit_forecaster import LitForecaster

SIZES = {"dim": 16, "heads": 2}
CONFIG = {
    "encoder": {"class_path": "trajpred.model.SceneEncoder", "init_args": {**SIZES, "layers": 1}},
    "decoder": {"class_path": "trajpred.model.ModeDecoder", "init_args": {**SIZES, "propose_layers": 1}},
}


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of a model small enough to trace in seconds."""
    torch.manual_seed(0)
    model, folder = LitForecaster.build(CONFIG), tmp_path_factory.mktemp("small")
    saver, path = trainer(folder, enable_checkpointing=False), folder / "small.ckpt"
    saver.strategy.connect(model)
    saver.save_checkpoint(path, weights_only=True)
    return path


@pytest.fixture(scope="session")
def scenes(sample_scenarios: list[Scenario]) -> list[Scenario]:
    """Four of the sample, the one with the fewest tracks first, that with the most last."""
    ordered = sorted((s for s in sample_scenarios if s.has_future), key=lambda s: len(s.tracks))
    return [ordered[0], ordered[3], ordered[len(ordered) // 2], ordered[-1]]


@pytest.fixture(scope="session")
def bundle(checkpoint: Path, scenes: list[Scenario], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the model was exported to, ``forecaster.onnx`` with it. Not to be changed."""
    folder = tmp_path_factory.mktemp("exported") / "bundle"
    export_bundle(checkpoint, folder, scenes, fused=True)
    return folder


@pytest.fixture(scope="session")
def predictor(checkpoint: Path) -> CheckpointPredictor:
    """The model in PyTorch."""
    return CheckpointPredictor(checkpoint)


@pytest.fixture
def forecaster(bundle: Path) -> OnboardForecaster:
    """The model as it runs onboard, with an empty cache."""
    return OnboardForecaster(bundle, threads=1)


@pytest.fixture(scope="session")
def bundle_forecaster(bundle: Path) -> OnboardForecaster:
    """One for many tests: what it keeps from one to the next is lanes."""
    return OnboardForecaster(bundle, threads=1)
