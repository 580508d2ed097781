"""Fixtures of the export tests, for the runtime, and changed copies of a bundle."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.export.conftest import *  # noqa: F403
from trajpred.data.scenario import Scenario
from trajpred.onboard import OnboardForecaster, StreamingForecaster
from trajpred.onboard.bundle import MANIFEST


@pytest.fixture
def stream(shared_forecaster: OnboardForecaster, scenes: list[Scenario]) -> StreamingForecaster:
    """With the map of the smallest scene."""
    return StreamingForecaster(shared_forecaster, scenes[0].map)


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    """Change the manifest of a bundle."""
    info = json.loads((folder / MANIFEST).read_text())
    change(info)
    (folder / MANIFEST).write_text(json.dumps(info))


def with_sizes(bundle: Path, copy: Path) -> Path:
    """Copy a bundle: the same graphs, with sizes of 40 agents and 200 lanes in the manifest."""
    shutil.copytree(bundle, copy)
    edit(copy, lambda info: info.update(sizes={"A": 40, "L": 200}))
    edit(copy, lambda info: info["scene"]["features"].update(max_agents=40, max_lanes=200))
    return copy
