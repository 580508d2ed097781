"""The web page in a real browser: Chromium without a window, spoken to through its debugging pipe."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from tests.conftest import SAMPLE
from trajpred.evaluation import load_predictor
from trajpred.scenario import Scenario
from trajpred.sources.argoverse2 import read_scenario
from trajpred.viz.page import write_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt install chromium"),
]
#: Seconds until a browser that does not answer is given up.
PATIENCE_S = 60.0


class Browser:
    """One tab. Messages are JSON that end with a zero byte: written to its file 3, read from its file 4."""

    def __init__(self, folder: Path) -> None:
        ours, theirs = _pipes()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
        options += ["--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        self.process = subprocess.Popen(
            [str(CHROMIUM), *options, "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=lambda: [os.dup2(end, 3 + i) for i, end in enumerate(theirs)],
        )
        for end in theirs:
            os.close(end)
        self.reading, self.writing = ours
        os.set_blocking(self.reading, False)
        self.rest, self.number, self.session = b"", 0, ""
        #: What went wrong in the page, and what it asked the network for.
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")
        self.size(1280, 800)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.reading)
        os.close(self.writing)

    def __call__(self, method: str, **params: Any) -> Any:
        """The result of a command of the DevTools protocol."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self.rest:
            assert time.monotonic() < until, "the browser does not answer"
            try:
                self.rest += os.read(self.reading, 1 << 20)
            except BlockingIOError:
                time.sleep(0.005)
        line, self.rest = self.rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:800])
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(json.dumps(params["args"])[:800])
        if method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def size(self, width: int, height: int) -> None:
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, theme: str) -> None:
        self("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def open(self, path: Path, hash: str = "") -> None:
        self("Page.navigate", url="about:blank")
        self.errors.clear()
        self.requests.clear()
        self("Page.navigate", url=path.as_uri() + hash)
        self.wait("typeof state !== 'undefined' && state.scene !== null")

    def ask(self, expression: str) -> Any:
        """The value of JavaScript; promises are awaited."""
        told = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait(self, expression: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self.ask(expression):
            assert time.monotonic() < until, expression
            time.sleep(0.05)

    def do(self, expression: str) -> None:
        """Run JavaScript and wait until the page is drawn again."""
        self.ask(expression)
        self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.do("0")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.do("0")

    def png(self) -> bytes:
        return base64.b64decode(self("Page.captureScreenshot", format="png")["data"])

    def picture(self) -> np.ndarray:
        """The first canvas as pixels ``[H, W, channels]``."""
        data = self.ask("panes[0].canvas.toDataURL().split(',')[1]")
        return np.asarray(imread(BytesIO(base64.b64decode(data)), format="png"))


def _pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """(our reading end, our writing end) and (the browser's), both of the latter above 4."""
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    moved = []
    for end in (their_in, their_out):
        moved.append(fcntl.fcntl(end, fcntl.F_DUPFD, 10))
        os.close(end)
    return (our_in, our_out), (moved[0], moved[1])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    opened.prefer("light")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def scenes() -> list[Scenario]:
    """Two cities, a car that stands, a car that turns, and one that goes straight."""
    names = ["val/0a1e6f0a", "train/0000b0f9", "val/7f6920a4"]
    return [read_scenario(next((SAMPLE / n.split("/")[0]).glob(n.split("/")[1] + "*"))) for n in names]


@pytest.fixture(scope="module")
def page(scenes: list[Scenario], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one model that ships: it tells scales."""
    path = tmp_path_factory.mktemp("page") / "one model.html"
    return write_page(path, scenes, [load_predictor("argoverse2-demo")], progress=False)


@pytest.fixture(scope="module")
def both(scenes: list[Scenario], tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = [load_predictor(name) for name in ("constant_velocity", "lane_following")]
    return write_page(tmp_path_factory.mktemp("page") / "both.html", scenes, models, progress=False)


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


def at(browser: Browser, point: str) -> tuple[float, float]:
    """Where a point in metres, given in JavaScript, lies in the window."""
    corner = "panes[0].canvas.getBoundingClientRect()"
    x, y = browser.ask(f"(([x, y], r) => [x + r.left, y + r.top])(panes[0].toPixels({point}), {corner})")
    return x, y


def test_pointing_tells_numbers_and_a_click_chooses(browser: Browser, page: Path) -> None:
    browser.open(page, "#scene=7f6920a4-da68-51ad-97ee-8f327a728473")
    bus = browser.ask("state.scene.type.indexOf('bus')")
    place = at(browser, f"state.scene.place({bus}, state.step)")
    browser.mouse("mouseMoved", *place)
    said = browser.ask("get('tip').innerText")
    assert "bus" in said and "m/s" in said and browser.ask(f"state.scene.track_id[{bus}]") in said
    for kind in ("mousePressed", "mouseReleased"):
        browser.mouse(kind, *place, button="left", clickCount=1)
    assert browser.ask("state.selected") == bus
    browser.do("select(state.scene.focal)")
    browser.mouse(
        "mouseMoved", *at(browser, "modesOf(state.scene, 0, state.scene.focal).at(-1).points.at(-1)")
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
