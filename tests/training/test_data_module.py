"""SceneData and SceneDataset: every scene once per epoch, reproducible, within the memory limit."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning.utilities.exceptions import SIGTERMException

from tests.conftest import ROOT, rejects
from tests.scenes import equal_batches
from tests.sources.argoverse2_files import short_store
from trajpred.errors import DataError
from trajpred.features.config import VALID, FeatureConfig, SceneConfig
from trajpred.features.scene_graph import SceneBatch
from trajpred.store import ScenarioStore, prepare
from trajpred.training import data_module
from trajpred.training.augmentation import AugmentConfig
from trajpred.training.batch_sampler import BatchKey
from trajpred.training.checkpoint_io import LastCheckpoint
from trajpred.training.data_module import SceneData, SceneDataset, SceneLoader

VARIED = AugmentConfig(drop_agents=0.3, drop_lanes=0.3, truncate_history=0.5)


def epochs(store: Path, workers: int = 0, start: str | None = None) -> list[list[SceneBatch]]:
    loader = SceneData(store, VARIED, batch_size=4, workers=workers, seed=1).train_dataloader()
    if start is not None:
        loader.multiprocessing_context = start  # type: ignore[assignment]
    batches = []
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        batches.append(list(loader))
    return batches


def names(batches: list[SceneBatch]) -> list[str]:
    scenario_ids: list[str] = []
    for batch in batches:
        scenario_ids += batch.scenario_id
    return scenario_ids


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_load_the_same_batches(store_path: Path, start: str) -> None:
    alone = epochs(store_path)
    two = epochs(store_path, workers=2, start=start)
    for a, b in zip(alone, two, strict=True):
        assert len(a) == len(b) == 3
        assert all(map(equal_batches, a, b))
    first = names(alone[0])
    second = names(alone[1])
    scenario_ids = ScenarioStore(store_path, "train").scenario_ids
    assert sorted(first) == sorted(second) == sorted(scenario_ids)
    assert first != second


def test_an_error_in_a_loading_process_is_the_same_sentence(store: ScenarioStore) -> None:
    class Damaged(SceneDataset):
        def load(self, key: Any) -> SceneBatch:
            raise DataError("shard is damaged", file="train/0.arrow")

    for workers in (0, 1):
        loader = SceneLoader(Damaged(store, SceneConfig()), [[0], [1]], workers)  # type: ignore[arg-type]
        assert str(rejects("", list, loader)) == "train/0.arrow: shard is damaged"


def dies(key: Any) -> SceneBatch:
    os._exit(3)


def cannot_be_sent(key: Any) -> SceneBatch:
    """A full /dev/shm, too many open files: the batch cannot be pickled."""
    return (piece for piece in ())  # type: ignore[return-value]


def hangs(key: Any) -> SceneBatch:
    os.kill(os.getpid(), signal.SIGSTOP)
    raise AssertionError


@pytest.mark.skipif(os.name == "nt", reason="the wait is not interrupted there")
@pytest.mark.parametrize("load", [dies, cannot_be_sent, hangs])
def test_a_loading_process_that_fails_or_is_silent_is_named(
    load: Any, store: ScenarioStore, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(data_module, "POLL_S", 0.1)
    monkeypatch.setattr(data_module, "SILENT_S", 1.0 if load is hangs else 60.0)
    data = SceneDataset(store, SceneConfig())
    monkeypatch.setattr(data, "load", load)
    start = time.monotonic()
    loader = SceneLoader(data, [[0], [1]], 2)  # type: ignore[arg-type]
    rejects(r"shared memory .*--shm-size.*ulimit -n.*--data\.workers 0", list, loader)
    assert time.monotonic() - start < 30
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="the wait is not interrupted there")
def test_a_stop_ends_the_wait_for_a_batch(store: ScenarioStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_module, "POLL_S", 0.1)
    data = SceneDataset(store, SceneConfig())
    monkeypatch.setattr(data, "load", hangs)
    others = {*multiprocessing.active_children()}
    asked = SimpleNamespace(training=True, world_size=1, received_sigterm=True)
    last = LastCheckpoint()
    last.stepped = True
    loader = SceneLoader(data, [[0], [1]], 2, waiting=lambda: last.stop_waiting(asked))  # type: ignore[arg-type]
    with pytest.raises(SIGTERMException):
        list(loader)
    assert last.due
    assert {*multiprocessing.active_children()} <= others


def test_scenes_that_are_held_out_are_never_trained_on(store_path: Path) -> None:
    store = ScenarioStore(store_path, "train")
    out = {*store.subset(store.held_out(0.4)).scenario_ids}
    trained = {*store.scenario_ids} - out
    assert 0 < len(out) < 10
    loader = SceneData(store_path, VARIED, batch_size=4, hold_out=0.4).train_dataloader()
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        assert sorted(names(list(loader))) == sorted(trained)
    assert store.held_out(0.9)[store.held_out(0.4)].all(), "a larger share contains a smaller one"


def test_several_stores_are_mixed_in_one_window(store_path: Path, tmp_path: Path) -> None:
    """Truth: the scenes of each store alone, in the same window."""
    short = short_store(tmp_path, steps=50, observed=20)
    data = SceneData(store_path, batch_size=4, stores={str(short): 2})
    data.scene = SceneConfig(FeatureConfig(history=30, future=40))
    usual = ScenarioStore(store_path, "train")
    twice = ScenarioStore(short, "train")
    expected = sorted([*usual.scenario_ids, *2 * twice.scenario_ids])
    loader = data.train_dataloader()
    assert sorted(names(list(loader))) == expected
    start = len(usual)
    again = start + 3
    assert data.training_scenes()[again].scenario_id == twice.scenario_ids[0]
    mixed = SceneDataset(data.training_scenes(), data.scene)
    first_part = SceneDataset(usual, data.scene)[1, 4]
    second_part = SceneDataset(twice, data.scene)[0, 1]
    batch = mixed[[1, 4, start, again + 1]]
    agent = batch["agent"]
    assert agent.history.shape[1:] == (30, 7)
    assert agent.target.shape[1] == 40
    assert batch.scenario_id == first_part.scenario_id + second_part.scenario_id
    for name in ("history", "target", "position", "object_type"):
        whole = torch.cat((first_part["agent"][name], second_part["agent"][name]))
        torch.testing.assert_close(agent[name], whole, atol=1e-5, rtol=0)
    assert equal_batches(mixed[key(start, epoch=1)], mixed[key(again, epoch=1)]), "the same scene twice"
    mixed.variation = VARIED
    assert not equal_batches(mixed[key(start, epoch=1)], mixed[key(again, epoch=1)]), "varied anew"


def test_a_model_of_a_shorter_history_reads_the_last_steps(store: ScenarioStore) -> None:
    whole = SceneDataset(store, SceneConfig(FeatureConfig(history=50)))[[3]]["agent"]
    last = SceneDataset(store, SceneConfig(FeatureConfig(history=20, future=30)))[[3]]["agent"]
    assert np.array_equal(np.hstack(last.track_id), np.hstack(whole.track_id))
    assert torch.equal(last.history[..., VALID], whole.history[:, -20:, VALID])
    assert torch.equal(last.position, whole.position)
    assert torch.equal(last.target, whole.target[:, :30])


def test_a_store_that_never_comes_is_rejected() -> None:
    rejects("stores': must come at least once per epoch", SceneData, Path("store"), stores={"other": 0})


def test_validation_is_unvaried_and_in_order(store_path: Path) -> None:
    batches = list(SceneData(store_path, VARIED, batch_size=3).val_dataloader())
    data = SceneDataset(ScenarioStore(store_path, "val"), SceneConfig())
    assert len(data) == 5
    assert names(batches) == data.store.scenario_ids
    assert all(map(equal_batches, batches, [data[0, 1, 2], data[3, 4]]))


def test_sizes_of_the_sampler_bound_the_sizes_of_graphs(store_path: Path) -> None:
    data = SceneData(store_path)
    data.scene = SceneConfig(FeatureConfig(max_agents=40, max_lanes=90))
    loader = data.train_dataloader()
    sizes = loader.sampler.sizes  # type: ignore[attr-defined]
    for row in range(len(loader.dataset)):  # type: ignore[arg-type]
        batch = loader.dataset[[row]]
        assert batch["agent"].num_nodes <= sizes.agents[row] <= 40
        assert batch["lane"].num_nodes <= sizes.lanes[row] <= 90
    assert sizes.agents.min() < 40
    assert sizes.lanes.min() < 90


def test_a_memory_limit_reduces_batches_and_must_exceed_the_process(store_path: Path) -> None:
    def lengths(memory_gb: float | None) -> list[int]:
        data = SceneData(store_path, batch_size=10, memory_gb=memory_gb)
        return [batch.num_graphs for batch in data.train_dataloader()]

    assert lengths(None) == [10]
    assert lengths(0.701) == [1] * 10
    some = lengths(1.5)
    assert 1 < max(some) < 10
    assert sum(some) == 10
    rejects(r"memory_gb.*must be more than 0\.7", SceneData, store_path, memory_gb=0.5)


@pytest.fixture
def store(store_path: Path) -> ScenarioStore:
    return ScenarioStore(store_path, "train")


def key(*rows: int, epoch: int = 0) -> BatchKey:
    return BatchKey(np.array(rows), epoch)


def test_variations_are_functions_of_seed_epoch_and_row(store: ScenarioStore) -> None:
    data = SceneDataset(store, SceneConfig(), VARIED, seed=5)
    _ = data[key(3)]  # earlier requests have no effect
    again = SceneDataset(store, SceneConfig(), VARIED, seed=5)
    other = SceneDataset(store, SceneConfig(), VARIED, seed=6)
    assert equal_batches(data[key(0, epoch=1)], again[key(0, epoch=1)])
    assert not equal_batches(data[key(0, epoch=1)], data[key(0, epoch=2)])
    assert not equal_batches(data[key(0, epoch=1)], other[key(0, epoch=1)])
    together = data[key(4, 0, 2, epoch=1)]
    alone = [data[key(row, epoch=1)] for row in (4, 0, 2)]
    for kind, name in (("agent", "history"), ("lane", "points")):
        expected = np.concatenate([batch[kind][name] for batch in alone])
        # Lengths along lanes accumulate over a batch, which rounds differently.
        np.testing.assert_allclose(together[kind][name], expected, atol=1e-5)
    assert equal_batches(data[[0]], SceneDataset(store, SceneConfig())[[0]]), "plain rows are not varied"


#: An epoch of training steps of the default model; prints the largest batch and the peak in bytes.
EPOCH = """
import re, sys
from pathlib import Path
import torch
from tests.model.systems import DEFAULT_MODEL
from trajpred.training.data_module import SceneData, SceneDataset, SceneLoader
from trajpred.training.lit_forecaster import LitForecaster
model = LitForecaster.build(DEFAULT_MODEL).train()
optimizer, scenes = torch.optim.AdamW(model.parameters()), []
for batch in SceneData(Path(sys.argv[1]), memory_gb=float(sys.argv[2])).train_dataloader():
    optimizer.zero_grad()
    model.losses(batch)["loss"].backward()
    optimizer.step()
    scenes.append(batch.num_graphs)
# Not ru_maxrss: a process begins with that of the one that started it.
[peak] = re.findall(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print([max(scenes), sum(scenes), int(peak) * 1024])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.slow
@pytest.mark.parametrize("memory", [1.0, 1.2])
def test_training_stays_within_the_memory_limit(shared: Path, tmp_path: Path, memory: float) -> None:
    raw = shared / "data" / "argoverse2" / "from_sensor_logs"
    prepare("argoverse2", raw, tmp_path / "store", workers=1, progress=False)
    command = [sys.executable, "-c", EPOCH, str(tmp_path / "store"), str(memory)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
    most, scenes, peak = json.loads(done.stdout)
    assert scenes == len(ScenarioStore(tmp_path / "store", "train")) > most
    assert peak < 1e9 * memory
