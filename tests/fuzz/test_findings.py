"""What fuzzing found, one test for each: every case was a crash, or memory without bound, before."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.fuzz.raw_readers import argoverse1_pack, small_scenario
from tests.fuzz.result_readers import bundle_files, predictions, results, zipped
from tests.fuzz.store_readers import scenes
from tests.fuzz.tables import to_parquet
from tests.sources.argoverse1_files import made_map
from trajpred.errors import DataError, as_strings
from trajpred.model.checkpoint import CALIBRATION, CONFIG, TRAINING, read_checkpoint
from trajpred.onboard.bundle import MANIFEST, Bundle, is_bundle
from trajpred.sources import argoverse1_map, argoverse2
from trajpred.store import ScenarioStore, prepare


@pytest.fixture
def store(tmp_path: Path) -> Path:
    prepare("argoverse2", scenes(tmp_path / "raw"), tmp_path / "store", workers=1, progress=False)
    return tmp_path / "store"


def rewritten(path: Path, change: Callable[[Any], Any]) -> None:
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))


MANIFESTS: dict[str, Callable[[Any], Any]] = {
    "lengths that are none": lambda val: val.update(lengths=[[5]]),
    "a length of another type": lambda val: val.update(lengths=[[{}, 10]]),
    "more scenarios than can be": lambda val: val["shards"][0].update(scenarios=2**63),
    "a number as text": lambda val: val["shards"][0].update(scenarios="2"),
    "a shard elsewhere": lambda val: val["shards"][0].update(file="../../other.arrow"),
}


@pytest.mark.parametrize("change", MANIFESTS.values(), ids=MANIFESTS.keys())
def test_a_manifest_that_says_what_cannot_be(store: Path, change: Callable[[Any], Any]) -> None:
    rewritten(store / "manifest.json", lambda manifest: change(manifest["splits"]["val"]))
    with pytest.raises(DataError, match="splits"):
        ScenarioStore(store, "val")
    prepare("argoverse2", store.parent / "raw", store, workers=1, progress=False)
    assert len(ScenarioStore(store, "val")) == 2


def test_what_a_manifest_names_outside_the_store_is_not_removed(store: Path) -> None:
    other = Path(shutil.copytree(store / "val", store.parent / "other"))
    rewritten(
        store / "manifest.json", lambda m: m.update(config="x", splits={"../other": m["splits"]["val"]})
    )
    prepare("argoverse2", store.parent / "raw", store, workers=1, progress=False, overwrite=True)
    assert {path.name for path in other.iterdir()} == {path.name for path in (store / "val").iterdir()}


RECORDS: dict[str, Callable[[Any], Any]] = {
    "no lengths": lambda record: record.pop("lengths"),
    "lengths of none": lambda record: record.update(lengths=[]),
    "lengths of one number": lambda record: record.update(lengths=[[5]]),
    "more observed than there are": lambda record: record.update(lengths=[[5, 3]]),
    "another name": lambda record: record["scenario_id"].__setitem__(0, "other"),
    "a column cut short": lambda record: record["tracks"].pop(),
    "texts for numbers": lambda record: record.update(lanes=["a", "b"]),
}


@pytest.mark.parametrize("change", RECORDS.values(), ids=RECORDS.keys())
def test_a_shard_with_a_damaged_record_is_made_again(store: Path, change: Callable[[Any], Any]) -> None:
    path = store / "val" / "shard-00000.json"
    whole = path.read_bytes()
    rewritten(path, change)
    prepare("argoverse2", store.parent / "raw", store, workers=1, progress=False)
    assert path.read_bytes() == whole


def test_a_pack_with_a_column_twice_or_of_lists(tmp_path: Path) -> None:
    reader = argoverse1_pack(tmp_path)
    table = pq.read_table(pa.BufferReader(reader.seeds[0]))
    lists = pa.array([[1]] * len(table), pa.list_(pa.int32()))
    twice = table.append_column("CITY_NAME", table["CITY_NAME"])
    for spoilt in (twice, table.set_column(0, "seq_id", lists)):
        with pytest.raises(DataError, match="must be a column of"):
            reader.read(to_parquet(spoilt))


def test_predictions_with_a_column_twice_or_text_that_is_not_utf8(tmp_path: Path) -> None:
    reader = predictions(tmp_path)
    table = pq.read_table(pa.BufferReader(reader.seeds[0]))
    with pytest.raises(DataError, match="twice"):
        reader.read(to_parquet(table.append_column("probability", table["probability"])))
    letters = pa.array([b"\xff\xfe"] * len(table), pa.binary()).buffers()
    spoilt = pa.Array.from_buffers(pa.string(), len(table), letters)
    with pytest.raises(DataError, match="UTF-8"):
        reader.read(to_parquet(table.set_column(1, "track_id", spoilt)))


def test_files_that_claim_more_than_they_can_hold(tmp_path: Path) -> None:
    """A column of one value takes a few bytes, however many rows there are."""
    reader, many = predictions(tmp_path), 10**6
    one = pa.DictionaryArray.from_arrays(pa.array(np.zeros(many, np.int8)), ["a"])
    names = ("scenario_id", "track_id", "predicted_trajectory_x", "predicted_trajectory_y")
    table = pa.table({"probability": pa.array(np.zeros(many)), **dict.fromkeys(names, one)})
    content = to_parquet(table, compression="zstd", data_page_size=2**30, max_rows_per_page=2**30)
    assert len(content) < many / 100
    with pytest.raises(DataError, match="claims to hold 1000000 rows"):
        reader.read(content)


def test_a_scene_of_absurd_size_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    table, archive = small_scenario()
    rows = np.arange(2000) % len(table)
    table = table.take(rows).set_column(
        table.column_names.index("track_id"), "track_id", pa.array([f"t{i}" for i in range(len(rows))])
    )
    steps = pa.array(np.full(len(rows), argoverse2.MAX_STEPS))
    table = table.set_column(table.column_names.index("num_timestamps"), "num_timestamps", steps)
    (tmp_path / "scenario_0.parquet").write_bytes(to_parquet(table))
    (tmp_path / "log_map_archive_0.json").write_text(json.dumps(archive))
    with pytest.raises(DataError, match="2000 tracks over 10000 steps"):
        argoverse2.read_scenario(tmp_path)


def test_one_long_name_does_not_give_all_names_its_room() -> None:
    """NumPy would take 4 TB."""
    with pytest.raises(DataError, match="1000000 characters"):
        as_strings(["x" * 10**6, *map(str, range(10**6))], "track_id")
    assert as_strings(["b", "a"], "track_id").tolist() == ["b", "a"]


def test_a_small_packed_map_that_unpacks_to_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(argoverse1_map, "LARGEST_FILE", 10**5)
    path = tmp_path / "map.xml.gz"
    path.write_bytes(gzip.compress(made_map().encode() + b" " * 10**6))
    with pytest.raises(DataError, match="larger than any map"):
        argoverse1_map.read_city_map(path)


def test_a_bundle_with_damaged_bytes_in_its_zip(tmp_path: Path) -> None:
    path, whole = tmp_path / "bundle.zip", zipped(bundle_files())
    path.write_bytes(whole)
    assert Bundle(path).example().keys() == {"encoder/history", "decoder/target"} and is_bundle(path)
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        is_bundle(path)
        try:
            Bundle(path).example()
        except DataError as error:
            assert error.file is not None


@pytest.mark.parametrize("value", [0, -1, 2**40, 1e400, "50", 5.5, None, True])
def test_a_bundle_that_states_an_absurd_size(tmp_path: Path, value: Any) -> None:
    manifest = json.loads(bundle_files()[MANIFEST])
    for holder, name in ((manifest["model"], "history"), (manifest["sizes"], "A")):
        before, holder[name] = holder[name], value
        (tmp_path / MANIFEST).write_text(json.dumps(manifest))
        with pytest.raises(DataError, match=f"{name}.*must be 1 to"):
            Bundle(tmp_path)
        holder[name] = before


RESULTS: dict[str, Callable[[Any], Any]] = {
    "columns of other lengths": lambda one: one["per_scenario"]["scenario_id"].pop(),
    "an id that is none": lambda one: one["per_scenario"].update(scenario_id=[{}, "y"]),
    "a metric as text": lambda one: one["metrics"]["focal"].update(minADE6="1"),
    "no focal agents": lambda one: one["metrics"].pop("focal"),
    "a training that is none": lambda one: one.update(training=3),
    "an environment that is none": lambda one: one["training"].update(environment=[1]),
    "a store without its source": lambda one: one["store"].pop("source"),
}


@pytest.mark.parametrize("change", RESULTS.values(), ids=RESULTS.keys())
def test_results_that_tables_cannot_be_made_of(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    reader = results(tmp_path)
    found = json.loads(reader.seeds[0])
    change(found[1])
    with pytest.raises(DataError, match=r"results\.json"):
        reader.read(json.dumps(found).encode())


def test_results_nested_too_deep(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        results(tmp_path).read(b"[" * 100_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (CONFIG, torch.zeros(0)),
        (TRAINING, torch.zeros(2)),
        (CALIBRATION, {"temperature": 1.0}),
        (CALIBRATION, {"temperature": float("nan"), "regions": ""}),
        ("state_dict", {None: torch.zeros(1)}),
        ("state_dict", {"weight": [1.0]}),
        ("epoch", "3"),
    ],
)
def test_a_checkpoint_with_something_else_in_a_place(tmp_path: Path, name: str, value: Any) -> None:
    content = {CONFIG: {"a": 1}, "state_dict": {"weight": torch.zeros(2)}, "epoch": 1, "global_step": 2}
    path = tmp_path / "best.ckpt"
    torch.save(content, path)
    assert read_checkpoint(path).keys() == content.keys()
    torch.save({**content, name: value}, path)
    with pytest.raises(DataError) as caught:
        read_checkpoint(path)
    assert caught.value.field == name
