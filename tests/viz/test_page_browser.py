"""The page in a real browser: every control works, and nothing is requested or logged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import SAMPLE
from tests.viz.browser import IN_BROWSER, TURN, Browser, enter
from trajpred.data.resample import earlier
from trajpred.data.scenario import Scenario
from trajpred.predictors import Predictor, load_predictor
from trajpred.predictors.derived import StreamedPredictor
from trajpred.sources.argoverse2 import read_scenario
from trajpred.viz.page import write_page

pytestmark = IN_BROWSER


def listed(browser: Browser) -> list[str]:
    ids: list[str] = browser.ask("[...document.querySelectorAll('#list .id')].map(e => e.textContent)")
    return ids


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_loads_from_disk_without_errors_or_network(browser: Browser, page: Path, theme: str) -> None:
    browser.page.emulate_media(color_scheme=theme)
    browser.open(page)
    assert browser.errors == []
    assert browser.requests == [page.as_uri()]
    assert browser.ask("document.documentElement.dataset.theme") == theme
    assert (browser.picture()[2, 2, :3].mean() > 0.8) == (theme == "light")
    browser.do("get('theme').click()")
    assert (browser.picture()[2, 2, :3].mean() > 0.8) != (theme == "light")
    browser.page.emulate_media(color_scheme="light")


def test_numbers_are_those_of_python(
    browser: Browser, page: Path, scenes: list[Scenario], model: Predictor
) -> None:
    browser.open(page, f"#scene={scenes[2].scenario_id}")
    tracks, now = scenes[2].tracks, scenes[2].num_observed - 1
    origin = tracks.position[scenes[2].focal, now]
    asked = "state.scene.tracks.map(i => state.scene.{0})"
    valid = np.array(browser.ask(asked.format("isValid(i, state.scene.now)")))
    np.testing.assert_array_equal(valid, tracks.valid[:, now])
    position = np.array(browser.ask(asked.format("position(i, state.scene.now)")))
    assert np.abs(position - (tracks.position[:, now] - origin))[valid].max() <= 0.0051
    heading = np.array(browser.ask(asked.format("headings[i][state.scene.now]")))
    turned = np.angle(np.exp(1j * (heading - tracks.heading[:, now])))
    assert np.abs(turned[valid]).max() <= 0.00051
    modes = browser.ask("state.scene.modes(0, state.scene.focal).map(m => [m.probability, m.points.at(-1)])")
    [forecast] = model([scenes[2]])
    row = int(forecast.rows(np.array([scenes[2].focal_id]))[0])
    order = np.argsort(forecast.probability[row], kind="stable")
    assert [p for p, _ in modes] == pytest.approx(forecast.probability[row, order], abs=1e-3)
    ends = forecast.trajectory[row, order, -1] - origin
    np.testing.assert_allclose([end for _, end in modes], ends, atol=0.05)


def test_time_moves_by_slider_play_and_keys(browser: Browser, page: Path) -> None:
    browser.open(page)
    before = browser.picture()
    assert browser.ask("get('time').textContent") == "now 5.0 s observed"
    enter(browser, "slider", 80)
    assert (browser.picture() != before).any()
    assert browser.ask("get('time').textContent") == "+3.1 s"
    assert browser.ask("location.hash").endswith("&t=3.1")
    browser.do("setStep(state.scene.now)")
    np.testing.assert_array_equal(browser.picture(), before)
    for key, step in (("ArrowRight", 50), ("ArrowLeft", 49), ("Home", 0), ("End", 109)):
        browser.key(key)
        assert browser.ask("state.step") == step, key
    browser.do("setStep(state.scene.last - 5)")
    browser.key(" ")
    assert browser.ask("state.playing")
    browser.wait("!state.playing")
    assert browser.ask("state.step === state.scene.last")


def test_the_list_filters_sorts_and_opens(browser: Browser, page: Path, scenes: list[Scenario]) -> None:
    browser.open(page)
    everything = listed(browser)
    values = browser.ask("state.listed.map(i => index.scenes[i].metrics[0][1])")
    assert len(everything) == 3
    assert values == sorted(values)
    assert browser.ask("state.scene.id") == everything[1], "the median"
    browser.do("get('order').click()")
    assert listed(browser) == everything[::-1], "the worst first"
    browser.do("get('order').click()")
    cities = {scene.scenario_id: scene.city for scene in scenes}
    enter(browser, "fact-city", "pittsburgh", "change")
    assert listed(browser) == [name for name in everything if cities[name] == "pittsburgh"] != everything
    enter(browser, "fact-city", "", "change")
    enter(browser, "low", (values[1] + values[2]) / 2)
    assert listed(browser) == everything[2:]
    enter(browser, "sort", "original order", "change")
    assert browser.ask("state.listed") == [0, 1, 2], "without the range of another quantity"
    enter(browser, "sort", "minFDE6", "change")
    assert listed(browser) == everything
    enter(browser, "search", everything[1][:8].upper())
    assert listed(browser) == everything[1:2]
    browser.do("document.querySelector('#list button').click()")
    browser.wait(f"state.scene.id === '{everything[1]}'")
    enter(browser, "search", "no such scenario")
    assert listed(browser) == []
    assert browser.errors == []
    enter(browser, "search", "")
    first, second = browser.ask("state.listed.slice(0, 2)")
    for key, number in (("k", first), ("j", second)):
        browser.key(key)
        browser.wait(f"state.number === {number} && state.scene.id === index.scenes[{number}].id")
    browser.do("get('search').focus()")
    browser.key("j")
    assert browser.ask("[state.number, get('search').value]") == [second, "j"], "letters belong to the field"


def test_every_layer_can_be_hidden(browser: Browser, page: Path) -> None:
    browser.open(page, TURN + "&t=1.1")
    browser.do("redraw()")
    before = browser.picture()
    for layer in ("map", "agents", "history", "truth", "modes", "others", "band", "labels"):
        browser.do(f"get('layer-{layer}').click()")
        assert (browser.picture() != before).any(), layer
        browser.do(f"get('layer-{layer}').click()")
        np.testing.assert_array_equal(browser.picture(), before, err_msg=layer)


def test_earlier_updates_are_shown_at_their_time(
    browser: Browser, scenes: list[Scenario], model: Predictor, tmp_path: Path
) -> None:
    streamed = StreamedPredictor(model, 0.5, 3)
    path = write_page(tmp_path / "stream.html", scenes[2:], [streamed])
    browser.open(path)
    now = scenes[2].num_observed - 1
    focal = np.array([scenes[2].focal_id])
    for step, back in ((now, 0), (now - 1, 5), (now - 5, 5), (now - 6, 10), (0, 10)):
        browser.do(f"setStep({step})")
        [forecast] = model([earlier(scenes[2], back)])
        p = forecast.probability[forecast.rows(focal)[0]]
        shown = browser.ask("state.scene.modes(panes[0].forecast, state.scene.focal).map(m => m.probability)")
        assert shown == pytest.approx(np.sort(p), abs=1e-3), step
        chosen = browser.ask("document.querySelectorAll('.stream circle.chosen').length")
        assert chosen == (1 if back == 10 else 2), "nothing was predicted before the first update"
    assert "as predicted at \u22121.0 s" in browser.ask("panes[0].summary.textContent")
    browser.do("document.querySelectorAll('.stream circle')[1].dispatchEvent(new Event('click'))")
    assert browser.ask("state.step") == now - 5
    before = browser.picture()
    browser.do("get('layer-updates').click()")
    assert browser.picture().shape > before.shape, "more room"
    assert browser.ask("panes[0].chart.hidden"), "more room"
    assert browser.ask("panes[0].forecast") == 0
    assert browser.errors == []


def test_a_link_opens_scene_and_time(browser: Browser, page: Path, scenes: list[Scenario]) -> None:
    browser.open(page, f"#scene={scenes[1].scenario_id}&t=-0.7")
    assert browser.ask("[state.scene.id, state.step]") == [scenes[1].scenario_id, 42]
    browser.do(f"location.hash = '#scene={scenes[2].scenario_id}&t=2.6'")
    browser.wait(f"state.scene.id === '{scenes[2].scenario_id}' && state.step === 75")
    for wrong in ("#scene=unknown&t=x", "#t=99999", "#%"):
        browser.open(page, wrong)
        assert browser.errors == []


def test_pointing_shows_numbers_and_clicking_selects(browser: Browser, page: Path) -> None:
    browser.open(page, TURN)
    bus = browser.ask("state.scene.type.indexOf('bus')")
    browser.do("zoomAt(panes[0], [0, 0], 0.5); redraw()")
    place = browser.at(f"state.scene.position({bus}, state.step)")
    browser.mouse.move(*place)
    browser.do("0")
    tip = browser.ask("get('tip').innerText")
    assert "bus" in tip
    assert "m/s" in tip
    assert browser.ask(f"state.scene.track_id[{bus}]") in tip
    browser.mouse.click(*place)
    assert browser.ask("state.selected") == bus
    browser.do("select(state.scene.focal)")
    browser.mouse.move(*browser.at("state.scene.modes(0, state.scene.focal).at(0).points.at(-1)"))
    browser.do("0")
    tip = browser.ask("get('tip').innerText")
    assert tip.startswith("Mode ")
    assert "from the truth" in tip
    assert "%" in tip
    assert browser.errors == []


def test_dragging_pans_wheel_zooms_and_fit_returns(browser: Browser, page: Path) -> None:
    browser.open(page)
    view = "[camera.x, camera.y, camera.scale]"
    before = browser.ask(view)
    browser.mouse.move(700, 400)
    browser.mouse.down()
    browser.mouse.move(760, 370)
    browser.mouse.up()
    browser.do("0")
    x, y, scale = browser.ask(view)
    assert [x, y] == pytest.approx([before[0] - 60 / scale, before[1] - 30 / scale])
    assert scale == before[2]
    point = browser.ask("panes[0].toMetres([200, 200])")
    corner = browser.ask("(r => [r.left, r.top])(panes[0].canvas.getBoundingClientRect())")
    browser.mouse.move(corner[0] + 200, corner[1] + 200)
    browser.mouse.wheel(0, -300)
    browser.wait(f"camera.scale > {scale}")
    assert browser.ask("panes[0].toMetres([200, 200])") == pytest.approx(point, abs=1e-6)
    browser.do("get('fit').click()")
    assert browser.ask(view) == pytest.approx(before)


def test_attention_by_layer_and_head(
    browser: Browser, page: Path, model: Predictor, scenes: list[Scenario]
) -> None:
    from trajpred.predictors.checkpoint import attention_of

    browser.open(page, TURN)
    browser.do("get('layer-attention').click()")
    assert browser.ask("get('heads').hidden") is False
    assert "attention" in browser.ask("get('legend').innerText")
    [attention], scene = attention_of(model, [scenes[2]]), scenes[2]
    row = attention.track_id.tolist().index(scene.focal_id)
    for layer, head, weight in (("", "", attention.weight.mean((0, 1))), ("1", "1", attention.weight[1, 1])):
        enter(browser, "attention-layer", layer, "change")
        enter(browser, "attention-head", head, "change")
        senders = browser.ask("sendersTo(state.scene, 0, state.scene.focal)")
        assert senders[-1]["share"] == pytest.approx(weight[row].max(), abs=2.1e-3)
        shares = dict(zip(attention.lane.tolist(), weight[row, len(attention.track_id) :], strict=True))
        lanes = {one["lane"]: one["share"] for one in senders if one["lane"] is not None}
        assert len(lanes) > 2
        for lane, share in lanes.items():
            assert share == pytest.approx(shares[lane], abs=2.1e-3 if layer else 5.1e-4)
    assert "layer 2, head 2" in browser.ask("describeHeads(state.scene, state.scene.focal)")
    assert browser.errors == []


def test_what_if_switches_forecasts(
    browser: Browser, scenes: list[Scenario], model: Predictor, tmp_path: Path
) -> None:
    path = write_page(tmp_path / "what if.html", scenes[2:], [model], without=["nearest"])
    browser.open(path)
    before = browser.picture()
    browser.key("w")
    summary = browser.ask("document.querySelector('.summary').innerText")
    assert (browser.picture() != before).any()
    assert "without" in summary
    assert "away" in summary
    assert browser.ask("panes[0].forecast") == 1
    assert "removed" in browser.ask("get('legend').innerText")
    browser.key("w")
    np.testing.assert_array_equal(browser.picture(), before)
    assert browser.errors == []


def test_two_models_share_view_and_time(browser: Browser, both: Path) -> None:
    browser.open(both)
    names = browser.ask("[...document.querySelectorAll('.summary b')].map(e => e.innerText)")
    assert [name.split()[-1] for name in names] == ["argoverse-nano", "lane_following"]
    pictures = "panes.map(p => p.canvas.toDataURL())"
    before = browser.ask(pictures)
    assert before[0] != before[1]
    for change in ("zoomAt(panes[0], [100, 100], 1.5); redraw()", "setStep(20)"):
        browser.do(change)
        after = browser.ask(pictures)
        assert all(a != b for a, b in zip(before, after, strict=True))
        before = after
    assert "minFDE6, B" in browser.ask("get('sort').innerText")
    assert browser.errors == []


def test_agents_without_a_future_stay_at_their_last_state(browser: Browser, tmp_path: Path) -> None:
    scene, predictor = read_scenario(next((SAMPLE / "test").iterdir())), load_predictor("constant_velocity")
    browser.open(write_page(tmp_path / "test.html", [scene], [predictor]))
    assert browser.ask("[state.scene.recorded(80), state.scene.last]") == [49, 109]
    browser.do("setStep(80)")
    assert browser.ask("visibleTracks(panes[0], state.scene, state.scene.recorded(80), true).length") > 1
    assert "no true future" in browser.ask("document.querySelector('.summary').innerText")
    assert browser.errors == []
