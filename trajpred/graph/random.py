"""Random numbers that belong to what they are for, not to the order in which they are drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def hashed(*keys: ArrayLike) -> NDArray[np.uint64]:
    """Well mixed 64-bit numbers that depend on the integer ``keys`` (broadcast) and their order alone.

    Source: the finaliser of SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number
    generators"), once per key.
    """
    state = np.zeros(1, np.uint64)
    for key in keys:
        # Through int64, so that negative keys count too.
        state = state + np.uint64(0x9E3779B97F4A7C15) + np.asarray(key).astype(np.int64).view(np.uint64)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


def uniform(*keys: ArrayLike) -> NDArray[np.float64]:
    """Numbers in [0, 1) that depend on the integer ``keys`` (broadcast) alone."""
    return (hashed(*keys) >> np.uint64(11)) * np.float64(2.0**-53)
