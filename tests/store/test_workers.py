"""Worker processes that die, and Dask clusters: the bytes of a local run, or one error."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from distributed import LocalCluster

from tests.conftest import ROOT, SAMPLE, tree
from tests.store.scenarios import OPTIONS
from trajpred.errors import DataError
from trajpred.store import prepare

#: A source whose reader ends its process, as the system does when memory runs out.
DEADLY = """
import os
from trajpred.sources import RawScenario, Source
SOURCE = Source(lambda raw: {"train": [RawScenario(str(i), raw) for i in range(9)]}, lambda item: os._exit(9))
"""


def test_a_dead_worker_process_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "deadly_source.py").write_text(DEADLY)
    command = [sys.executable, ROOT / "tools" / "prepare.py", "--source", "deadly_source:SOURCE"]
    command += ["--raw", tmp_path, "--store", tmp_path / "store", "--workers", "2", "--shard_size", "3"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: --workers: a process died")
    assert "run the same command again to resume" in last


def test_a_cluster_of_threads_writes_the_bytes_of_a_local_run(sample_store: Path, tmp_path: Path) -> None:
    with LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster:
        prepare("argoverse2", SAMPLE, tmp_path, scheduler=cluster.scheduler_address, **OPTIONS)
    assert tree(tmp_path) == tree(sample_store)


def test_an_unreachable_scheduler_is_reported_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trajpred.store.jobs.TIMEOUT_S", 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    for scheduler in (address, "somewhere"):
        with pytest.raises(DataError, match=f"no Dask scheduler answers at {scheduler}") as caught:
            prepare("argoverse2", SAMPLE, tmp_path / "store", scheduler=scheduler, **OPTIONS)
        assert caught.value.field == "scheduler"
        assert not (tmp_path / "store").exists()
        gc.collect()  # a half-connected client would block here
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(DataError, match="pip install 'distributed"):
        prepare("argoverse2", SAMPLE, tmp_path / "store", scheduler=address, **OPTIONS)


@pytest.mark.slow
def test_a_scheduler_without_workers_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trajpred.store.jobs.TIMEOUT_S", 2)
    with (
        LocalCluster(n_workers=0, dashboard_address=None) as empty,
        pytest.raises(DataError, match="workers"),
    ):
        prepare("argoverse2", SAMPLE, tmp_path / "store", scheduler=empty.scheduler_address, **OPTIONS)
