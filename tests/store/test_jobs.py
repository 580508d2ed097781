"""Full disks, kills, dead workers, clusters: one error, nothing half written, and the same bytes."""

from __future__ import annotations

import errno
import gc
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

from tests.conftest import ROOT, SAMPLE, equal, rejects, tree
from tests.store.scenarios import OPTIONS
from trajpred.errors import DataError
from trajpred.sources.argoverse2 import discover
from trajpred.store import ScenarioStore, jobs, prepare
from trajpred.store.jobs import ShardJob, run_job
from trajpred.store.prepare import sole_writer

posix = pytest.mark.skipif(not hasattr(os, "killpg"), reason="no POSIX processes on this system")


def fill_up(patch: pytest.MonkeyPatch, complete: int | str) -> None:
    """Fill the disk after ``complete`` shards, or when the manifest is written."""
    write = jobs.write_shard
    write_text = Path.write_text
    calls = []

    def full(path: Path, *rest: Any) -> None:
        calls.append(path)
        if complete != "manifest" and len(calls) > int(complete):
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, *rest)

    def full_text(path: Path, *rest: Any, **options: Any) -> int:
        if path.name == "manifest.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_text(path, *rest, **options)

    patch.setattr(jobs, "write_shard", full)
    patch.setattr(Path, "write_text", full_text)


def test_a_full_disk_keeps_complete_shards(
    sample_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        fill_up(patch, 4)
        with pytest.raises(DataError, match=r"No space left on device.*run the same command again to resume"):
            prepare("argoverse2", SAMPLE, tmp_path, **OPTIONS)
    assert len(list(tmp_path.glob("*/shard-*"))) == 8
    assert not list(tmp_path.glob(".unfinished-*"))
    prepare("argoverse2", SAMPLE, tmp_path, **OPTIONS)
    assert tree(tmp_path) == tree(sample_store)


@pytest.mark.parametrize("complete", [0, 4, "manifest"])
def test_a_store_that_a_full_disk_keeps_from_being_replaced_stays_readable(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complete: int | str
) -> None:
    before = {split: list(ScenarioStore(copy, split)) for split in ("train", "val", "test")}
    other = OPTIONS | {"heights": True, "shard_size": 2}
    with monkeypatch.context() as patch:
        fill_up(patch, complete)
        rejects("No space left on device", prepare, "argoverse2", SAMPLE, copy, overwrite=True, **other)
    for split, scenarios in before.items():
        assert all(map(equal, ScenarioStore(copy, split), scenarios))
    prepare("argoverse2", SAMPLE, copy, overwrite=True, **other)
    prepare("argoverse2", SAMPLE, tmp_path / "whole", **other)
    assert tree(copy) == tree(tmp_path / "whole")


def test_a_worker_that_outlives_its_run_changes_nothing(sample_store: Path, copy: Path) -> None:
    with sole_writer(copy, 0) as scratch:
        config = {"source": "argoverse2", "heights": True}
        scenarios = discover(SAMPLE)["val"][:3]
        late = ShardJob(config, SAMPLE, scenarios, copy / "val" / "shard-00000.json", scratch)
    rejects("cannot be written", run_job, late)
    assert tree(copy) == tree(sample_store)


def test_one_run_at_a_time_writes_a_store(copy: Path) -> None:
    with sole_writer(copy, 0), pytest.raises(DataError, match="another prepare is writing this store"):
        prepare("argoverse2", SAMPLE, copy, **OPTIONS)
    prepare("argoverse2", SAMPLE, copy, **OPTIONS)


#: Kill the process, without any clean-up, in place of a given file replacement.
DYING = """
import os, signal, sys
from pathlib import Path
from trajpred.store import prepare

raw, store, countdown = sys.argv[1], sys.argv[2], [int(sys.argv[3])]
replace = Path.replace

def dying(self, target):
    countdown[0] -= 1
    if countdown[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)

Path.replace = dying
prepare("argoverse2", raw, store, workers=1, shard_size=3, progress=False)
"""


@posix
@pytest.mark.parametrize("replaced", [14, pytest.param(1, marks=pytest.mark.slow)])
def test_a_killed_run_resumes_to_the_same_bytes(sample_store: Path, tmp_path: Path, replaced: int) -> None:
    """Before the indices, two files of each shard being in place; between a shard and its record."""
    command = [sys.executable, "-c", DYING, str(SAMPLE), str(tmp_path), str(replaced)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    unfinished = list(tmp_path.glob(".unfinished-*/*"))
    assert unfinished
    assert len(list(tmp_path.glob("*/*"))) - len(unfinished) == replaced
    rejects("no store here", ScenarioStore, tmp_path, "train")
    prepare("argoverse2", SAMPLE, tmp_path, **OPTIONS)
    assert tree(tmp_path) == tree(sample_store)


def start(store: Path) -> subprocess.Popen[str]:
    """Start the tool in a process group of its own."""
    options = ["--raw", SAMPLE, "--store", store, "--shard_size", "2", "--workers", "2"]
    return subprocess.Popen(
        [sys.executable, ROOT / "tools" / "prepare.py", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_shards(store: Path, process: subprocess.Popen[str], count: int = 1) -> None:
    while len(list(store.glob("*/shard-*.json"))) < count:
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.005)


def assert_ended(group: int) -> None:
    """Assert that every process of a group ends within ten seconds."""
    deadline = time.monotonic() + 10
    while True:
        listed = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True)
        alive = [line for line in listed.stdout.splitlines() if re.match(rf" *{group} +[^Z]", line)]
        if not alive:
            return
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


@posix
def test_ctrl_c_prints_one_line_and_leaves_no_process(tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for_shards(tmp_path, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.endswith("\nstopped; run the same command again to resume\n")
    assert "Traceback" not in errors
    assert not list(tmp_path.glob(".unfinished-*"))
    assert_ended(process.pid)


@pytest.mark.slow
@posix
def test_forty_kills_end_with_the_same_bytes(tmp_path: Path) -> None:
    store = tmp_path / "store"
    generator = random.Random(1)
    for kill in range(40):
        process = start(store)
        if kill % 3:
            complete = len(list(store.glob("*/shard-*.json")))
            wait_for_shards(store, process, min(complete + 1, 8))
            time.sleep(generator.uniform(0, 0.15))
        else:
            time.sleep(generator.uniform(0, 2.5))
        if kill % 8:
            os.killpg(process.pid, signal.SIGKILL)
        else:  # the workers end with their parent
            process.kill()
            assert_ended(process.pid)
        process.communicate()
    for name in ("store", "whole"):
        prepare("argoverse2", SAMPLE, tmp_path / name, **OPTIONS | {"shard_size": 2})
    assert tree(store) == tree(tmp_path / "whole")


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


def test_unreachable_schedulers_are_reported_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
