"""Damaged and hostile input of every reader, and what was found by it, ends in a result or one DataError."""

from __future__ import annotations

import gzip
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from tests.conftest import rejects
from tests.fuzz.readers import READERS, SCENARIO, Reader
from tests.sources.argoverse1_files import made_map
from tests.sources.argoverse2_files import scenario_table, short_store, write_scenario
from trajpred.data.checks import as_names
from trajpred.errors import DataError
from trajpred.sources import argoverse1 as argoverse1_map
from trajpred.sources import argoverse2, reading
from trajpred.sources.reading import MAX_STEPS
from trajpred.store import prepare
from trajpred.store.reader import sealed, unsealed

#: Processor seconds that one small input may take; resident memory and address space of a whole run.
SLOW_S, GROWTH_BYTES, SPACE_BYTES = 2.0, 512 * 2**20, 8 * 2**30
QUICK = settings(max_examples=40, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
THOROUGH = settings(QUICK, max_examples=2_000, derandomize=False)
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def limited_memory() -> Iterator[None]:
    """Fail allocations beyond :data:`SPACE_BYTES`, which then are errors other than DataError.

    Peak resident memory may grow by :data:`GROWTH_BYTES`.
    """
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + SPACE_BYTES, before[1]))
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kb) < GROWTH_BYTES
    resource.setrlimit(resource.RLIMIT_AS, before)


def check(reader: Reader, content: bytes) -> None:
    start = time.process_time()
    try:
        reader.read(content)
    except DataError as error:
        assert "\n" not in str(error)
    assert time.process_time() - start < SLOW_S


def fuzz(name: str, folder: Path, profile: settings) -> None:
    reader = READERS[name](folder)
    reader.read(reader.seed)
    check(reader, reader.seed[: len(reader.seed) // 2])

    @profile
    @given(content=reader.damaged())
    def damaged_files_are_read_or_rejected(content: bytes) -> None:
        check(reader, content)

    damaged_files_are_read_or_rejected()


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_rejected(name: str, tmp_path: Path) -> None:
    fuzz(name, tmp_path, QUICK)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_read_or_rejected(name: str, tmp_path: Path, limited_memory: None) -> None:
    fuzz(name, tmp_path, THOROUGH)


def test_preparing_again_deletes_nothing_outside_the_store(tmp_path: Path) -> None:
    store = short_store(tmp_path, "val", 2)
    other = Path(shutil.copytree(store / "val", tmp_path / "other"))
    path = store / "manifest.json"
    manifest = unsealed(path.read_text())
    path.write_text(sealed(manifest | {"config": "x", "splits": {"../other": manifest["splits"]["val"]}}))
    prepare("argoverse2", tmp_path / "raw", store, workers=1, progress=False, overwrite=True)
    assert {path.name for path in other.iterdir()} == {path.name for path in (store / "val").iterdir()}


def test_scenarios_of_excessive_size_are_rejected_before_memory_is_allocated(tmp_path: Path) -> None:
    write_scenario(SCENARIO, tmp_path)
    table = scenario_table(SCENARIO).take(pa.array(np.zeros(2000, np.int64)))
    columns = {"track_id": [f"t{i}" for i in range(2000)], "num_timestamps": [MAX_STEPS] * 2000}
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    pq.write_table(table, next(tmp_path.glob("*.parquet")))
    rejects("2000 tracks of 10000 steps exceed", argoverse2.read_scenario, tmp_path)


def test_one_long_string_does_not_enlarge_all_of_them() -> None:
    rejects("1000000 characters", lambda: as_names(["x" * 10**6, *map(str, range(10**6))], "track_id"))


def test_compressed_maps_and_entities_that_expand_are_rejected(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 10**5)
    packed, bomb = tmp_path / "map.xml.gz", tmp_path / "map.xml"
    packed.write_bytes(gzip.compress(made_map().encode() + b" " * 10**6))
    entities = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(9))
    content = made_map().replace("</way>", "&a9;</way>", 1)
    bomb.write_text(f'<!DOCTYPE x [<!ENTITY a0 "lol">{entities}]>{content}')
    for path in (packed, bomb):
        rejects("", argoverse1_map.read_city_map, path)


def test_columns_of_one_repeated_value_that_expand_are_rejected(tmp_path: Path) -> None:
    reader, rows = READERS["predictions (parquet)"](tmp_path), 10**6
    one = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), ["a"])
    names = ("scenario_id", "track_id", "predicted_trajectory_x", "predicted_trajectory_y")
    table, path = pa.table({"probability": np.zeros(rows), **dict.fromkeys(names, one)}), tmp_path / "x"
    pq.write_table(table, path, compression="zstd", data_page_size=2**30, max_rows_per_page=2**30)
    rejects("1000000 rows", reader.read, path.read_bytes())
