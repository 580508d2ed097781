"""uniform: numbers that belong to their keys."""

from __future__ import annotations

import numpy as np

from trajpred.graph.transforms import hashed, uniform


def test_known_values() -> None:
    """SplitMix64 from state 0, as its authors' C code gives it: 0xe220a8397b1dcdaf."""
    assert hashed(0).tolist() == [0xE220A8397B1DCDAF]


def test_each_key_counts_and_so_does_their_order() -> None:
    keys = [(1, 2, 3), (3, 2, 1), (1, 2, 4), (1, 3, 2), (-1, 2, 3), (1, 2), (0, 1, 2, 3)]
    assert len({float(uniform(*key)[0]) for key in keys}) == len(keys)


def test_many_numbers_are_uniform_and_unrelated() -> None:
    """Four standard errors of 10^5 draws, for neighbouring keys."""
    row, item = np.arange(1000)[:, None], np.arange(100)[None]
    numbers = uniform(row, 5, item)
    assert numbers.shape == (1000, 100) and numbers.min() >= 0 and numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 4 * np.sqrt(1 / 12 / numbers.size)
    share = np.histogram(numbers, 10, (0, 1))[0] / numbers.size
    assert np.abs(share - 0.1).max() < 4 * np.sqrt(0.09 / numbers.size)
    for other in (uniform(row + 1, 5, item), uniform(row, 6, item), uniform(row, 5, item + 1)):
        correlation = np.corrcoef(numbers.ravel(), other.ravel())[0, 1]
        assert abs(correlation) < 4 / np.sqrt(numbers.size)


def test_company_changes_nothing() -> None:
    rows = np.array([4, 9, 2])
    assert uniform(rows, 1)[1] == uniform(np.array([9]), 1)[0] == uniform(9, 1)[0]
