"""Loaders over a prepared store for Lightning: batches of like size, within a limit of memory, resumable."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from trajpred.errors import require
from trajpred.graph.augment import AugmentConfig
from trajpred.graph.batch_sampler import PROCESS_BYTES, OrderedBatches, SceneSizes, TrainBatches
from trajpred.graph.config import SceneConfig
from trajpred.graph.dataset import SceneDataset
from trajpred.graph.scene_graph import SceneBatch
from trajpred.store import ScenarioStore


class SceneLoader(DataLoader[SceneBatch]):
    """Loads the batches that a sampler names, ready made.

    Args:
        dataset, sampler: what to load, and in which batches.
        workers: loading processes; 0 loads in this one.
        trained: how many batches of the epoch have been trained, asked when the first one is wanted.

    Under DDP use ``Trainer(use_distributed_sampler=False)``: the samplers share out the scenes themselves.
    Lightning refuses otherwise, since it cannot make this class anew around a sampler of its own.
    """

    def __init__(
        self,
        dataset: SceneDataset,
        sampler: TrainBatches | OrderedBatches,
        workers: int = 0,
        trained: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(
            dataset,
            sampler=sampler,
            batch_size=None,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available(),
            # Its own: making an iterator must not shift the random numbers of a resumed run.
            generator=torch.Generator(),
            worker_init_fn=_own_session,
        )
        self.trained = trained

    def __iter__(self) -> Iterator[SceneBatch]:  # type: ignore[override]
        # Nothing happens before the first batch is wanted: Lightning asks for an iterator long before it has
        # restored which epoch, and which batch of it, comes next.
        if isinstance(self.sampler, TrainBatches):
            self.sampler.start = self.trained()
        yield from super().__iter__()


def _own_session(worker: int) -> None:
    """Ctrl-C, and what a scheduler sends to a process group, is for the trainer, which needs its workers."""
    if hasattr(os, "setsid"):
        os.setsid()


class SceneData(pl.LightningDataModule):
    """Loaders over a prepared store.

    Args:
        store: folder written by ``tools/prepare.py``.
        augment: variations of training scenes.
        batch_size: scenes per step and process.
        workers: loading processes; 0 loads in the training process.
        seed: of order and variations.
        memory_gb: memory of each training process (10^9 bytes, estimated for the default model in float32):
            crowded scenes then come in smaller batches.
    """

    def __init__(
        self,
        store: Path,
        augment: AugmentConfig = AugmentConfig(),
        batch_size: int = 32,
        workers: int = 0,
        seed: int = 0,
        memory_gb: float | None = None,
    ) -> None:
        super().__init__()
        require(batch_size > 0, "batch_size", "must be positive")
        require(workers >= 0, "workers", "must not be negative")
        self.memory_gb = memory_gb
        self.max_bytes = math.inf if memory_gb is None else memory_gb * 1e9 - PROCESS_BYTES
        require(self.max_bytes > 0, "memory_gb", f"must be more than {PROCESS_BYTES / 1e9}")
        self.store, self.augment = Path(store), augment
        self.batch_size, self.workers, self.seed = batch_size, workers, seed
        self.scene = SceneConfig()

    def setup(self, stage: str | None = None) -> None:
        """Scenes are made as the model wants to see them."""
        self.scene = getattr(self.trainer and self.trainer.lightning_module, "scene", self.scene)

    def train_dataloader(self) -> SceneLoader:
        """All training scenes once an epoch, shuffled and varied; from where Lightning stands in it."""
        data = SceneDataset(ScenarioStore(self.store, "train"), self.scene, self.augment, self.seed)
        sizes, process = self._sizes(data.store), self._process()
        sampler = TrainBatches(sizes, self.batch_size, self.seed, self.max_bytes, *process)
        return SceneLoader(data, sampler, self.workers, self._trained)

    def val_dataloader(self) -> SceneLoader:
        """All validation scenes, in order."""
        data = SceneDataset(ScenarioStore(self.store, "val"), self.scene)
        sizes, process = self._sizes(data.store), self._process()
        return SceneLoader(
            data, OrderedBatches(sizes, self.batch_size, self.max_bytes, *process), self.workers
        )

    def _trained(self) -> int:
        """Batches of this epoch that lie behind, in this run or in the one that is resumed."""
        return self.trainer.fit_loop.batch_idx + 1 if self.trainer else 0

    def _sizes(self, store: ScenarioStore) -> SceneSizes:
        limits, (tracks, lanes) = self.scene.features, store.sizes
        return SceneSizes(np.minimum(tracks, limits.max_agents), np.minimum(lanes, limits.max_lanes))

    def _process(self) -> tuple[int, int]:
        """Rank of this process, and how many there are."""
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
