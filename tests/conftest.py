"""Fixtures shared by all tests: where real scenarios are found, and that nobody reaches for the network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.offline import offline
from tests.without_av2 import skip_its_users
from trajpred.scenario import Scenario
from trajpred.sources.argoverse2 import discover, read_scenario

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "datasets" / "argoverse2" / "sample"

skip_its_users()


@pytest.fixture(scope="session", autouse=True)
def nobody_reaches_for_the_network() -> Iterator[None]:
    with offline():
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The team's folder of data and vectors (``TRAJPRED_SHARED``, by default beside the repository)."""
    folder = Path(os.environ.get("TRAJPRED_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"TRAJPRED_SHARED: no folder {folder}")
    return folder


@pytest.fixture(scope="session")
def sample_folders() -> list[Path]:
    """Every scenario folder of the shipped sample."""
    return [path for paths in discover(SAMPLE).values() for path in paths]


@pytest.fixture(scope="session")
def sample_scenarios(sample_folders: list[Path]) -> list[Scenario]:
    return [read_scenario(folder) for folder in sample_folders]
