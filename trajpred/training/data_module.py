"""Training and validation scenes of one or several stores, in batches for Lightning."""

from __future__ import annotations

import gc
import math
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.queues import Queue
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch.utils.data import DataLoader, Dataset, get_worker_info

from trajpred.data.batch import ScenarioBatch
from trajpred.data.scenario import Scenario
from trajpred.data.splits import Half
from trajpred.errors import DataError, require
from trajpred.features.config import SceneConfig
from trajpred.features.scene_graph import SceneBatch, scene_features, scene_graph
from trajpred.store import ScenarioStore
from trajpred.training.augmentation import AugmentConfig, augment, hashed, vary_recordings
from trajpred.training.batch_sampler import PROCESS_BYTES, BatchKey, OrderedBatches, SceneSizes, TrainBatches
from trajpred.training.checkpoint_io import SIGNALS, LastCheckpoint

#: Seconds between checks whether to stop while no batch arrives.
POLL_S = 2.0
#: Seconds without a batch after which loading processes count as failed.
SILENT_S = 300.0


class MixedScenarios:
    """The scenarios of several stores, each store repeated ``times`` times."""

    def __init__(self, parts: Sequence[ScenarioStore], times: Sequence[int]) -> None:
        self.parts = parts
        part_of_row: list[NDArray[np.int64]] = []
        rows: list[NDArray[np.int64]] = []
        for index, (part, repeats) in enumerate(zip(parts, times, strict=True)):
            part_of_row.append(np.full(len(part) * repeats, index))
            rows.append(np.tile(np.arange(len(part)), repeats))
        #: Index of the store of each scenario.
        self.part = np.concatenate(part_of_row)
        #: Row of each scenario in its store.
        self.row = np.concatenate(rows)

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, index: int) -> Scenario:
        return self.parts[self.part[index]][int(self.row[index])]

    @property
    def sizes(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the observed tracks ``[N]`` and the lanes and crossings ``[N]`` of each scenario."""
        tracks = np.zeros(len(self), np.int32)
        lanes = np.zeros(len(self), np.int32)
        for index, part in enumerate(self.parts):
            of_part = self.part == index
            tracks_of_row, lanes_of_row = part.sizes
            tracks[of_part] = tracks_of_row[self.row[of_part]]
            lanes[of_part] = lanes_of_row[self.row[of_part]]
        return tracks, lanes

    def batch(self, rows: NDArray[np.int64]) -> ScenarioBatch:
        """Read the scenarios of ``rows``, ascending, in a window that covers those of all stores."""
        batches: list[ScenarioBatch] = []
        for part in np.unique(self.part[rows]):
            of_part = rows[self.part[rows] == part]
            batches.append(self.parts[part].batch(self.row[of_part]))
        return ScenarioBatch.joined(batches)


def without_held_out(split: ScenarioStore, hold_out: float) -> ScenarioStore:
    """Remove the held-out share ``hold_out`` of a training split's scenarios."""
    if not hold_out:
        return split
    return split.subset(~split.held_out(hold_out))


class SceneDataset(Dataset[SceneBatch | DataError]):
    """Batches of scene graphs from one split of a store.

    Index it with rows, or with a :class:`~trajpred.training.batch_sampler.BatchKey` for a random variation.
    A scene's variation depends only on ``seed``, epoch and row, not on the worker and (up to rounding, since
    lines are resampled along the whole batch) not on its batch.

    Example:
        >>> data = SceneDataset(ScenarioStore("/data/av2-store", "val"), SceneConfig())
        >>> data[0, 1, 2].num_graphs
        3
    """

    def __init__(
        self,
        store: ScenarioStore | MixedScenarios,
        config: SceneConfig,
        variation: AugmentConfig | None = None,
        seed: int = 0,
    ) -> None:
        self.store = store
        self.config = config
        self.variation = variation
        self.seed = seed

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, key: BatchKey | Sequence[int] | NDArray[np.int64]) -> SceneBatch | DataError:
        """Return a batch; a loading process returns its DataError, since torch would add a traceback."""
        try:
            return self.load(key)
        except DataError as error:
            if get_worker_info() is None:
                raise
            return error

    def load(self, key: BatchKey | Sequence[int] | NDArray[np.int64]) -> SceneBatch:
        """Load and vary the scenarios of a key. Raises: DataError."""
        rows = key.rows if isinstance(key, BatchKey) else np.asarray(key)
        batch = self.store.batch(rows)
        features = self.config.features
        if self.variation is None or not isinstance(key, BatchKey):
            return scene_graph(scene_features(batch, features), self.config.graph)
        keys = hashed(self.seed, key.epoch, rows).view(np.int64)
        batch = vary_recordings(batch, self.variation, features, keys)
        scenes = scene_features(batch, features)
        scenes = augment(scenes, self.variation, keys)
        return scene_graph(scenes, self.config.graph)


