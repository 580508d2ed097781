"""Numbers of the page's data: integers, and differences from entry to entry."""

from __future__ import annotations

from typing import Any

import numpy as np

from trajpred.errors import require

#: Unit of lengths (metres).
CENTIMETRE = 0.01
#: Unit of angles (radians).
MILLIRADIAN = 0.001


def to_integers(values: np.ndarray, unit: float) -> np.ndarray:
    """Round ``values`` to multiples of ``unit``. Raises: DataError if one is too large or not finite."""
    whole = np.rint(np.asarray(values, np.float64) / unit)
    fits = not whole.size or bool(np.abs(whole).max() < 2**30)
    require(fits, "position", "is too far from the focal agent to be displayed")
    return whole.astype(np.int64)


def to_differences(values: np.ndarray, unit: float) -> Any:
    """Round to multiples of ``unit`` and return differences along the last axis as lists, from 0."""
    return np.diff(to_integers(values, unit), axis=-1, prepend=0).tolist()


def pack_points(points: np.ndarray, origin: np.ndarray) -> dict[str, Any]:
    """Return x and y of ``points`` ``[..., P, 2]`` as differences."""
    local = points - origin
    x = to_differences(local[..., 0], CENTIMETRE)
    y = to_differences(local[..., 1], CENTIMETRE)
    return {"x": x, "y": y}
