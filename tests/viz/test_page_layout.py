"""The page in a real browser: it fits any window, compares, works with keys alone, and can be shared."""

from __future__ import annotations

import base64
import re
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from tests.viz.browser import IN_BROWSER, TURN, Browser, enter
from trajpred.evaluation.table import bootstrap

pytestmark = IN_BROWSER
#: Elements whose text does not fit, or that reach beyond the window.
CUT = """{
const parts = 'main *, #side > header *, #filters *, #means *, dialog[open] *';
[...document.querySelectorAll(parts)].filter((e) => {
  const box = e.getBoundingClientRect();
  const shown = e.checkVisibility() && box.left >= 0 && !e.closest('select, svg, #track');
  const full = getComputedStyle(e).display !== 'inline' && e.scrollWidth > e.clientWidth + 1;
  return shown && (full || box.right > innerWidth + 1 || box.bottom > innerHeight + 1);
}).map((e) => `${e.tagName} ${e.id} ${e.textContent}`)
}"""


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_nothing_is_cut_and_panes_are_aligned(browser: Browser, both: Path, width: int) -> None:
    browser.size(width, 844)
    browser.open(both, TURN)
    for action in (
        "0",
        "get('sort').selectedIndex = 2; get('sort').dispatchEvent(new Event('change'))",
        "get('layer-attention').click()",
        "get('more').click()",
        "get('help').showModal()",
    ):
        browser.do(action)
        assert browser.ask(CUT) == [], action
    edges = "['top', 'height'].map(k => panes.map(p => p.stage.getBoundingClientRect()[k]))"
    tops, heights = browser.ask(edges)
    assert abs(heights[0] - heights[1]) < (3 if width > 860 else 90)
    assert min(heights) > 100
    assert tops[0] == tops[1] or width < 860, "although one header takes more lines"
    browser.size(1280, 800)


def test_the_first_view_fits_the_futures_until_it_is_moved(browser: Browser, both: Path) -> None:
    """Predicted by either model and true; and again when the window changes."""
    ends = """panes.flatMap((pane) => [
      ...state.scene.modes(pane.m, state.selected).map((mode) => mode.points.at(-1)),
      state.scene.path(state.selected, state.scene.now, 999).at(-1),
    ].map((end) => pane.toPixels(end)))"""
    for width, height in ((1440, 800), (390, 844), (1024, 700)):
        browser.size(width, height)
        browser.open(both, TURN) if width == 1440 else browser.do("0")
        size = np.array(browser.ask("[panes[0].width, panes[0].height]"))
        reach = np.array(browser.ask(ends))
        assert (reach > 0.09 * size).all(), "room for labels"
        assert (reach < 0.91 * size).all(), "room for labels"
        assert (np.ptp(reach, axis=0) > 0.4 * size).any(), "and not much more than that"
    browser.do("zoomAt(panes[0], [50, 60], 1.3); redraw()")
    moved = browser.ask("[camera.x, camera.y, camera.scale]")
    browser.size(1280, 800)
    browser.do("0")
    assert browser.ask("[camera.x, camera.y, camera.scale]") == moved, "chosen views stay"


def test_means_of_the_filtered_scenarios_with_intervals(browser: Browser, both: Path) -> None:
    browser.open(both)
    errors = "index.scenes.map(s => s.metrics.map(m => m[index.metrics.indexOf('minFDE6')]))"
    values = np.array(browser.ask(errors))
    read = "[...document.querySelectorAll('#means dd')].map(e => e.textContent.replaceAll('\\u2212', '-'))"
    shown = [np.array(re.sub(r"[][,]", "", text).split(), float) for text in browser.ask(read)]
    for found, sample in zip(shown, (*values.T, values[:, 0] - values[:, 1]), strict=True):
        np.testing.assert_allclose(found, bootstrap(sample), atol=0.006 + 0.1 * np.ptp(found))
    enter(browser, "search", browser.ask("index.scenes[1].id"))
    assert [text.split()[0] for text in browser.ask(read)][2] == f"{values[1, 0] - values[1, 1]:+.2f}"
    enter(browser, "search", "no such scenario")
    assert browser.ask(read) == []
    many = np.random.default_rng(0).gamma(2.0, size=300)
    found = browser.ask(f"bootstrap({many.tolist()})")
    assert found == pytest.approx(bootstrap(many), abs=0.02)


def test_everything_can_be_done_with_keys(browser: Browser, both: Path) -> None:
    browser.open(both, TURN)
    browser.key("?")
    assert browser.ask("get('help').open")
    browser.do("get('help').close()")
    browser.key("n")
    chosen = browser.ask("state.selected")
    assert browser.ask("state.scene.role[state.selected]") == "SCORED"
    assert browser.ask("camera.fitted")
    browser.key("p")
    assert browser.ask("state.selected === state.scene.focal")
    assert chosen != browser.ask("state.selected")
    x, scale = browser.ask("[camera.x, camera.scale]")
    browser.key("+")
    assert browser.ask("camera.scale") > scale
    browser.key("ArrowRight")
    assert browser.ask("[camera.x, state.step]") == [pytest.approx(x), 50], "arrows are time"
    browser.do("panes[1].canvas.focus()")
    browser.key("ArrowRight")
    assert browser.ask("camera.x") > x, "in the scene they move it"
    assert browser.ask("state.step") == 50, "in the scene they move it"
    browser.key("f")
    assert browser.ask("camera.scale") == pytest.approx(scale)
    browser.key("/")
    assert browser.ask("document.activeElement.id") == "search"
    browser.key("n")
    browser.key("Escape")
    assert browser.ask("state.selected === state.scene.focal")
    assert browser.ask("camera.fitted")
    assert browser.errors == []


def test_keys_work_after_a_click_on_a_control(browser: Browser, both: Path) -> None:
    browser.open(both, TURN)
    for control in ("#layers label", "#fit", "#slider", "canvas", "#list button", "#order"):
        browser.page.click(control)
        browser.wait("state.scene !== null")
        shown = browser.ask("state.layers.map")
        browser.key("Home")
        browser.key(" ")
        assert browser.ask("[state.playing, state.layers.map]") == [True, shown], control
        browser.key(" ")
    browser.page.focus("#sort")
    browser.page.select_option("#sort", "road users")
    browser.key("End")
    assert browser.ask("state.step === state.scene.last"), "a choice has been made"
    assert browser.errors == []


def test_links_are_copied_and_pictures_saved(browser: Browser, both: Path) -> None:
    browser.open(both, TURN)
    browser.do("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    browser.key("c")
    assert browser.ask("window.copied") == browser.ask("location.href")
    save = "function () { window.saved = [this.download, this.href]; }"
    browser.do(f"HTMLAnchorElement.prototype.click = {save}")
    browser.key("s")
    name, data = browser.ask("window.saved")
    assert name == TURN.removeprefix("#scene=") + "_0.0s.png"
    saved, shown = imread(BytesIO(base64.b64decode(data.split(",")[1])), format="png"), browser.picture()
    height, width = shown.shape[:2]
    np.testing.assert_array_equal(saved[-height:, :width, :3], shown[..., :3])
    assert saved.shape[1] >= 2 * width, "both scenes below a line of text"
    assert np.ptp(saved[:-height]) > 0.5, "both scenes below a line of text"
    assert browser.errors == []
