"""SceneDataset: batches by rows, and variations that depend on seed, epoch and row alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.graph.batches import equal_batches
from trajpred.graph.batch_sampler import BatchKey
from trajpred.graph.config import SceneConfig
from trajpred.graph.data_module import SceneDataset
from trajpred.graph.scene_graph import build_batch
from trajpred.graph.transforms import AugmentConfig
from trajpred.store import ScenarioStore

VARIED = AugmentConfig(drop_agents=0.3, drop_lanes=0.3, truncate_history=0.5)


@pytest.fixture
def store(store_path: Path) -> ScenarioStore:
    return ScenarioStore(store_path, "train")


def key(*rows: int, epoch: int = 0) -> BatchKey:
    return BatchKey(np.array(rows), epoch)


def test_a_batch_is_made_of_the_scenarios_of_its_rows(store: ScenarioStore) -> None:
    data, config = SceneDataset(store, SceneConfig()), SceneConfig()
    assert len(data) == len(store) == 10
    expected = build_batch([store[row] for row in (7, 2)], config)
    assert equal_batches(data[7, 2], expected) and equal_batches(data[key(7, 2)], expected)
    assert not equal_batches(data[2, 7], expected)


def test_variations_depend_on_seed_epoch_and_row_alone(store: ScenarioStore) -> None:
    data = SceneDataset(store, SceneConfig(), VARIED, seed=5)
    _ = data[key(3)]  # what was asked for before plays no part
    again = SceneDataset(store, SceneConfig(), VARIED, seed=5)
    other = SceneDataset(store, SceneConfig(), VARIED, seed=6)
    assert equal_batches(data[key(0, epoch=1)], again[key(0, epoch=1)])
    assert not equal_batches(data[key(0, epoch=1)], data[key(0, epoch=2)])
    assert not equal_batches(data[key(0, epoch=1)], other[key(0, epoch=1)])
    together = data[key(4, 0, 2, epoch=1)]
    alone = [data[key(row, epoch=1)] for row in (4, 0, 2)]
    for kind, name in (("agent", "history"), ("lane", "points")):
        expected = np.concatenate([one[kind][name] for one in alone])
        # Lengths along lanes are summed up over a batch, which rounds a little differently.
        np.testing.assert_allclose(together[kind][name], expected, atol=1e-5)
    assert equal_batches(data[[0]], SceneDataset(store, SceneConfig())[[0]]), "plain rows are not varied"
