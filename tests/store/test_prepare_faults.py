"""prepare in trouble: each fault gets one sentence, nothing is lost, and the same command then finishes."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from trajpred.errors import DataError
from trajpred.scenario import Scenario
from trajpred.sources import SOURCES, Source
from trajpred.sources.argoverse2 import discover
from trajpred.store import ScenarioStore, jobs, prepare
from trajpred.store.jobs import ShardJob, make, sole_writer

Tree = Callable[[Path], dict[str, bytes]]
OPTIONS: dict[str, Any] = {"workers": 1, "shard_size": 3, "progress": False}


# ----------------------------------------------------------------------------------------------- disk full


@pytest.mark.parametrize("fails", [0, 4])
def test_a_full_disk_is_said_and_what_was_made_is_kept(
    sample: Path,
    sample_store: Path,
    tmp_path: Path,
    tree: Tree,
    monkeypatch: pytest.MonkeyPatch,
    fails: int,
) -> None:
    write, calls = jobs.write_shard, []

    def full(path: Path, *rest: Any) -> None:
        calls.append(path)
        if len(calls) > fails:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "write_shard", full)
        with pytest.raises(DataError, match=r"No space left on device.*the same command continues") as caught:
            prepare("argoverse2", sample, tmp_path, **OPTIONS)
    assert Path(str(caught.value.file)).suffix == ".arrow"
    assert len(list(tmp_path.glob("*/shard-*"))) == 2 * fails
    assert not list(tmp_path.glob(".unfinished-*"))
    prepare("argoverse2", sample, tmp_path, **OPTIONS)
    assert tree(tmp_path) == tree(sample_store)


#: No file may grow beyond 200 kB: the system refuses to write on, as it does on a full disk.
LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_write_that_the_system_refuses_leaves_no_half_file(
    sample: Path, sample_store: Path, tmp_path: Path, tree: Tree, workers: int
) -> None:
    pytest.importorskip("resource")
    tool = [sys.executable, "-c", LIMITED, ROOT / "tools" / "prepare.py"]
    options = ["--raw", sample, "--store", tmp_path, "--shard_size", "3", "--workers", str(workers)]
    done = subprocess.run([*tool, *options], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: {tmp_path}") and "cannot be written" in last and "File too large" in last
    assert "Traceback" not in done.stderr
    for path in tmp_path.glob("*/shard-*.arrow"):
        assert path.with_suffix(".json").is_file()
    prepare("argoverse2", sample, tmp_path, **OPTIONS)
    assert tree(tmp_path) == tree(sample_store)


# ---------------------------------------------------------------------------------------------- permission

#: Prepares, takes all rights to write away, gives up those of root, and prepares twice more.
READ_ONLY = """
import os, sys
from trajpred.errors import DataError
from trajpred.store import prepare

raw, store, unreadable = sys.argv[1:]

def run(target, **options):
    try:
        summary = prepare("argoverse2", raw, target, workers=1, shard_size=3, progress=False, **options)
        print(summary.scenarios, summary.skipped)
    except DataError as error:
        print(error)

run(store)
run(store + "-open")
for folder, _, _ in os.walk(store):
    os.chmod(folder, 0o555)
os.chmod(unreadable, 0)
os.chmod(store + "-open", 0o777)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
run(store, heights=True)
run(store + "-new/below")
os.chdir("/")
os.mkdir(store + "-open/mine")
run(store + "-open/mine")
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may enter, which pytest's own is not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        for path in (folder, *(path for path in folder.rglob("*") if not path.is_symlink())):
            path.chmod(stat.S_IRWXU)


def test_a_read_only_store_and_an_unreadable_scenario(sample: Path, public: Path) -> None:
    if not hasattr(os, "setuid"):
        pytest.skip("no POSIX permissions on this system")
    raw, store = public / "raw", public / "store"
    for path in discover(sample)["val"][:3]:
        shutil.copytree(path, raw / "val" / path.name)
    hidden = discover(raw)["val"][1]
    command = [sys.executable, "-c", READ_ONLY, raw, store, hidden]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, _, changed, new, mine = done.stdout.splitlines()
    assert first == "{'val': 3} {'val': {}}"
    assert changed == f"{store}/.lock: cannot be written (Permission denied)"
    assert new.startswith(str(public)) and new.endswith("cannot be written (Permission denied)")
    assert mine.startswith("{'val': 2} {'val': {'" + hidden.name)


# ------------------------------------------------------------------------------- workers that outlive a run


