"""A store that is absent, foreign or damaged says so in one DataError, when opened or when first read."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trajpred.errors import DataError
from trajpred.store import ScenarioStore


@pytest.fixture
def store(sample_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sample_store, tmp_path / "store"))


def refused(read: Callable[[], Any], file: Path) -> DataError:
    with pytest.raises(DataError) as caught:
        read()
    assert caught.value.file == file
    assert str(caught.value).count("prepare it") <= 1
    return caught.value


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


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_a_store_of_another_version(store: Path, version: Any) -> None:
    path = rewrite(store, lambda manifest: manifest.update(version=version))
    assert "version" in refused(lambda: ScenarioStore(store, "train"), path).message


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
    refused(lambda: scenarios.scenario_ids, path)
    assert scenarios[2].scenario_id != scenarios[6].scenario_id


def test_a_missing_shard_is_named(store: Path) -> None:
    path = store / "val" / "shard-00000.arrow"
    path.unlink()
    refused(lambda: ScenarioStore(store, "val")[0], path)


def test_a_shard_of_another_size_than_the_manifest_says(store: Path) -> None:
    path = store / "val" / "shard-00000.arrow"
    shutil.copy(store / "val" / "shard-00001.arrow", path)
    refused(lambda: ScenarioStore(store, "val")[0], path)


#: In a process of its own, because what is tested is that it does not crash.
FUZZ = """
import random, sys, warnings
from pathlib import Path
from trajpred.errors import DataError
from trajpred.store import ScenarioStore

warnings.simplefilter("ignore")
store, random_, refused = Path(sys.argv[1]), random.Random(int(sys.argv[2])), 0
path = store / "test" / "shard-00000.arrow"
content = path.read_bytes()
zones = [range(9000), range(len(content) - 9000, len(content)), range(len(content))]
for i in range(300):
    damaged = bytearray(content)
    for _ in range(3):
        damaged[random_.choice(zones[i % 3])] = random_.randrange(256)
    path.write_bytes(damaged)
    try:
        scenarios = ScenarioStore(store, "test")
        scenarios[0], scenarios.scenario_ids
    except DataError:
        refused += 1
print(refused)
"""


@pytest.mark.parametrize("seed", [0, 1])  # without validation of the batch, both crash
def test_random_damage_gives_a_scenario_or_a_data_error(store: Path, seed: int) -> None:
    command = [sys.executable, "-c", FUZZ, str(store), str(seed)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    assert int(run.stdout) > 50


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
