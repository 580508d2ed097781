"""Downloading from a server that injects faults: the right bytes arrive, or the failure is reported."""

from __future__ import annotations

import errno
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trajpred.sources.download as module
from tests.conftest import ROOT, rejects
from tests.sources.s3_server import BUCKET, FILES, PREFIX, Server, Stored, s3_server
from trajpred.cli.main import main
from trajpred.errors import DataError
from trajpred.sources.download import Summary, download

pytest.importorskip("obstore", reason="obstore is not installed: pip install -e '.[dev]'")

LOG_MAP = "train/scene-003/log_map_archive_scene-003.json"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with s3_server() as running:
        yield running


def get(server: Server, out: Path, **options: Any) -> Summary:
    bucket = {"endpoint": server.url, "bucket": BUCKET, "prefix": PREFIX}
    quick = {"pause_s": 0.001, "retries": 4, "workers": 4, "progress": False}
    return download(out, **bucket | quick | options)


def tree(folder: Path) -> dict[str, bytes]:
    """Return the files below ``folder``, without those that a killed run left unfinished."""
    files = {}
    for path in folder.rglob("[!.]*"):
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
    return files


def command(server: Server, out: Path, *more: str) -> list[str]:
    where = ["--endpoint", server.url, "--bucket", BUCKET, "--prefix", PREFIX]
    return ["--out", str(out), *where, *more]


def test_all_files_arrive_once_and_are_kept_while_they_are_sound(server: Server, tmp_path: Path) -> None:
    out = tmp_path / "a folder with spaces"
    summary = get(server, out)
    assert tree(out) == FILES
    size = sum(len(content) for content in FILES.values())
    assert (summary.fetched, summary.fetched_bytes, summary.kept) == (len(FILES), size, 0)
    again = get(server, out)
    assert (again.fetched, again.fetched_bytes, again.kept) == (0, 0, len(FILES))
    assert {server.requests[path] for path in FILES} == {1}
    assert server.requests["list"] >= 2 * len(FILES) // server.page
    first, second, third, *_ = sorted(FILES)
    (out / first).write_bytes(bytes(len(FILES[first])))
    (out / second).write_bytes(FILES[second][:-1])
    (out / third).unlink()
    assert get(server, out).fetched == 3, "changed, cut and missing files"
    assert tree(out) == FILES


def test_limit_selects_the_first_scenarios_and_stops_listing(server: Server, tmp_path: Path) -> None:
    get(server, tmp_path, splits=["train", "test"], limit=2)
    first = {path for path in FILES if re.match(r"(train|test)/scene-00[01]/", path)}
    assert set(tree(tmp_path)) == first
    assert server.requests["list"] <= 6  # of eight pages


