"""A local S3 server (moto) with a small data set, and a proxy that injects faults. Loopback only."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

BUCKET = "sets"
PREFIX = "datasets/av2/motion-forecasting"
SCENARIOS = {"train": 12, "val": 3, "test": 2}


def contents() -> dict[str, bytes]:
    """Return every file of a small data set."""
    rng = np.random.default_rng(0)
    files = {}
    for split, count in SCENARIOS.items():
        for number in range(count):
            name = f"scene-{number:03d}"
            files[f"{split}/{name}/scenario_{name}.parquet"] = rng.bytes(3_000)
            files[f"{split}/{name}/log_map_archive_{name}.json"] = rng.bytes(20_000)
    return files


FILES = contents()


class Proxy(ThreadingHTTPServer):
    """Forwards GET requests to ``upstream``.

    Attributes:
        faults: for each path below the prefix ("list" for listings) the faults of its next requests.
        requests: number of requests for each.
        page: objects per listing request; small, so that every listing has several pages.
        delay_s: before each object.
        rewrite: changes the body of listings.
    """

    daemon_threads = True

    def __init__(self, upstream: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream = upstream
        self.faults: dict[str, list[str]] = {}
        self.requests: Counter[str] = Counter()
        self.page = 5
        self.delay_s = 0.0
        self.rewrite = lambda body: body

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect, which is part of the tests."""


class Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet

    def do_GET(self) -> None:
        listing = "list-type=2" in self.path
        name = "list" if listing else self.path.split(f"{PREFIX}/")[-1]
        self.server.requests[name] += 1
        waiting = self.server.faults.get(name)
        fault = waiting.pop(0) if waiting else ""
        if fault == "drop":
            self.close_connection = True
            return
        if not listing:
            time.sleep(self.server.delay_s)
        upstream = http.client.HTTPConnection(*self.server.upstream)
        query = f"&max-keys={self.server.page}" if listing else ""
        upstream.request("GET", self.path + query)
        response = upstream.getresponse()
        body = response.read()
        upstream.close()
        if listing:
            body = self.server.rewrite(body)
        self.answer(fault, response.status, body, response.getheader("ETag"))

    def answer(self, fault: str, status: int, body: bytes, tag: str | None) -> None:
        half = len(body) // 2
        if fault == "short":
            body = body[:half]
        if fault == "corrupt":
            body = bytes(255 - byte for byte in body)
        self.send_response(503 if fault == "busy" else status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Wed, 01 Feb 2023 00:00:00 GMT")
        self.send_header("ETag", tag or '"none"')
        self.end_headers()
        self.wfile.write(body[:half] if fault == "cut" else body)
        self.close_connection = fault == "cut"

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def s3_server() -> Iterator[Any]:
    """Yield an S3 client, for uploads, of a server that contains the data set."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        region_name="us-east-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",
    )
    client.create_bucket(Bucket=BUCKET)
    for path, content in FILES.items():
        client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{path}", Body=content, ACL="public-read")
    # These belong to no scenario of the split; the last name has a split's as its prefix.
    client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/train/", Body=b"")
    client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/train/readme.txt", Body=b"hello")
    client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/train-old/scene/x.json", Body=b"old")
    client.address = (host, port)
    try:
        yield client
    finally:
        server.stop()


@contextmanager
def running(upstream: tuple[str, int]) -> Iterator[Proxy]:
    """Yield a proxy that answers requests."""
    server = Proxy(upstream)
    options = {"poll_interval": 0.02}
    thread = threading.Thread(target=server.serve_forever, kwargs=options, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
