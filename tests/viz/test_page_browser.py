"""The page in a real browser: every control works, also by keys, nothing is cut, requested or logged."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from tests.conftest import SAMPLE
from tests.viz.browser import IN_BROWSER, TURN, Browser, enter
from trajpred.data.scenario import Scenario
from trajpred.evaluation.table import bootstrap
from trajpred.predictors import Predictor, load_predictor
from trajpred.predictors.derived import StreamedPredictor
from trajpred.sources.argoverse2 import read_scenario
from trajpred.viz.labels import place_labels
from trajpred.viz.page import write_page

pytestmark = IN_BROWSER


@pytest.fixture(autouse=True)
def no_errors(browser: Browser) -> Iterator[None]:
    """Nothing is logged in any test."""
    yield
    assert browser.errors == []


def listed(browser: Browser) -> list[str]:
    ids: list[str] = browser.ask("[...document.querySelectorAll('#list .id')].map(e => e.textContent)")
    return ids


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_loads_from_disk_without_errors_or_network(browser: Browser, page: Path, theme: str) -> None:
    browser.page.emulate_media(color_scheme=theme)
    browser.open(page)
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
        [forecast] = model([scenes[2].window(later=-back)])
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


def test_agents_without_a_future_stay_at_their_last_state(browser: Browser, tmp_path: Path) -> None:
    scene, predictor = read_scenario(next((SAMPLE / "test").iterdir())), load_predictor("constant_velocity")
    browser.open(write_page(tmp_path / "test.html", [scene], [predictor]))
    assert browser.ask("[state.scene.recorded(80), state.scene.last]") == [49, 109]
    browser.do("setStep(80)")
    assert browser.ask("visibleTracks(panes[0], state.scene, state.scene.recorded(80), true).length") > 1
    assert "no true future" in browser.ask("document.querySelector('.summary').innerText")


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


def test_labels_are_placed_as_in_pictures(browser: Browser, page: Path) -> None:
    """Crowded labels at random: the script chooses the same positions and leader lines as Python."""
    browser.open(page)
    rng = np.random.default_rng(0)
    anchors = rng.normal(0, 20, (14, 2))
    directions = rng.uniform(-np.pi, np.pi, 14)
    sizes = np.stack((rng.uniform(8, 50, 14), np.full(14, 8.0)), axis=-1)
    points = rng.normal(0, 30, (200, 2))
    blocked = np.array([[0.0, 0.0, 9.0, 5.0], [-60.0, -60.0, 20.0, 8.0]])
    given = [part.tolist() for part in (anchors, directions, sizes / 2, points, blocked)]
    placed = browser.ask(f"""(([anchors, directions, halves, points, boxes]) => {{
        const marks = [...boxes, ...anchors.map((anchor) => [...anchor, 0, 0])];
        return anchors.map((anchor, i) => {{
          const clutter = {{ points, anchors, marks, boxes, window: [70, 70] }};
          const found = placeLabel(anchor, directions[i], halves[i], clutter);
          if (!found) return [null, null, false];
          boxes.push([...found.center, ...halves[i]]);
          if (found.line) points.push(...found.line);
          return [...found.center, Boolean(found.line)];
        }});
    }})({given})""")
    centres, leaders = place_labels(anchors, directions, sizes, points, blocked, 70.0)
    found = np.array(placed, np.float64)
    np.testing.assert_allclose(found[:, :2], centres, atol=1e-6)
    assert found[:, 2].tolist() == leaders.tolist()
    assert np.isfinite(centres[:, 0]).sum() > 4
    assert leaders.any()
