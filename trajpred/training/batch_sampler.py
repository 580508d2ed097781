"""Compose batches of scenes of similar size in random order, as a function of sizes, seed and epoch.

Models pad the scenes of a batch to the largest, so batches should contain scenes of similar size; and a store
is read fastest in order. Therefore:

- Scenarios are sorted by size once and divided into *groups*, each large enough to shuffle within.
- In each epoch, blocks of adjacent rows are permuted and then mixed within windows of several blocks.
- Each group fills its batches from that stream; batches are ordered by the position of their scenarios in it.

Groups, and thus the number and sizes of batches, are the same in all epochs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from trajpred.errors import require

#: Number of rows that stay close in the stream: one shard of a store.
BLOCK = 256
#: Scenes are shuffled within windows of this many.
WINDOW = 4096
#: Minimum number of batches per group.
BATCHES_PER_GROUP = 8
#: There are at most ``MAX_SLABS ** 2`` groups.
MAX_SLABS = 8
#: Peak memory of a training step per padded pair of tokens, agent and lane, and of the process itself, fitted
#: to measurements of the default model in float32.
PAIR_BYTES = 250
AGENT_BYTES = 650_000
LANE_BYTES = 100_000
PROCESS_BYTES = 700_000_000
#: Maximum number of mode tokens per agent in the decoder: six in each of two groups.
DECODED_MODES = 12


class BatchKey(NamedTuple):
    """Rows ``[S]`` of the store that make one batch, and the epoch, which seeds the variations."""

    rows: NDArray[np.int64]
    epoch: int


class SceneSizes(NamedTuple):
    """Upper bounds on the agents and lanes of every scenario, ``[N]`` int64 each."""

    agents: NDArray[np.int64]
    lanes: NDArray[np.int64]

    def bytes_per_scene(self, rows: NDArray[np.int64]) -> int:
        """Estimate the memory of a training step per scene of ``rows``, padded to the largest of them."""
        agents = int(self.agents[rows].max())
        lanes = int(self.lanes[rows].max())
        tokens = agents + lanes
        pairs = tokens * (tokens + DECODED_MODES * agents)
        return PAIR_BYTES * pairs + AGENT_BYTES * agents + LANE_BYTES * lanes

    def limit(self, rows: NDArray[np.int64], batch_size: int, max_bytes: float, world: int) -> int:
        """Return the maximum number of scenes in a step of ``world`` processes, at least one for each."""
        fits = max_bytes / self.bytes_per_scene(rows)
        if fits * world >= batch_size:
            return batch_size
        return world * max(1, int(fits))


class TrainBatches(Sampler[BatchKey]):
    """Yield every scenario once per epoch over all processes, in the same number of steps on each.

    Steps are composed first and then divided between the processes, so any number of processes trains the
    same steps (unless a memory limit binds).

    Args:
        sizes: sizes of the scenarios after featurisation.
        batch_size: maximum number of scenarios per step, of all processes together.
        max_bytes: memory for the scenes of a step in each process; a single scene may exceed it. If only one
            fits and the scenes cannot be divided evenly, some processes get a second one.
        rank: index of this process.
        world: number of processes.

    Attributes:
        epoch: set by Lightning (:meth:`set_epoch`).
        start: first step to yield; earlier steps are already trained.

    Raises: DataError if there are fewer scenarios, overall or per step, than processes.

    Example:
        >>> batches = TrainBatches(SceneSizes(np.full(100, 20), np.full(100, 60)), batch_size=8)
        >>> len(batches), sum(len(key.rows) for key in batches)
        (13, 100)
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
        _check(sizes, batch_size, world, "training")
        self.sizes = sizes
        self.seed = seed
        self.rank = rank
        self.world = world
        self.epoch = 0
        self.start = 0
        self.group = _groups(sizes, batch_size)
        lengths: list[int] = []
        for group in range(int(self.group.max()) + 1):
            rows = np.flatnonzero(self.group == group)
            limit = sizes.limit(rows, batch_size, max_bytes, world)
            lengths += [len(step) for step in _split(rows, limit, world)]
        self._lengths = np.array(lengths)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of steps of a whole epoch, regardless of :attr:`start`."""
        return len(self._lengths)

    def __iter__(self) -> Iterator[BatchKey]:
        for rows in self.steps(self.epoch)[self.start :]:
            # Divided by size, so that processes take equally long; then sorted as in the store.
            size = self.sizes.agents[rows] + self.sizes.lanes[rows]
            by_size = rows[np.argsort(size, kind="stable")]
            share = by_size[self.rank :: self.world]
            yield BatchKey(np.sort(share), self.epoch)

    def steps(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the rows of every step of an epoch, for all processes together."""
        stream = _stream(len(self.group), np.random.default_rng((self.seed, epoch)))
        place = np.argsort(self.group[stream], kind="stable")  # positions in the stream, group by group
        start = np.cumsum(self._lengths) - self._lengths
        rows = np.split(stream[place], start[1:])
        when = np.add.reduceat(place, start) / self._lengths
        return [rows[i] for i in np.argsort(when, kind="stable")]


class OrderedBatches(Sampler[BatchKey]):
    """Yield every scenario once, in the order of the store. Arguments as for :class:`TrainBatches`."""

    def __init__(
        self, sizes: SceneSizes, batch_size: int, max_bytes: float = math.inf, rank: int = 0, world: int = 1
    ) -> None:
        _check(sizes, batch_size, world, "validation")
        self.batches: list[NDArray[np.int64]] = []
        for rows in _split(np.arange(len(sizes.agents)), batch_size, world):
            limit = sizes.limit(rows, batch_size, max_bytes, world)
            self.batches += [step[rank::world] for step in _split(rows, limit, world)]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[BatchKey]:
        return (BatchKey(rows, 0) for rows in self.batches)


def _check(sizes: SceneSizes, batch_size: int, world: int, purpose: str) -> None:
    few = f"must be at least the number of processes, {world}, is {batch_size}"
    require(batch_size >= world, "data.batch_size", few)
    count = len(sizes.agents)
    problem = f"holds {count} scenarios for {purpose}"
    if count:
        problem += f", too few for {world} processes: give --trainer.devices {count}"
    require(count >= world, "store", problem)


def _groups(sizes: SceneSizes, batch: int) -> NDArray[np.int64]:
    """Assign scenarios to groups ``[N]``; all groups but the last (few agents) fill whole batches."""
    count = len(sizes.agents)
    batches = math.ceil(count / batch)
    slabs = min(max(1, math.isqrt(batches // BATCHES_PER_GROUP)), MAX_SLABS)
    by_agents = np.argsort(-sizes.agents, kind="stable")
    slab = np.empty(count, np.int64)
    slab[by_agents] = np.arange(count) * slabs // count
    # Alternately descending and ascending, so that adjacent slabs meet at similar sizes.
    order = np.lexsort((np.where(slab % 2, sizes.lanes, -sizes.lanes), slab))
    group = np.empty(count, np.int64)
    group[order] = np.arange(count) // batch * slabs**2 // batches
    return group


def _split(rows: NDArray[np.int64], limit: int, world: int) -> list[NDArray[np.int64]]:
    """Divide rows into few steps of similar length: at most ``limit`` scenarios, one or more per process."""
    steps = min(math.ceil(len(rows) / limit), len(rows) // world)
    return np.array_split(rows, steps)


def _stream(count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Permute all rows: blocks in random order, then rows within windows of several blocks."""
    blocks = math.ceil(count / BLOCK)
    block = random.permutation(blocks)[np.arange(count) // BLOCK]
    return np.argsort(block * BLOCK // WINDOW + random.random(count))
