"""What the files of a store cost: bytes on disk, memory maps, and pages read."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.store.scenarios import ORIGIN, made
from trajpred.sources.argoverse2 import discover, read_scenario
from trajpred.store import ScenarioStore, prepare
from trajpred.store.codec import encode_row
from trajpred.store.shards import INDEX, pack, unpack, write_shard

NATIVE = ("0000b0f9", "0a0a2bb7", "0a0af725", "0a1e6f0a")
Raw = Callable[..., Path]
needs_proc = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc on this system")


@pytest.mark.parametrize(("compression", "most"), [(None, 52_000), ("zstd", 20_000)])
def test_bytes_per_native_argoverse_2_scenario(
    sample: Path, tmp_path: Path, compression: str | None, most: int
) -> None:
    paths = [path for paths in discover(sample).values() for path in paths if path.name.startswith(NATIVE)]
    rows = [encode_row(read_scenario(path), heights=False) for path in paths]
    assert len(rows) == 4
    write_shard(tmp_path / "shard", rows * 16, compression)
    assert (tmp_path / "shard").stat().st_size / 64 < most


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_every_shard_begins_with_the_columns_of_the_index(tmp_path: Path, compression: str | None) -> None:
    write_shard(tmp_path / "shard", [encode_row(made(), heights=False)] * 2, compression)
    batch = pa.ipc.open_file(str(tmp_path / "shard")).get_batch(0)
    assert batch.select(INDEX.names).to_pylist() == [{"scenario_id": "scenario", "tracks": 2, "lanes": 2}] * 2


def maps(store: Path) -> int:
    """How many files of the store this process has mapped into its memory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum(f"{store}/" in line for line in lines)


@needs_proc
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_few_shards_are_open_at_a_time(raw: Raw, tmp_path: Path, compression: str | None) -> None:
    folder, path = raw([made(scenario_id=f"{i:03}") for i in range(70)]), tmp_path / "store"
    prepare("made", folder, path, workers=1, shard_size=1, compression=compression, progress=False)
    store = ScenarioStore(path, "train")
    assert maps(path) == 0
    assert [store[i].scenario_id for i in (0, 3, 0)] == ["000", "003", "000"]
    assert maps(path) == 3  # and the index
    assert store.batch(range(70)).scenario_id.tolist() == store.scenario_ids
    assert [scenario.scenario_id for scenario in store] == store.scenario_ids
    assert maps(path) == 65
    copy = pickle.loads(pickle.dumps(store))
    assert copy[69].scenario_id == "069"
    del store, copy
    assert maps(path) == 0


#: Prints how many bytes of files become resident when one row of a shard is read.
RESIDENT = """
import sys
from pathlib import Path
from trajpred.store import ScenarioStore

def resident():
    return int(Path("/proc/self/statm").read_text().split()[2]) * 4096

ScenarioStore(sys.argv[2], "train")[0]  # everything is imported now
before = resident()
store = ScenarioStore(sys.argv[1], "train")
store.batch([7])
print(resident() - before)
"""


@needs_proc
def test_opening_a_shard_does_not_read_all_of_it(raw: Raw, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    large = made(position=ORIGIN + rng.normal(size=(1000, 200, 2)))
    for name, scenario in (("large", large), ("small", made())):
        prepare("made", raw([scenario] * 10), tmp_path / name, workers=1, progress=False)
    [shard] = (tmp_path / "large").rglob("shard-*.arrow")
    stores = [str(tmp_path / name) for name in ("large", "small")]
    run = subprocess.run([sys.executable, "-c", RESIDENT, *stores], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert shard.stat().st_size > 25e6
    assert int(run.stdout) < 0.35 * shard.stat().st_size


KINDS: list[tuple[np.dtype[Any], int]] = [
    (np.dtype(name), width) for name in ("i1", "u1", "i2", "i4", "i8", "f4", "f8") for width in (1, 2)
]


@given(st.data())
def test_packing_is_exact_for_any_bytes(data: st.DataObject) -> None:
    parts = []
    for kind, width in KINDS:
        count = data.draw(st.integers(0, 5))
        raw = data.draw(arrays(np.uint8, count * width * kind.itemsize))
        values = raw.view(kind)
        parts.append(values if width == 1 else values.reshape(-1, width))
    found = unpack(pack(parts), KINDS)
    for part, back in zip(parts, found, strict=True):
        assert back.dtype == part.dtype
        assert back.shape == part.shape
        assert back.tobytes() == part.tobytes()


def test_a_packed_row_is_what_the_readme_says() -> None:
    """Read value by value, as README.md in trajpred/store describes it."""
    rng = np.random.default_rng(0)
    parts = [rng.integers(-128, 128, size=(7, width)).astype(kind).squeeze() for kind, width in KINDS]
    data, place = pack(parts), 4 * len(KINDS)
    assert np.frombuffer(data, np.int32, len(KINDS)).tolist() == [7] * len(KINDS)
    for size in (1, 2, 4, 8):
        own = [part for part in parts if part.itemsize == size]
        expected = b"".join(part.tobytes() for part in own)
        total = len(expected) // size
        values = [0, 0]
        for i in range(total):
            step = sum(data[place + byte * total + i] << 8 * byte for byte in range(size))
            values.append((values[i] + step) % 256**size)
        assert b"".join(value.to_bytes(size, "little") for value in values[2:]) == expected
        place += size * total
    assert place == len(data)


def test_the_example_in_the_readme(sample_store: Path) -> None:
    readme = Path(__file__).parents[2] / "trajpred" / "store" / "README.md"
    example = readme.read_text().split("```python")[-1].split("```")[0]
    found: dict[str, Any] = {}
    exec(example.replace("/data/av2-store", str(sample_store)), found)
    expected = ScenarioStore(sample_store, "train")[2]
    np.testing.assert_array_equal(found["valid"], expected.tracks.valid)
    states = expected.tracks.position[expected.tracks.valid]
    np.testing.assert_allclose(found["position"][found["valid"]], states, atol=1e-6)
    lanes = [(lane - lane[0]).tolist() for lane in found["lanes"]]
    given = [np.round(1000 * (lane - lane[0])).astype(int).tolist() for lane in expected.map.centerline]
    assert lanes == given


def test_a_packed_row_of_another_length_is_refused() -> None:
    data = pack([np.arange(3, dtype=kind).repeat(width).reshape(-1, width) for kind, width in KINDS])
    for wrong in (b"", data[:10], data[:-1], data + b"\0", b"\xff" * len(data)):
        with pytest.raises(ValueError):
            unpack(wrong, KINDS)
