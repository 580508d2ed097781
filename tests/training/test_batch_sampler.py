"""Which scenarios make a batch: all of them once, alike, within memory, shared out, and the same again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.conftest import rejects
from trajpred.training.batch_sampler import BLOCK, WINDOW, BatchKey, OrderedBatches, SceneSizes, TrainBatches


def sizes_of(count: int, seed: int = 0) -> SceneSizes:
    """Sizes as skewed as real ones: many small scenes, few crowded ones."""
    random = np.random.default_rng(seed)
    agents = np.minimum(1 + random.lognormal(2.8, 0.8, count).astype(np.int64), 128)
    return SceneSizes(agents, random.integers(0, 256, count))


def rows_of(keys: Sequence[BatchKey]) -> list[list[int]]:
    return [key.rows.tolist() for key in keys]


def padded_pairs(sizes: SceneSizes, steps: Sequence[NDArray[np.int64]]) -> float:
    """Token pairs of all steps with their padding, over those of the scenes themselves."""

    def pairs(agents: Any, lanes: Any) -> Any:
        return (agents + lanes) * (7 * agents + lanes)

    padded = 0
    for rows in steps:
        largest = pairs(sizes.agents[rows].max(), sizes.lanes[rows].max())
        padded += len(rows) * largest
    return float(padded / pairs(*sizes).sum())


@given(
    count=st.integers(1, 400),
    batch_size=st.integers(1, 9),
    world=st.integers(1, 5),
    gigabytes=st.sampled_from([0.01, 0.05, 0.3, np.inf]),
    seed=st.integers(0, 3),
)
@settings(max_examples=150)
def test_every_epoch_holds_every_scenario_once_over_all_processes(
    count: int, batch_size: int, world: int, gigabytes: float, seed: int
) -> None:
    sizes = sizes_of(count, seed)
    limit = 1e9 * gigabytes
    if min(count, batch_size) < world:
        rejects(f"devices {count}$|batch_size", TrainBatches, sizes, batch_size, seed, limit, 0, world)
        return
    ranks = [TrainBatches(sizes, batch_size, seed, limit, rank, world) for rank in range(world)]
    for epoch in range(2):
        for rank in ranks:
            rank.set_epoch(epoch)
        keys = [list(rank) for rank in ranks]
        rows: list[int] = []
        for step in zip(*keys, strict=True):
            lengths = [len(key.rows) for key in step]
            assert min(lengths) > 0
            assert max(lengths) - min(lengths) <= 1
            assert sum(lengths) <= batch_size or max(lengths) <= 2, "a remainder must go somewhere"
            for key in step:
                assert key.epoch == epoch
                rows += key.rows.tolist()
        assert sorted(rows) == list(range(count))
        for rank, taken in zip(ranks, keys, strict=True):
            assert len(rank) == len(taken)
        if gigabytes == np.inf and world == 1:
            assert len(ranks[0]) == -(-count // batch_size)


@given(count=st.integers(1, 300), world=st.integers(1, 4), batch_size=st.integers(1, 8))
@settings(max_examples=60)
def test_validation_holds_every_scenario_once_in_order(count: int, world: int, batch_size: int) -> None:
    if min(count, batch_size) < world:
        return
    ranks = [OrderedBatches(sizes_of(count), batch_size, 5e7, rank, world) for rank in range(world)]
    shares = [rows_of(list(rank)) for rank in ranks]
    for rank, share in zip(ranks, shares, strict=True):
        assert len(rank) == len(share)
    in_order: list[int] = []
    for step in zip(*shares, strict=True):  # all take as many steps
        rows: list[int] = []
        for part in step:
            assert part == sorted(part)
            rows += part
        assert len(rows) <= batch_size or len(rows) < 2 * world
        in_order += sorted(rows)
    assert in_order == list(range(count))


def test_all_orders_of_few_scenarios_are_equally_likely() -> None:
    """Five scenarios, batches of one: each of the 120 orders about as often as the others (χ² test)."""
    batches = TrainBatches(sizes_of(5), 1)
    orders = [np.concatenate(batches.steps(epoch)) for epoch in range(6000)]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 120
    assert ((counts - 50) ** 2 / 50).sum() < 180  # 119 degrees of freedom: more in 0.03 % of samples


def test_large_stores_are_read_in_shuffled_blocks() -> None:
    count = 40 * WINDOW
    steps = TrainBatches(sizes_of(count), 32).steps(0)
    rows = np.concatenate(steps)
    parts = rows[: count // WINDOW * WINDOW].reshape(-1, WINDOW)
    touched = np.mean([len(np.unique(part // BLOCK)) for part in parts])
    assert touched < 5 * WINDOW / BLOCK, "a random order would touch nearly all 640 blocks"
    assert len(np.unique(rows[:32] // BLOCK)) > 8, "and yet a batch is mixed from many"
    # Blocks come in an order of their own: the epoch's first window is from all over the store.
    assert np.unique(parts[0] // BLOCK).std() > 0.2 * count / BLOCK


def test_batches_hold_scenes_of_similar_size() -> None:
    sizes = sizes_of(8000)
    random = np.array_split(np.random.default_rng(0).permutation(8000), 250)
    for epoch in range(2):
        steps = TrainBatches(sizes, 32).steps(epoch)
        assert padded_pairs(sizes, steps) < 0.4 * padded_pairs(sizes, random)


@pytest.mark.parametrize("limit", [3e7, 1e8, 1e9])
@pytest.mark.parametrize("ordered", [False, True])
def test_only_single_scenes_exceed_the_memory_limit(limit: float, ordered: bool) -> None:
    sizes = sizes_of(3000)
    batches = OrderedBatches(sizes, 32, limit) if ordered else TrainBatches(sizes, 32, 0, limit)
    keys = list(batches)
    assert len(keys) == len(batches) > -(-3000 // 32)
    alone = 0
    for key in keys:
        most = len(key.rows) * sizes.bytes_per_scene(key.rows)
        assert most <= limit or len(key.rows) == 1
        alone += most > limit
    assert (alone > 0) == (limit < sizes.bytes_per_scene(np.arange(3000)) * 0.9)


@pytest.mark.parametrize("start", [0, 1, 7, 25])
def test_an_epoch_can_resume_at_any_step(start: int) -> None:
    whole = TrainBatches(sizes_of(99), 4)
    rest = TrainBatches(sizes_of(99), 4)
    rest.start = start
    assert rows_of(list(rest)) == rows_of(list(whole))[start:]
    assert len(rest) == len(whole) == 25, "Lightning counts from the beginning of the epoch"


@pytest.mark.parametrize("count", [37, 5000])
def test_processes_divide_the_steps_of_one(count: int) -> None:
    sizes = sizes_of(count)
    whole = TrainBatches(sizes, 12, seed=3)
    shares = [TrainBatches(sizes, 12, seed=3, rank=rank, world=3) for rank in range(3)]
    for step, *parts in zip(whole, *shares, strict=True):
        assert sorted(np.concatenate([part.rows for part in parts])) == sorted(step.rows)
