"""A picture, a forecast of the shipped weights, a browser and a page for the tests of viz."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SAMPLE
from tests.viz.browser import CHROMIUM, Browser
from trajpred.data.forecast import Attention
from trajpred.data.scenario import Scenario
from trajpred.predictors import Predictor, load_predictor
from trajpred.predictors.checkpoint import attention_of
from trajpred.sources.argoverse2 import read_scenario
from trajpred.viz.page import write_page


@pytest.fixture(scope="session")
def model() -> Predictor:
    """The smallest weights that ship; they report scales and attention."""
    return load_predictor("argoverse-nano")


@pytest.fixture(scope="session")
def real_scene(sample_folders: list[Path]) -> Scenario:
    """A crowded scene of the sample with a bus."""
    return read_scenario(next(path for path in sample_folders if path.name.startswith("7f6920a4")))


@pytest.fixture(scope="session")
def attention(model: Predictor, real_scene: Scenario) -> Attention:
    return attention_of(model, [real_scene])[0]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A tab for the tests of one file: Playwright's event loop would disturb those of other libraries."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield Browser(playwright.chromium.launch(executable_path=CHROMIUM).new_page())


@pytest.fixture(scope="session")
def scenes() -> list[Scenario]:
    """Scenes from two cities: the focal vehicle is parked, turns, and goes straight."""
    names = ["val/0a1e6f0a", "train/0000b0f9", "val/7f6920a4"]
    return [read_scenario(next((SAMPLE / n.split("/")[0]).glob(n.split("/")[1] + "*"))) for n in names]


@pytest.fixture(scope="session")
def page(scenes: list[Scenario], model: Predictor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one model."""
    return write_page(tmp_path_factory.mktemp("page") / "one model.html", scenes, [model])


@pytest.fixture(scope="session")
def both(scenes: list[Scenario], model: Predictor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two models."""
    path = tmp_path_factory.mktemp("page") / "both.html"
    return write_page(path, scenes, [model, load_predictor("lane_following")])