class SceneLoader(DataLoader[SceneBatch]):
    """Load a sampler's batches in ``workers`` processes, 0 for the calling process.

    ``trained`` returns the number of this epoch's batches already trained; ``waiting`` is called while no
    batch arrives, and raises to give up. With DDP, use ``Trainer(use_distributed_sampler=False)``: the
    samplers distribute the scenes themselves.

    Raises: DataError if a loading process fails, or none sends anything for :data:`SILENT_S`.
    """

    def __init__(
        self,
        dataset: SceneDataset,
        sampler: TrainBatches | OrderedBatches,
        workers: int = 0,
        trained: Callable[[], int] = lambda: 0,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            dataset,  # type: ignore[arg-type]  # its errors are raised by __iter__
            sampler=sampler,
            batch_size=None,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available(),
            # A separate generator: creating an iterator must not change a resumed run.
            generator=torch.Generator(),
            worker_init_fn=_start_worker,
        )
        self.trained = trained
        self.waiting = waiting

    def __iter__(self) -> Iterator[SceneBatch]:  # type: ignore[override]
        """Yield the batches. Raises: DataError if a process fails, or what it sends instead of a batch."""
        # Lightning creates the iterator before it restores epoch and batch, so nothing may run before the
        # first batch is requested.
        if isinstance(self.sampler, TrainBatches):
            self.sampler.start = self.trained()
        batches: Any = None
        try:
            batches = super().__iter__()
            while (batch := self._next(batches)) is not None:
                if isinstance(batch, DataError):
                    raise batch
                yield batch
        except (RuntimeError, OSError, EOFError) as error:
            if self.num_workers and (lost := lost_worker(error)):
                _kill_workers(batches)
                raise lost from None
            raise
        except SIGTERMException:
            _kill_workers(batches)
            raise

    def _next(self, batches: Iterator[Any]) -> Any:
        """Wait for the next batch; None after the last one."""
        if not self.num_workers:
            return next(batches, None)
        end = time.monotonic() + SILENT_S

        def check() -> None:
            self.waiting()
            if time.monotonic() > end:
                raise RuntimeError(f"DataLoader worker: no batch for {SILENT_S:g} s")

        with _meanwhile(check):
            return next(batches, None)


@contextmanager
def _meanwhile(check: Callable[[], None]) -> Iterator[None]:
    """Call ``check`` every :data:`POLL_S` seconds; its exception ends the wait, whatever call is waiting.

    Only in the main thread, and not on Windows.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda *_: check())
    signal.setitimer(signal.ITIMER_REAL, POLL_S, POLL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _kill_workers(batches: Any) -> None:
    """End an iterator's processes at once: a hanging one would ignore a request."""
    if hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler would report an error
    for worker in getattr(batches, "_workers", ()):
        worker.kill()
        worker.join()


def lost_worker(error: Exception) -> DataError | None:
    """Return the sentence about a failure of the loader's processes; None for an error in what they load."""
    text = " ".join(str(error).split())
    is_lost = re.search("DataLoader worker|open files|ancdata|shared memory", text) is not None
    if isinstance(error, (OSError, EOFError)):  # from the pipes
        is_lost = True
    if not is_lost or text.startswith("Caught"):
        return None
    reason = text.partition(". ")[0] or type(error).__name__
    advice = "give more shared memory (docker run --shm-size 2g), open files (ulimit -n), or --data.workers 0"
    return DataError(f"a loading process failed or is silent ({reason}): {advice}")


def _start_worker(worker: int) -> None:
    """Leave signals that stop a run to the trainer, which still needs a batch from each worker.

    Terminals signal the process group, which a worker leaves; SLURM and systemd signal all processes.
    """
    # Do not collect the trainer process's garbage: freeing an onnxruntime session waits for its threads,
    # which a forked process does not have.
    gc.freeze()
    if hasattr(os, "setsid"):
        os.setsid()
    for number in SIGNALS:
        signal.signal(number, _ignore_once)
    Queue._on_queue_feeder_error = staticmethod(_end_worker)  # type: ignore[attr-defined]


def _end_worker(error: Exception, item: object) -> None:
    """End a process whose batch cannot be sent: its queue would print that, the trainer wait forever."""
    os._exit(1)


def _ignore_once(number: int, frame: FrameType | None) -> None:
    """Ignore a signal; the next one ends the worker, as the loader does with hanging ones."""
    signal.signal(number, signal.SIG_DFL)


