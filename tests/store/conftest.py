"""Stores of the sample, and a source of constructed scenarios."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import SAMPLE
from trajpred.scenario import Scenario
from trajpred.sources import SOURCES, Source
from trajpred.store import prepare

#: Scenarios per shard: the 16 of the sample make 1 + 4 + 2 shards.
SHARD_SIZE = 3


@pytest.fixture(scope="session")
def sample() -> Path:
    return SAMPLE


@pytest.fixture(scope="session")
def sample_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample prepared in one run; must not be modified."""
    store = tmp_path_factory.mktemp("sample") / "store"
    prepare("argoverse2", SAMPLE, store, workers=1, shard_size=SHARD_SIZE, progress=False)
    return store


@pytest.fixture(scope="session")
def tree() -> Callable[[Path], dict[str, bytes]]:
    """Return a function from a folder to the content of every file below it."""

    def read(folder: Path) -> dict[str, bytes]:
        return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}

    return read


@pytest.fixture
def copy(sample_store: Path, tmp_path: Path) -> Path:
    """A store of the sample that may be modified."""
    return Path(shutil.copytree(sample_store, tmp_path / "copy"))


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function from scenarios to the raw folder of source "made", with them as split "train".

    Errors in place of scenarios are raised by the reader.
    """

    def folder(scenarios: list[Scenario | Exception]) -> Path:
        path = tmp_path / "raw"
        path.mkdir(exist_ok=True)
        content = {path / f"{i:03}": scenario for i, scenario in enumerate(scenarios)}

        def read(name: Path) -> Scenario:
            scenario = content[name]
            if isinstance(scenario, Exception):
                raise scenario
            return scenario

        monkeypatch.setitem(SOURCES, "made", Source(lambda _: {"train": list(content)}, read))
        return path

    return folder
