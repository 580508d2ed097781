"""Typical sizes of road users by type: Argoverse's forecasting data have no boxes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trajpred.scenario import OBJECT_TYPES

#: Typical (length, width) in metres.
TYPICAL_SIZE = {
    "vehicle": (4.6, 1.9),
    "pedestrian": (0.7, 0.7),
    "motorcyclist": (2.1, 0.8),
    "cyclist": (1.8, 0.7),
    "bus": (11.5, 2.6),
    "static": (0.8, 0.8),
    "background": (0.8, 0.8),
    "construction": (0.8, 0.8),
    "riderless_bicycle": (1.8, 0.6),
    "unknown": (1.0, 1.0),
}
#: ``[10, 2]`` metres, indexed by ``Tracks.object_type``.
TYPICAL_SIZES: NDArray[np.float64] = np.array([TYPICAL_SIZE[name] for name in OBJECT_TYPES])
