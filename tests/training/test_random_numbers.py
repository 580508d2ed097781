"""Random numbers of keys: the published hash, uniform and uncorrelated."""

from __future__ import annotations

import numpy as np

from trajpred.training.augmentation import hashed, uniform


def test_hash_equals_splitmix64() -> None:
    """The first output of the authors' C code from state 0."""
    assert hashed(0).tolist() == [0xE220A8397B1DCDAF]


def test_numbers_are_uniform_and_uncorrelated() -> None:
    """Four standard errors of 10^5 draws, for neighbouring keys."""
    row = np.arange(1000)[:, None]
    item = np.arange(100)[None]
    numbers = uniform(row, 5, item)
    assert numbers.shape == (1000, 100)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 4 * np.sqrt(1 / 12 / numbers.size)
    share = np.histogram(numbers, 10, (0, 1))[0] / numbers.size
    assert np.abs(share - 0.1).max() < 4 * np.sqrt(0.09 / numbers.size)
    for other in (uniform(row + 1, 5, item), uniform(row, 6, item), uniform(row, 5, item + 1)):
        correlation = np.corrcoef(numbers.ravel(), other.ravel())[0, 1]
        assert abs(correlation) < 4 / np.sqrt(numbers.size)
