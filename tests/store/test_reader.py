"""Random access, batches equal to joined scenarios, and bounded open files."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import SAMPLE, equal, rejects
from tests.scenes import assert_same
from tests.store.scenarios import OPTIONS, full_map, made
from trajpred.data.batch import ScenarioBatch
from trajpred.errors import DataError
from trajpred.store import ScenarioStore, find_scenarios, prepare
from trajpred.store.reader import sealed, unsealed
from trajpred.store.sample import require_sample_store
from trajpred.store.sample import sample_store as store_of_sample

Raw = Callable[..., Path]


def test_batches_equal_joined_scenarios(raw: Raw, tmp_path: Path) -> None:
    """Real scenarios, and maps with and without heights, lanes and crossings; any rows in any order."""
    kinds: list[dict[str, Any]] = [
        {"map": None, "scenario_id": "no map"},
        {"map": full_map(), "position": np.random.default_rng(1).normal(size=(1, 12, 2))},
        {"map": full_map(), "position": np.zeros((300, 12, 2)), "scenario_id": "日本"},
        {"track_id": [" ", "Ä東京 and more"], "step_s": 1 / 3},
        {"focal": 1, "velocity": np.full((2, 12, 2), 1e6)},
    ]
    options = OPTIONS | {"heights": True}
    prepare("argoverse2", SAMPLE, tmp_path / "real", **options)
    scenarios = [made(**{"scenario_id": str(i)} | kind) for i, kind in enumerate(kinds)]
    prepare("made", raw(scenarios), tmp_path / "made", **options)
    for name in ("real", "made"):
        store = ScenarioStore(tmp_path / name, "train")
        scenarios = list(store)
        rows = np.random.default_rng(0).integers(len(store), size=12)
        for chosen in (range(len(store)), [3, 1], [2, 1], [1, 1], rows):
            expected = ScenarioBatch.of([scenarios[int(row)] for row in chosen])
            assert_same(store.batch(chosen), expected)
        tracks, lanes = store.sizes
        for scenario, seen, elements in zip(scenarios, tracks, lanes, strict=True):
            past = scenario.tracks.valid[:, : scenario.num_observed]
            assert seen == past.any(1).sum()
            assert elements == len(scenario.map) + len(scenario.map.crossing_id)


def test_batches_of_different_windows_and_rows_out_of_range_are_rejected(raw: Raw, tmp_path: Path) -> None:
    scenarios = [made(scenario_id=name, num_observed=steps) for name, steps in (("a", 8), ("b", 7), ("c", 8))]
    prepare("made", raw(scenarios), tmp_path / "store", **OPTIONS)
    store = ScenarioStore(tmp_path / "store", "train")
    assert len(store.batch([0, 2])) == 2
    rejects("window lengths differ", store.batch, [0, 1])
    with pytest.raises(DataError, match="mixes window lengths"):
        _ = store.lengths
    rejects("", store.batch, [])
    for row in (-1, 3):
        with pytest.raises(IndexError):
            store[row]
        with pytest.raises(IndexError):
            store.batch([0, row])


def test_rows_ids_and_lengths_agree_also_in_a_pickled_store(sample_store: Path) -> None:
    store = ScenarioStore(sample_store, "train")
    scenarios = list(store)
    assert store.lengths == (50, 60)
    assert [scenario.scenario_id for scenario in scenarios] == store.scenario_ids
    for row in np.random.default_rng(0).permutation(len(store)):
        assert equal(store[row], scenarios[row])
        assert store.index(scenarios[row].scenario_id) == row
    rejects("missing", store.index, "missing")
    content = pickle.dumps(store)
    assert len(content) < 10_000
    assert equal(pickle.loads(content)[7], scenarios[7])


def test_a_subset_is_a_store_of_its_own(sample_store: Path) -> None:
    store = ScenarioStore(sample_store, "train")
    rows = [7, 2, 3]
    part = store.subset(np.array(rows))
    assert len(part) == 3
    assert len(store) == 10
    assert part.lengths == store.lengths
    assert part.scenario_ids == [store.scenario_ids[row] for row in rows]
    copy = pickle.loads(pickle.dumps(part))
    for scenario, row in zip(copy, rows, strict=True):
        assert equal(scenario, store[row])
    assert part.index(store.scenario_ids[3]) == 2
    assert store.scenario_ids[0] not in part
    for sizes, of_all in zip(part.sizes, store.sizes, strict=True):
        np.testing.assert_array_equal(sizes, of_all[rows])
    assert part.subset(np.array([False, True, True])).scenario_ids == part.scenario_ids[1:]
    with pytest.raises(IndexError):
        part[3]


@pytest.mark.parametrize(("step_s", "window"), [(0.2, (25, 30)), (0.05, (99, 120))])
def test_a_resampled_store_has_the_recorded_states_at_the_times_that_both_have(
    step_s: float, window: tuple[int, int], sample_store: Path
) -> None:
    store = ScenarioStore(sample_store, "val")
    resampled = pickle.loads(pickle.dumps(store.resampled(step_s)))
    assert resampled.lengths == window
    assert store.resampled(0.1) is store
    observed, future = window
    assert resampled.batch([0, 1]).num_observed == observed
    every, of_each = (1, 2) if step_s < 0.1 else (2, 1)
    for before, after in zip(store, resampled, strict=True):
        assert after.step_s == pytest.approx(step_s, rel=0.01)
        track = before.tracks.position[before.focal]
        same = after.tracks.position[after.focal, observed - 1 :: of_each]
        np.testing.assert_allclose(same, track[49::every][: len(same)], atol=0.05)  # stamps jitter
        assert len(same) == future // of_each + 1


def test_few_shards_are_open_at_a_time(raw: Raw, tmp_path: Path) -> None:
    if not Path("/proc/self/maps").exists():
        pytest.skip("no /proc on this system")

    def maps() -> int:
        return Path("/proc/self/maps").read_text().count(f"{tmp_path / 'store'}/")

    folder = raw([made(scenario_id=f"{i:03}", map=None) for i in range(66)])
    prepare("made", folder, tmp_path / "store", **OPTIONS | {"shard_size": 1})
    store = ScenarioStore(tmp_path / "store", "train")
    assert [store[i].scenario_id for i in (0, 3, 0)] == ["000", "003", "000"]
    assert maps() == 3  # two shards and the index
    assert store.batch(range(66)).scenario_id.tolist() == store.scenario_ids
    assert maps() == 65
    del store
    assert maps() == 0


def test_a_scenario_is_found_by_an_unambiguous_start_of_its_id(sample_store: Path, copy: Path) -> None:
    ids: list[str] = []
    for split in ("train", "val", "test"):
        ids += ScenarioStore(sample_store, split).scenario_ids
    for name in ids:
        [by_start, by_name] = find_scenarios(sample_store, [name[:8], name])
        assert by_start[0] == by_name[0] == name
    manifest = unsealed((copy / "manifest.json").read_text())
    shutil.copytree(copy / "val", copy / "train2")
    manifest["splits"]["train2"] = manifest["splits"]["val"]
    (copy / "manifest.json").write_text(sealed(manifest))
    name = ScenarioStore(copy, "val").scenario_ids[0]
    for first in ("val", "train2"):
        [(_, rows)] = find_scenarios(copy, [name], first)
        assert rows.split == first
    rejects("no split holds scenario 'missing'", find_scenarios, sample_store, ["missing"])
    several = [name for name in sorted(ids) if name.startswith("0a")]
    names = ", ".join(several)
    rejects(f"{len(several)} scenarios start with '0a': {names}", find_scenarios, sample_store, ["0a"])


def test_the_store_is_in_the_users_cache_if_the_repository_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or in a temporary folder; nobody is asked for a home where the store of the sample is not needed."""
    raw = tmp_path / "sample"
    raw.mkdir()
    assert store_of_sample(raw) == tmp_path / "store"
    monkeypatch.setattr(os, "access", lambda *_: False)  # permissions do not stop root
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert store_of_sample(raw).is_relative_to(tmp_path / ".cache")
    temporary = tmp_path / "temporary"
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(temporary))
    (tmp_path / "file").touch()
    for home in (tmp_path / "file", tmp_path / "file" / "inside"):
        monkeypatch.setattr(Path, "home", lambda home=home: home)
        assert store_of_sample(raw).is_relative_to(temporary)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert store_of_sample(raw).is_relative_to(temporary)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert store_of_sample(raw).is_relative_to(tmp_path / "xdg")
    (tmp_path / "store").mkdir()
    assert store_of_sample(raw) == tmp_path / "store"
    temporary.touch()
    monkeypatch.setattr("trajpred.store.sample.sample_store", lambda: temporary / "store")
    rejects(r"and give --data\.store", require_sample_store, "--data.store")
