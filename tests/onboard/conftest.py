"""Fixtures of the export tests, for the runtime; a short drive; changed copies of a bundle."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.export.conftest import *  # noqa: F403
from trajpred.data.scenario import Scenario
from trajpred.onboard import Detections, OnboardForecast, OnboardForecaster, StreamingForecaster
from trajpred.onboard.bundle import MANIFEST

#: Changes of a manifest after which its graphs have another size than it says, by field.
WRONG_SIZES = [
    ("horizon", lambda info: info["model"].update(horizon=30)),
    ("modes", lambda info: info["model"].update(modes=7)),
    ("history", lambda info: info["model"].update(history=49)),
    ("dim", lambda info: info["model"].update(dim=8)),
    ("lane_points", lambda info: info["scene"]["features"].update(lane_points=8)),
]
#: Seconds between the updates of a drive.
STEP = 0.1


@pytest.fixture
def stream(shared_forecaster: OnboardForecaster, scenes: list[Scenario]) -> StreamingForecaster:
    """With the map of the smallest scene."""
    return StreamingForecaster(shared_forecaster, scenes[0].map)


def drive(stream: StreamingForecaster, steps: int = 6, **others: tuple[float, float]) -> OnboardForecast:
    """Update with car ``a`` at 10 m/s and ``others`` that stand."""
    for step in range(steps):
        found = stream.update(step * STEP, Detections(["a", *others], [(step, 0.0), *others.values()]))
    return found


def warnings(found: OnboardForecast) -> str:
    return "; ".join(found.warnings)


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    """Change the manifest of a bundle."""
    info = json.loads((folder / MANIFEST).read_text())
    change(info)
    (folder / MANIFEST).write_text(json.dumps(info))


def replace_file(file: Path, content: bytes) -> None:
    """Replace a file of a bundle, and its SHA-256 in the manifest."""
    file.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    edit(file.parent, lambda info: info["files"][file.name].update(sha256=digest))


def with_sizes(bundle: Path, copy: Path) -> Path:
    """Copy a bundle: the same graphs, with sizes of 40 agents and 200 lanes in the manifest."""
    shutil.copytree(bundle, copy)
    edit(copy, lambda info: info.update(sizes={"A": 40, "L": 200}))
    edit(copy, lambda info: info["scene"]["features"].update(max_agents=40, max_lanes=200))
    return copy
