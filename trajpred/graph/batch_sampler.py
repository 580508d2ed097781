"""Which scenarios make a batch, and in which order. NumPy only; all follows from sizes, seed and epoch.

A model pads the scenes of a batch to the largest of them, so scenes of a size belong together. And a prepared
store is read fastest in order. Hence:

- The scenarios are sorted by size once and cut into *kinds*, each large enough to be shuffled within.
- In each epoch blocks of neighbouring rows come in random order and are mixed within windows of many blocks.
- Each kind fills its batches from that stream; batches follow one another as their scenarios do in it.

Kinds, and with them the number of batches and their sizes, are the same in all epochs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from trajpred.errors import require

#: Rows that stay near each other in the stream (a shard of a store), and rows that are mixed freely.
BLOCK, WINDOW = 256, 4096
#: A kind fills so many batches at least, and there are at most ``MOST_SLABS ** 2`` kinds.
BATCHES_PER_KIND, MOST_SLABS = 8, 8
#: Peak memory of a training step (default model, float32) as ``tools/benchmark.py step`` measures it: bytes
#: per pair of tokens, per agent and per lane, all as padded, and of the process itself.
PAIR_BYTES, AGENT_BYTES, LANE_BYTES, PROCESS_BYTES = 250, 650_000, 100_000, 700_000_000
#: Every agent is a token, and this many more in the decoder: its modes.
MODES = 6


class BatchKey(NamedTuple):
    """What a dataset is asked for: rows of the store, ``[S]`` int64, and the epoch, for variations."""

    rows: NDArray[np.int64]
    epoch: int


class SceneSizes(NamedTuple):
    """Agents and lanes of every scenario at most, ``[N]`` int64 each."""

    agents: NDArray[np.int64]
    lanes: NDArray[np.int64]

    def bytes_per_scene(self, rows: NDArray[np.int64]) -> int:
        """Memory that a training step needs for each scene of ``rows``, padded to the largest of them."""
        agents, lanes = int(self.agents[rows].max()), int(self.lanes[rows].max())
        tokens = agents + lanes
        pairs = tokens * (tokens + MODES * agents)
        return PAIR_BYTES * pairs + AGENT_BYTES * agents + LANE_BYTES * lanes

    def most(self, rows: NDArray[np.int64], batch_size: int, max_bytes: float) -> int:
        """How many of ``rows`` a batch may hold, whichever they are; one at least."""
        return max(1, int(min(batch_size, max_bytes / self.bytes_per_scene(rows))))


class TrainBatches(Sampler[BatchKey]):
    """Every scenario once an epoch, over all processes together; all make the same number of steps.

    Steps are made of ``batch_size · world`` scenarios and then shared out: ``world`` processes see together
    what one process with steps so large would see (as long as no memory limit binds).

    Args:
        sizes: of the scenarios, as the model sees them.
        batch_size: scenarios per step and process at most; steps may be smaller by a few to be alike.
        seed: of the order.
        max_bytes: memory for the scenes of a step in each process; a single scene may exceed it. Where only
            one fits and their number is no multiple of ``world``, some processes get a second one.
        rank, world: which process this is, of how many.

    Attributes:
        epoch: set by Lightning (:meth:`set_epoch`).
        start: the first step given; those before were trained already.

    Raises:
        DataError: fewer scenarios than processes.
    """

    def __init__(
        self,
        sizes: SceneSizes,
        batch_size: int,
        seed: int = 0,
        max_bytes: float = math.inf,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        _check(sizes, world)
        self.sizes, self.seed, self.rank, self.world = sizes, seed, rank, world
        self.epoch = self.start = 0
        self.kind = _kinds(sizes, batch_size * world)
        members = (np.flatnonzero(self.kind == kind) for kind in range(int(self.kind.max()) + 1))
        self._lengths = np.array(
            [
                len(step)
                for rows in members
                for step in _split(rows, sizes.most(rows, batch_size, max_bytes), world)
            ]
        )

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        """Steps of a whole epoch, wherever it starts."""
        return len(self._lengths)

    def __iter__(self) -> Iterator[BatchKey]:
        for rows in self.steps(self.epoch)[self.start :]:
            # Dealt out by size, so that no process waits long for another; then in the order of the store.
            size = self.sizes.agents[rows] + self.sizes.lanes[rows]
            own = rows[np.argsort(size, kind="stable")][self.rank :: self.world]
            yield BatchKey(np.sort(own), self.epoch)

    def steps(self, epoch: int) -> list[NDArray[np.int64]]:
        """The rows of every step of an epoch, all processes together."""
        stream = _stream(len(self.kind), np.random.default_rng((self.seed, epoch)))
        place = np.argsort(self.kind[stream], kind="stable")  # places in the stream, kind by kind
        start = np.cumsum(self._lengths) - self._lengths
        rows = np.split(stream[place], start[1:])
        when = np.add.reduceat(place, start) / self._lengths
        return [rows[i] for i in np.argsort(when, kind="stable")]


class OrderedBatches(Sampler[BatchKey]):
    """Every scenario once, in the store's order. Arguments and errors: those of :class:`TrainBatches`."""

    def __init__(
        self,
        sizes: SceneSizes,
        batch_size: int,
        max_bytes: float = math.inf,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        _check(sizes, world)
        self.batches = [
            step[rank::world]
            for rows in _split(np.arange(len(sizes.agents)), batch_size, world)
            for step in _split(rows, sizes.most(rows, batch_size, max_bytes), world)
        ]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[BatchKey]:
        return (BatchKey(rows, 0) for rows in self.batches)


def _check(sizes: SceneSizes, world: int) -> None:
    count = len(sizes.agents)
    require(count >= world, "store", f"holds {count} scenarios, too few for {world} processes")


def _kinds(sizes: SceneSizes, batch: int) -> NDArray[np.int64]:
    """Which kind each scenario is of, ``[N]``; all kinds but the last, of few agents, fill whole batches."""
    count = len(sizes.agents)
    batches = -(-count // batch)
    slabs = min(max(1, math.isqrt(batches // BATCHES_PER_KIND)), MOST_SLABS)
    by_agents = np.argsort(-sizes.agents, kind="stable")
    slab = np.empty(count, np.int64)
    slab[by_agents] = np.arange(count) * slabs // count
    # Lanes up and down in turns: neighbours are alike also where one slab ends.
    order = np.lexsort((np.where(slab % 2, sizes.lanes, -sizes.lanes), slab))
    kind = np.empty(count, np.int64)
    kind[order] = np.arange(count) // batch * slabs**2 // batches
    return kind


def _split(rows: NDArray[np.int64], most: int, world: int) -> list[NDArray[np.int64]]:
    """Few steps of like length: at most ``most`` scenarios for each process, and at least one."""
    return np.array_split(rows, min(-(-len(rows) // (most * world)), len(rows) // world))


def _stream(count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """All rows: blocks in random order, shuffled within windows. A single window is shuffled as a whole."""
    block = random.permutation(-(-count // BLOCK))[np.arange(count) // BLOCK]
    return np.argsort(block * BLOCK // WINDOW + random.random(count))