def test_faulty_responses_are_repeated(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAGE", server.page)
    faults = ("drop", "cut", "short", "corrupt", "busy")
    for i, path in enumerate(sorted(FILES)):
        if i % 3:
            server.faults[path] = [faults[i % 5]] * (1 + i % 2)
    server.faults["list"] = ["", "", "drop", "", "cut", "busy"]
    summary = get(server, tmp_path)
    assert (summary.fetched, summary.kept) == (len(FILES), 0), "nothing is listed twice"
    assert not summary.failed
    assert tree(tmp_path) == FILES
    assert all(not faults for faults in server.faults.values())


def test_files_that_stay_faulty_are_reported_and_never_kept(server: Server, tmp_path: Path) -> None:
    problems = {"corrupt": "checksum", "short": "10000 bytes, 20000 are listed", "cut": "", "busy": ""}
    paths = {}
    for i, fault in enumerate(problems):
        path = f"train/scene-00{i}/log_map_archive_scene-00{i}.json"
        paths[path] = fault
        server.faults[path] = [fault] * 99
    summary = get(server, tmp_path, splits=["train"])
    assert summary.failed.keys() == paths.keys()
    for path, fault in paths.items():
        assert problems[fault] in summary.failed[path]
        assert "\n" not in summary.failed[path]
    expected = {path for path in FILES if path.startswith("train")} - paths.keys()
    kept = tree(tmp_path)
    assert kept.keys() == expected
    assert kept.items() <= FILES.items()


def test_files_uploaded_in_parts_are_verified_by_size(server: Server, tmp_path: Path) -> None:
    body = b"x" * 5_000
    server.objects["parts/train/scene/big.bin"] = Stored(body, parts=1)
    for expected in (1, 0):
        assert get(server, tmp_path, prefix="parts", splits=["train"]).fetched == expected
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
    server: Server, tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    rejects(problem, get, server, tmp_path / "out", **({"endpoint": server.url} | options))
    assert not (tmp_path / "out").exists()


def test_keys_outside_the_target_folder_are_rejected(server: Server, tmp_path: Path) -> None:
    server.rewrite = lambda body: body.replace(b"train/scene-003/", b"train/../scene-3/")
    rejects("", get, server, tmp_path / "out")
    assert tree(tmp_path) == {}


def test_too_little_space_is_reported_before_the_first_file(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get(server, tmp_path, splits=["val", "test"])
    usage = type(shutil.disk_usage(tmp_path))
    missing = [len(content) for path, content in FILES.items() if path.startswith("train/")]
    blocks = 4096 * sum(-(-size // 4096) for size in missing)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - blocks + 1, blocks - 1))
    server.requests.clear()
    rejects(r"not enough disk space: 24 files of 0\.00 GB are missing", get, server, tmp_path)
    assert set(server.requests) == {"list"}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - blocks, blocks))
    assert get(server, tmp_path).fetched == len(missing)


def test_a_disk_that_fills_up_stops_the_download_at_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_bytes
    calls = []

    def full(path: Path, content: bytes) -> int:
        calls.append(path)
        if len(calls) <= 5:
            return write(path, content)
        write(path, content[:10])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    server.faults = {LOG_MAP: ["busy"] * 99}  # a request that waits for its next retry does not delay the end
    start = time.monotonic()
    with pytest.raises(DataError, match=r"No space left on device.*run the same command again to resume"):
        get(server, tmp_path, pause_s=15)
    assert time.monotonic() - start < 10
    complete = tree(tmp_path)
    assert len(complete) <= 5
    assert complete.items() <= FILES.items()
    monkeypatch.undo()
    server.faults.clear()
    get(server, tmp_path)
    assert tree(tmp_path) == FILES


def test_refused_and_deleted_objects_are_requested_once(server: Server, tmp_path: Path) -> None:
    folder = "refused/val/scene"
    server.objects[f"{folder}/closed.json"] = Stored(b"private", public=False)
    server.objects[f"{folder}/moved.json"] = Stored(b"moved")
    server.objects[f"{folder}/open.json"] = Stored(b"public")
    server.rewrite = lambda body: body.replace(b"moved.json", b"other.json")
    summary = get(server, tmp_path, prefix="refused", splits=["val"])
    assert len(summary.failed) == 2
    assert summary.failed["val/scene/closed.json"].endswith("403 Forbidden")
    assert summary.failed["val/scene/other.json"].endswith("404 Not Found")
    assert {count for path, count in server.requests.items() if path != "list"} == {1}
    assert tree(tmp_path) == {"val/scene/open.json": b"public"}


def test_the_download_is_given_up_when_every_file_fails(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_IN_A_ROW", 5)
    server.faults = {path: ["drop"] * 99 for path in FILES}
    rejects("5 files in a row failed", get, server, tmp_path, retries=1)
    assert sum(server.requests[path] for path in FILES) < 2 * len(FILES)


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to send")
@pytest.mark.parametrize("stop", ["SIGINT", pytest.param("SIGKILL", marks=pytest.mark.slow)])
def test_interrupted_runs_continue(server: Server, tmp_path: Path, stop: str) -> None:
    server.delay_s = 0.1
    out = tmp_path / "out"
    words = [sys.executable, "-m", "trajpred", "download", *command(server, out, "--workers", "2")]
    process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while len(list(out.rglob("[!.]*.*"))) < 6 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.Signals[stop])
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if stop == "SIGINT" else -signal.SIGKILL)
    assert ("run the same command again to resume" in errors) == (stop == "SIGINT")
    done = tree(out)
    assert 6 <= len(done) < len(FILES)
    assert done.items() <= FILES.items()
    server.delay_s = 0.0
    server.requests.clear()
    assert get(server, out).fetched == len(FILES) - len(done)
    assert not done.keys() & set(server.requests)
    assert tree(out) == FILES


def test_the_command_reports_failures(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An object that was deleted after it was listed."""
    for code, name in ((0, "001.parquet"), (1, "gone.parquet")):
        server.rewrite = lambda body, name=name: body.replace(b"scene-001.parquet", f"scene-{name}".encode())
        arguments = command(server, tmp_path / name, "--split", "val", "test", "--limit", "2")
        with pytest.raises(SystemExit) as stop:
            main("download", arguments)
        assert stop.value.code == code
        written = capsys.readouterr()
        assert f"{8 - 2 * code} files fetched (0.00 GB), 0 kept" in written.out
        assert ("val/scene-001/scenario_scene-gone.parquet" in written.err) == bool(code)


def test_a_missing_client_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    rejects("pip install 'obstore", download, tmp_path)
