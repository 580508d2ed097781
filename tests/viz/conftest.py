"""A browser and pages for the tests of the web page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SAMPLE
from tests.viz.browser import Browser
from trajpred.predictors import load_predictor
from trajpred.scenario import Scenario
from trajpred.sources.argoverse2 import read_scenario
from trajpred.viz.page import write_page


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    opened.prefer("light")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def scenes() -> list[Scenario]:
    """Two cities, a car that stands, a car that turns, and one that goes straight."""
    names = ["val/0a1e6f0a", "train/0000b0f9", "val/7f6920a4"]
    return [read_scenario(next((SAMPLE / n.split("/")[0]).glob(n.split("/")[1] + "*"))) for n in names]


@pytest.fixture(scope="session")
def page(scenes: list[Scenario], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one model that ships: it tells scales and attention."""
    path = tmp_path_factory.mktemp("page") / "one model.html"
    return write_page(path, scenes, [load_predictor("argoverse2-demo")], progress=False)
