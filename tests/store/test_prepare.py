"""prepare: the same bytes however it gets there, past bad scenarios, and again for nothing."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trajpred.errors import DataError
from trajpred.scenario import Scenario, equal
from trajpred.sources.argoverse2 import discover
from trajpred.store import ScenarioStore, prepare

Tree = Callable[[Path], dict[str, bytes]]
Raw = Callable[..., Path]
OPTIONS: dict[str, Any] = {"workers": 1, "shard_size": 3, "progress": False}


def made(number: int, steps: int = 12) -> Scenario:
    position = np.random.default_rng(number).normal(size=(2, steps, 2))
    return Scenario.from_arrays(position, num_observed=8, scenario_id=f"made-{number}")


def times(store: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in store.rglob("shard-*")}


@pytest.fixture
def copy(sample_store: Path, tmp_path: Path) -> Path:
    """A store of the sample that may be damaged."""
    return Path(shutil.copytree(sample_store, tmp_path / "copy"))


# ------------------------------------------------------------------------------------------ one clean run


def test_the_summary_counts_what_the_store_holds(sample: Path, tmp_path: Path) -> None:
    summary = prepare("argoverse2", sample, tmp_path, **OPTIONS)
    assert summary.scenarios == {split: len(paths) for split, paths in discover(sample).items()}
    assert summary.skipped == {split: {} for split in summary.scenarios}
    assert {split: len(ScenarioStore(tmp_path, split)) for split in summary.scenarios} == summary.scenarios


def test_nothing_but_manifest_indices_shards_and_their_records_is_left(
    sample_store: Path, tree: Tree
) -> None:
    shards = [
        f"{split}/shard-{i:05}" for split, n in (("test", 1), ("train", 4), ("val", 2)) for i in range(n)
    ]
    expected = {f"{shard}{end}" for shard in shards for end in (".arrow", ".json")}
    expected |= {f"{split}/index.arrow" for split in ("test", "train", "val")}
    content = tree(sample_store)
    assert set(content) == expected | {"manifest.json", ".lock"}
    assert content[".lock"] == b""


@pytest.mark.parametrize("workers", [2, -1])
def test_more_workers_write_the_same_bytes(
    sample: Path, sample_store: Path, tmp_path: Path, tree: Tree, workers: int
) -> None:
    prepare("argoverse2", sample, tmp_path, **(OPTIONS | {"workers": workers}))
    assert tree(tmp_path) == tree(sample_store)


def test_the_size_of_shards_does_not_change_the_scenarios(
    sample: Path, sample_store: Path, tmp_path: Path
) -> None:
    prepare("argoverse2", sample, tmp_path, **(OPTIONS | {"shard_size": 256}))
    for split in ("train", "val", "test"):
        for a, b in zip(ScenarioStore(tmp_path, split), ScenarioStore(sample_store, split), strict=True):
            assert equal(a, b)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("source", {"source": "nuscenes"}),
        ("workers", {"workers": 0}),
        ("shard_size", {"shard_size": 0}),
        ("shard_size", {"shard_size": -5}),
    ],
)
def test_wrong_options_are_refused_and_nothing_is_written(
    sample: Path, tmp_path: Path, field: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(DataError) as caught:
        prepare(**{"source": "argoverse2", "raw": sample, "store": tmp_path / "store", **OPTIONS, **changes})
    assert caught.value.field == field
    assert not (tmp_path / "store").exists()


def test_a_missing_raw_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        prepare("argoverse2", tmp_path / "absent", tmp_path / "store", **OPTIONS)
    assert caught.value.file == tmp_path / "absent"


def test_a_target_that_cannot_be_written_is_named(sample: Path, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(DataError, match="cannot be written"):
        prepare("argoverse2", sample, tmp_path / "store", **OPTIONS)


# ---------------------------------------------------------------------------------------------- second run


def test_a_second_run_writes_no_shard(sample: Path, copy: Path, tree: Tree) -> None:
    before, content = times(copy), tree(copy)
    summary = prepare("argoverse2", sample, copy, **OPTIONS)
    assert times(copy) == before
    assert tree(copy) == content
    assert sum(summary.scenarios.values()) == 16


def damage_shard(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "deleted": lambda shard: shard.unlink(),
    "empty": lambda shard: damage_shard(shard, 0),
    "truncated": lambda shard: damage_shard(shard, 0.7),
    "without record": lambda shard: shard.with_suffix(".json").unlink(),
    "record truncated": lambda shard: damage_shard(shard.with_suffix(".json"), 0.5),
    "record of another shape": lambda shard: shard.with_suffix(".json").write_text("[]"),
    "record without content": lambda shard: shard.with_suffix(".json").write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_shard_alone_is_built_again(
    sample: Path, sample_store: Path, copy: Path, tree: Tree, damage: Callable[[Path], Any]
) -> None:
    shard = copy / "train" / "shard-00001.arrow"
    before = times(copy)
    damage(shard)
    prepare("argoverse2", sample, copy, **OPTIONS)
    assert tree(copy) == tree(sample_store)
    rewritten = {path for path, when in times(copy).items() if when != before[path]}
    assert rewritten == {shard, shard.with_suffix(".json")}


def test_other_options_rewrite_the_store(sample: Path, sample_store: Path, copy: Path, tree: Tree) -> None:
    prepare("argoverse2", sample, copy, **OPTIONS, heights=True)
    assert ScenarioStore(copy, "train")[0].map.left_boundary.values.shape[1] == 3
    prepare("argoverse2", sample, copy, **OPTIONS)
    assert tree(copy) == tree(sample_store)


def test_larger_shards_leave_no_smaller_ones_behind(
    sample: Path, sample_store: Path, copy: Path, tree: Tree
) -> None:
    prepare("argoverse2", sample, copy, **(OPTIONS | {"shard_size": 100}))
    assert len(list(copy.glob("*/shard-*.arrow"))) == 3
    assert len(ScenarioStore(copy, "train")) == 10
    prepare("argoverse2", sample, copy, **OPTIONS)
    assert tree(copy) == tree(sample_store)


def test_new_scenarios_are_added(raw: Raw, tmp_path: Path) -> None:
    store = tmp_path / "store"
    for number in (2, 4, 7):
        prepare("made", raw([made(i) for i in range(number)]), store, **OPTIONS)
        assert ScenarioStore(store, "train").scenario_ids == [f"made-{i}" for i in range(number)]


def test_leftovers_are_removed_and_foreign_files_are_not(
    sample: Path, sample_store: Path, copy: Path, tree: Tree
) -> None:
    (copy / ".unfinished-1").mkdir()
    for name in (".unfinished-1/2", "train/shard-00000.1.partial", "val/shard-00099.arrow"):
        (copy / name).write_text("left over")
    (copy / "train" / "notes.txt").write_text("mine")
    assert len(ScenarioStore(copy, "train")) == 10
    prepare("argoverse2", sample, copy, **OPTIONS)
    assert tree(copy) == tree(sample_store) | {"train/notes.txt": b"mine"}


# ------------------------------------------------------------------------------------------- bad scenarios


def test_bad_scenarios_are_skipped_reported_and_read_once_mended(
    sample: Path, sample_store: Path, tmp_path: Path, tree: Tree
) -> None:
    raw, store = tmp_path / "raw", tmp_path / "store"
    shutil.copytree(sample, raw)
    no_map, cut = discover(raw)["train"][2:4]
    map_file = next(no_map.glob("*.json")).rename(tmp_path / "map")
    parquet = next(cut.glob("*.parquet"))
    content = parquet.read_bytes()
    parquet.write_bytes(content[:1000])

    summary = prepare("argoverse2", raw, store, **OPTIONS)
    assert summary.scenarios == {"train": 8, "val": 5, "test": 1}
    assert set(summary.skipped["train"]) == {no_map.name, cut.name}
    assert "log_map_archive" in summary.skipped["train"][no_map.name]
    assert parquet.name in summary.skipped["train"][cut.name]
    manifest = json.loads((store / "manifest.json").read_text())
    assert manifest["splits"]["train"]["skipped"] == summary.skipped["train"]
    assert {no_map.name, cut.name}.isdisjoint(ScenarioStore(store, "train").scenario_ids)

    assert prepare("argoverse2", raw, store, **OPTIONS) == summary

    map_file.rename(no_map / f"log_map_archive_{no_map.name}.json")
    parquet.write_bytes(content)
    assert prepare("argoverse2", raw, store, **OPTIONS).skipped["train"] == {}
    assert tree(store) == tree(sample_store)


def test_what_the_store_cannot_hold_is_skipped_too(raw: Raw, tmp_path: Path) -> None:
    far = Scenario.from_arrays([[[0, 0]], [[1e8, 0]]], num_observed=1)
    summary = prepare("made", raw([made(0), far, made(2)]), tmp_path / "store", **OPTIONS)
    assert list(summary.skipped["train"]) == ["001"]
    assert "2,147 km" in summary.skipped["train"]["001"]
    assert ScenarioStore(tmp_path / "store", "train").scenario_ids == ["made-0", "made-2"]


@pytest.mark.parametrize("good", [[], [0], [5], [3, 4, 5], [0, 8]], ids=str)
def test_shards_may_be_empty(raw: Raw, tmp_path: Path, good: list[int]) -> None:
    scenarios = [made(i) if i in good else DataError("is bad", file="here") for i in range(9)]
    summary = prepare("made", raw(scenarios), tmp_path / "store", **OPTIONS)
    assert summary.scenarios == {"train": len(good)}
    assert set(summary.skipped["train"].values()) == {"here: is bad"}
    store = ScenarioStore(tmp_path / "store", "train")
    assert [scenario.scenario_id for scenario in store] == [f"made-{i}" for i in good]
    assert store.scenario_ids == [f"made-{i}" for i in good]


def test_a_store_without_scenarios_has_no_lengths(raw: Raw, tmp_path: Path) -> None:
    prepare("made", raw([DataError("is bad")]), tmp_path / "store", **OPTIONS)
    with pytest.raises(DataError, match="no scenario"):
        _ = ScenarioStore(tmp_path / "store", "train").lengths


def test_mixed_lengths_are_noticed(raw: Raw, tmp_path: Path) -> None:
    prepare("made", raw([*(made(i) for i in range(4)), made(4, steps=13)]), tmp_path / "store", **OPTIONS)
    with pytest.raises(DataError, match="mixes window lengths"):
        _ = ScenarioStore(tmp_path / "store", "train").lengths


# ------------------------------------------------------------------------------------------- interruptions

#: Runs prepare and dies, without a chance to clean up, in place of the given file replacement.
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
needs_sigkill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")


@needs_sigkill
@pytest.mark.parametrize(("replaced", "files"), [(0, 0), (2, 1), (8, 5), (21, 14), (22, 15), (24, 17)])
def test_a_killed_run_is_finished_to_the_same_bytes(
    sample: Path, sample_store: Path, tmp_path: Path, tree: Tree, replaced: int, files: int
) -> None:
    """Killed before the first shard, between shard and record, half way, before indices and the manifest.

    Each shard replaces three files: an earlier record, which is not there, the shard, and the record.
    """
    command = [sys.executable, "-c", DYING, str(sample), str(tmp_path), str(replaced)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob(".unfinished-*/*"))) > 0
    assert len(list(tmp_path.glob("*/*"))) - len(list(tmp_path.glob(".unfinished-*/*"))) == files
    with pytest.raises(DataError, match="no store here"):
        ScenarioStore(tmp_path, "train")
    kept = times(tmp_path / "test") if files >= 2 else {}
    prepare("argoverse2", sample, tmp_path, **OPTIONS)
    assert tree(tmp_path) == tree(sample_store)
    for path, when in kept.items():
        assert path.stat().st_mtime_ns == when


@needs_sigkill
def test_a_killed_rewrite_never_mixes_old_and_new(sample: Path, copy: Path) -> None:
    """From the first change on no manifest stands, so nobody reads shards of two kinds."""
    prepare("argoverse2", sample, copy, **OPTIONS, heights=True)
    assert subprocess.run([sys.executable, "-c", DYING, str(sample), str(copy), "8"]).returncode != 0
    with pytest.raises(DataError, match="no store here"):
        ScenarioStore(copy, "train")


@pytest.mark.slow
@needs_sigkill
@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2])
def test_a_parallel_run_killed_at_any_time_is_finished_to_the_same_bytes(
    sample: Path, sample_store: Path, tmp_path: Path, tree: Tree, delay: float
) -> None:
    code = (
        "import sys; from trajpred.store import prepare; "
        "prepare('argoverse2', *sys.argv[1:], workers=2, shard_size=3, progress=False)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(sample), str(tmp_path)]) as process:
        while not list(tmp_path.rglob("shard-*")) and process.poll() is None:
            time.sleep(0.005)
        time.sleep(delay)
        process.kill()
    time.sleep(2)  # its workers finish the shard at hand
    prepare("argoverse2", sample, tmp_path, **OPTIONS)
    assert tree(tmp_path) == tree(sample_store)
