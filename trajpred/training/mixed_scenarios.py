"""The training scenarios of one or several stores, and those that a training holds out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trajpred.scenario import Scenario
from trajpred.scenario_batch import ScenarioBatch
from trajpred.store import ScenarioStore


class MixedScenarios:
    """The scenarios of several stores, those of each ``times`` over."""

    def __init__(self, parts: Sequence[ScenarioStore], times: Sequence[int]) -> None:
        self.parts = parts
        part_of_row: list[NDArray[np.int64]] = []
        rows: list[NDArray[np.int64]] = []
        for index, (part, repeats) in enumerate(zip(parts, times, strict=True)):
            part_of_row.append(np.full(len(part) * repeats, index))
            rows.append(np.tile(np.arange(len(part)), repeats))
        #: Index of the store of each scenario.
        self.part = np.concatenate(part_of_row)
        #: Row of each scenario in its store.
        self.row = np.concatenate(rows)

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, index: int) -> Scenario:
        return self.parts[self.part[index]][int(self.row[index])]

    @property
    def sizes(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the observed tracks ``[N]`` and the lanes and crossings ``[N]`` of each scenario."""
        tracks: list[NDArray[np.int32]] = []
        lanes: list[NDArray[np.int32]] = []
        first_rows: list[int] = []
        count = 0
        for part in self.parts:
            part_tracks, part_lanes = part.sizes
            tracks.append(part_tracks)
            lanes.append(part_lanes)
            first_rows.append(count)
            count += len(part)
        rows = self.row + np.array(first_rows)[self.part]
        return np.concatenate(tracks)[rows], np.concatenate(lanes)[rows]

    def batch(self, rows: NDArray[np.int64]) -> ScenarioBatch:
        """Read the scenarios of ``rows``, ascending, in the window that holds those of each store."""
        batches: list[ScenarioBatch] = []
        for part in np.unique(self.part[rows]):
            of_part = rows[self.part[rows] == part]
            batches.append(self.parts[part].batch(self.row[of_part]))
        return ScenarioBatch.joined(batches)


def without_held_out(split: ScenarioStore, hold_out: float) -> ScenarioStore:
    """Leave the share ``hold_out`` of its scenarios out of a training split."""
    if not hold_out:
        return split
    return split.subset(~split.held_out(hold_out))
