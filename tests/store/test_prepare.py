"""One run of prepare: what a store holds, what is rejected or skipped, and what readers see meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import SAMPLE, equal, rejects, tree
from tests.scenes import SPEED, drive
from tests.store.scenarios import OPTIONS, made, manifest, stamps, unsigned
from trajpred.data.batch import ScenarioBatch
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError
from trajpred.sources import SOURCES, RawScenario, Source
from trajpred.sources.argoverse2 import discover
from trajpred.sources.windows import Spacing
from trajpred.store import ScenarioStore, prepare
from trajpred.store.reader import is_intact

Raw = Callable[..., Path]


def test_a_store_holds_manifest_indices_shards_and_records(sample_store: Path, tmp_path: Path) -> None:
    summary = prepare("argoverse2", SAMPLE, tmp_path, **(OPTIONS | {"workers": 2}))
    assert summary.scenarios == {split: len(paths) for split, paths in discover(SAMPLE).items()}
    assert summary.skipped == {split: {} for split in summary.scenarios}
    content = tree(tmp_path)
    assert content == tree(sample_store), "two workers write the bytes of one"
    assert content[".lock"] == b""
    expected = {"manifest.json", ".lock"}
    for split, count in {"test": 1, "train": 4, "val": 2}.items():
        expected.add(f"{split}/index.arrow")
        for number in range(count):
            expected.add(f"{split}/shard-{number:05}.arrow")
            expected.add(f"{split}/shard-{number:05}.json")
    assert {unsigned(name) for name in content} == expected
    assert all(is_intact(path) for path in tmp_path.glob("*/*.arrow"))
    assert manifest(tmp_path)["source"] == "argoverse2"
    assert manifest(tmp_path)["shard_size"] == 3


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("source", {"source": "nuscenes"}),
        ("workers", {"workers": 0}),
        ("shard_size", {"shard_size": 0}),
        ("options", {"options": Spacing(0.5)}),
        (None, {"raw": "absent"}),
    ],
)
def test_invalid_options_are_rejected_before_writing(
    tmp_path: Path, field: str | None, changes: dict[str, Any]
) -> None:
    store = tmp_path / "store"
    options = {"source": "argoverse2", "raw": SAMPLE, "store": store} | OPTIONS
    caught = rejects("", prepare, **(options | changes))
    assert caught.field == field
    assert not store.exists()


def test_raw_folder_and_files_are_no_target(raw_copy: Path, tmp_path: Path) -> None:
    before = tree(raw_copy)
    rejects("another folder", prepare, "argoverse2", raw_copy, raw_copy / "train" / "..", **OPTIONS)
    assert tree(raw_copy) == before
    (tmp_path / "store").write_text("a file")
    rejects("cannot be written", prepare, "argoverse2", raw_copy, tmp_path / "store", **OPTIONS)


@pytest.mark.parametrize("good", [[], [3, 4, 5], [0, 8]], ids=str)
def test_bad_scenarios_are_skipped_and_shards_may_be_empty(raw: Raw, tmp_path: Path, good: list[int]) -> None:
    """Errors of the data and any exception of a reader."""
    bad = [DataError("is bad", file=tmp_path / "raw" / "x"), ZeroDivisionError("division by zero")]
    scenarios: list[Scenario | Exception] = [bad[i % 2] for i in range(9)]
    for i in good:
        scenarios[i] = made(scenario_id=f"made-{i}")
    summary = prepare("made", raw(scenarios), tmp_path / "store", **OPTIONS)
    assert summary.scenarios == {"train": len(good)}
    messages = {"x: is bad", "ZeroDivisionError: division by zero"}
    assert set(summary.skipped["train"].values()) == messages, "messages omit the raw folder"
    store = ScenarioStore(tmp_path / "store", "train")
    assert store.scenario_ids == [f"made-{i}" for i in good]
    assert [scenario.scenario_id for scenario in store] == store.scenario_ids
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
        (lambda raw: {"train": [RawScenario("x", raw)] * 2}, "of split 'train' are called 'x'"),
        (lambda raw: {"train": []}, "no scenarios"),
        (lambda raw: {"train": [raw / "a"]}, "must discover RawScenario records"),
    ],
)
def test_invalid_listings_of_a_source_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, discover: Any, message: str
) -> None:
    monkeypatch.setitem(SOURCES, "made", Source(discover, fail))
    caught = rejects("", prepare, "made", tmp_path, tmp_path / "store", **OPTIONS)
    assert message in str(caught)
    assert not (tmp_path / "store").exists()


def test_windows_with_lost_frames_are_read_like_the_others(raw: Raw, tmp_path: Path) -> None:
    """Of sources that cut by time, whose windows have fewer frames, and by the number of frames."""
    frames = np.arange(110) / 10
    longer_past = np.arange(-2, 110) / 10
    longer_future = np.arange(120) / 10
    scenarios = [
        drive(frames, 50, "whole"),
        drive(np.delete(frames, [7, 20, 59]), 48, "fewer"),
        drive(np.delete(longer_past, [7, 20]), 50, "longer past"),
        drive(np.delete(longer_future, np.arange(70, 80)), 50, "longer future"),
    ]
    summary = prepare("made", raw(scenarios), tmp_path / "store", **OPTIONS)
    store = ScenarioStore(tmp_path / "store", "train")
    assert summary.mixed == {}
    assert store.lengths == (50, 60)
    for scenario in store:
        assert (scenario.num_observed, scenario.num_steps) == (50, 110)
        x = scenario.tracks.position[0, :, 0]
        valid = scenario.tracks.valid[0]
        expected = x[49] + SPEED * (frames - 4.9)
        np.testing.assert_allclose(x[valid], expected[valid], atol=1e-3)
    both = ScenarioBatch.of([store[3], store[1]])
    assert equal(store.batch([3, 1]).tracks, both.tracks)


def test_windows_of_several_kinds_are_reported_with_a_remedy(raw: Raw, tmp_path: Path) -> None:
    """The same numbers of steps of other lengths, and other numbers of steps."""
    kinds = {
        "8 + 4 steps of 0.1 s, 1 of 8 + 4 steps of 0.2 s": made(scenario_id="b", step_s=0.2),
        "8 + 4 steps of 0.1 s, 1 of 7 + 5 steps of 0.1 s": made(scenario_id="b", num_observed=7),
        "": made(scenario_id="b", step_s=0.1004),
    }
    for number, (words, other) in enumerate(kinds.items()):
        store = tmp_path / f"store {number}"
        folder = raw([made(scenario_id="a"), other])
        summary = prepare("made", folder, store, **OPTIONS)
        assert summary.scenarios == {"train": 2}
        problem = summary.mixed.get("train", "")
        assert words in problem
        assert ("a store of their own" in problem) == bool(words)


def provide(patch: pytest.MonkeyPatch, **splits: str) -> None:
    """Make the source "made" find these splits, with one scenario per letter."""
    listed = {}
    for split, letters in splits.items():
        listed[split] = [RawScenario(letter, Path(split, letter)) for letter in letters]
    source = Source(lambda _: listed, lambda item: made(scenario_id=item.name, map=None))
    patch.setitem(SOURCES, "made", source)


def readable(store: Path) -> dict[str, str]:
    """Read every split of the manifest and return its letters."""
    if not (store / "manifest.json").is_file():
        return {}
    letters = {}
    for split in manifest(store)["splits"]:
        letters[split] = "".join(scenario.scenario_id for scenario in ScenarioStore(store, split))
    return letters


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
    store = tmp_path / "store"
    moments = []
    replace = Path.replace
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
    assert readable(store) == after | {split: before[split] for split in kept}
    assert len(moments) > 1
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
    rejects("cannot be opened", reader.__getitem__, 3)
