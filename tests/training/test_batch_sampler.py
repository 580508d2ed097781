"""Which scenarios make a batch: all of them once, alike, within memory, shared out, and the same again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from trajpred.errors import DataError
from trajpred.training.batch_sampler import (
    BLOCK,
    WINDOW,
    BatchKey,
    OrderedBatches,
    SceneSizes,
    TrainBatches,
)


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

    padded = sum(len(rows) * pairs(sizes.agents[rows].max(), sizes.lanes[rows].max()) for rows in steps)
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
    sizes, limit = sizes_of(count, seed), 1e9 * gigabytes
    if min(count, batch_size) < world:
        with pytest.raises(DataError, match=f"devices {count}$|batch_size"):
            TrainBatches(sizes, batch_size, seed, limit, 0, world)
        return
    ranks = [TrainBatches(sizes, batch_size, seed, limit, rank, world) for rank in range(world)]
    for epoch in range(2):
        for rank in ranks:
            rank.set_epoch(epoch)
        keys = [list(rank) for rank in ranks]
        assert {len(own) for own in keys} == {len(rank) for rank in ranks}, "as many steps as len() says"
        assert {key.epoch for own in keys for key in own} == {epoch}
        rows = [row for own in rows_of([k for own in keys for k in own]) for row in own]
        assert sorted(rows) == list(range(count))
        if gigabytes == np.inf and world == 1:
            assert len(ranks[0]) == -(-count // batch_size)
        for step in zip(*map(rows_of, keys), strict=True):
            lengths = [len(own) for own in step]
            assert min(lengths) > 0 and max(lengths) - min(lengths) <= 1
            assert sum(lengths) <= batch_size or max(lengths) <= 2, "a remainder must go somewhere"


@given(count=st.integers(1, 300), world=st.integers(1, 4), batch_size=st.integers(1, 8))
@settings(max_examples=60)
def test_validation_holds_every_scenario_once_in_order(count: int, world: int, batch_size: int) -> None:
    if min(count, batch_size) < world:
        return
    ranks = [OrderedBatches(sizes_of(count), batch_size, 5e7, rank, world) for rank in range(world)]
    shares = [rows_of(list(rank)) for rank in ranks]
    assert {len(rank) for rank in ranks} == set(map(len, shares)), "all take as many steps"
    steps = [sorted(row for rows in step for row in rows) for step in zip(*shares, strict=True)]
    assert [row for step in steps for row in step] == list(range(count))
    assert all(len(step) <= batch_size or len(step) < 2 * world for step in steps)
    assert all(rows == sorted(rows) for share in shares for rows in share)


def test_all_orders_of_few_scenarios_are_equally_likely() -> None:
    """Five scenarios, batches of one: each of the 120 orders about as often as the others (χ² test)."""
    batches = TrainBatches(sizes_of(5), 1)
    orders = [tuple(int(rows[0]) for rows in batches.steps(epoch)) for epoch in range(6000)]
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
    whole, rest = TrainBatches(sizes_of(99), 4), TrainBatches(sizes_of(99), 4)
    rest.start = start
    assert rows_of(list(rest)) == rows_of(list(whole))[start:]
    assert len(rest) == len(whole) == 25, "Lightning counts from the beginning of the epoch"


def test_estimated_memory_grows_with_tokens() -> None:
    sizes = SceneSizes(np.array([1, 10, 10, 128]), np.array([0, 0, 50, 256]))
    each = [sizes.bytes_per_scene(np.array([row])) for row in range(4)]
    assert each == sorted(each) and each[0] > 0
    both = SceneSizes(np.array([5, 1]), np.array([1, 70]))
    one = SceneSizes(np.array([5]), np.array([70]))
    assert both.bytes_per_scene(np.arange(2)) == one.bytes_per_scene(np.zeros(1, int)), "padded to both"


@pytest.mark.parametrize("count", [37, 5000])
def test_processes_divide_the_steps_of_one(count: int) -> None:
    sizes = sizes_of(count)
    one = TrainBatches(sizes, 12, seed=3)
    shares = [TrainBatches(sizes, 12, seed=3, rank=rank, world=3) for rank in range(3)]
    for step, *parts in zip(one, *shares, strict=True):
        assert sorted(np.concatenate([part.rows for part in parts])) == sorted(step.rows)


def test_processes_get_scenes_of_similar_size_in_every_step() -> None:
    sizes = sizes_of(4992)  # all steps are full
    size, apart, by_chance = sizes.agents + sizes.lanes, [], []
    for a, b in zip(*(TrainBatches(sizes, 64, rank=rank, world=2) for rank in (0, 1)), strict=True):
        assert abs(size[a.rows].sum() - size[b.rows].sum()) < 0.05 * size[a.rows].sum()
        apart.append(np.abs(np.sort(size[a.rows]) - np.sort(size[b.rows])).mean())
        step = size[np.sort(np.concatenate((a.rows, b.rows)))]
        by_chance.append(np.abs(np.sort(step[0::2]) - np.sort(step[1::2])).mean())
    assert np.mean(apart) < 0.5 * np.mean(by_chance)
