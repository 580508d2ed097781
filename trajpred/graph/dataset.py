"""Store -> batches of scene graphs, for training, validation and prediction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import Dataset, Sampler
from torch_geometric.data import HeteroData
from torch_geometric.loader import DataLoader

from trajpred.errors import require
from trajpred.graph.augment import AugmentConfig
from trajpred.graph.scene_graph import SceneConfig, build_graph
from trajpred.store import ScenarioStore


class SceneDataset(Dataset[HeteroData]):
    """The scenes of a split as graphs.

    Items are asked for by row, or by ``(row, epoch)`` for a variation that depends on ``seed``, epoch and
    row alone: the same whatever the number of workers.
    """

    def __init__(
        self, store: ScenarioStore, config: SceneConfig, variation: AugmentConfig | None = None, seed: int = 0
    ) -> None:
        self.store, self.config, self.variation, self.seed = store, config, variation, seed

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, key: int | tuple[int, int]) -> HeteroData:
        if isinstance(key, int):
            return build_graph(self.store[key], self.config)
        row, epoch = key
        random = np.random.default_rng((self.seed, epoch, row))
        return build_graph(self.store[row], self.config, self.variation, random)


class ShuffledRows(Sampler[tuple[int, int]]):
    """``(row, epoch)`` in an order drawn from seed and epoch. Lightning calls ``set_epoch``."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed, self.epoch = size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[tuple[int, int]]:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.size)
        return ((int(row), self.epoch) for row in order)


class SceneData(pl.LightningDataModule):
    """Loaders over a prepared store.

    Args:
        store: folder written by ``tools/prepare.py``.
        augment: variations of training scenes.
        batch_size: scenes per step and process.
        workers: loading processes; 0 loads in the training process.
        seed: of order and variations.
    """

    def __init__(
        self,
        store: Path,
        augment: AugmentConfig = AugmentConfig(),
        batch_size: int = 32,
        workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        require(batch_size > 0, "batch_size", "must be positive")
        self.store, self.augment = Path(store), augment
        self.batch_size, self.workers, self.seed = batch_size, workers, seed
        self.scene = SceneConfig()

    def setup(self, stage: str | None = None) -> None:
        """Scenes are made as the model wants to see them."""
        self.scene = getattr(self.trainer and self.trainer.lightning_module, "scene", self.scene)

    def train_dataloader(self) -> DataLoader:
        """All training scenes once an epoch, shuffled and varied."""
        data = SceneDataset(ScenarioStore(self.store, "train"), self.scene, self.augment, self.seed)
        return self._loader(data, ShuffledRows(len(data), self.seed))

    def val_dataloader(self) -> DataLoader:
        """All validation scenes, in order."""
        return self._loader(SceneDataset(ScenarioStore(self.store, "val"), self.scene))

    def _loader(self, data: SceneDataset, sampler: ShuffledRows | None = None) -> DataLoader:
        return DataLoader(
            data,
            batch_size=self.batch_size,
            sampler=sampler,
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
            pin_memory=torch.cuda.is_available(),
        )
