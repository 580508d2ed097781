"""Headless Chromium, controlled through Playwright."""

from __future__ import annotations

import base64
import shutil
import time
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib.image import imread

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium")
#: Marks of test modules that use a browser.
IN_BROWSER = [pytest.mark.slow, needs_chromium]
#: Seconds after which what a test waits for will not come.
WAIT_S = 30
#: Address of the scene of the fixture ``scenes`` whose focal agent turns.
TURN = "#scene=7f6920a4-da68-51ad-97ee-8f327a728473"


class Browser:
    """One tab, with the errors, warnings and network requests of the page it shows."""

    def __init__(self, page: Page) -> None:
        self.page, self.mouse = page, page.mouse
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._record)
        page.on("request", lambda request: self.requests.append(request.url))
        self.size(1280, 800)

    def _record(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def size(self, width: int, height: int) -> None:
        self.page.set_viewport_size({"width": width, "height": height})

    def open(self, path: Path, hash: str = "") -> None:
        self.page.goto("about:blank")
        self.errors.clear()
        self.requests.clear()
        self.page.goto(path.as_uri() + hash)
        self.wait("typeof state !== 'undefined' && state.scene !== null")
        self.do("0")

    def ask(self, expression: str) -> Any:
        """Return the value of JavaScript, awaiting promises."""
        return self.page.evaluate(expression)

    def wait(self, expression: str) -> None:
        """Wait until JavaScript is true; Playwright's own way is forbidden on pages that forbid `eval`."""
        deadline = time.monotonic() + WAIT_S
        while not self.ask(f"Boolean({expression})"):
            assert time.monotonic() < deadline, expression
            self.page.wait_for_timeout(20)

    def do(self, expression: str) -> None:
        """Run JavaScript and wait until the page is drawn again."""
        self.ask(expression)
        self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def key(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.do("0")

    def at(self, point: str) -> tuple[float, float]:
        """Return where a JavaScript point in metres lies in the window."""
        corner = "panes[0].canvas.getBoundingClientRect()"
        x, y = self.ask(f"(([x, y], r) => [x + r.left, y + r.top])(panes[0].toPixels({point}), {corner})")
        return x, y

    def picture(self) -> np.ndarray:
        """Return the pixels ``[H, W, channels]`` of the first canvas."""
        data = self.ask("panes[0].canvas.toDataURL().split(',')[1]")
        return np.asarray(imread(BytesIO(base64.b64decode(data)), format="png"))


def enter(browser: Browser, element: str, value: object, event: str = "input") -> None:
    """Set the value of a form's element, as typing does."""
    browser.do(f"get('{element}').value = '{value}'; get('{element}').dispatchEvent(new Event('{event}'))")
