"""prepare on a Dask cluster: the bytes of a local run, and one sentence when the cluster is not there."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

from tests.conftest import ROOT
from trajpred.errors import DataError
from trajpred.store import prepare

Tree = Callable[[Path], dict[str, bytes]]
OPTIONS: dict[str, Any] = {"shard_size": 3, "progress": False}


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        yield cluster


def start(cluster: LocalCluster, raw: Path, store: Path) -> subprocess.Popen[str]:
    options = ["--raw", raw, "--store", store, "--shard_size", "1", "--scheduler", cluster.scheduler_address]
    command = [sys.executable, ROOT / "tools" / "prepare.py", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_shard(store: Path, process: subprocess.Popen[str]) -> None:
    while not list(store.glob("*/shard-*.json")):
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.005)


def test_a_cluster_writes_the_bytes_of_a_local_run_and_again_nothing(
    cluster: LocalCluster,
    sample: Path,
    sample_store: Path,
    tmp_path: Path,
    tree: Tree,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # relative here; the workers stand elsewhere
    summary = prepare("argoverse2", sample, "store", scheduler=cluster.scheduler_address, **OPTIONS)
    assert summary.scenarios == {"train": 10, "val": 5, "test": 1}
    assert tree(tmp_path / "store") == tree(sample_store)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("*/*")}
    prepare("argoverse2", sample, "store", scheduler=cluster.scheduler_address, **OPTIONS)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_lost_worker_is_made_up_for(
    cluster: LocalCluster, sample: Path, tmp_path: Path, tree: Tree
) -> None:
    process = start(cluster, sample, tmp_path / "store")
    wait_for_shard(tmp_path / "store", process)
    os.kill(cluster.workers[0].pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    prepare("argoverse2", sample, tmp_path / "here", workers=1, shard_size=1, progress=False)
    assert tree(tmp_path / "store") == tree(tmp_path / "here")


def test_a_killed_client_leaves_a_store_that_a_local_run_finishes(
    cluster: LocalCluster, sample: Path, tmp_path: Path, tree: Tree
) -> None:
    process = start(cluster, sample, tmp_path / "store")
    wait_for_shard(tmp_path / "store", process)
    process.kill()
    process.communicate()
    # At once, with other options, while the cluster may still be at work on what it was given.
    prepare("argoverse2", sample, tmp_path / "store", workers=1, heights=True, **OPTIONS)
    after = tree(tmp_path / "store")
    time.sleep(2)
    assert tree(tmp_path / "store") == after
    prepare("argoverse2", sample, tmp_path / "here", workers=1, heights=True, **OPTIONS)
    assert tree(tmp_path / "here") == after


def test_no_scheduler_says_so_in_time(sample: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    begun = time.monotonic()
    with pytest.raises(DataError, match=f"no Dask scheduler answers at {address}") as caught:
        prepare("argoverse2", sample, tmp_path / "store", scheduler=address, **OPTIONS)
    assert caught.value.field == "scheduler"
    assert time.monotonic() - begun < 20
    assert not (tmp_path / "store").exists()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_what_is_no_address_says_so_at_once(sample: Path, tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(DataError, match="no Dask scheduler answers at somewhere"):
        prepare("argoverse2", sample, tmp_path / "store", scheduler="somewhere", **OPTIONS)
    gc.collect()  # a client that was never connected would wait here
    assert time.monotonic() - begun < 10


def test_without_distributed_the_extra_is_named(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(DataError, match=r"pip install 'trajpred\[cluster\]'"):
        prepare("argoverse2", sample, tmp_path / "store", scheduler="tcp://127.0.0.1:1", **OPTIONS)


def test_a_scheduler_without_workers_says_so(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trajpred.store.workers.TIMEOUT_S", 2)
    with LocalCluster(n_workers=0, dashboard_address=None) as empty, pytest.raises(DataError) as caught:
        prepare("argoverse2", sample, tmp_path / "store", scheduler=empty.scheduler_address, **OPTIONS)
    assert caught.value.field == "scheduler"
    assert "workers" in str(caught.value)
