"""Downloading from a local S3 server (moto) through a proxy that injects faults. Loopback only."""

from __future__ import annotations

import errno
import http.client
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trajpred.sources.download as module
from tests.conftest import ROOT
from trajpred.cli.main import main
from trajpred.errors import DataError
from trajpred.sources.download import Summary, download

pytest.importorskip("obstore", reason="obstore is not installed: pip install -e '.[dev]'")
pytest.importorskip("moto.server", reason="moto[server] is not installed: pip install -e '.[dev]'")

BUCKET, PREFIX = "sets", "datasets/av2/motion-forecasting"
SCENARIOS = {"train": 12, "val": 3, "test": 2}
ONE = "train/scene-003/log_map_archive_scene-003.json"


def contents() -> dict[str, bytes]:
    """Return every file of a small data set."""
    rng, files = np.random.default_rng(0), {}
    for split, count in SCENARIOS.items():
        for name in (f"scene-{i:03d}" for i in range(count)):
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
        self.page, self.delay_s, self.rewrite = 5, 0.0, lambda body: body

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
        upstream.request("GET", self.path + (f"&max-keys={self.server.page}" if listing else ""))
        response = upstream.getresponse()
        body, status = response.read(), response.status
        upstream.close()
        body = self.server.rewrite(body) if listing else body
        self.answer(fault, status, body, response.getheader("ETag"))

    def answer(self, fault: str, status: int, body: bytes, tag: str | None) -> None:
        changed = {"short": body[: len(body) // 2], "corrupt": bytes(255 - byte for byte in body)}
        body = changed.get(fault, body)
        self.send_response(503 if fault == "busy" else status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Wed, 01 Feb 2023 00:00:00 GMT")
        self.send_header("ETag", tag or '"none"')
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if fault == "cut" else body)
        self.close_connection = fault == "cut"

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """Return an S3 client, for uploads, of a server that contains the data set."""
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
    yield client
    server.stop()


@pytest.fixture
def proxy(s3: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Proxy(s3.address)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def get(proxy: Proxy, out: Path, **options: Any) -> Summary:
    given = {"endpoint": proxy.url, "bucket": BUCKET, "prefix": PREFIX}
    given |= {"pause_s": 0.001, "retries": 4, "workers": 4, "progress": False}
    return download(out, **given | options)


def tree(folder: Path) -> dict[str, bytes]:
    """Return the files below ``folder``, without those that a killed run left unfinished."""
    found = (path for path in folder.rglob("[!.]*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def command(proxy: Proxy, out: Path, *more: str) -> list[str]:
    where = ["--endpoint", proxy.url, "--bucket", BUCKET, "--prefix", PREFIX]
    return ["--out", str(out), *where, *more]


def test_all_files_arrive_once_and_are_kept_while_they_are_sound(proxy: Proxy, tmp_path: Path) -> None:
    out = tmp_path / "a folder with spaces"
    summary = get(proxy, out)
    assert tree(out) == FILES
    size = sum(map(len, FILES.values()))
    assert (summary.fetched, summary.fetched_bytes, summary.kept) == (len(FILES), size, 0)
    again = get(proxy, out)
    assert (again.fetched, again.fetched_bytes, again.kept) == (0, 0, len(FILES))
    assert {proxy.requests[path] for path in FILES} == {1}
    assert proxy.requests["list"] >= 2 * len(FILES) // proxy.page
    first, second, third, *_ = sorted(FILES)
    (out / first).write_bytes(bytes(len(FILES[first])))
    (out / second).write_bytes(FILES[second][:-1])
    (out / third).unlink()
    assert get(proxy, out).fetched == 3, "changed, cut and missing files"
    assert tree(out) == FILES


def test_limit_selects_the_first_scenarios_and_stops_listing(proxy: Proxy, tmp_path: Path) -> None:
    get(proxy, tmp_path, splits=["train", "test"], limit=2)
    assert set(tree(tmp_path)) == {path for path in FILES if re.match(r"(train|test)/scene-00[01]/", path)}
    assert proxy.requests["list"] <= 6  # of eight pages


def test_faulty_responses_are_repeated(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", proxy.page)
    faults = ("drop", "cut", "short", "corrupt", "busy")
    proxy.faults = {path: [faults[i % 5]] * (1 + i % 2) for i, path in enumerate(sorted(FILES)) if i % 3}
    proxy.faults["list"] = ["", "", "drop", "", "cut", "busy"]
    summary = get(proxy, tmp_path)
    assert (summary.fetched, summary.kept, summary.failed) == (len(FILES), 0, {})  # nothing is listed twice
    assert tree(tmp_path) == FILES
    assert all(not faults for faults in proxy.faults.values())


def test_files_that_stay_faulty_are_reported_and_never_kept(proxy: Proxy, tmp_path: Path) -> None:
    problems = {"corrupt": "checksum", "short": "10000 bytes, 20000 are listed", "cut": "", "busy": ""}
    paths = {f"train/scene-00{i}/log_map_archive_scene-00{i}.json": one for i, one in enumerate(problems)}
    proxy.faults = {path: [fault] * 99 for path, fault in paths.items()}
    summary = get(proxy, tmp_path, splits=["train"])
    assert summary.failed.keys() == paths.keys()
    for path, fault in paths.items():
        assert problems[fault] in summary.failed[path] and "\n" not in summary.failed[path]
    expected = {path for path in FILES if path.startswith("train")} - paths.keys()
    assert tree(tmp_path) == {path: FILES[path] for path in expected}


def test_files_uploaded_in_parts_are_verified_by_size(s3: Any, proxy: Proxy, tmp_path: Path) -> None:
    key, body = "parts/train/scene/big.bin", b"x" * 5_000
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key=key, ACL="public-read")["UploadId"]
    where = {"Bucket": BUCKET, "Key": key, "UploadId": upload}
    tag = s3.upload_part(**where, PartNumber=1, Body=body)["ETag"]
    s3.complete_multipart_upload(**where, MultipartUpload={"Parts": [{"ETag": tag, "PartNumber": 1}]})
    for expected in (1, 0):
        assert get(proxy, tmp_path, prefix="parts", splits=["train"]).fetched == expected
    assert tree(tmp_path) == {"train/scene/big.bin": body}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"bucket": "nowhere"}, "'bucket'.*/nowhere cannot be listed: .*404 Not Found"),
        ({"prefix": "nowhere"}, "'prefix'.*no scenario below nowhere/train/"),
        ({"splits": ["val", "tests"]}, "'prefix'.*no scenario below .*/tests/"),
        ({"endpoint": "http://127.0.0.1:9", "retries": 0}, "'bucket'.*:9/sets cannot be listed"),
        ({"endpoint": "nonsense"}, "'endpoint'"),
        ({"limit": 0}, "'limit'"),
        ({"workers": 0}, "'workers'"),
    ],
)
def test_invalid_arguments_are_reported_in_one_sentence(
    proxy: Proxy, tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        get(proxy, tmp_path / "out", **({"endpoint": proxy.url} | options))
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_keys_outside_the_target_folder_are_rejected(proxy: Proxy, tmp_path: Path) -> None:
    proxy.rewrite = lambda body: body.replace(b"train/scene-003/", b"train/../scene-3/")
    with pytest.raises(DataError):
        get(proxy, tmp_path / "out")
    assert tree(tmp_path) == {}


def test_too_little_space_is_reported_before_the_first_file(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get(proxy, tmp_path, splits=["val", "test"])
    usage = type(shutil.disk_usage(tmp_path))
    missing = [len(content) for path, content in FILES.items() if path.startswith("train/")]
    blocks = 4096 * sum(-(-size // 4096) for size in missing)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - blocks + 1, blocks - 1))
    proxy.requests.clear()
    with pytest.raises(DataError, match=r"not enough disk space: 24 files of 0\.00 GB are missing"):
        get(proxy, tmp_path)
    assert set(proxy.requests) == {"list"}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - blocks, blocks))
    assert get(proxy, tmp_path).fetched == len(missing)


def test_a_disk_that_fills_up_stops_the_download_at_once(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = Path.write_bytes, [0]

    def full(path: Path, content: bytes) -> int:
        written[0] += 1
        if written[0] <= 5:
            return write(path, content)
        write(path, content[:10])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    proxy.faults = {ONE: ["busy"] * 99}  # a request that waits for its next retry does not delay the end
    start = time.monotonic()
    with pytest.raises(DataError, match=r"No space left on device.*the same command continues"):
        get(proxy, tmp_path, pause_s=15)
    assert time.monotonic() - start < 10
    found = tree(tmp_path)
    assert len(found) <= 5 and all(FILES[path] == content for path, content in found.items())
    monkeypatch.undo()
    proxy.faults.clear()
    get(proxy, tmp_path)
    assert tree(tmp_path) == FILES


def test_refused_and_deleted_objects_are_requested_once(s3: Any, proxy: Proxy, tmp_path: Path) -> None:
    s3.put_object(Bucket=BUCKET, Key="refused/val/scene/closed.json", Body=b"private")
    s3.put_object(Bucket=BUCKET, Key="refused/val/scene/moved.json", Body=b"moved")
    s3.put_object(Bucket=BUCKET, Key="refused/val/scene/open.json", Body=b"public", ACL="public-read")
    proxy.rewrite = lambda body: body.replace(b"moved.json", b"other.json")
    summary = get(proxy, tmp_path, prefix="refused", splits=["val"])
    assert {path: problem[-13:] for path, problem in summary.failed.items()} == {
        "val/scene/closed.json": "403 Forbidden",
        "val/scene/other.json": "404 Not Found",
    }
    assert {count for path, count in proxy.requests.items() if path != "list"} == {1}
    assert tree(tmp_path) == {"val/scene/open.json": b"public"}


def test_the_download_is_given_up_when_every_file_fails(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_IN_A_ROW", 5)
    proxy.faults = {path: ["drop"] * 99 for path in FILES}
    with pytest.raises(DataError, match="5 files in a row failed"):
        get(proxy, tmp_path, retries=1)
    assert sum(proxy.requests[path] for path in FILES) < 2 * len(FILES)


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to send")
@pytest.mark.parametrize("stop", ["SIGINT", pytest.param("SIGKILL", marks=pytest.mark.slow)])
def test_interrupted_runs_continue(proxy: Proxy, tmp_path: Path, stop: str) -> None:
    proxy.delay_s, out = 0.1, tmp_path / "out"
    line = [sys.executable, str(ROOT / "tools" / "download.py"), *command(proxy, out, "--workers", "2")]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    while len(list(out.rglob("[!.]*.*"))) < 6 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.Signals[stop])
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if stop == "SIGINT" else -signal.SIGKILL)
    assert ("the same command continues" in errors) == (stop == "SIGINT")
    done = tree(out)
    assert 6 <= len(done) < len(FILES) and done.items() <= FILES.items()
    proxy.delay_s = 0.0
    proxy.requests.clear()
    assert get(proxy, out).fetched == len(FILES) - len(done)
    assert not done.keys() & set(proxy.requests)
    assert tree(out) == FILES


def test_the_command_reports_what_failed(
    proxy: Proxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An object that was deleted after it was listed."""
    for code, name in ((0, "001.parquet"), (1, "gone.parquet")):
        proxy.rewrite = lambda body, name=name: body.replace(b"scene-001.parquet", f"scene-{name}".encode())
        with pytest.raises(SystemExit) as stop:
            main("download", command(proxy, tmp_path / name, "--split", "val", "test", "--limit", "2"))
        assert stop.value.code == code
        written = capsys.readouterr()
        assert f"{8 - 2 * code} files fetched (0.00 GB), 0 kept" in written.out
        assert ("val/scene-001/scenario_scene-gone.parquet" in written.err) == bool(code)


def test_a_missing_client_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(DataError, match="pip install 'obstore"):
        download(tmp_path)
