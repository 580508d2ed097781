"""Downloading from a local S3 server (moto) behind a proxy that breaks what it is told to. Loopback only."""

from __future__ import annotations

import errno
import hashlib
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
    """Every file of the made-up data set; the maps are the larger ones."""
    rng, files = np.random.default_rng(0), {}
    for split, count in SCENARIOS.items():
        for name in (f"scene-{i:03d}" for i in range(count)):
            files[f"{split}/{name}/scenario_{name}.parquet"] = rng.bytes(3_000)
            files[f"{split}/{name}/log_map_archive_{name}.json"] = rng.bytes(20_000)
    return files


FILES = contents()


class Proxy(ThreadingHTTPServer):
    """Hands GET requests on to ``upstream``.

    Attributes:
        faults: for each path below the prefix ("list" for listings) what to do to the next requests for it.
        seen: how many requests there were for each.
        page: objects per listing request; small, so that every listing has several pages.
        delay_s: before each object.
    """

    daemon_threads = True

    def __init__(self, upstream: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream = upstream
        self.faults: dict[str, list[str]] = {}
        self.seen: Counter[str] = Counter()
        self.page, self.delay_s, self.rewrite = 5, 0.0, lambda body: body

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""


class Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet

    def do_GET(self) -> None:
        listing = "list-type=2" in self.path
        name = "list" if listing else self.path.split(f"{PREFIX}/")[-1]
        self.server.seen[name] += 1
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
        """Quiet."""


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """An S3 client (for putting things there) of a server with the data set in it."""
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
    # Neither is a file of a scenario; a sibling's name starts like a split's.
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
    settings = {"bucket": BUCKET, "prefix": PREFIX, "pause_s": 0.01, "workers": 4, "progress": False}
    return download(out, endpoint=proxy.url, **(settings | options))


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder``, whatever its name."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def finished(folder: Path) -> int:
    """How many files are fetched; others appear and vanish meanwhile, so none is read."""
    return sum(path.is_file() and path.suffix != ".partial" for path in folder.rglob("*"))


def tool(proxy: Proxy, out: Path, *more: str) -> list[str]:
    where = ["--endpoint", proxy.url, "--bucket", BUCKET, "--prefix", PREFIX]
    return ["--out", str(out), *where, *more]


def test_brings_every_file_and_a_second_run_nothing(proxy: Proxy, tmp_path: Path) -> None:
    out = tmp_path / "a folder with spaces"
    summary = get(proxy, out)
    assert tree(out) == FILES
    size = sum(map(len, FILES.values()))
    assert (summary.fetched, summary.fetched_bytes, summary.kept) == (len(FILES), size, 0)
    assert {proxy.seen[path] for path in FILES} == {1}
    assert proxy.seen["list"] >= len(FILES) // proxy.page  # it did turn pages
    again = get(proxy, out)
    assert (again.fetched, again.fetched_bytes, again.kept) == (0, 0, len(FILES))
    assert {proxy.seen[path] for path in FILES} == {1}


def test_limit_takes_whole_scenarios_and_stops_listing(proxy: Proxy, tmp_path: Path) -> None:
    get(proxy, tmp_path, splits=["train", "val"], limit=2)
    expected = {path for path in FILES if re.match(r"(train|val)/scene-00[01]/", path)}
    assert set(tree(tmp_path)) == expected
    assert proxy.seen["list"] <= 6  # of eight pages: train has five or six, val two


def test_limit_beyond_the_end_takes_all(proxy: Proxy, tmp_path: Path) -> None:
    assert get(proxy, tmp_path, splits=["test"], limit=99).fetched == 2 * SCENARIOS["test"]


@pytest.mark.parametrize("fault", ["drop", "cut", "short", "corrupt", "busy"])
def test_what_breaks_on_the_way_is_fetched_again(proxy: Proxy, tmp_path: Path, fault: str) -> None:
    proxy.faults = {path: [fault] * (1 + i % 3) for i, path in enumerate(sorted(FILES)) if i % 2}
    expected = {path: 1 + len(proxy.faults.get(path, [])) for path in FILES}
    assert get(proxy, tmp_path).failed == {}
    assert tree(tmp_path) == FILES
    assert {path: proxy.seen[path] for path in FILES} == expected


@pytest.mark.parametrize("fault", ["drop", "cut", "busy"])
def test_a_broken_listing_goes_on(
    proxy: Proxy, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAGE", proxy.page)
    proxy.faults = {"list": ["", "", fault, "", fault, fault]}
    summary = get(proxy, tmp_path)
    assert (summary.fetched, summary.kept) == (len(FILES), 0)  # nothing is listed twice
    assert tree(tmp_path) == FILES


@pytest.mark.parametrize(
    ("fault", "said"),
    [("corrupt", "checksum"), ("short", "10000 bytes came, 20000 are listed"), ("cut", ""), ("busy", "")],
)
def test_what_stays_broken_is_named_and_never_kept(
    proxy: Proxy, tmp_path: Path, fault: str, said: str
) -> None:
    proxy.faults = {ONE: [fault] * 99}
    summary = get(proxy, tmp_path, attempts=3)
    assert list(summary.failed) == [ONE]
    assert said in summary.failed[ONE]
    assert summary.failed[ONE].endswith("(tries: 3)")
    assert "\n" not in summary.failed[ONE]
    assert proxy.seen[ONE] == 3
    assert tree(tmp_path) == {path: content for path, content in FILES.items() if path != ONE}
    proxy.faults.clear()
    assert get(proxy, tmp_path).fetched == 1
    assert tree(tmp_path) == FILES


def test_damaged_files_are_replaced(proxy: Proxy, tmp_path: Path) -> None:
    get(proxy, tmp_path, splits=["val"])
    first, second, third, *_ = sorted(path for path in FILES if path.startswith("val/"))
    content = FILES[first]
    (tmp_path / first).write_bytes(content[:100] + bytes(1) + content[101:])  # same size
    (tmp_path / second).write_bytes(FILES[second][:-1])
    (tmp_path / third).unlink()
    (tmp_path / f"{third}.1.partial").write_bytes(FILES[third][:50])  # left by a killed run
    assert content[100] != 0
    assert get(proxy, tmp_path, splits=["val"]).fetched == 3
    assert tree(tmp_path) == {path: c for path, c in FILES.items() if path.startswith("val/")}


def test_files_uploaded_in_parts_are_checked_by_size(s3: Any, proxy: Proxy, tmp_path: Path) -> None:
    key, body = "parts/train/scene/big.bin", b"x" * 5_000
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key=key, ACL="public-read")["UploadId"]
    where = {"Bucket": BUCKET, "Key": key, "UploadId": upload}
    tag = s3.upload_part(**where, PartNumber=1, Body=body)["ETag"]
    s3.complete_multipart_upload(**where, MultipartUpload={"Parts": [{"ETag": tag, "PartNumber": 1}]})
    assert s3.head_object(Bucket=BUCKET, Key=key)["ETag"].strip('"') != hashlib.md5(body).hexdigest()
    for expected in (1, 0):
        assert get(proxy, tmp_path, prefix="parts", splits=["train"]).fetched == expected
    assert tree(tmp_path) == {"train/scene/big.bin": body}


def test_wrong_etag_in_the_listing_fails_that_file(proxy: Proxy, tmp_path: Path) -> None:
    true = hashlib.md5(FILES[ONE]).hexdigest().encode()
    proxy.rewrite = lambda body: body.replace(true, b"0" * 32)
    summary = get(proxy, tmp_path, attempts=2)
    assert list(summary.failed) == [ONE]
    assert "checksum" in summary.failed[ONE]
    assert ONE not in tree(tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bucket": "nowhere"}, r"'bucket'.*/nowhere cannot be listed: .*404 Not Found \(tries: 1\)"),
        ({"prefix": "nowhere"}, "'prefix'.*no scenario below nowhere/train/"),
        ({"splits": ["val", "tests"]}, "'prefix'.*no scenario below .*/tests/"),
        ({"endpoint": "http://127.0.0.1:9"}, r"'bucket'.*:9/sets cannot be listed: .*\(tries: 2\)"),
        ({"endpoint": "nonsense"}, "'endpoint'"),
        ({"limit": 0}, "'limit'"),
        ({"workers": 0}, "'workers'"),
        ({"attempts": 0}, "'attempts'"),
    ],
)
def test_what_cannot_be_listed_is_said_in_one_sentence(
    proxy: Proxy, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    endpoint = options.pop("endpoint", proxy.url)
    settings = {"bucket": BUCKET, "prefix": PREFIX, "attempts": 2, "pause_s": 0.01, "progress": False}
    with pytest.raises(DataError, match=said) as caught:
        download(tmp_path / "out", endpoint=endpoint, **(settings | options))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_keys_that_lead_elsewhere_are_refused(proxy: Proxy, tmp_path: Path) -> None:
    proxy.rewrite = lambda body: body.replace(b"train/scene-003/", b"train/../scene-3/")
    with pytest.raises(DataError):
        get(proxy, tmp_path / "out")
    assert tree(tmp_path) == {}


def test_full_disk_is_said_before_anything_is_fetched(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get(proxy, tmp_path, splits=["val", "test"])
    usage = type(shutil.disk_usage(tmp_path))
    missing = [len(content) for path, content in FILES.items() if path.startswith("train/")]
    blocks = 4096 * sum(-(-size // 4096) for size in missing)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - blocks + 1, blocks - 1))
    proxy.seen.clear()
    with pytest.raises(DataError, match=r"not enough disk space: 24 files of 0\.00 GB are missing"):
        get(proxy, tmp_path)
    assert set(proxy.seen) == {"list"}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - blocks, blocks))
    assert get(proxy, tmp_path).fetched == len(missing)  # what is there already needs no room


def test_disk_that_fills_up_on_the_way(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, written = Path.write_bytes, [0]

    def full(path: Path, content: bytes) -> int:
        written[0] += 1
        if written[0] <= 5:
            return write(path, content)
        write(path, content[:10])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    proxy.faults = {ONE: ["drop"] * 99}  # one that waits for its next try does not hold up the end
    start = time.monotonic()
    with pytest.raises(DataError, match=r"No space left on device.*the same command continues"):
        get(proxy, tmp_path, pause_s=20)
    assert time.monotonic() - start < 5
    found = tree(tmp_path)
    assert len(found) == 5
    assert all(FILES[path] == content for path, content in found.items())
    monkeypatch.undo()
    proxy.faults.clear()
    assert get(proxy, tmp_path).fetched == len(FILES) - 5


def test_what_is_refused_is_not_asked_for_again(s3: Any, proxy: Proxy, tmp_path: Path) -> None:
    """One object that nobody may read, one that was deleted after it was listed."""
    s3.put_object(Bucket=BUCKET, Key="refused/val/scene/closed.json", Body=b"private")
    s3.put_object(Bucket=BUCKET, Key="refused/val/scene/moved.json", Body=b"moved")
    s3.put_object(Bucket=BUCKET, Key="refused/val/scene/open.json", Body=b"public", ACL="public-read")
    proxy.rewrite = lambda body: body.replace(b"moved.json", b"other.json")
    summary = get(proxy, tmp_path, prefix="refused", splits=["val"])
    assert {path: re.sub(".* code: ", "", problem) for path, problem in summary.failed.items()} == {
        "val/scene/closed.json": "403 Forbidden (tries: 1)",
        "val/scene/other.json": "404 Not Found (tries: 1)",
    }
    assert {path: count for path, count in proxy.seen.items() if path != "list"} == {
        f"/{BUCKET}/refused/val/scene/{name}.json": 1 for name in ("closed", "open", "other")
    }
    assert tree(tmp_path) == {"val/scene/open.json": b"public"}


def test_target_that_is_a_file(proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way")
    with pytest.raises(DataError, match=r"out.*cannot be written"):
        get(proxy, tmp_path / "out")


def test_gives_up_when_nothing_comes_any_more(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IN_A_ROW", 5)
    proxy.faults = {path: ["drop"] * 99 for path in FILES}
    with pytest.raises(DataError, match="5 files in a row could not be fetched"):
        get(proxy, tmp_path, attempts=2)
    assert sum(proxy.seen[path] for path in FILES) < 2 * len(FILES)


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to send")
@pytest.mark.parametrize("stop", ["SIGINT", "SIGKILL"])
def test_stopped_runs_continue(proxy: Proxy, tmp_path: Path, stop: str) -> None:
    proxy.delay_s = 0.1
    out = tmp_path / "out"
    command = [sys.executable, str(ROOT / "tools" / "download.py"), *tool(proxy, out, "--workers", "2")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while finished(out) < 6 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.Signals[stop])
    _, errors = process.communicate(timeout=30)
    assert process.returncode == (130 if stop == "SIGINT" else -signal.SIGKILL)
    assert ("the same command continues" in errors) == (stop == "SIGINT")
    done = {path for path in tree(out) if not path.endswith(".partial")}
    assert 6 <= len(done) < len(FILES)
    assert all((out / path).read_bytes() == FILES[path] for path in done)
    proxy.delay_s = 0.0
    proxy.seen.clear()
    assert get(proxy, out).fetched == len(FILES) - len(done)
    assert not done & set(proxy.seen)
    assert tree(out) == FILES


def test_two_runs_on_one_folder_do_not_disturb_each_other(proxy: Proxy, tmp_path: Path) -> None:
    proxy.delay_s = 0.02
    command = [sys.executable, str(ROOT / "tools" / "download.py"), *tool(proxy, tmp_path)]
    runs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [run.communicate(timeout=60)[1] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], errors
    assert tree(tmp_path) == FILES


def test_the_tool(proxy: Proxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main("download", tool(proxy, tmp_path, "--split", "val", "test", "--limit", "1"))
    assert stop.value.code == 0
    assert {path.split("/")[0] for path in tree(tmp_path)} == {"val", "test"}
    assert capsys.readouterr().out.startswith("4 files fetched (0.00 GB), 0 kept\nPrepare it: ")


def test_the_tool_names_what_failed(proxy: Proxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Gone after it was listed: no use in trying again."""
    proxy.rewrite = lambda body: body.replace(b"scenario_scene-001.parquet", b"scenario_gone.parquet")
    with pytest.raises(SystemExit) as stop:
        main("download", tool(proxy, tmp_path, "--split", "val"))
    assert stop.value.code == 1
    said = "1 files failed; the same command continues where this one stopped:\n  val/scene-001/scenario_gone"
    assert said in capsys.readouterr().err
    assert proxy.seen["val/scene-001/scenario_gone.parquet"] == 1


def test_without_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(DataError, match=re.escape("pip install 'trajpred[download]'")):
        download(tmp_path)