class SceneData(pl.LightningDataModule):
    """Training and validation loaders over a prepared store.

    Args:
        store: folder written by ``trajpred prepare``.
        augment: random variations of training scenes.
        batch_size: scenes per step over all processes.
        workers: loading processes; 0 loads in the training process.
        seed: seed of order and variations.
        memory_gb: memory limit of each training process (10^9 bytes, estimated for the default model in
            float32); crowded scenes are put into smaller batches.
        hold_out: share of the training scenes, drawn by recording, to leave out of training, for ``trajpred
            calibrate --split train``.
        stores: further stores with training scenarios: by folder, how often each scenario is used per epoch,
            with a new variation each time.
        val_half: validate on this half of the validation scenes, for decisions; the other half is for
            reporting.
    """

    def __init__(
        self,
        store: Path,
        augment: AugmentConfig = AugmentConfig(),
        batch_size: int = 32,
        workers: int = 0,
        seed: int = 0,
        memory_gb: float | None = None,
        hold_out: float = 0.0,
        stores: dict[str, int] | None = None,
        val_half: Half | None = None,
    ) -> None:
        super().__init__()
        require(0 <= hold_out < 1, "hold_out", f"must be at least 0 and less than 1, is {hold_out}")
        require(batch_size > 0, "batch_size", "must be positive")
        require(workers >= 0, "workers", "must not be negative")
        require(all(n > 0 for n in (stores or {}).values()), "stores", "must come at least once per epoch")
        self.max_bytes = math.inf if memory_gb is None else memory_gb * 1e9 - PROCESS_BYTES
        require(self.max_bytes > 0, "memory_gb", f"must be more than {PROCESS_BYTES / 1e9}")
        self.store = Path(store)
        self.augment = augment
        self.batch_size = batch_size
        self.workers = workers
        self.seed = seed
        self.memory_gb = memory_gb
        self.hold_out = hold_out
        self.stores = stores or {}
        self.val_half = val_half
        self.scene = SceneConfig()
        #: Seconds between the model's steps; None for the data's.
        self.step_s: float | None = None

    def setup(self, stage: str | None = None) -> None:
        """Adopt the scene configuration and the time step of the model."""
        forecaster = getattr(self.trainer and self.trainer.lightning_module, "forecaster", None)
        if forecaster is not None:
            self.scene = forecaster.scene
            self.step_s = forecaster.step_s

    def train_dataloader(self) -> SceneLoader:
        """Load all training scenes once per epoch, shuffled and varied; resumes within an epoch."""
        store = self.training_scenes()
        data = SceneDataset(store, self.scene, self.augment, self.seed)
        sampler = self._train_batches(store, *self._process())
        return SceneLoader(data, sampler, self.workers, self._trained, self._stop_if_requested)

    def steps_per_epoch(self, processes: int) -> int:
        """Return the number of training steps for several processes: equal numbers mean equal steps."""
        return len(self._train_batches(self.training_scenes(), 0, processes))

    def training_scenes(self) -> MixedScenarios:
        """Open the training splits, without held-out scenarios, at the model's steps."""
        times = {self.store: 1} | {Path(path): count for path, count in self.stores.items()}
        parts = [without_held_out(ScenarioStore(path, "train"), self.hold_out) for path in times]
        return MixedScenarios([self._on_model_steps(part) for part in parts], list(times.values()))

    def validation_scenes(self) -> ScenarioStore:
        """Open the validation split, or one half of it."""
        store = ScenarioStore(self.store, "val")
        if self.val_half is None:
            return store
        return store.halved(self.val_half)

    def _on_model_steps(self, store: ScenarioStore) -> ScenarioStore:
        return store if self.step_s is None else store.resampled(self.step_s)

    def _train_batches(self, store: MixedScenarios, rank: int, processes: int) -> TrainBatches:
        sizes = self._sizes(store)
        return TrainBatches(sizes, self.batch_size, self.seed, self.max_bytes, rank, processes)

    def val_dataloader(self) -> SceneLoader:
        """Load all validation scenes in the order of the store."""
        data = SceneDataset(self._on_model_steps(self.validation_scenes()), self.scene)
        sizes = self._sizes(data.store)
        rank, world = self._process()
        sampler = OrderedBatches(sizes, self.batch_size, self.max_bytes, rank, world)
        return SceneLoader(data, sampler, self.workers, waiting=self._stop_if_requested)

    def on_before_batch_transfer(self, batch: SceneBatch, dataloader_idx: int) -> SceneBatch:
        """Let the model check a batch on the host: reading its values from a GPU would stall."""
        forecaster = getattr(self.trainer and self.trainer.lightning_module, "forecaster", None)
        if forecaster is not None:
            forecaster.check(batch)
        return batch

    def _trained(self) -> int:
        """Return the number of trained batches of this epoch, including those of a resumed run."""
        return self.trainer.fit_loop.batch_idx + 1 if self.trainer else 0

    def _stop_if_requested(self) -> None:
        """Stop a run on request while no batch arrives; otherwise its steps do that."""
        callbacks = self.trainer.callbacks if self.trainer else []  # type: ignore[attr-defined]
        for callback in callbacks:
            if isinstance(callback, LastCheckpoint):
                callback.stop_waiting(self.trainer)  # type: ignore[arg-type]

    def _sizes(self, store: ScenarioStore | MixedScenarios) -> SceneSizes:
        limits = self.scene.features
        tracks, lanes = store.sizes
        agents = np.minimum(tracks, limits.max_agents)
        return SceneSizes(agents, np.minimum(lanes, limits.max_lanes))

    def _process(self) -> tuple[int, int]:
        """Return the rank of this process and the number of processes."""
        if self.trainer is None:
            return 0, 1
        return self.trainer.global_rank, self.trainer.world_size
