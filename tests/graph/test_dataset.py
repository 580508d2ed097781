"""SceneDataset and the loaders: every scene once an epoch, the same under the same seed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Batch, HeteroData

from trajpred.graph.augment import AugmentConfig
from trajpred.graph.dataset import SceneData, SceneDataset, ShuffledRows
from trajpred.graph.scene_graph import SceneConfig
from trajpred.store import ScenarioStore

VARIED = AugmentConfig(drop_agents=0.3, drop_lanes=0.3, truncate_history=0.5)


def equal(a: HeteroData, b: HeteroData) -> bool:
    stores = zip(a.stores, b.stores, strict=True)
    return all(
        torch.equal(x, y[name]) if isinstance(x, torch.Tensor) else str(x) == str(y[name])
        for one, y in stores
        for name, x in one.items()
    )


def epochs(store: Path, workers: int, seed: int, count: int = 2) -> list[list[HeteroData]]:
    loader = SceneData(store, VARIED, batch_size=4, workers=workers, seed=seed).train_dataloader()
    batches = []
    for epoch in range(count):
        loader.sampler.set_epoch(epoch)
        batches.append(list(loader))
    return batches


def test_workers_change_nothing(store_path: Path) -> None:
    alone, two = (epochs(store_path, workers, seed=1) for workers in (0, 2))
    for a, b in zip(alone, two, strict=True):
        assert len(a) == len(b) == 3 and all(map(equal, a, b))


def test_every_scene_once_an_epoch_in_an_order_of_its_own(store_path: Path) -> None:
    ids = [[name for batch in epoch for name in batch.scenario_id] for epoch in epochs(store_path, 0, seed=1)]
    every = sorted(ScenarioStore(store_path, "train").scenario_ids)
    assert sorted(ids[0]) == sorted(ids[1]) == every and ids[0] != ids[1]
    other = [name for batch in epochs(store_path, 0, seed=2, count=1)[0] for name in batch.scenario_id]
    assert sorted(other) == every and other != ids[0]


def test_variations_depend_on_seed_epoch_and_row_alone(store_path: Path) -> None:
    store = ScenarioStore(store_path, "train")
    data = SceneDataset(store, SceneConfig(), VARIED, seed=5)
    _ = data[3, 0]  # what was asked for before plays no part
    again = SceneDataset(store, SceneConfig(), VARIED, seed=5)
    assert equal(data[0, 1], again[0, 1])
    assert not equal(data[0, 1], data[0, 2])
    assert not equal(data[0, 1], SceneDataset(store, SceneConfig(), VARIED, seed=6)[0, 1])
    assert equal(data[0], SceneDataset(store, SceneConfig())[0]), "a plain row is not varied"


def test_validation_is_plain_and_in_order(store_path: Path) -> None:
    batches = list(SceneData(store_path, VARIED, batch_size=3).val_dataloader())
    store = ScenarioStore(store_path, "val")
    assert [name for batch in batches for name in batch.scenario_id] == store.scenario_ids
    data = SceneDataset(store, SceneConfig())
    plain = [Batch.from_data_list([data[i] for i in rows]) for rows in ((0, 1, 2), (3, 4))]
    assert len(store) == 5 and all(map(equal, batches, plain))


@pytest.mark.parametrize("size", [0, 1, 17])
def test_shuffled_rows_are_a_permutation(size: int) -> None:
    rows = ShuffledRows(size, seed=0)
    orders = []
    for epoch in range(3):
        rows.set_epoch(epoch)
        keys = list(rows)
        assert keys == list(rows) and len(keys) == len(rows) and {e for _, e in keys} <= {epoch}
        orders.append([row for row, _ in keys])
        assert sorted(orders[-1]) == list(range(size))
    assert size < 2 or orders[0] != orders[1] != orders[2]
