"""How to compare batches of scene graphs."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from trajpred.graph.scene_graph import SceneBatch


def equal_batches(a: SceneBatch, b: SceneBatch) -> bool:
    """Whether two batches hold the same, bit by bit."""
    return all(
        set(one.keys()) == set(two.keys()) and all(_equal(value, two[name]) for name, value in one.items())
        for one, two in zip(a.stores, b.stores, strict=True)
    )


def _equal(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and np.array_equal(a.numpy(), b.numpy(), equal_nan=a.is_floating_point())
    return bool(np.all(np.asarray(a) == np.asarray(b)))
