"""Stores of the shipped sample, and a made-up source for what real data do not hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trajpred.errors import DataError
from trajpred.scenario import Scenario
from trajpred.sources import SOURCES, Source
from trajpred.store import prepare

SAMPLE = Path(__file__).parents[2] / "datasets" / "argoverse2" / "sample"
#: Scenarios per shard: the 16 of the sample make 1 + 4 + 2 shards.
SHARD_SIZE = 3


@pytest.fixture(scope="session")
def sample() -> Path:
    return SAMPLE


@pytest.fixture(scope="session")
def sample_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample prepared in one go. Not to be written to."""
    store = tmp_path_factory.mktemp("sample") / "store"
    prepare("argoverse2", SAMPLE, store, workers=1, shard_size=SHARD_SIZE, progress=False)
    return store


@pytest.fixture(scope="session")
def tree() -> Callable[[Path], dict[str, bytes]]:
    """``tree(folder)`` -> the content of every file below it."""

    def read(folder: Path) -> dict[str, bytes]:
        return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}

    return read


def made(number: int, **changes: Any) -> Scenario:
    """Two tracks, of which the second has a gap, over 12 steps near (1e7, -1e7)."""
    rng = np.random.default_rng(number)
    position = np.array([1e7, -1e7]) + np.cumsum(rng.normal(size=(2, 12, 2)), axis=1)
    position[1, 3:6] = np.nan
    inputs = {"position": position, "num_observed": 8, "scenario_id": f"made-{number}"}
    return Scenario.from_arrays(**(inputs | changes))


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """``raw(scenarios)`` -> raw folder of the source "made", which reads them as split "train".

    A scenario given as an error is raised. The names sort in the order given.
    """

    def folder(scenarios: list[Scenario | DataError]) -> Path:
        path = tmp_path / "raw"
        path.mkdir(exist_ok=True)
        content = {path / f"{i:03}": scenario for i, scenario in enumerate(scenarios)}

        def read(name: Path) -> Scenario:
            scenario = content[name]
            if isinstance(scenario, DataError):
                raise scenario
            return scenario

        monkeypatch.setitem(SOURCES, "made", Source(lambda _: {"train": list(content)}, read))
        return path

    return folder
