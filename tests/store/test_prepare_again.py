"""A second run: nothing if nothing changed, the least if something did, and no scenario is lost."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trajpred.errors import DataError
from trajpred.scenario import Scenario, equal
from trajpred.sources import SOURCES, Source
from trajpred.sources.argoverse2 import discover
from trajpred.store import ScenarioStore, prepare

Tree = Callable[[Path], dict[str, bytes]]
Raw = Callable[..., Path]
OPTIONS: dict[str, Any] = {"workers": 1, "shard_size": 3, "progress": False}


def stamps(store: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of each file: other ones tell that it was written, even to the same bytes."""
    found = {str(path.relative_to(store)): path.stat() for path in store.rglob("*") if path.is_file()}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in found.items() if name != ".lock"}


def manifest(store: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((store / "manifest.json").read_text())
    return content


@pytest.fixture
def raw_copy(sample: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sample, tmp_path / "raw"))


@pytest.fixture
def copy(sample_store: Path, tmp_path: Path) -> Path:
    """A store of the sample that may be changed."""
    return Path(shutil.copytree(sample_store, tmp_path / "copy"))


# ----------------------------------------------------------------------------------------------- no change


def test_nothing_is_written_if_nothing_changed_not_even_after_raw_was_copied(
    sample: Path, raw_copy: Path, copy: Path
) -> None:
    before = stamps(copy)
    for path in raw_copy.rglob("*"):
        os.utime(path, (1, 1))
    for raw in (sample, raw_copy):
        prepare("argoverse2", raw, copy, **OPTIONS)
        assert stamps(copy) == before


def test_nothing_is_written_if_the_same_scenarios_cannot_be_read(raw_copy: Path, tmp_path: Path) -> None:
    next(discover(raw_copy)["val"][1].glob("*.json")).unlink()
    first = prepare("argoverse2", raw_copy, tmp_path / "store", **OPTIONS)
    assert len(first.skipped["val"]) == 1
    before = stamps(tmp_path / "store")
    assert prepare("argoverse2", raw_copy, tmp_path / "store", **OPTIONS) == first
    assert stamps(tmp_path / "store") == before


def test_messages_do_not_tell_where_the_raw_folder_lay(raw_copy: Path, tmp_path: Path, tree: Tree) -> None:
    next(discover(raw_copy)["val"][1].glob("*.json")).unlink()
    prepare("argoverse2", raw_copy, tmp_path / "store", **OPTIONS)
    assert not any(str(tmp_path).encode() in content for content in tree(tmp_path / "store").values())


# -------------------------------------------------------------------------------------------- changed input


def test_a_scenario_of_another_size_is_prepared_again_with_its_shard_alone(
    raw_copy: Path, copy: Path, sample: Path, sample_store: Path, tree: Tree
) -> None:
    folder = discover(raw_copy)["train"][4]
    path = next(folder.glob("*.json"))
    archive = json.loads(path.read_text())
    dropped = next(iter(archive["pedestrian_crossings"] or archive["drivable_areas"]))
    (archive["pedestrian_crossings"] or archive["drivable_areas"]).pop(dropped)
    path.write_text(json.dumps(archive))
    before = stamps(copy)
    prepare("argoverse2", raw_copy, copy, **OPTIONS)
    changed = {name for name, stamp in stamps(copy).items() if stamp != before[name]}
    assert {"train/shard-00001.arrow", "train/shard-00001.json"} <= changed
    assert changed <= {
        "train/shard-00001.arrow",
        "train/shard-00001.json",
        "train/index.arrow",
        "manifest.json",
    }
    one, other = (ScenarioStore(store, "train")[4].map for store in (copy, sample_store))
    assert len(one.crossing_id) + len(one.drivable_area_id) + 1 == len(other.crossing_id) + len(
        other.drivable_area_id
    )
    prepare("argoverse2", sample, copy, **OPTIONS)
    assert tree(copy) == tree(sample_store)


def test_a_pack_of_another_size_is_prepared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack, reads = tmp_path / "train.pack", []

    def read(path: Path) -> Scenario:
        reads.append(path.name)
        x = float(pack.read_text())
        return Scenario.from_arrays([[[x, 0], [x, 1]]], num_observed=1, scenario_id=path.name)

    names = [pack / str(number) for number in range(5)]
    monkeypatch.setitem(SOURCES, "packed", Source(lambda _: {"train": names}, read))
    for content, count in (("1.5", 5), ("1.5", 0), ("12.5", 5)):
        pack.write_text(content)
        reads.clear()
        prepare("packed", tmp_path, tmp_path / "store", **OPTIONS)
        assert len(reads) == count
    [x] = {
        float(scenario.tracks.position[0, 0, 0]) for scenario in ScenarioStore(tmp_path / "store", "train")
    }
    assert x == 12.5


# ------------------------------------------------------------------------------------ manifest and options


def test_the_manifest_says_what_made_the_store(sample: Path, sample_store: Path, tmp_path: Path) -> None:
    content = manifest(sample_store)
    settings = {"source": "argoverse2", "heights": False, "compression": None, "shard_size": 3}
    assert {name: content[name] for name in settings} == settings
    assert {split: entry["scenarios"] for split, entry in content["splits"].items()} == {
        "test": 1,
        "train": 10,
        "val": 5,
    }
    hashes = {content["config"]}
    for number, changes in enumerate([{"heights": True}, {"compression": "zstd"}, {"shard_size": 4}]):
        prepare("argoverse2", sample, tmp_path / str(number), **(OPTIONS | changes))
        hashes.add(manifest(tmp_path / str(number))["config"])
    assert len(hashes) == 4


