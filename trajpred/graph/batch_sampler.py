"""Which scenarios make a batch, and in which order. NumPy only; everything follows from sizes, seed and epoch.

A model pads the scenes of a batch to the largest of them, so scenes of a size belong together: on Argoverse 1
padded token pairs are 1.7 times the true ones instead of 3.3 times (batches of 32). And a prepared store is
read fastest in order. Hence:

- The scenarios are sorted by size once and cut into *kinds*, as many as leave each some batches to choose from.
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

#: Rows that stay neighbours when a store is read, and rows that are mixed freely.
BLOCK, WINDOW = 64, 4096
#: A kind is made only if it fills so many batches on average, and there are no more kinds than this.
BATCHES_PER_KIND, MOST_KINDS = 8, 64
#: Senders that hear, or are heard, in the decoder's attention, per agent and token: its modes.
MODES = 6


class BatchKey(NamedTuple):
    """What a dataset is asked for: rows of the store, ``[S]`` int64, and the epoch that decides how they are
    varied (None: not at all)."""

    rows: NDArray[np.int64]
    epoch: int | None


class SceneSizes(NamedTuple):
    """Agents and lanes of every scenario at most, ``[N]`` int64 each."""

    agents: NDArray[np.int64]
    lanes: NDArray[np.int64]

    def edges(self, rows: NDArray[np.int64]) -> int:
        """Token pairs of one scene in a batch of ``rows``, padded to the largest: n² + 6 a n, a agents and
        n tokens in all."""
        agents, lanes = int(self.agents[rows].max()), int(self.lanes[rows].max())
        tokens = agents + lanes
        return tokens * (tokens + MODES * agents)

    def most(self, rows: NDArray[np.int64], max_edges: float) -> float:
        """How many scenes of ``rows`` a batch may hold within ``max_edges``; one at least."""
        return max(1, max_edges // self.edges(rows)) if max_edges < math.inf else math.inf


class TrainBatches(Sampler[BatchKey]):
    """Every scenario once an epoch, over all processes together; all make the same number of steps.

    Batches are made of ``batch_size · world`` scenarios and then shared out, so ``world`` processes see
    together what one process with batches so large would see (as long as no budget binds).

    Args:
        sizes: of the scenarios, as the model sees them.
        batch_size: scenarios per step and process at most; batches of a kind differ by one.
        seed: of the order.
        max_edges: bound of a process' batch, see :meth:`SceneSizes.edges`; one scene may exceed it alone.
        rank, world: which process this is, of how many.

    Attributes:
        epoch: set by Lightning (``set_epoch``).
        start: batches of the epoch that are left out, since they were trained before.

    Raises:
        DataError: fewer scenarios than processes.
    """

    def __init__(
        self,
        sizes: SceneSizes,
        batch_size: int,
        seed: int = 0,
        max_edges: float = math.inf,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        _check(sizes, batch_size, world)
        self.sizes, self.seed, self.rank, self.world = sizes, seed, rank, world
        self.epoch = self.start = 0
        self.kind = _kinds(sizes, batch_size * world)
        parts = [
            _parts(np.flatnonzero(self.kind == kind), sizes, batch_size, max_edges, world)
            for kind in range(int(self.kind[-1:].max(initial=self.kind.max())) + 1)
        ]
        self._lengths = np.concatenate(parts)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches of a whole epoch, whatever ``start`` is."""
        return len(self._lengths)

    def __iter__(self) -> Iterator[BatchKey]:
        for rows in self.batches(self.epoch)[self.start :]:
            # Dealt out by size, so that no process waits long for the others.
            size = self.sizes.agents[rows] + self.sizes.lanes[rows]
            yield BatchKey(rows[np.argsort(size, kind="stable")][self.rank :: self.world], self.epoch)

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """The rows of every step, of all processes together."""
        stream = _stream(len(self.kind), np.random.default_rng((self.seed, epoch)))
        place = np.argsort(self.kind[stream], kind="stable")  # in the stream, kind by kind
        start = np.cumsum(self._lengths) - self._lengths
        when = np.add.reduceat(place, start) / self._lengths
        rows = np.split(stream[place], start[1:])
        return [rows[i] for i in np.argsort(when, kind="stable")]
