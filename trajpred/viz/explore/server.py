"""The page on which models answer edits of scenarios, served only to this machine."""

from __future__ import annotations

import json
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from trajpred.data.scenario import Scenario
from trajpred.errors import DataError, quoted, require
from trajpred.predictors.predictor import Predictor
from trajpred.viz.explore import apply, at_step
from trajpred.viz.page import model_results, pack_page, page_html, to_json
from trajpred.viz.page.data import ModelResult, pack_model, pack_tracks, pack_without
from trajpred.viz.view import focal_position

#: Only this machine can reach the server.
ADDRESS = "127.0.0.1"
#: Largest body of a request (bytes).
MAX_BODY = 1_000_000
#: Seconds during which a client that keeps sending after its answer is still read.
LINGER_S = 10.0
#: The page uses no other server, and no other page may use this one.
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' data:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",  # addresses have the token
    "X-Content-Type-Options": "nosniff",
}
#: Script that repeats an edit in Python.
SCRIPT = """from trajpred import load_predictor, plot_scenario
from trajpred.viz.explore import apply, at_step
{imports}

scenario = {reading}
changed = apply(at_step(scenario, {observed}), {edits})
for number, model in enumerate({models}):
    [forecast] = load_predictor(model)([changed])
    plot_scenario(changed, forecast).figure.savefig(f"edited_{{number}}.png")
"""


class Explorer:
    """Scenarios, the models that predict them, and the page for editing them.

    Args:
        scenarios: at least one.
        predictors: one, or two to compare, by the name or path that loads each.
        reading: returns, for scripts, the imports and the expression that read a scenario by id.
        on_error: called for each scenario that cannot be shown and is omitted.
    """

    def __init__(
        self,
        scenarios: Sequence[Scenario],
        predictors: Mapping[str, Predictor],
        reading: Callable[[str], tuple[str, str]],
        on_error: Callable[[Scenario, Exception], None] | None = None,
    ) -> None:
        self.predictors = predictors
        self.reading = reading
        self.token = secrets.token_urlsafe(16)
        self.scenarios = {scenario.scenario_id: scenario for scenario in scenarios}
        self._lock = threading.Lock()  # one forecast at a time
        # Edits of the same scenario and time follow one another.
        self._as_recorded = lru_cache(maxsize=1)(self._predict_recorded)
        models = list(predictors.values())
        index, scenes = pack_page(scenarios, models, "scenarios", on_error=on_error)
        index["token"] = self.token
        for scene in scenes:
            scenario = self.scenarios[scene["id"]]
            scene["origin"] = focal_position(scenario).tolist()
            scene["lane_id"] = scenario.map.lane_id.astype(str).tolist()
        script = (files("trajpred.viz.explore") / "explore.js").read_text(encoding="utf-8")
        self.page = page_html(index, scenes, script)

    def answer(self, request: Any) -> dict[str, Any]:
        """Predict an edited scenario.

        Args:
            request: ``scene``, an id; ``observed``, the number of steps that are input; ``edits``, those of
                :func:`apply`; ``models``, whether the page still needs the forecasts without edits.

        Returns: the changed parts of the packed scene, and the ``script`` that repeats the edits.

        Raises: DataError naming the invalid part.
        """
        require(isinstance(request, dict), "request", f"must be an object, is {quoted(request)}")
        name = request.get("scene")
        observed = request.get("observed")
        edits = request.get("edits")
        is_known = isinstance(name, str) and name in self.scenarios
        require(is_known, "scene", f"there is no scene {quoted(name)}")
        require(type(observed) is int, "observed", f"must be a whole number, is {quoted(observed)}")
        origin = focal_position(self.scenarios[name])
        with self._lock:
            recorded, results = self._as_recorded(name, observed)
            changed = apply(recorded, edits)
            shown = recorded
            without: list[dict[str, Any]] = []
            if changed is not recorded:
                # Removed tracks are still drawn.
                shown = apply(recorded, edits | {"removed": []}).without_future()
                for predictor, result in zip(self.predictors.values(), results, strict=True):
                    [forecast] = predictor([changed])
                    without.append(pack_without(shown, result.forecast, forecast, origin))
            removed = shown.tracks.indices(edits.get("removed", [])).tolist()
            reply = pack_tracks(shown, origin) | {"without": without, "removed": removed}
            if request.get("models"):
                reply["models"] = [pack_model(recorded, result, origin) for result in results]
        imports, reading = self.reading(name)
        reply["script"] = SCRIPT.format(
            imports=imports,
            reading=reading,
            observed=observed,
            edits={part: content for part, content in edits.items() if content},
            models=list(self.predictors),
        )
        return reply

    def _predict_recorded(self, name: str, observed: int) -> tuple[Scenario, list[ModelResult]]:
        """Return a scenario at a given time, and its forecasts without edits."""
        scenario = at_step(self.scenarios[name], observed)
        results = [model_results(predictor, [scenario])[0] for predictor in self.predictors.values()]
        return scenario, results


