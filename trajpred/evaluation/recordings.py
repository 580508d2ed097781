"""The scored scenes: each one's recording or block of time, for intervals, and its digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trajpred.data.scenario import Scenario

#: Fewer recordings than this are divided into blocks of time.
FEW_RECORDINGS = 10
#: Least and greatest length of a block of time, in windows. Windows at a border belong to two blocks in part:
#: with blocks of k windows, the variance of a mean is estimated too small by 1 / (3 k).
BLOCK_WINDOWS = (3.0, 6.0)
#: Blocks are lengthened only while at least this many remain.
MANY_BLOCKS = 12


def units(recordings: Sequence[str], start_s: NDArray[np.float64], window_s: float) -> list[str]:
    """Return the unit of each window ``[S]`` for intervals: its recording, or a block of time in it.

    Overlapping windows are not independent. Fewer recordings than :data:`FEW_RECORDINGS` are divided into
    equal blocks of at least :data:`BLOCK_WINDOWS` windows (longer if more time was recorded), so that windows
    of two blocks overlap only at the border.

    Args:
        recordings: recording of each window.
        start_s: ``[S]`` seconds at which the windows start.
        window_s: length of a window in seconds.

    Example:
        >>> units(["a", "a", "a"], np.array([0.0, 1.0, 70.0]), 11.0)
        ['a 0', 'a 0', 'a 1']
    """
    names, recording = np.unique(list(recordings), return_inverse=True)
    alone = len(names) == len(recordings)  # no two windows share a recording
    if alone or len(names) >= FEW_RECORDINGS:
        return list(recordings)
    first = np.full(len(names), np.inf)
    np.minimum.at(first, recording, start_s)
    last = np.full(len(names), -np.inf)
    np.maximum.at(last, recording, start_s)
    length = last - first
    windows = np.clip(length.sum() / window_s / MANY_BLOCKS, *BLOCK_WINDOWS)
    # Blocks of a recording have the same length: a short rest would count as a unit, and vary more.
    blocks = np.maximum(np.floor(length / (windows * window_s) + 1e-6), 1)
    block_s = np.maximum(length / blocks, window_s)
    block = ((start_s - first[recording]) / block_s[recording]).astype(int)
    block = np.minimum(block, blocks[recording].astype(int) - 1)
    return [f"{name} {number}" for name, number in zip(recordings, block.tolist(), strict=True)]


class Scenes:
    """Scored scenarios.

    Args:
        recordings: the recording of each scenario of the store.

    Attributes:
        digests: :attr:`~trajpred.data.scenario.Scenario.digest` by id.
    """

    def __init__(self, recordings: Mapping[str, str]) -> None:
        self.digests: dict[str, int] = {}
        self._recordings = recordings
        self._start_s: list[float] = []
        self._window_s = 0.0

    def add(self, scenarios: Sequence[Scenario]) -> None:
        """Add scenarios."""
        for scenario in scenarios:
            self.digests[scenario.scenario_id] = scenario.digest
            self._start_s.append(float(scenario.timestamps_ns[0]) * 1e-9)
            self._window_s = max(self._window_s, scenario.num_steps * scenario.step_s)

    def joined(self, rows: pa.Table) -> pa.Table:
        """Return ``rows`` with the columns :data:`~trajpred.evaluation.table.SCENE` after the first one."""
        ids = list(self.digests)
        recordings = [self._recordings[name] for name in ids]
        of_windows = units(recordings, np.array(self._start_s), self._window_s)
        index = pc.index_in(rows["scenario_id"], pa.array(ids))
        rows = rows.add_column(1, "recording", pa.chunked_array([of_windows]).take(index))
        digests = pa.chunked_array([pa.array(list(self.digests.values()), pa.int64())])
        return rows.add_column(2, "digest", digests.take(index))
