"""Real scenes and a small model."""

from __future__ import annotations

import pytest
import torch

from tests.model.small import small_model
from trajpred.data.scenario import Scenario
from trajpred.training.lit_forecaster import LitForecaster


@pytest.fixture(scope="session")
def real(sample_scenarios: list[Scenario]) -> list[Scenario]:
    """Three labelled scenes of very different size, the smallest first."""
    labelled = sorted((s for s in sample_scenarios if s.has_future), key=lambda s: len(s.tracks))
    return [labelled[0], labelled[len(labelled) // 2], labelled[-1]]


@pytest.fixture
def model() -> LitForecaster:
    return small_model()


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
