"""The validation split of the sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from trajpred.data.scenario import Scenario
from trajpred.store import ScenarioStore


@pytest.fixture(scope="session")
def store(store_path: Path) -> ScenarioStore:
    return ScenarioStore(store_path, "val")


@pytest.fixture(scope="session")
def rows(store: ScenarioStore) -> list[Scenario]:
    return list(store)
