"""Stores of the sample, and a source of constructed scenarios."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import SAMPLE
from tests.store.scenarios import OPTIONS
from trajpred.data.scenario import Scenario
from trajpred.sources import SOURCES, RawScenario, Source
from trajpred.store import prepare


@pytest.fixture(scope="session")
def sample_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample prepared in one run; must not be modified."""
    store = tmp_path_factory.mktemp("sample") / "store"
    prepare("argoverse2", SAMPLE, store, **OPTIONS)
    return store


@pytest.fixture
def copy(sample_store: Path, tmp_path: Path) -> Path:
    """A store of the sample that may be modified."""
    return Path(shutil.copytree(sample_store, tmp_path / "copy"))


@pytest.fixture
def raw_copy(tmp_path: Path) -> Path:
    """A copy of the sample's raw data that may be modified."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "raw"))


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function from scenarios to the raw folder of source "made", with them as split "train".

    Errors in place of scenarios are raised by the reader.
    """

    def folder(scenarios: list[Scenario | Exception]) -> Path:
        path = tmp_path / "raw"
        path.mkdir(exist_ok=True)
        content = {f"{i:03}": scenario for i, scenario in enumerate(scenarios)}
        listed = [RawScenario(name, path / name) for name in content]

        def read(item: RawScenario) -> Scenario:
            scenario = content[item.name]
            if isinstance(scenario, Exception):
                raise scenario
            return scenario

        monkeypatch.setitem(SOURCES, "made", Source(lambda _: {"train": listed}, read))
        return path

    return folder