def test_a_worker_whose_run_is_over_changes_nothing(
    sample: Path, sample_store: Path, tmp_path: Path, tree: Tree
) -> None:
    """A run takes its workers the right to write along, however late they come."""
    store = Path(shutil.copytree(sample_store, tmp_path / "store"))
    with sole_writer(store, 0) as writer:
        config = {"source": "argoverse2", "heights": True, "compression": None}
        paths = discover(sample)["val"][:3]
        late = ShardJob(config, sample, paths, store / "val" / "shard-00000.arrow", writer.scratch)
    with pytest.raises(DataError, match="cannot be written"):
        make(late)
    assert tree(store) == tree(sample_store)


# ---------------------------------------------------------------------------------------- paths and folders


def test_links_spaces_and_other_letters_in_paths(
    sample: Path, sample_store: Path, tmp_path: Path, tree: Tree
) -> None:
    raw = Path(shutil.copytree(sample, tmp_path / "Rohdaten für 東京 100%"))
    (tmp_path / "raw link").symlink_to(raw)
    (tmp_path / "Ziel ü").mkdir()
    (tmp_path / "store link").symlink_to(tmp_path / "Ziel ü")
    for workers in (2, 1):
        prepare(
            "argoverse2", tmp_path / "raw link", tmp_path / "store link", **(OPTIONS | {"workers": workers})
        )
        assert tree(tmp_path / "Ziel ü") == tree(sample_store)


def test_relative_paths_mean_the_same(
    sample: Path, sample_store: Path, tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(sample, tmp_path / "raw")
    monkeypatch.chdir(tmp_path)
    prepare("argoverse2", "raw", "store", **OPTIONS)
    assert tree(tmp_path / "store") == tree(sample_store)


@pytest.mark.parametrize("source", ["argoverse1", "argoverse2", "made"])
def test_an_empty_raw_folder_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setitem(SOURCES, "made", Source(lambda _: {"train": []}, lambda _: None))  # type: ignore[arg-type, return-value]
    (tmp_path / "raw").mkdir()
    with pytest.raises(DataError) as caught:
        prepare(source, tmp_path / "raw", tmp_path / "store", **OPTIONS)
    assert caught.value.file == tmp_path / "raw"
    assert not (tmp_path / "store").exists()


# ---------------------------------------------------------------------------------- other people's sources


def broken(_: Any) -> Any:
    raise KeyError("no such table")


@pytest.mark.parametrize(
    ("discover", "says"),
    [
        (broken, "source 'made' cannot list it (KeyError: 'no such table')"),
        (lambda raw: {"../up": [raw / "a"]}, "a split must be a plain folder name, not '../up'"),
        (lambda raw: {"": [raw / "a"]}, "a split must be a plain folder name, not ''"),
        (lambda raw: {"..": [raw / "a"]}, "a split must be a plain folder name, not '..'"),
        (
            lambda raw: {"train": [raw / "a" / "x", raw / "b" / "x"]},
            "2 scenarios of split 'train' are called 'x'",
        ),
    ],
)
def test_what_a_source_must_not_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, discover: Any, says: str
) -> None:
    monkeypatch.setitem(SOURCES, "made", Source(discover, broken))
    with pytest.raises(DataError) as caught:
        prepare("made", tmp_path, tmp_path / "store", **OPTIONS)
    assert says in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_whatever_a_reader_raises_skips_one_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path) -> Scenario:
        if path.name == "b":
            raise ZeroDivisionError("division by zero")
        return Scenario.from_arrays(np.zeros((1, 2, 2)), num_observed=1, scenario_id=path.name)

    paths = [tmp_path / name for name in "abc"]
    monkeypatch.setitem(SOURCES, "made", Source(lambda _: {"train": paths}, read))
    summary = prepare("made", tmp_path, tmp_path / "store", **OPTIONS)
    assert summary.skipped == {"train": {"b": "ZeroDivisionError: division by zero"}}
    assert ScenarioStore(tmp_path / "store", "train").scenario_ids == ["a", "c"]


#: A source whose reader ends the process that runs it, as the system does when memory runs out.
DEADLY = """
import os
from trajpred.sources import Source
SOURCE = Source(lambda raw: {"train": [raw / str(i) for i in range(9)]}, lambda path: os._exit(9))
"""


def test_a_worker_that_dies_is_said(tmp_path: Path) -> None:
    (tmp_path / "deadly_source.py").write_text(DEADLY)
    command = [sys.executable, ROOT / "tools" / "prepare.py", "--source", "deadly_source:SOURCE"]
    command += ["--raw", tmp_path, "--store", tmp_path / "store", "--workers", "2", "--shard_size", "3"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: field 'workers': a process died") and "the same command continues" in last
    assert "Traceback" not in done.stderr
