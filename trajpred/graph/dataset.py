"""Store -> batches of scene graphs, each built at once from the store's columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from trajpred.graph.augment import AugmentConfig, augment
from trajpred.graph.batch_sampler import BatchKey
from trajpred.graph.config import SceneConfig
from trajpred.graph.features import scene_features
from trajpred.graph.random import hashed
from trajpred.graph.scene_graph import SceneBatch, scene_graph
from trajpred.store import ScenarioStore


class SceneDataset(Dataset[SceneBatch]):
    """The scenes of a split as batches of graphs.

    Asked for by rows, or by a :class:`~trajpred.graph.batch_sampler.BatchKey` for a variation in which each
    scene depends on ``seed``, epoch and its row alone: the same in whatever worker and, to within rounding
    (lanes are resampled along the whole batch), in whatever batch.
    """

    def __init__(
        self, store: ScenarioStore, config: SceneConfig, variation: AugmentConfig | None = None, seed: int = 0
    ) -> None:
        self.store, self.config, self.variation, self.seed = store, config, variation, seed

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, key: BatchKey | Sequence[int] | NDArray[np.int64]) -> SceneBatch:
        rows = key.rows if isinstance(key, BatchKey) else np.asarray(key)
        scenes = scene_features(self.store.batch(rows), self.config.features)
        if self.variation is not None and isinstance(key, BatchKey):
            scenes = augment(scenes, self.variation, hashed(self.seed, key.epoch, rows).view(np.int64))
        return scene_graph(scenes, self.config.graph)
