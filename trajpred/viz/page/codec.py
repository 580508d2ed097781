"""Whole numbers as short text: ``static/data.js`` reads what is written here.

Neighbouring points differ by little, so differences are kept instead of values; their bytes are sorted by
significance, which makes long runs of zeros, and deflated. Exact, and a fifth of plain 32-bit integers.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError


def encode(arrays: Mapping[str, NDArray[np.int32]]) -> dict[str, Any]:
    """``arrays`` ``[N, C]`` by name as ``{"arrays": [[name, N, C], …], "data": base64}``."""
    shapes = [[name, *array.shape] for name, array in arrays.items()]
    packed = zlib.compress(b"".join(map(_planes, arrays.values())), level=9)
    return {"arrays": shapes, "data": base64.b64encode(packed).decode("ascii")}


def _planes(array: NDArray[np.int32]) -> bytes:
    """The bytes of ``[N, C]``, column after column: those of least significance first."""
    change = array.astype(np.int64)
    change[1:] -= array[:-1]
    # The sign moves into the lowest bit: small differences of either sign then have zeros above.
    folded = ((change << 1) ^ (change >> 63)).T.astype("<u4").ravel()
    return folded.view(np.uint8).reshape(-1, 4).T.tobytes()


def to_int(values: NDArray[Any], unit: float, columns: int) -> NDArray[np.int32]:
    """``values`` in multiples of ``unit``, rounded, as ``[N, columns]``.

    Raises: DataError if one is too large, or not finite.
    """
    whole = np.rint(np.asarray(values, np.float64) / unit)
    # Half of the range of 32 bits: differences have to fit too.
    if whole.size and not np.abs(whole).max() < 2**30:
        raise DataError("lies too far from the focal agent to be shown", field="position")
    return whole.astype(np.int32).reshape(-1, columns)
