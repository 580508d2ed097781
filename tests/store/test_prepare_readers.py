"""prepare while others read: what the manifest names can be read at any moment."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.store.test_prepare import OPTIONS, made
from trajpred.errors import DataError
from trajpred.scenario import equal
from trajpred.sources import SOURCES, Source
from trajpred.store import ScenarioStore, prepare


def provide(patch: pytest.MonkeyPatch, **splits: str) -> None:
    """Let the source "made" find these splits: a scenario for each letter."""
    found = {split: [Path(split, letter) for letter in letters] for split, letters in splits.items()}
    patch.setitem(SOURCES, "made", Source(lambda _: found, lambda path: made(ord(path.name))))


def named(store: Path) -> dict[str, str]:
    """The letters of each split that the manifest names, all of them read."""
    path = store / "manifest.json"
    splits = json.loads(path.read_text())["splits"] if path.is_file() else {}
    ids = {split: [one.scenario_id for one in ScenarioStore(store, split)] for split in splits}
    return {split: "".join(chr(int(name.removeprefix("made-"))) for name in ids[split]) for split in ids}


@pytest.mark.parametrize(
    ("after", "options", "kept"),
    [
        ({"train": "bcdef", "val": "ghijk"}, {}, {"train"}),
        ({"train": "bcdef", "val": "ghij", "test": "klmn"}, {}, {"train", "val"}),
        ({"train": "abcdef", "test": "k"}, {}, {"val"}),
        ({"train": "bcde", "val": "ghij"}, {"overwrite": True}, {"val"}),  # its last shard is another
        ({"train": "bcd", "val": "ghijk"}, {"overwrite": True}, set()),  # and here has to go
        ({"train": "bcd", "val": "ghij"}, {"overwrite": True}, {"val"}),  # no shard has to be made
        ({"train": "bcdef", "val": "ghij"}, {"heights": True}, set()),
    ],
)
def test_whatever_is_named_can_be_read_at_any_moment_and_what_does_not_change_stays_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: dict[str, str],
    options: dict[str, Any],
    kept: set[str],
) -> None:
    """Looked at after each file that is put into the store: there a kill may come, or a reader."""
    store, moments, replace = tmp_path / "store", [], Path.replace
    before = {"train": "bcdef", "val": "ghij"}
    provide(monkeypatch, **before)
    prepare("made", tmp_path, store, **OPTIONS)

    def watched(self: Path, target: Path) -> Path:
        result = replace(self, target)
        moments.append(named(store))
        return result

    provide(monkeypatch, **after)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", watched)
        prepare("made", tmp_path, store, **OPTIONS, **options)
    wanted = {split: before[split] for split in kept} | after
    assert named(store) == wanted and len(moments) > 1
    for moment in moments[:-1]:
        assert moment == {split: before[split] for split in kept}


@pytest.mark.skipif(os.name == "nt", reason="no file in use can be replaced on this system")
def test_who_reads_a_split_that_changes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provide(monkeypatch, train="bcdef")
    prepare("made", tmp_path, tmp_path / "store", **OPTIONS)
    reader = ScenarioStore(tmp_path / "store", "train")
    first = reader[0]
    provide(monkeypatch, train="abcdef")
    prepare("made", tmp_path, tmp_path / "store", **OPTIONS)
    assert equal(reader[0], first), "a shard that is open stays as it was"
    with pytest.raises(DataError, match="is not the file named in the manifest; prepare it again"):
        reader[3]
