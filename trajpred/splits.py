"""The splits of a data set, and the scenarios of the training split that are held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Split = Literal["train", "val", "test"]
SPLITS: tuple[str, ...] = get_args(Split)


def held_out(scenario_ids: Sequence[str], share: float) -> NDArray[np.bool_]:
    """Choose about a ``share`` of the scenarios, by their ids alone: ``[N]``."""
    return np.array([crc32(f"hold out {one}".encode()) < share * 2**32 for one in scenario_ids], np.bool_)
