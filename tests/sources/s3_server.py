"""A bucket with a small data set, served as S3 serves it, with faults. Loopback only.

It answers the two requests that reading a public bucket takes, `ListObjectsV2` and `GetObject`, as the S3 API
reference describes them; its signatures, uploads and versions are left out.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

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


class Stored(NamedTuple):
    """An object of the bucket; one that was uploaded in parts has another ETag than its MD5."""

    body: bytes
    public: bool = True
    parts: int = 0

    @property
    def tag(self) -> str:
        md5 = hashlib.md5(self.body, usedforsecurity=False)
        if not self.parts:
            return md5.hexdigest()
        of_parts = hashlib.md5(md5.digest(), usedforsecurity=False)
        return f"{of_parts.hexdigest()}-{self.parts}"


class Server(ThreadingHTTPServer):
    """Serves one bucket.

    Attributes:
        objects: by key.
        faults: for each path below the prefix ("list" for listings) the faults of its next requests.
        requests: number of requests for each.
        page: objects per listing request; small, so that every listing has several pages.
        delay_s: before each object.
        rewrite: changes the body of listings.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects = {f"{PREFIX}/{path}": Stored(content) for path, content in FILES.items()}
        # These belong to no scenario of the split; the last name has a split's as its prefix.
        self.objects[f"{PREFIX}/train/"] = Stored(b"")
        self.objects[f"{PREFIX}/train/readme.txt"] = Stored(b"hello")
        self.objects[f"{PREFIX}/train-old/scene/x.json"] = Stored(b"old")
        self.faults: dict[str, list[str]] = {}
        self.requests: Counter[str] = Counter()
        self.page = 5
        self.delay_s = 0.0
        self.rewrite = lambda body: body

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def listing(self, prefix: str, after: str) -> bytes:
        """Return a page of the keys with a prefix, in order, that follow ``after``."""
        keys = [key for key in sorted(self.objects) if key.startswith(prefix) and key > after]
        page = keys[: self.page]
        cut_off = len(keys) > len(page)
        body = f"<Name>{BUCKET}</Name><IsTruncated>{str(cut_off).lower()}</IsTruncated>"
        for key in page:
            stored = self.objects[key]
            times = "<LastModified>2023-02-01T00:00:00.000Z</LastModified>"
            size = f"<Size>{len(stored.body)}</Size>"
            body += f'<Contents><Key>{escape(key)}</Key>{times}<ETag>"{stored.tag}"</ETag>{size}</Contents>'
        if cut_off:
            body += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        return f"<ListBucketResult>{body}</ListBucketResult>".encode()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect, which is part of the tests."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        bucket, _, key = unquote(url.path).strip("/").partition("/")
        listing = query.get("list-type") == "2"
        name = "list" if listing else key.removeprefix(f"{PREFIX}/")
        self.server.requests[name] += 1
        waiting = self.server.faults.get(name)
        fault = waiting.pop(0) if waiting else ""
        if fault == "drop":
            self.close_connection = True
            return
        if bucket != BUCKET:
            self.answer(fault, 404, b"<Error><Code>NoSuchBucket</Code></Error>")
        elif listing:
            after = query.get("continuation-token", query.get("start-after", ""))
            page = self.server.listing(query.get("prefix", ""), after)
            self.answer(fault, 200, self.server.rewrite(page))
        else:
            time.sleep(self.server.delay_s)
            stored = self.server.objects.get(key)
            if stored is None:
                self.answer(fault, 404, b"<Error><Code>NoSuchKey</Code></Error>")
            elif not stored.public:
                self.answer(fault, 403, b"<Error><Code>AccessDenied</Code></Error>")
            else:
                self.answer(fault, 200, stored.body, stored.tag)

    def answer(self, fault: str, status: int, body: bytes, tag: str = "none") -> None:
        half = len(body) // 2
        if fault == "short":
            body = body[:half]
        if fault == "corrupt":
            body = bytes(255 - byte for byte in body)
        self.send_response(503 if fault == "busy" else status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Wed, 01 Feb 2023 00:00:00 GMT")
        self.send_header("ETag", f'"{tag}"')
        self.end_headers()
        self.wfile.write(body[:half] if fault == "cut" else body)
        self.close_connection = fault == "cut"

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def s3_server() -> Iterator[Server]:
    """Yield a server that answers requests."""
    server = Server()
    options = {"poll_interval": 0.02}
    thread = threading.Thread(target=server.serve_forever, kwargs=options, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
