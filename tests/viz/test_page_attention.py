"""The web page in a real browser: attention, futures without somebody, and the map that is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.viz.browser import IN_BROWSER, Browser
from trajpred.predictors import load_predictor
from trajpred.predictors.checkpoint import attention_of
from trajpred.predictors.perturbed import road_users, without
from trajpred.scenario import Scenario
from trajpred.viz.page import write_page

pytestmark = IN_BROWSER
CROWDED = "#scene=7f6920a4-da68-51ad-97ee-8f327a728473"


@pytest.fixture(scope="module")
def pair(scenes: list[Scenario], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with the futures without the nearest road user, too."""
    path = tmp_path_factory.mktemp("page") / "pair.html"
    models = [load_predictor("argoverse2-demo")]
    return write_page(path, scenes[2:], models, without=["nearest"], progress=False)


def choose(browser: Browser, what: str, number: int | str) -> None:
    browser.do(f"get('attention-{what}').value = '{number}'")
    browser.do(f"get('attention-{what}').dispatchEvent(new Event('change'))")


def test_attention_shows_and_hides(browser: Browser, page: Path) -> None:
    browser.open(page, CROWDED)
    before = browser.picture()
    assert browser.ask("get('heads').hidden")
    browser.do("get('layer-attention').click()")
    on = browser.picture()
    assert on.tobytes() != before.tobytes() and not browser.ask("get('heads').hidden")
    assert "agents" in browser.ask("document.querySelector('.said').innerText")
    choose(browser, "layer", 2)
    assert browser.picture().tobytes() != on.tobytes()
    choose(browser, "layer", "")
    np.testing.assert_array_equal(browser.picture(), on)
    browser.do("get('layer-attention').click()")
    np.testing.assert_array_equal(browser.picture(), before)
    assert browser.errors == []


def test_shares_are_those_of_the_model(browser: Browser, page: Path, scenes: list[Scenario]) -> None:
    """Of the focal agent by layer and head, and of one nobody judges by their mean."""
    scene = scenes[2]
    [told] = attention_of(load_predictor("argoverse2-demo"), [scene])
    browser.open(page, CROWDED)
    other = next(n for n in told.track_id.tolist() if scene.tracks.category[scene.tracks.index(n)] <= 1)
    for name, layer, head in (
        (scene.focal_id, 1, 5),
        (scene.focal_id, "", ""),
        (other, "", ""),
        (other, 0, 3),
    ):
        choose(browser, "layer", layer)
        choose(browser, "head", head)
        heard = f"heardBy(state.scene, 0, {scene.tracks.index(name)})"
        found = browser.ask(f"{heard}.filter(h => h.lane !== null).map(h => [h.lane, h.share])")
        row = told.track_id.tolist().index(name)
        one = layer != "" and name == scene.focal_id
        shares = told.weight[layer, head, row] if one else told.shares(name)
        lanes = dict(zip(told.lane.tolist(), shares[len(told.track_id) :].tolist(), strict=True))
        assert len(found) > 5
        assert all(abs(share - lanes[lane]) < (0.0021 if one else 0.00051) for lane, share in found)


def test_pointing_at_a_lane_tells_its_share(browser: Browser, page: Path) -> None:
    browser.open(page, CROWDED)
    browser.do("get('layer-attention').click(); get('layer-modes').click(); get('layer-agents').click()")
    lane = "heardShown(panes[0], state.scene).filter(h => h.lane !== null).at(-1)"
    share = browser.ask(f"{lane}.share")
    points = f"lanesOf(state.scene)[{lane}.lane].line"
    browser.mouse("mouseMoved", *browser.at(f"(l => l[l.length >> 1])({points})"))
    said = browser.ask("get('tip').innerText")
    assert said.startswith(f"lane segment · {100 * share:.1f}%") and "all layers" in said
    bus = browser.ask("state.scene.type.indexOf('bus')")
    browser.do(f"get('layer-agents').click(); select({bus})")
    assert browser.ask(f"{lane}.share") != share
    assert browser.errors == []


def test_somebody_can_be_left_out(browser: Browser, pair: Path, scenes: list[Scenario]) -> None:
    scene = scenes[2]
    [gone] = road_users(scene, ["nearest"])
    browser.open(pair)
    before = browser.picture()
    chip = "get('layer-without').parentElement"
    assert gone in browser.ask(f"{chip}.title") and browser.ask(f"{chip}.innerText").startswith("Without ")
    browser.key("w")
    assert browser.ask("panes[0].told") == 1 and browser.picture().tobytes() != before.tobytes()
    said = browser.ask("document.querySelector('.said').innerText")
    assert gone in said and "mean future ends" in said
    assert browser.ask("state.scene.removed") == [scene.tracks.index(gone)]
    [less] = load_predictor("argoverse2-demo")([without(scene, [gone])])
    row = int(less.rows(np.array([scene.focal_id]))[0])
    told = browser.ask("modesOf(state.scene, panes[0].told, state.scene.focal).map(m => m.probability)")
    assert told == pytest.approx(np.sort(less.probability[row]), abs=1e-3)
    browser.mouse("mouseMoved", *browser.at(f"state.scene.place({scene.tracks.index(gone)}, state.step)"))
    assert "left out" in browser.ask("get('tip').innerText")
    browser.mouse("mouseMoved", 5, 5)
    browser.key("w")
    np.testing.assert_array_equal(browser.picture(), before)
    assert browser.errors == []


def test_the_map_that_is_kept_is_the_map(browser: Browser, page: Path) -> None:
    """Panned by whole pixels it is what is drawn anew there; after zooming it is drawn sharp."""
    browser.open(page, CROWDED)
    browser.do("['agents', 'history', 'truth', 'modes'].forEach(name => get(`layer-${name}`).click())")
    made = "panes[0].ground.made"
    start = browser.ask(f"{made}.x")
    browser.do("camera.x += 40 / camera.scale; camera.y -= 23 / camera.scale; redraw()")
    assert browser.ask(f"{made}.x") == start, "still the same picture"
    moved = browser.picture()
    browser.do("panes[0].ground.made.key = panes[0].ground.exactly = ''; redraw()")
    assert browser.ask(f"{made}.x") != start
    # Edges that fall between pixels may round otherwise.
    assert (np.abs(browser.picture() - moved) > 0.02).mean() < 1e-3
    browser.do("camera.x += 300 / camera.scale; redraw()")
    assert browser.ask(f"{made}.x === camera.x"), "beyond the margin it is made anew"
    browser.do("zoomAt(panes[0], [300, 200], 1.3); redraw()")
    browser.wait(f"{made}.scale === camera.scale")
    assert browser.errors == []
