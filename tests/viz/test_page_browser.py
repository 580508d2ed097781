"""The web page in a real browser: loading, time, the list, links and keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.viz.browser import IN_BROWSER, Browser
from trajpred.predictors import load_predictor
from trajpred.scenario import Scenario

pytestmark = IN_BROWSER


def shown(browser: Browser) -> list[str]:
    """The ids in the list."""
    ids: list[str] = browser.ask("[...document.querySelectorAll('#list .id')].map(e => e.textContent)")
    return ids


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_loads_from_disk_without_errors_or_network(browser: Browser, page: Path, theme: str) -> None:
    browser.prefer(theme)
    browser.open(page)
    browser.do("0")
    assert browser.errors == [] and browser.requests == [page.as_uri()]
    assert browser.ask("document.documentElement.dataset.theme") == theme
    corner = browser.picture()[2, 2, :3]
    assert (corner.mean() > 0.8) == (theme == "light")
    browser.do("get('theme').click()")
    assert (browser.picture()[2, 2, :3].mean() > 0.8) != (theme == "light")
    browser.prefer("light")


def test_numbers_decode_to_what_python_packed(browser: Browser, page: Path, scenes: list[Scenario]) -> None:
    browser.open(page, f"#scene={scenes[2].scenario_id}")
    tracks, now = scenes[2].tracks, scenes[2].num_observed - 1
    origin = tracks.position[scenes[2].focal, now]
    asked = "[...Array(state.scene.tracks).keys()].map(i => {0})"
    seen = np.array(browser.ask(asked.format("state.scene.seen(i, state.scene.now)")))
    np.testing.assert_array_equal(seen, tracks.valid[:, now])
    place = np.array(browser.ask(asked.format("state.scene.place(i, state.scene.now)")))
    assert np.abs(place - (tracks.position[:, now] - origin))[seen].max() <= 0.0051
    heading = np.array(browser.ask(asked.format("state.scene.heading(i, state.scene.now)")))
    turned = np.angle(np.exp(1j * (heading - tracks.heading[:, now])))
    assert np.abs(turned[seen]).max() <= 0.00051
    told = browser.ask(
        "modesOf(state.scene, 0, state.scene.focal).map(m => [m.probability, m.points.at(-1)])"
    )
    [forecast] = load_predictor("argoverse2-demo")([scenes[2]])
    row = int(forecast.rows(np.array([scenes[2].focal_id]))[0])
    order = np.argsort(forecast.probability[row], kind="stable")
    assert [p for p, _ in told] == pytest.approx(forecast.probability[row, order], abs=1e-3)
    ends = forecast.trajectory[row, order, -1] - origin
    np.testing.assert_allclose([end for _, end in told], ends, atol=0.05)


def test_the_slider_moves_agents_and_the_address_follows(browser: Browser, page: Path) -> None:
    browser.open(page)
    before = browser.picture()
    assert browser.ask("get('time').textContent") == "4.9 s now"
    browser.do("get('slider').value = 80; get('slider').dispatchEvent(new Event('input'))")
    assert (browser.picture() != before).any()
    assert "now + 3.1 s" in browser.ask("get('time').textContent")
    assert browser.ask("location.hash").endswith("&t=8.0")
    browser.do("setStep(state.scene.now)")
    np.testing.assert_array_equal(browser.picture(), before)


def test_play_runs_to_the_end_and_stops(browser: Browser, page: Path) -> None:
    browser.open(page, "")
    browser.do("setStep(state.scene.last - 5)")
    browser.key(" ")
    assert browser.ask("state.playing")
    browser.wait("!state.playing")
    assert browser.ask("state.step === state.scene.last")


def test_the_list_filters_sorts_and_opens(browser: Browser, page: Path, scenes: list[Scenario]) -> None:
    browser.open(page)
    everything = shown(browser)
    values = browser.ask("state.shown.map(i => index.scenes[i].metrics[0][1])")
    assert len(everything) == 3 and values == sorted(values, reverse=True)
    browser.do("get('order').click()")
    assert shown(browser) == everything[::-1]
    browser.do("get('order').click()")
    cities = {scene.scenario_id: scene.city for scene in scenes}
    city = "pittsburgh"
    browser.do(f"get('fact-city').value = '{city}'; get('fact-city').dispatchEvent(new Event('change'))")
    assert shown(browser) == [name for name in everything if cities[name] == city] != everything
    browser.do("get('fact-city').value = ''; get('fact-city').dispatchEvent(new Event('change'))")
    middle = (values[0] + values[1]) / 2
    browser.do(f"get('low').value = {middle}; get('low').dispatchEvent(new Event('input'))")
    assert shown(browser) == everything[:1]
    browser.do("get('low').value = ''; get('low').dispatchEvent(new Event('input'))")
    search = "get('search').value = '{0}'; get('search').dispatchEvent(new Event('input'))"
    browser.do(search.format(everything[1][:8].upper()))
    assert shown(browser) == everything[1:2]
    browser.do("document.querySelector('#list button').click()")
    browser.wait(f"state.scene.id === '{everything[1]}'")
    browser.do(search.format("no such scenario"))
    assert shown(browser) == [] and browser.errors == []


@pytest.mark.parametrize("layer", ["map", "agents", "history", "truth", "modes", "others", "band", "labels"])
def test_every_layer_can_be_hidden(browser: Browser, page: Path, layer: str) -> None:
    browser.open(page, "#scene=7f6920a4-da68-51ad-97ee-8f327a728473&t=6.0")
    before = browser.picture()
    browser.do(f"get('layer-{layer}').click()")
    assert (browser.picture() != before).any()
    browser.do(f"get('layer-{layer}').click()")
    np.testing.assert_array_equal(browser.picture(), before)


def test_a_link_leads_to_scene_and_time(browser: Browser, page: Path, scenes: list[Scenario]) -> None:
    for scene in scenes[:2]:
        browser.open(page, f"#scene={scene.scenario_id}&t=4.2")
        assert browser.ask("[state.scene.id, state.step]") == [scene.scenario_id, 42]
    browser.do(f"location.hash = '#scene={scenes[2].scenario_id}&t=7.5'")
    browser.wait(f"state.scene.id === '{scenes[2].scenario_id}' && state.step === 75")
    for wrong in ("#scene=unknown&t=x", "#t=99999", "#%"):
        browser.open(page, wrong)
        assert browser.errors == []


def test_keys_step_time_and_change_scene(browser: Browser, page: Path) -> None:
    browser.open(page)
    for key, step in (("ArrowRight", 50), ("ArrowLeft", 49), ("Home", 0), ("End", 109)):
        browser.key(key)
        assert browser.ask("state.step") == step, key
    first, second = browser.ask("state.shown.slice(0, 2)")
    browser.key("j")
    browser.wait(f"state.number === {second} && state.scene.id === index.scenes[{second}].id")
    browser.key("k")
    browser.wait(f"state.number === {first} && state.scene.id === index.scenes[{first}].id")
    browser.do("get('search').focus()")
    browser.key("j")
    assert browser.ask("[state.number, get('search').value]") == [first, "j"], "letters are for the field"
