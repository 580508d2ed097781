"""Headless Chromium, controlled through its debugging pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: Marks of test modules that use a browser.
IN_BROWSER = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="no pipes to the browser on Windows"),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium"),
]
#: Address of the scene of the fixture ``scenes`` whose focal agent turns.
TURN = "#scene=7f6920a4-da68-51ad-97ee-8f327a728473"
#: Seconds until an unresponsive browser fails the test.
TIMEOUT_S = 60.0


class Browser:
    """One tab, with JSON messages terminated by a zero byte in its files 3 (input) and 4 (output)."""

    def __init__(self, folder: Path) -> None:
        (self.reading, self.writing), ends = _pipes()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
        options += ["--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        self.process = subprocess.Popen(
            [str(CHROMIUM), *options, "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=lambda: [os.dup2(end, 3 + i) for i, end in enumerate(ends)],
        )
        for end in ends:
            os.close(end)
        os.set_blocking(self.reading, False)
        self.rest, self.number, self.session = b"", 0, ""
        #: Errors and warnings of the page, and its network requests.
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
        """Return the result of a command of the DevTools protocol."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self.number:
            self._record(answer.get("method"), answer.get("params", {}))
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        until = time.monotonic() + TIMEOUT_S
        while b"\0" not in self.rest:
            assert time.monotonic() < until, "the browser does not answer"
            try:
                self.rest += os.read(self.reading, 1 << 20)
            except BlockingIOError:
                time.sleep(0.005)
        line, self.rest = self.rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def _record(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:800])
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(json.dumps(params["args"])[:800])
        if method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self("Emulation.setDeviceMetricsOverride", **metrics)

    def prefer(self, theme: str) -> None:
        self("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def open(self, path: Path, hash: str = "") -> None:
        self("Page.navigate", url="about:blank")
        self.errors.clear()
        self.requests.clear()
        self("Page.navigate", url=path.as_uri() + hash)
        self.wait("typeof state !== 'undefined' && state.scene !== null")
        self.do("0")

    def ask(self, expression: str) -> Any:
        """Return the value of JavaScript, awaiting promises."""
        answer = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        until = time.monotonic() + TIMEOUT_S
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


def _pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Return our (reading, writing) ends and the browser's, the latter numbered above 4."""
    import fcntl  # missing on Windows, where this module is imported too

    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    moved = []
    for end in (their_in, their_out):
        moved.append(fcntl.fcntl(end, fcntl.F_DUPFD, 10))
        os.close(end)
    return (our_in, our_out), (moved[0], moved[1])
