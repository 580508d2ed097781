"""A store that is absent, foreign or damaged says so in one DataError, when opened or when first read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.store.damage import refused
from trajpred.store import ScenarioStore


@pytest.fixture
def store(sample_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sample_store, tmp_path / "store"))


def rewrite(store: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    path = store / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    return path


@pytest.mark.parametrize("name", ["absent", "."])
def test_no_store_says_how_to_make_one(tmp_path: Path, name: str) -> None:
    error = refused(lambda: ScenarioStore(tmp_path / name, "train"), tmp_path / name)
    assert "prepare.py" in error.message


def test_no_such_split_says_which_there_are(store: Path) -> None:
    error = refused(lambda: ScenarioStore(store, "validation"), store)
    assert "train" in error.message
    assert "val" in error.message


@pytest.mark.parametrize("version", [0, 1, 3, "2", None])
def test_a_store_of_another_version(store: Path, version: Any) -> None:
    path = rewrite(store, lambda manifest: manifest.update(version=version))
    assert "version" in refused(lambda: ScenarioStore(store, "train"), path).message


@pytest.mark.parametrize(
    ("recorded", "command"),
    [
        ({"source": "argoverse1"}, "--source argoverse1 --raw RAW_DIR --store {}"),
        ({"source": "argoverse2", "heights": True}, "--raw RAW_DIR --store {} --heights true"),
        ({"compression": "zstd", "shard_size": 64}, "--store {} --compression zstd --shard_size 64"),
    ],
    ids=["source", "heights", "compression"],
)
def test_a_store_of_version_1_says_how_to_prepare_it_again(
    tmp_path: Path, recorded: dict[str, Any], command: str
) -> None:
    """The manifest as version 1 wrote it."""
    split = {"shards": [{"file": "shard-00000.arrow", "scenarios": 3}], "skipped": {}, "lengths": [[50, 110]]}
    manifest = {"version": 1, "heights": False, **recorded, "splits": {"train": split}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    error = refused(lambda: ScenarioStore(tmp_path, "train"), tmp_path / "manifest.json")
    assert error.message.startswith("store version 1, this trajpred reads version 2; prepare it with: python")
    assert error.message.endswith(command.format(tmp_path))


def test_the_command_to_prepare_can_be_pasted(tmp_path: Path) -> None:
    error = refused(lambda: ScenarioStore(tmp_path / "my store", "train"), tmp_path / "my store")
    assert error.message.endswith(f"--raw RAW_DIR --store '{tmp_path / 'my store'}'")


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_manifest(store: Path, share: float) -> None:
    path = store / "manifest.json"
    content = path.read_bytes().strip()
    path.write_bytes(content[: int(share * len(content))])
    refused(lambda: ScenarioStore(store, "train"), path)


@pytest.mark.parametrize("content", ["[]", "null", "3", "{}", '{"version": 1}', "\xff", '{"splits": {}}'])
def test_a_manifest_of_another_shape(store: Path, content: str) -> None:
    path = store / "manifest.json"
    path.write_bytes(content.encode("latin-1"))
    refused(lambda: ScenarioStore(store, "train"), path)


@pytest.mark.parametrize(
    "value", [None, [], {}, {"shards": None}, {"shards": [{}]}, {"shards": [1]}, 3], ids=str
)
def test_a_manifest_with_a_broken_split(store: Path, value: Any) -> None:
    path = rewrite(store, lambda manifest: manifest["splits"].update(train=value))
    refused(lambda: ScenarioStore(store, "train"), path)


@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.9, 0.9999])
def test_a_truncated_shard_is_named_and_the_others_are_read(store: Path, share: float) -> None:
    path = store / "train" / "shard-00001.arrow"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    scenarios = ScenarioStore(store, "train")
    for index in (3, 4, 5):
        assert "prepare it again" in refused(lambda i=index: scenarios[i], path).message
    refused(lambda: scenarios.batch([0, 5, 7]), path)
    assert len(scenarios.scenario_ids) == 10
    assert scenarios[2].scenario_id != scenarios[6].scenario_id


def test_a_missing_shard_is_named(store: Path) -> None:
    path = store / "val" / "shard-00000.arrow"
    path.unlink()
    refused(lambda: ScenarioStore(store, "val")[0], path)


def test_a_shard_of_another_size_than_the_manifest_says(store: Path) -> None:
    path = store / "val" / "shard-00000.arrow"
    shutil.copy(store / "val" / "shard-00001.arrow", path)
    refused(lambda: ScenarioStore(store, "val")[0], path)


# -------------------------------------------------------------------------------------------- the index


def test_a_missing_index_is_named(store: Path) -> None:
    path = store / "val" / "index.arrow"
    path.unlink()
    for read in (lambda s: s[0], lambda s: s.scenario_ids, lambda s: s.sizes, lambda s: s.index("a")):
        refused(lambda read=read: read(ScenarioStore(store, "val")), path)


def test_an_index_of_another_split_is_noticed(store: Path) -> None:
    path = store / "val" / "index.arrow"
    shutil.copy(store / "train" / "index.arrow", path)
    refused(lambda: ScenarioStore(store, "val").scenario_ids, path)


def test_shards_that_changed_places_are_noticed(store: Path) -> None:
    """Both hold three scenarios, as the manifest says; the index says which."""
    shards = [store / "train" / f"shard-{i:05}.arrow" for i in (0, 1)]
    first = shards[0].read_bytes()
    shards[0].write_bytes(shards[1].read_bytes())
    shards[1].write_bytes(first)
    for row, path in ((0, shards[0]), (3, shards[1])):
        refused(lambda row=row: ScenarioStore(store, "train")[row], path)


@pytest.mark.parametrize("content", ["other columns", "no batch", "text"])
def test_a_file_that_is_no_shard_of_ours(store: Path, content: str) -> None:
    path = store / "test" / "shard-00000.arrow"
    batch = pa.record_batch({"scenario_id": ["a"]})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        if content == "other columns":
            writer.write_batch(batch)
    if content == "text":
        path.write_text("not arrow")
    refused(lambda: ScenarioStore(store, "test")[0], path)
