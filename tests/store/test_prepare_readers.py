"""Readers while a store is replaced: every split is complete at every moment."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import equal
from tests.store.scenarios import OPTIONS, made, manifest
from trajpred.errors import DataError
from trajpred.sources import SOURCES, RawScenario, Source
from trajpred.store import ScenarioStore, prepare

Raw = Callable[..., Path]


def provide(patch: pytest.MonkeyPatch, **splits: str) -> None:
    """Make the source "made" find these splits, with one scenario per letter."""
    listed = {}
    for split, letters in splits.items():
        listed[split] = [RawScenario(letter, Path(split, letter)) for letter in letters]
    source = Source(lambda _: listed, lambda item: made(scenario_id=item.name, map=None))
    patch.setitem(SOURCES, "made", source)


def readable(store: Path) -> dict[str, str]:
    """Read every split of the manifest and return its letters."""
    path = store / "manifest.json"
    if not path.is_file():
        return {}
    letters = {}
    for split in manifest(store)["splits"]:
        ids = [scenario.scenario_id for scenario in ScenarioStore(store, split)]
        letters[split] = "".join(ids)
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
    expected = dict(after)
    for split in kept:
        expected[split] = before[split]
    assert readable(store) == expected
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
    with pytest.raises(DataError, match="cannot be opened"):
        reader[3]
