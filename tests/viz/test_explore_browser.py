"""The explorer in a real browser: scenes are edited by pointer and keys, and two models answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.viz.browser import IN_BROWSER, TURN, Browser
from trajpred.data.scenario import Scenario
from trajpred.predictors import Predictor, load_predictor
from trajpred.viz.explore import apply, at_step
from trajpred.viz.explore.server import Explorer, Server

pytestmark = IN_BROWSER
#: Whether the models have answered the latest edits.
SETTLED = """!editor.busy && !editor.waiting && editor.edits === editor.accepted
    && observed() === state.scene.observed"""


@pytest.fixture(scope="module")
def address(scenes: list[Scenario], model: Predictor) -> Iterator[str]:
    models = {"argoverse-nano": model, "lane_following": load_predictor("lane_following")}
    with Server(Explorer(scenes, models, lambda name: ("", repr(name)))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


def settle(browser: Browser, address: str = "") -> None:
    """Open an address, if one is given, and wait until the models have answered."""
    if address:
        browser.page.goto("about:blank")
        browser.errors.clear()
        browser.page.goto(address)
        browser.wait("typeof state !== 'undefined' && state.scene !== null")
    browser.wait(SETTLED)
    browser.do("0")


def drag(browser: Browser, start: str, x: float, y: float) -> None:
    """Drag from a pixel of the first pane, in JavaScript, by ``x`` and ``y`` pixels."""
    corner = "panes[0].canvas.getBoundingClientRect()"
    left, top = browser.ask(f"(([x, y], r) => [x + r.left, y + r.top])({start}, {corner})")
    browser.mouse.move(left, top)
    browser.mouse.down()
    for part in np.linspace(0.1, 1, 10):
        browser.mouse.move(left + part * x, top + part * y)
    browser.mouse.up()


FOCAL = "panes[0].toPixels(state.scene.position(state.scene.focal, state.scene.now))"
HANDLE = "handleOf(panes[0]).pixel"


def edits(browser: Browser) -> Any:
    return json.loads(browser.ask("JSON.stringify(editor.accepted)"))


def test_dragging_moves_turns_and_speeds_up(
    browser: Browser, address: str, scenes: list[Scenario], model: Predictor
) -> None:
    settle(browser, address + TURN)
    assert "minFDE6" in browser.ask("panes[0].summary.textContent")
    assert "true future" in browser.ask("get('legend').textContent")
    scale = browser.ask("camera.scale")
    drag(browser, FOCAL, 40, -20)
    settle(browser)
    turning = scenes[2]
    pose = edits(browser)["moved"][turning.focal_id]
    assert [pose["x"], pose["y"]] == pytest.approx([40 / scale, 20 / scale], abs=0.02)
    drag(browser, HANDLE, -30, -50)
    settle(browser)
    pose = edits(browser)["moved"][turning.focal_id]
    assert pose["turn"] > 0.1
    assert pose["speed"] > 6
    [forecast] = model([apply(turning, edits(browser))])
    row = forecast.rows(np.array([turning.focal_id]))[0]
    ends = browser.ask("state.scene.modes(panes[0].forecast, state.scene.focal).map(m => m.points.at(-1))")
    order = np.argsort(forecast.probability[row], kind="stable")
    origin = turning.tracks.position[turning.focal, turning.num_observed - 1]
    np.testing.assert_allclose(ends, forecast.trajectory[row, order, -1] - origin, atol=0.05)
    for pane in 0, 1:
        text = browser.ask(f"panes[{pane}].summary.textContent")
        assert "nobody drove this" in text
        assert "minFDE6" not in text
    assert "true future" not in browser.ask("get('legend').textContent")
    assert browser.ask("state.scene.path(state.scene.focal, state.scene.now, 999).length") == 1
    shifts = browser.ask(
        "[...document.querySelectorAll('#shifts b')].map(e => e.textContent.split(' · ').map(Number))"
    )
    largest = [max(pair) for pair in shifts]
    assert largest == sorted(largest, reverse=True)
    assert browser.errors == []
    link, shown = browser.ask("location.href"), edits(browser)
    settle(browser, link)
    assert edits(browser) == shown
    browser.do("get('recorded').click()")
    settle(browser)
    assert "minFDE6" in browser.ask("panes[0].summary.textContent")
    assert "edits" not in browser.ask("location.hash")


@pytest.mark.parametrize("width", [390, 800, 1300])
def test_labels_keep_off_the_handle_and_names_are_short(browser: Browser, address: str, width: int) -> None:
    """Boxes are recorded as the pane is drawn: of labels, of the handle and of what else they avoid."""
    browser.size(width, 850)
    settle(browser, address + TURN)
    browser.do("""{
        window.drawn = [];
        const make = extension.draw;
        extension.draw = (pane, scene, colors, clutter) => {
          drawn.push(clutter.boxes);
          window.blocked = clutter.boxes.length;
          make(pane, scene, colors, clutter);
        };
        0;
    }""")
    for key in "663":
        browser.key(key)
    browser.do("toggleLane(state.scene.position(state.selected, state.scene.now)); drawn.length = 0")
    settle(browser)
    boxes = np.array(browser.ask("drawn.at(-1)"))
    apart = np.abs(boxes[:, None, :2] - boxes[:, :2]) - boxes[:, None, 2:] - boxes[:, 2:]
    blocked = browser.ask("blocked")  # body, star and scale bar, which may overlap each other
    overlap = (apart.max(axis=-1) < 0) & ~np.eye(len(boxes), dtype=bool)
    assert len(boxes) > blocked + 2
    assert not overlap[blocked:].any(), "labels, and the handle after its own"
    names = browser.ask("[...document.querySelectorAll('#shifts button')].map(e => e.firstChild.textContent)")
    assert names
    assert all(len(name.split()[-1]) <= 10 for name in names)
    chosen = browser.ask("state.selected")
    browser.do("document.querySelector('#shifts li:last-child button').click()")
    assert browser.ask("state.selected") != chosen or len(names) == 1
    assert "removed lane" in browser.ask("get('legend').textContent")
    browser.do("get('script').click()")
    fits = (
        "(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector('#code pre'))"
    )
    assert browser.ask(fits), "not cut off"
    script = browser.ask("document.querySelector('#code pre').textContent")
    assert "cli" not in script
    assert "import *" not in script
    assert browser.errors == []
    browser.size(1280, 800)


def test_everything_can_be_edited_with_keys(browser: Browser, address: str) -> None:
    settle(browser, address + TURN)
    for key in "683379":
        browser.key(key)
    settle(browser)
    [pose] = edits(browser)["moved"].values()
    assert [pose["x"], pose["y"], pose["turn"]] == [0.5, 0.5, 0]
    assert pose["speed"] == pytest.approx(
        browser.ask("editor.recorded.speeds[state.selected][49]") + 2, abs=0.01
    )
    for key in "lnxa":
        browser.key(key)
    settle(browser)
    found = edits(browser)
    assert len(found["removed"]) == len(found["lanes"]) == len(found["added"]) == 1
    assert browser.ask("state.scene.track_id[state.selected]") == "added 1"
    browser.key("Delete")
    settle(browser)
    assert edits(browser)["added"] == []
    assert browser.ask("state.selected === state.scene.focal")
    browser.key("x")
    assert "cannot be removed" in browser.ask("get('said').textContent")
    browser.key("0")
    settle(browser)
    assert browser.ask("state.scene === editor.recorded")
    assert browser.errors == []


def test_going_back_in_time_predicts_from_there(
    browser: Browser, address: str, scenes: list[Scenario], model: Predictor
) -> None:
    settle(browser, address + TURN)
    browser.do("setStep(30)")
    settle(browser)
    [forecast] = model([at_step(scenes[2], 31)])
    probability = np.sort(forecast.probability[forecast.rows(np.array([scenes[2].focal_id]))[0]])
    shown = browser.ask("state.scene.modes(panes[0].forecast, state.scene.focal).map(m => m.probability)")
    assert shown == pytest.approx(probability, abs=1e-3)
    assert "minFDE6" in browser.ask("panes[0].summary.textContent"), "this was driven"
    browser.key("End")
    settle(browser)
    assert browser.ask("[state.step, state.scene === editor.recorded]") == [109, True]


def test_one_request_is_in_flight_and_refused_edits_change_nothing(browser: Browser, address: str) -> None:
    settle(browser, address + TURN)
    browser.do("""{
        const send = fetch;
        Object.assign(window, { flying: 0, most: 0, count: 0 });
        fetch = async (...given) => {
          [most, count] = [Math.max(most, ++flying), count + 1];
          const answer = await send(...given);
          flying--;
          return answer;
        };
    }""")
    browser.do("for (let i = 0; i < 50; i++) move(state.scene.focal, { x: i / 10 })")
    settle(browser)
    assert browser.ask("[most, count <= 4]") == [1, True]
    [pose] = edits(browser)["moved"].values()
    assert pose["x"] == 4.9
    browser.do("commit({ lanes: ['no such lane'] })")
    settle(browser)
    assert "is not in the map" in browser.ask("get('said').textContent")
    assert edits(browser)["lanes"] == []
    assert [pose] == list(edits(browser)["moved"].values())
    for wrong in "{", '{"moved": []}':
        settle(browser, f"{address}{TURN}&edits={wrong}")
        assert "cannot be read" in browser.ask("get('said').textContent")
