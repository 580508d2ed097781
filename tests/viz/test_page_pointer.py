"""The web page in a real browser: pointing, dragging, windows, two models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SAMPLE
from tests.viz.browser import IN_BROWSER, Browser
from trajpred.predictors import load_predictor
from trajpred.scenario import Scenario
from trajpred.sources.argoverse2 import read_scenario
from trajpred.viz.page import write_page

pytestmark = IN_BROWSER


@pytest.fixture(scope="module")
def both(scenes: list[Scenario], tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = [load_predictor(name) for name in ("constant_velocity", "lane_following")]
    return write_page(tmp_path_factory.mktemp("page") / "both.html", scenes, models, progress=False)


def test_pointing_tells_numbers_and_a_click_chooses(browser: Browser, page: Path) -> None:
    browser.open(page, "#scene=7f6920a4-da68-51ad-97ee-8f327a728473")
    bus = browser.ask("state.scene.type.indexOf('bus')")
    place = browser.at(f"state.scene.place({bus}, state.step)")
    browser.mouse("mouseMoved", *place)
    said = browser.ask("get('tip').innerText")
    assert "bus" in said and "m/s" in said and browser.ask(f"state.scene.track_id[{bus}]") in said
    for kind in ("mousePressed", "mouseReleased"):
        browser.mouse(kind, *place, button="left", clickCount=1)
    assert browser.ask("state.selected") == bus
    browser.do("select(state.scene.focal)")
    browser.mouse(
        "mouseMoved", *browser.at("modesOf(state.scene, 0, state.scene.focal).at(-1).points.at(-1)")
    )
    said = browser.ask("get('tip').innerText")
    assert said.startswith("Mode ") and "from the truth" in said and "%" in said
    assert browser.errors == []


def test_dragging_moves_the_wheel_zooms_and_fit_returns(browser: Browser, page: Path) -> None:
    browser.open(page)
    view = "[camera.x, camera.y, camera.scale]"
    before = browser.ask(view)
    browser.mouse("mousePressed", 700, 400, button="left", clickCount=1)
    browser.mouse("mouseMoved", 760, 370, button="left", buttons=1)
    browser.mouse("mouseReleased", 760, 370, button="left", clickCount=1)
    x, y, scale = browser.ask(view)
    assert [x, y] == pytest.approx([-60 / scale, -30 / scale]) and scale == before[2]
    point = browser.ask("panes[0].toMetres([200, 200])")
    corner = browser.ask("(r => [r.left, r.top])(panes[0].canvas.getBoundingClientRect())")
    browser.mouse("mouseWheel", corner[0] + 200, corner[1] + 200, deltaX=0, deltaY=-300)
    browser.wait(f"camera.scale > {scale}")
    assert browser.ask("panes[0].toMetres([200, 200])") == pytest.approx(point, abs=1e-6)
    browser.do("get('fit').click()")
    assert browser.ask(view) == pytest.approx(before)


def test_two_models_share_view_and_time(browser: Browser, both: Path) -> None:
    browser.open(both)
    assert browser.ask("panes.length") == 2 and browser.errors == []
    names = browser.ask("[...document.querySelectorAll('.said b')].map(e => e.innerText)")
    assert [name.split()[-1] for name in names] == ["constant_velocity", "lane_following"]
    pictures = "panes.map(p => p.canvas.toDataURL())"
    before = browser.ask(pictures)
    assert before[0] != before[1]
    for change in ("zoomAt(panes[0], [100, 100], 1.5); redraw()", "setStep(20)"):
        browser.do(change)
        after = browser.ask(pictures)
        assert all(a != b for a, b in zip(before, after, strict=True))
        before = after
    assert "minFDE6, B" in browser.ask("get('sort').innerText")


def test_a_narrow_window_keeps_the_list_at_hand(browser: Browser, page: Path) -> None:
    browser.size(400, 760)
    browser.open(page)
    assert browser.ask("document.documentElement.scrollWidth") <= 400
    assert browser.ask("panes[0].width") == 400
    list_left = "document.getElementById('side').getBoundingClientRect().left"
    assert browser.ask(list_left) < -200
    browser.do("get('open-list').click()")
    browser.wait(f"{list_left} === 0")
    browser.size(1280, 800)


def test_without_a_future_everyone_stays_where_last_seen(browser: Browser, tmp_path: Path) -> None:
    folder = next((SAMPLE / "test").iterdir())
    predictor = load_predictor("constant_velocity")
    browser.open(write_page(tmp_path / "test.html", [read_scenario(folder)], [predictor], progress=False))
    assert browser.ask("[state.scene.recorded(80), state.scene.last]") == [49, 109]
    browser.do("setStep(80)")
    assert browser.ask("tracksShown(panes[0], state.scene, state.scene.recorded(80), true).length") > 1
    assert "no true future" in browser.ask("document.querySelector('.said').innerText")
    assert browser.errors == []