class Server(ThreadingHTTPServer):
    """Serves an :class:`Explorer` to this machine at :attr:`url`, a free port."""

    daemon_threads = True

    def __init__(self, explorer: Explorer) -> None:
        super().__init__((ADDRESS, 0), _Handler)
        self.explorer = explorer

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/?token={self.explorer.token}"

    def shutdown_request(self, request: Any) -> None:
        """Close a connection after reading what the client still sends.

        With unread data, the system would reset the connection, and the answer to a rejected body could be
        lost.
        """
        end = time.monotonic() + LINGER_S
        with suppress(OSError):
            request.shutdown(socket.SHUT_WR)
            request.settimeout(LINGER_S)
            while time.monotonic() < end and request.recv(65536):
                pass
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore that a browser has left; other errors become answers."""


class _Handler(BaseHTTPRequestHandler):
    """Answer ``GET /`` with the page, ``POST /forecast`` with a forecast, anything else with a sentence."""

    protocol_version = "HTTP/1.1"
    timeout = 30
    server: Server

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        token = parse_qs(query).get("token", [""])[0]
        if self._is_allowed(token, path, "/"):
            self._send(200, self.server.explorer.page, "text/html")

    def do_POST(self) -> None:
        """Answer an edit with a forecast, or with a sentence."""
        if not self._is_allowed(self.headers.get("X-Token", ""), self.path, "/forecast"):
            return
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,9}", length) or int(length) > MAX_BODY:
            self.send_error(413, f"the body must have a length of at most {MAX_BODY} bytes")
            return
        body = self.rfile.read(int(length))
        try:
            reply = to_json(self.server.explorer.answer(json.loads(body)))
        except DataError as error:
            self.send_error(400, str(error))
        except Exception as error:  # invalid JSON, or other packages' models, which raise anything
            self.send_error(400, f"the request cannot be answered ({type(error).__name__}: {error})")
        else:
            self._send(200, reply, "application/json")

    def _is_allowed(self, token: str, path: str, expected: str) -> bool:
        """Return whether a request comes from this server's page for ``expected``; otherwise reject it."""
        hosts = [f"{name}:{self.server.server_port}" for name in (ADDRESS, "localhost")]
        host = self.headers.get("Host", "")
        if host not in hosts:
            self.send_error(403, "this server answers only to 127.0.0.1")
        elif self.headers.get("Origin", f"http://{host}") != f"http://{host}":
            self.send_error(403, "the request comes from another page")
        elif not secrets.compare_digest(token.encode(), self.server.explorer.token.encode()):
            self.send_error(403, "the token is wrong: open the address that trajpred explore printed")
        elif path != expected:
            self.send_error(404, "there is no such page")
        else:
            return True
        return False

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with one sentence, and close the connection: the body may not have been read."""
        self.close_connection = True
        sentence = message or self.responses[code][0]
        self._send(code, to_json({"error": " ".join(sentence.split())}), "application/json")

    def _send(self, code: int, text: str, kind: str) -> None:
        """Answer with a text of the given kind."""
        content = text.encode()
        self.send_response(code)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""