def test_the_index_names_each_row(sample_store: Path) -> None:
    for split in ("train", "val", "test"):
        table = pa.ipc.open_file(str(sample_store / split / "index.arrow")).read_all().to_pydict()
        scenarios = list(ScenarioStore(sample_store, split))
        assert table["scenario_id"] == [one.scenario_id for one in scenarios]
        seen = [int(one.tracks.valid[:, : one.num_observed].any(axis=1).sum()) for one in scenarios]
        assert table["tracks"] == seen
        assert table["lanes"] == [len(one.map.lane_id) + len(one.map.crossing_id) for one in scenarios]


def test_a_compressed_store_is_smaller_and_holds_the_same(
    sample: Path, sample_store: Path, tmp_path: Path
) -> None:
    prepare("argoverse2", sample, tmp_path, **OPTIONS, compression="zstd")
    for a, b in zip(ScenarioStore(tmp_path, "train"), ScenarioStore(sample_store, "train"), strict=True):
        assert equal(a, b)
    sizes = [sum(p.stat().st_size for p in store.rglob("*.arrow")) for store in (tmp_path, sample_store)]
    assert sizes[0] < 0.8 * sizes[1]


@pytest.mark.parametrize("damage", ["deleted", "truncated", "another shape", "index deleted", "index cut"])
def test_a_damaged_manifest_or_index_alone_is_written_again(
    sample: Path, sample_store: Path, copy: Path, tree: Tree, damage: str
) -> None:
    path = copy / ("val/index.arrow" if "index" in damage else "manifest.json")
    before = stamps(copy)
    if "deleted" in damage:
        path.unlink()
    else:
        path.write_bytes(b"[1]" if damage == "another shape" else path.read_bytes()[:-100])
    prepare("argoverse2", sample, copy, **OPTIONS)
    assert tree(copy) == tree(sample_store)
    assert {name for name, one in stamps(copy).items() if one != before[name]} == {
        str(path.relative_to(copy))
    }


# -------------------------------------------------------------------------------------------- other splits


def only(raw: Path, split: str) -> Path:
    """``raw`` with one split."""
    target = raw.with_name(f"only {split}")
    shutil.copytree(raw / split, target / split)
    return target


def test_splits_prepared_one_by_one_make_the_same_store(
    sample: Path, raw_copy: Path, sample_store: Path, tmp_path: Path, tree: Tree
) -> None:
    for split in ("val", "test", "train"):
        prepare("argoverse2", only(raw_copy, split), tmp_path / "store", **OPTIONS)
    assert tree(tmp_path / "store") == tree(sample_store)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"heights": True}, "heights False"),
        ({"shard_size": 2}, "shard_size 3"),
        ({"compression": "zstd"}, "None"),
    ],
)
def test_splits_made_with_other_options_are_not_mixed(
    raw_copy: Path, copy: Path, tree: Tree, changes: dict[str, Any], named: str
) -> None:
    val, before = only(raw_copy, "val"), tree(copy)
    with pytest.raises(DataError) as caught:
        prepare("argoverse2", val, copy, **(OPTIONS | changes))
    assert named in str(caught.value) and "--overwrite" in str(caught.value)
    assert tree(copy) == before
    prepare("argoverse2", val, copy, **(OPTIONS | changes), overwrite=True)
    assert list(manifest(copy)["splits"]) == ["val"]
    assert not list(copy.glob("train/*"))


def test_the_raw_folder_is_no_store(raw_copy: Path, tree: Tree) -> None:
    before = tree(raw_copy)
    with pytest.raises(DataError, match="another folder"):
        prepare("argoverse2", raw_copy, raw_copy / "." / "train" / "..", **OPTIONS)
    assert tree(raw_copy) == before


def test_another_source_does_not_take_over_a_store(raw: Raw, copy: Path, tree: Tree) -> None:
    made, before = raw([Scenario.from_arrays(np.zeros((1, 2, 2)), num_observed=1)]), tree(copy)
    with pytest.raises(DataError, match="source argoverse2"):
        prepare("made", made, copy, **OPTIONS)
    assert tree(copy) == before


def test_a_store_of_another_version_is_made_anew_if_nothing_is_lost(
    sample: Path, raw_copy: Path, sample_store: Path, copy: Path, tree: Tree
) -> None:
    (copy / "manifest.json").write_text(json.dumps(manifest(copy) | {"version": 1, "config": "other"}))
    with pytest.raises(DataError, match="version 1"):
        prepare("argoverse2", only(raw_copy, "val"), copy, **OPTIONS)
    prepare("argoverse2", sample, copy, **OPTIONS)
    assert tree(copy) == tree(sample_store)


def test_scenarios_are_protected_even_if_the_manifest_is_damaged(raw_copy: Path, copy: Path) -> None:
    (copy / "manifest.json").write_text("{")
    shutil.rmtree(discover(raw_copy)["train"][0])
    with pytest.raises(DataError, match="split 'train' holds 1 scenarios that the raw data lack"):
        prepare("argoverse2", raw_copy, copy, **OPTIONS)
