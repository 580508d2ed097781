"""A store of the shipped sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SAMPLE
from trajpred.scenario import Scenario
from trajpred.store import prepare


@pytest.fixture(scope="session")
def store_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store")
    prepare("argoverse2", SAMPLE, path, workers=1, progress=False)
    return path


@pytest.fixture(scope="session", params=[0, 11], ids=["pittsburgh", "austin"])
def scenario(sample_scenarios: list[Scenario], request: pytest.FixtureRequest) -> Scenario:
    """A crowded and a sparse real scene."""
    return sorted(sample_scenarios, key=lambda s: (s.city != "pittsburgh", -len(s.tracks)))[request.param]
