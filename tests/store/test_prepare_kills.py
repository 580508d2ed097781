"""prepare stopped by force at any time: nothing is lost, nothing half written, and nobody writes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from trajpred.errors import DataError
from trajpred.sources.synthetic import synthesize
from trajpred.store import prepare

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups on this system")
Tree = Callable[[Path], dict[str, bytes]]
SHARD_SIZE = 2


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic") / "raw"
    synthesize(folder, 24, 7, workers=1, progress=False)
    return folder


@pytest.fixture(scope="module")
def whole(synthetic: Path, tree: Tree) -> dict[str, bytes]:
    """The files of an undisturbed run."""
    store = synthetic.with_name("store")
    prepare("argoverse2", synthetic, store, workers=1, shard_size=SHARD_SIZE, progress=False)
    return tree(store)


def start(raw: Path, store: Path) -> subprocess.Popen[str]:
    """The tool in a process group of its own."""
    options = ["--raw", raw, "--store", store, "--shard_size", str(SHARD_SIZE), "--workers", "2"]
    return subprocess.Popen(
        [sys.executable, ROOT / "tools" / "prepare.py", *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_shards(store: Path, process: subprocess.Popen[str], count: int = 1) -> None:
    while len(list(store.glob("*/shard-*.json"))) < count:
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.005)


def members(group: int) -> list[int]:
    """The processes of a group that live, zombies aside."""
    listed = subprocess.run(["ps", "-eo", "pid=,pgid=,stat="], capture_output=True, text=True, check=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    return [int(pid) for pid, pgid, state in rows if int(pgid) == group and not state.startswith("Z")]


@pytest.mark.parametrize(
    ("kills", "seed"), [(3, 0), pytest.param(40, 1, marks=pytest.mark.slow)], ids=["3 kills", "40 kills"]
)
def test_killed_again_and_again_it_ends_with_the_same_bytes(
    synthetic: Path, whole: dict[str, bytes], tmp_path: Path, tree: Tree, kills: int, seed: int
) -> None:
    """Two thirds of the kills come while shards are written, the others at any time, imports included."""
    random_ = random.Random(seed)
    for kill in range(kills):
        process = start(synthetic, tmp_path)
        if kill % 3:
            made = len(list(tmp_path.glob("*/shard-*.json")))
            wait_for_shards(tmp_path, process, min(made + 1, 12))
            time.sleep(random_.uniform(0, 0.15))
        else:
            time.sleep(random_.uniform(0, 2.5))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    process = start(synthetic, tmp_path)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert tree(tmp_path) == whole


def test_workers_end_with_a_parent_that_is_killed_alone(
    synthetic: Path, whole: dict[str, bytes], tmp_path: Path, tree: Tree
) -> None:
    process = start(synthetic, tmp_path)
    wait_for_shards(tmp_path, process)
    process.kill()
    process.wait()
    prepare("argoverse2", synthetic, tmp_path, workers=1, shard_size=SHARD_SIZE, progress=False)
    assert tree(tmp_path) == whole
    deadline = time.monotonic() + 5
    while (left := members(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    assert tree(tmp_path) == whole


def test_ctrl_c_says_one_line_and_leaves_no_process(
    synthetic: Path, whole: dict[str, bytes], tmp_path: Path, tree: Tree
) -> None:
    process = start(synthetic, tmp_path)
    wait_for_shards(tmp_path, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.endswith("\nstopped; the same command continues\n") and "Traceback" not in errors
    assert not list(tmp_path.glob(".unfinished-*"))
    time.sleep(0.5)
    assert members(process.pid) == []
    prepare("argoverse2", synthetic, tmp_path, workers=1, shard_size=SHARD_SIZE, progress=False)
    assert tree(tmp_path) == whole


def test_a_second_run_on_the_same_store_is_turned_away_until_the_first_is_gone(
    synthetic: Path, whole: dict[str, bytes], tmp_path: Path, tree: Tree
) -> None:
    process = start(synthetic, tmp_path)
    wait_for_shards(tmp_path, process)
    with pytest.raises(DataError, match="another prepare is writing this store; wait until it ends"):
        prepare("argoverse2", synthetic, tmp_path, workers=1, shard_size=SHARD_SIZE, progress=False)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    prepare("argoverse2", synthetic, tmp_path, workers=1, shard_size=SHARD_SIZE, progress=False)
    assert tree(tmp_path) == whole
