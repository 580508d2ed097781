"""prepare: the same bytes on every path, minimal work when repeated, no lost scenarios, no mixed reads."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import SAMPLE, equal, tree
from tests.store.scenarios import OPTIONS, flip, made
from trajpred.errors import DataError
from trajpred.scenario import Scenario
from trajpred.scenario_batch import ScenarioBatch
from trajpred.sources import SOURCES, RawScenario, Source
from trajpred.sources.argoverse2 import discover
from trajpred.store import ScenarioStore, prepare
from trajpred.store.shards import is_intact

Raw = Callable[..., Path]


def stamps(store: Path) -> dict[str, tuple[int, int]]:
    """Return inode and modification time of each file, which change whenever it is written."""
    found = {str(path.relative_to(store)): path.stat() for path in store.rglob("*") if path.is_file()}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in found.items() if name != ".lock"}


def changed(store: Path, before: dict[str, tuple[int, int]]) -> set[str]:
    """Return the names of the files written since, without checksums."""
    return {unsigned(name) for name, stamp in stamps(store).items() if stamp != before.get(name)}


def unsigned(name: str) -> str:
    return re.sub(r"-[0-9a-f]{8}\.arrow$", ".arrow", name)


def manifest(store: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((store / "manifest.json").read_text())
    return content


@pytest.fixture
def raw_copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLE, tmp_path / "raw"))


def only(raw: Path, split: str) -> Path:
    """Copy one split of ``raw``."""
    target = raw.with_name(f"only {split}")
    shutil.copytree(raw / split, target / split)
    return target


# ------------------------------------------------------------------------------------------ one run


def test_a_store_holds_manifest_indices_shards_and_records(sample_store: Path, tmp_path: Path) -> None:
    summary = prepare("argoverse2", SAMPLE, tmp_path, **(OPTIONS | {"workers": 2}))
    assert summary.scenarios == {split: len(paths) for split, paths in discover(SAMPLE).items()}
    assert summary.skipped == {split: {} for split in summary.scenarios}
    content = tree(tmp_path)
    assert content == tree(sample_store), "two workers write the bytes of one"
    counts = {"test": 1, "train": 4, "val": 2}
    shards = [f"{split}/shard-{i:05}" for split, count in counts.items() for i in range(count)]
    expected = {f"{shard}{end}" for shard in shards for end in (".arrow", ".json")}
    expected |= {f"{split}/index.arrow" for split in summary.scenarios}
    assert set(map(unsigned, content)) == expected | {"manifest.json", ".lock"} and content[".lock"] == b""
    assert all(is_intact(path) for path in tmp_path.glob("*/*.arrow"))
    assert manifest(tmp_path)["source"] == "argoverse2" and manifest(tmp_path)["shard_size"] == 3


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("source", {"source": "nuscenes"}),
        ("workers", {"workers": 0}),
        ("shard_size", {"shard_size": 0}),
        ("every_s", {"every_s": 0.5}),
        (None, {"raw": "absent"}),
    ],
)
def test_invalid_options_are_rejected_before_writing(
    tmp_path: Path, field: str | None, changes: dict[str, Any]
) -> None:
    given = {"source": "argoverse2", "raw": SAMPLE, "store": tmp_path / "store", **OPTIONS, **changes}
    with pytest.raises(DataError) as caught:
        prepare(**given)
    assert caught.value.field == field and not (tmp_path / "store").exists()


def test_raw_folder_and_files_are_no_target(raw_copy: Path, tmp_path: Path) -> None:
    before = tree(raw_copy)
    with pytest.raises(DataError, match="another folder"):
        prepare("argoverse2", raw_copy, raw_copy / "train" / "..", **OPTIONS)
    assert tree(raw_copy) == before
    (tmp_path / "store").write_text("a file")
    with pytest.raises(DataError, match="cannot be written"):
        prepare("argoverse2", raw_copy, tmp_path / "store", **OPTIONS)


# -------------------------------------------------------------------------------------- bad scenarios


@pytest.mark.parametrize("good", [[], [3, 4, 5], [0, 8]], ids=str)
def test_bad_scenarios_are_skipped_and_shards_may_be_empty(raw: Raw, tmp_path: Path, good: list[int]) -> None:
    """Errors of the data and any exception of a reader."""
    bad = [DataError("is bad", file=tmp_path / "raw" / "x"), ZeroDivisionError("division by zero")]
    scenarios = [made(scenario_id=f"made-{i}") if i in good else bad[i % 2] for i in range(9)]
    summary = prepare("made", raw(scenarios), tmp_path / "store", **OPTIONS)
    assert summary.scenarios == {"train": len(good)}
    messages = {"x: is bad", "ZeroDivisionError: division by zero"}
    assert set(summary.skipped["train"].values()) == messages, "messages omit the raw folder"
    store = ScenarioStore(tmp_path / "store", "train")
    assert [one.scenario_id for one in store] == store.scenario_ids == [f"made-{i}" for i in good]
    if not good:
        with pytest.raises(DataError, match="no scenario"):
            _ = store.lengths
    before = stamps(tmp_path / "store")
    assert prepare("made", tmp_path / "raw", tmp_path / "store", **OPTIONS) == summary
    assert stamps(tmp_path / "store") == before


def test_scenarios_with_the_same_id_are_rejected(raw: Raw, tmp_path: Path) -> None:
    folder = raw([made(), made(scenario_id="other"), made(), made()])
    with pytest.raises(DataError, match="3 scenarios of split 'train' have the id 'scenario'"):
        prepare("made", folder, tmp_path / "store", **OPTIONS)
    assert not (tmp_path / "store" / "manifest.json").exists()


def fail(_: Any) -> Any:
    raise KeyError("no such table")


@pytest.mark.parametrize(
    ("discover", "message"),
    [
        (fail, "cannot be listed (KeyError: 'no such table')"),
        (lambda raw: {"../up": [RawScenario.of(raw / "a")]}, "must be a plain folder name, not '../up'"),
        (
            lambda raw: {"train": [RawScenario("x", raw)] * 2},
            "of split 'train' are called 'x'",
        ),
        (lambda raw: {"train": []}, "no scenarios"),
        (lambda raw: {"train": [raw / "a"]}, "must discover RawScenario records"),
    ],
)
def test_invalid_listings_of_a_source_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, discover: Any, message: str
) -> None:
    monkeypatch.setitem(SOURCES, "made", Source(discover, fail))
    with pytest.raises(DataError) as caught:
        prepare("made", tmp_path, tmp_path / "store", **OPTIONS)
    assert message in str(caught.value) and not (tmp_path / "store").exists()


# ------------------------------------------------------------------------------------------ repeated runs


def test_a_repeated_run_of_copied_data_writes_nothing(raw_copy: Path, copy: Path) -> None:
    before = stamps(copy)
    for path in raw_copy.rglob("*"):
        os.utime(path, (1, 1))
    for raw in (SAMPLE, raw_copy):
        assert sum(prepare("argoverse2", raw, copy, **OPTIONS).scenarios.values()) == 16
        assert stamps(copy) == before


SHARD, RECORD, INDEX = "train/shard-00001.arrow", "train/shard-00001.json", "val/index.arrow"
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
    [path] = [path for path in copy.rglob("*") if unsigned(str(path.relative_to(copy))) == name]
    damage(path)
    prepare("argoverse2", SAMPLE, copy, **OPTIONS)
    assert tree(copy) == tree(sample_store)
    assert changed(copy, before) - {"manifest.json"} == expected - {"manifest.json"}


def test_a_changed_scenario_rebuilds_its_shard_alone(raw_copy: Path, copy: Path) -> None:
    path = next(discover(raw_copy)["train"][4].path.glob("*.json"))
    archive = json.loads(path.read_text())
    archive["drivable_areas"].popitem()
    path.write_text(json.dumps(archive))
    before, areas = stamps(copy), len(ScenarioStore(copy, "train")[4].map.drivable_area_id)
    prepare("argoverse2", raw_copy, copy, **OPTIONS)
    assert {SHARD, RECORD} <= changed(copy, before) <= {SHARD, RECORD, "train/index.arrow", "manifest.json"}
    assert len(ScenarioStore(copy, "train")[4].map.drivable_area_id) == areas - 1


def test_a_changed_pack_is_prepared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack, reads = tmp_path / "train.pack", []

    def read(one: RawScenario) -> Scenario:
        reads.append(one.name)
        return made(scenario_id=one.name)

    listed = [RawScenario(str(number), pack, part=number) for number in range(5)]
    monkeypatch.setitem(SOURCES, "packed", Source(lambda _: {"train": listed}, read))
    for content, count in (("1.5", 5), ("1.5", 0), ("12.5", 5)):
        pack.write_text(content)
        reads.clear()
        prepare("packed", tmp_path, tmp_path / "store", **OPTIONS)
        assert len(reads) == count


@pytest.mark.parametrize("changes", [{"heights": True}, {"shard_size": 100}], ids=str)
def test_other_options_rewrite_the_store(sample_store: Path, copy: Path, changes: dict[str, Any]) -> None:
    prepare("argoverse2", SAMPLE, copy, **(OPTIONS | changes))
    assert manifest(copy)["config"] != manifest(sample_store)["config"]
    heights = ScenarioStore(copy, "train")[0].map.left_boundary.values.shape[1] == 3
    assert heights == ("heights" in changes)
    if not heights:
        assert all(map(equal, ScenarioStore(copy, "train"), ScenarioStore(sample_store, "train")))
    prepare("argoverse2", SAMPLE, copy, **OPTIONS)
    assert tree(copy) == tree(sample_store), "nothing of the other options is left"


# ---------------------------------------------------------------------------------- protected scenarios


def test_splits_prepared_separately_make_the_same_store(
    raw_copy: Path, sample_store: Path, tmp_path: Path
) -> None:
    for split in ("val", "test", "train"):
        prepare("argoverse2", only(raw_copy, split), tmp_path / "store", **OPTIONS)
    assert tree(tmp_path / "store") == tree(sample_store)


def test_splits_of_other_options_are_not_lost(raw_copy: Path, copy: Path) -> None:
    val, before = only(raw_copy, "val"), tree(copy)
    for changes, message in (({"heights": True}, "heights False"), ({"shard_size": 2}, "shard_size 3")):
        with pytest.raises(DataError, match=f"{message}.*--overwrite"):
            prepare("argoverse2", val, copy, **(OPTIONS | changes))
        assert tree(copy) == before
    prepare("argoverse2", val, copy, **(OPTIONS | {"heights": True}), overwrite=True)
    assert list(manifest(copy)["splits"]) == ["val"] and not list(copy.glob("train/*"))


def test_scenarios_that_the_raw_data_lack_are_not_lost(raw_copy: Path, copy: Path) -> None:
    shutil.rmtree(discover(raw_copy)["train"][0].path)
    with pytest.raises(DataError, match=r"split 'train' would lose 1 scenarios: .*the raw data lack them"):
        prepare("argoverse2", raw_copy, copy, **OPTIONS)
    assert len(ScenarioStore(copy, "train")) == 10


def test_scenarios_that_became_unreadable_are_not_lost(
    raw_copy: Path, sample_store: Path, copy: Path
) -> None:
    """An unmounted file system, say; also when the run is repeated."""
    lost = [path for one in discover(raw_copy)["val"] for path in one.path.glob("scenario_*.parquet")]
    away = [path.rename(raw_copy.parent / path.name) for path in lost]
    ids, before = ScenarioStore(copy, "val").scenario_ids, tree(copy)
    for _ in range(2):
        with pytest.raises(DataError, match=f"lose 5 scenarios: {min(ids)}.*was skipped.*--overwrite"):
            prepare("argoverse2", raw_copy, copy, **OPTIONS)
        used = {name for name in before if name.endswith(".arrow")} | {"manifest.json"}
        assert {name: tree(copy)[name] for name in used} == {name: before[name] for name in used}
        assert [one.scenario_id for one in ScenarioStore(copy, "val")] == ids
    for path, moved in zip(lost, away, strict=True):
        moved.rename(path)
    prepare("argoverse2", raw_copy, copy, **OPTIONS)
    assert tree(copy) == tree(sample_store)
    for path in lost[1:]:
        path.unlink()
    assert prepare("argoverse2", raw_copy, copy, **OPTIONS, overwrite=True).scenarios["val"] == 1


# ------------------------------------------------------------------------------------------------ readers


def provide(patch: pytest.MonkeyPatch, **splits: str) -> None:
    """Make the source "made" find these splits, with one scenario per letter."""
    found = {}
    for split, letters in splits.items():
        found[split] = [RawScenario(letter, Path(split, letter)) for letter in letters]
    source = Source(lambda _: found, lambda one: made(scenario_id=one.name, map=None))
    patch.setitem(SOURCES, "made", source)


def readable(store: Path) -> dict[str, str]:
    """Read every split of the manifest and return its letters."""
    path = store / "manifest.json"
    splits = json.loads(path.read_text())["splits"] if path.is_file() else {}
    return {split: "".join(one.scenario_id for one in ScenarioStore(store, split)) for split in splits}


@pytest.mark.parametrize(
    ("after", "options", "kept"),
    [
        ({"train": "bcdef", "val": "ghijk", "test": "kl"}, {}, set()),
        ({"train": "abcdef", "test": "k"}, {}, {"val"}),
        ({"train": "bcd", "val": "ghij"}, {"overwrite": True}, set()),  # no shard is made
        ({"train": "bcdef", "val": "ghij"}, {"heights": True, "shard_size": 2}, set()),
    ],
)
def test_the_manifest_names_only_readable_splits_at_every_moment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: dict[str, str],
    options: dict[str, Any],
    kept: set[str],
) -> None:
    """Checked after every file that enters the store, where a kill or a reader may come: first the old splits
    are complete, then the new ones."""
    store, moments, replace = tmp_path / "store", [], Path.replace
    before = {"train": "bcdef", "val": "ghij"}
    provide(monkeypatch, **before)
    prepare("made", tmp_path, store, **OPTIONS)

    def watched(self: Path, target: Path) -> Path:
        result = replace(self, target)
        moments.append(readable(store))
        return result

    provide(monkeypatch, **after)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", watched)
        prepare("made", tmp_path, store, **OPTIONS | options)
    assert readable(store) == {split: before[split] for split in kept} | after and len(moments) > 1
    assert all(moment == before for moment in moments[:-1])


@pytest.mark.skipif(os.name == "nt", reason="open files cannot be replaced on this system")
def test_readers_of_a_changed_split_get_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provide(monkeypatch, train="bcdef")
    prepare("made", tmp_path, tmp_path / "store", **OPTIONS)
    reader = ScenarioStore(tmp_path / "store", "train")
    first = reader[0]
    provide(monkeypatch, train="abcdef")
    prepare("made", tmp_path, tmp_path / "store", **OPTIONS)
    assert equal(reader[0], first), "an open shard stays as it was"
    with pytest.raises(DataError, match="cannot be opened"):
        reader[3]


def test_skipped_scenarios_are_read_once_repaired_and_new_ones_added(
    raw_copy: Path, sample_store: Path, tmp_path: Path
) -> None:
    store, folder = tmp_path / "store", discover(raw_copy)["train"][2].path
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
    old = ("train/shard-00000.1.partial", "val/shard-00099-0a0a0a0a.arrow", "val/index.arrow")
    for name in (".unfinished-1/2", *old):
        (copy / name).write_text("left over")
    (copy / "train" / "notes.txt").write_text("mine")
    prepare("argoverse2", SAMPLE, copy, **OPTIONS)
    assert tree(copy) == tree(sample_store) | {"train/notes.txt": b"mine"}


def straight(name: str, observed: np.ndarray, future: np.ndarray) -> Scenario:
    """Return a car at 15 m/s, recorded in the given tenths of a second."""
    seconds = np.concatenate((observed, future)) / 10
    position = np.stack((15 * seconds, 0 * seconds), -1)
    made_ = Scenario.from_arrays(position[None], num_observed=len(observed), scenario_id=name)
    return replace(made_, timestamps_ns=np.round(seconds * 1e9).astype(np.int64))


def test_windows_with_lost_frames_are_read_like_the_others(raw: Raw, tmp_path: Path) -> None:
    """Of sources that cut by time, whose windows have fewer frames, and by the number of frames."""
    past, ahead = np.arange(50), np.arange(50, 110)
    scenarios = [
        straight("whole", past, ahead),
        straight("fewer", np.delete(past, [7, 20]), np.delete(ahead, 9)),
        straight("longer past", np.delete(np.arange(-2, 50), [7, 20]), ahead),
        straight("longer future", past, np.delete(np.arange(50, 120), np.arange(20, 30))),
    ]
    summary = prepare("made", raw(scenarios), tmp_path / "store", **OPTIONS)
    store = ScenarioStore(tmp_path / "store", "train")
    assert summary.mixed == {} and store.lengths == (50, 60)
    for found in store:
        assert (found.num_observed, found.num_steps) == (50, 110)
        seconds = (np.arange(110) - 49) / 10
        now = found.tracks.position[0, 49, 0]
        valid = found.tracks.valid[0]
        np.testing.assert_allclose(found.tracks.position[0, valid, 0], now + 15 * seconds[valid], atol=1e-3)
    both = ScenarioBatch.of([store[3], store[1]])
    assert equal(store.batch([3, 1]).tracks, both.tracks)


def test_windows_of_several_kinds_are_reported_with_a_remedy(raw: Raw, tmp_path: Path) -> None:
    """The same numbers of steps of other lengths, and other numbers of steps."""
    kinds = {
        "8 + 4 steps of 0.1 s, 1 of 8 + 4 steps of 0.2 s": [made(scenario_id="b", step_s=0.2)],
        "8 + 4 steps of 0.1 s, 1 of 7 + 5 steps of 0.1 s": [made(scenario_id="b", num_observed=7)],
        "": [made(scenario_id="b", step_s=0.1004)],
    }
    for number, (words, others) in enumerate(kinds.items()):
        store = tmp_path / f"store {number}"
        summary = prepare("made", raw([made(scenario_id="a"), *others]), store, **OPTIONS)
        assert summary.scenarios == {"train": 2}
        problem = summary.mixed.get("train", "")
        assert words in problem and ("a store of their own" in problem) == bool(words)
