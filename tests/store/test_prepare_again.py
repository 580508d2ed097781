"""Repeated runs of prepare: minimal work, the same bytes, and no lost scenarios."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLE, rejects, tree
from tests.store.scenarios import OPTIONS, changed, flip, made, manifest, only, stamps, unsigned
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.predictors.continuation import Continuation
from trajpred.sources import SOURCES, RawScenario, Source
from trajpred.sources.argoverse2 import discover
from trajpred.store import ScenarioStore, prepare

Raw = Callable[..., Path]


def test_a_repeated_run_of_copied_data_writes_nothing(raw_copy: Path, copy: Path) -> None:
    before = stamps(copy)
    for path in raw_copy.rglob("*"):
        os.utime(path, (1, 1))
    for raw in (SAMPLE, raw_copy):
        assert sum(prepare("argoverse2", raw, copy, **OPTIONS).scenarios.values()) == 16
        assert stamps(copy) == before


SHARD = "train/shard-00001.arrow"
RECORD = "train/shard-00001.json"
INDEX = "val/index.arrow"
DAMAGE: dict[str, tuple[str, Callable[[Path], Any], set[str]]] = {
    "shard deleted": (SHARD, Path.unlink, {SHARD, RECORD}),
    "shard changed": (SHARD, flip, {SHARD, RECORD}),
    "record empty": (RECORD, lambda path: path.write_text("{}"), {SHARD, RECORD}),
    "record changed": (RECORD, flip, {SHARD, RECORD}),
    "index changed": (INDEX, flip, {INDEX}),
    "manifest deleted": ("manifest.json", Path.unlink, {"manifest.json"}),
    "manifest changed": ("manifest.json", flip, {"manifest.json"}),
}


@pytest.mark.parametrize(("name", "damage", "expected"), DAMAGE.values(), ids=DAMAGE.keys())
def test_only_damaged_files_are_written_again(
    sample_store: Path, copy: Path, name: str, damage: Any, expected: set[str]
) -> None:
    before = stamps(copy)
    names = {unsigned(path): path for path in before}
    damage(copy / names[name])
    prepare("argoverse2", SAMPLE, copy, **OPTIONS)
    assert tree(copy) == tree(sample_store)
    assert changed(copy, before) - {"manifest.json"} == expected - {"manifest.json"}


def test_a_changed_scenario_rebuilds_its_shard_alone(raw_copy: Path, copy: Path) -> None:
    path = next(discover(raw_copy)["train"][4].path.glob("*.json"))
    archive = json.loads(path.read_text())
    archive["drivable_areas"].popitem()
    path.write_text(json.dumps(archive))
    before = stamps(copy)
    areas = len(ScenarioStore(copy, "train")[4].map.drivable_area_id)
    prepare("argoverse2", raw_copy, copy, **OPTIONS)
    assert {SHARD, RECORD} <= changed(copy, before) <= {SHARD, RECORD, "train/index.arrow", "manifest.json"}
    assert len(ScenarioStore(copy, "train")[4].map.drivable_area_id) == areas - 1


def test_changed_packs_and_maps_are_prepared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = tmp_path / "train.pack"
    map = tmp_path / "maps" / "city.map"
    map.parent.mkdir()
    reads = []

    def read(item: RawScenario) -> Scenario:
        reads.append(item.name)
        return made(scenario_id=item.name)

    maps = (map.parent,)
    listed = [RawScenario(str(number), pack, part=number, beside=maps) for number in range(5)]
    monkeypatch.setitem(SOURCES, "packed", Source(lambda _: {"train": listed}, read))
    for pack_text, map_text, count in (("1.5", "a", 5), ("1.5", "a", 0), ("12.5", "a", 5), ("12.5", "b", 5)):
        pack.write_text(pack_text)
        map.write_text(map_text)
        reads.clear()
        prepare("packed", tmp_path, tmp_path / "store", **OPTIONS)
        assert len(reads) == count


def test_splits_prepared_apart_make_the_same_store(
    raw_copy: Path, sample_store: Path, tmp_path: Path
) -> None:
    for split in ("val", "test", "train"):
        prepare("argoverse2", only(raw_copy, split), tmp_path / "store", **OPTIONS)
    assert tree(tmp_path / "store") == tree(sample_store)


def test_splits_of_other_options_are_not_lost(raw_copy: Path, copy: Path) -> None:
    val = only(raw_copy, "val")
    before = tree(copy)
    heights = OPTIONS | {"heights": True}
    for message, options in (("heights False", heights), ("shard_size 3", OPTIONS | {"shard_size": 2})):
        rejects(f"{message}.*--overwrite", prepare, "argoverse2", val, copy, **options)
        assert tree(copy) == before
    extend = Continuation("argoverse-nano", 1.0)
    command = r"prepared with `trajpred prepare --source argoverse2 [^`]*`"
    rejects(command, prepare, "argoverse2", val, copy, extend=extend, **OPTIONS)
    prepare("argoverse2", val, copy, overwrite=True, **heights)
    assert list(manifest(copy)["splits"]) == ["val"]
    assert not list(copy.glob("train/*"))


@dataclass(frozen=True)
class Teacher:
    """An extension that describes itself as a teacher, and continues nothing."""

    name: str

    @property
    def facts(self) -> dict[str, Any]:
        return {"seconds": 6.0, "teacher": self.name}

    def __call__(self, scenario: Scenario) -> Scenario:
        return scenario


@pytest.mark.parametrize("other", [None, Teacher("new")], ids=["none", "another"])
def test_labels_of_a_teacher_are_not_lost(raw: Raw, tmp_path: Path, other: Teacher | None) -> None:
    folder = raw([made(scenario_id=str(number)) for number in range(4)])
    store = tmp_path / "store"
    prepare("made", folder, store, extend=Teacher("old"), **OPTIONS)
    for is_complete in (True, False):
        if not is_complete:  # as after a run that was interrupted
            (store / "manifest.json").unlink()
        before = tree(store)
        with pytest.raises(DataError, match=r"seconds 6\.0, teacher old.*another folder.*--overwrite"):
            prepare("made", folder, store, extend=other, **OPTIONS)
        assert tree(store) == before
    prepare("made", folder, store, extend=other, overwrite=True, **OPTIONS)
    assert manifest(store).get("extended") == (other and other.facts)


def test_scenarios_that_the_raw_data_lack_are_not_lost(raw_copy: Path, copy: Path) -> None:
    shutil.rmtree(discover(raw_copy)["train"][0].path)
    with pytest.raises(DataError, match=r"split 'train' would lose 1 scenarios: .*the raw data lack them"):
        prepare("argoverse2", raw_copy, copy, **OPTIONS)
    assert len(ScenarioStore(copy, "train")) == 10


def test_scenarios_now_unreadable_are_not_lost(raw_copy: Path, sample_store: Path, copy: Path) -> None:
    """An unmounted file system, say; also when the run is repeated."""
    lost = sorted((raw_copy / "val").glob("*/scenario_*.parquet"))
    away = [path.rename(raw_copy.parent / path.name) for path in lost]
    ids = ScenarioStore(copy, "val").scenario_ids
    before = tree(copy)
    for _ in range(2):
        with pytest.raises(DataError, match=f"lose 5 scenarios: {min(ids)}.*was skipped.*--overwrite"):
            prepare("argoverse2", raw_copy, copy, **OPTIONS)
        after = tree(copy)
        for name in before:
            if name.endswith(".arrow") or name == "manifest.json":
                assert after[name] == before[name]
        scenarios = list(ScenarioStore(copy, "val"))
        assert [scenario.scenario_id for scenario in scenarios] == ids
    for path, moved in zip(lost, away, strict=True):
        moved.rename(path)
    prepare("argoverse2", raw_copy, copy, **OPTIONS)
    assert tree(copy) == tree(sample_store)
    for path in lost[1:]:
        path.unlink()
    assert prepare("argoverse2", raw_copy, copy, **OPTIONS, overwrite=True).scenarios["val"] == 1


def test_skipped_scenarios_are_read_once_repaired_and_new_ones_added(
    raw_copy: Path, sample_store: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    folder = discover(raw_copy)["train"][2].path
    parquet = next(folder.glob("*.parquet"))
    content = parquet.read_bytes()
    parquet.write_bytes(content[:1000])
    shutil.rmtree(raw_copy / "test")
    summary = prepare("argoverse2", raw_copy, store, **OPTIONS)
    assert summary.scenarios == {"train": 9, "val": 5}
    assert parquet.name in summary.skipped["train"][folder.name]
    assert manifest(store)["splits"]["train"]["skipped"] == summary.skipped["train"]
    parquet.write_bytes(content)
    shutil.copytree(SAMPLE / "test", raw_copy / "test")
    assert prepare("argoverse2", raw_copy, store, **OPTIONS).skipped["train"] == {}
    assert tree(store) == tree(sample_store)


def test_leftovers_are_removed_and_other_files_kept(sample_store: Path, copy: Path) -> None:
    (copy / ".unfinished-1").mkdir()
    shards = ("train/shard-00000.1.partial", "val/shard-00099-0a0a0a0a.arrow")
    for name in (".unfinished-1/2", *shards, "val/index.arrow"):
        (copy / name).write_text("left over")
    (copy / "train" / "notes.txt").write_text("mine")
    prepare("argoverse2", SAMPLE, copy, **OPTIONS)
    assert tree(copy) == tree(sample_store) | {"train/notes.txt": b"mine"}
