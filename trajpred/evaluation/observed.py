"""Scenarios that are observed for another time: what was recorded later is the future."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trajpred.data.batch import ScenarioBatch
from trajpred.data.resample import recut
from trajpred.data.scenario import Scenario
from trajpred.errors import require
from trajpred.store import ScenarioStore


class ObservedStore(ScenarioStore):
    """A split of a store whose scenarios are observed for another time; what came later is the future.

    History from before the recording is unknown. A scenario is left without a future, and therefore not
    evaluated, if its focal track is not seen within that time.

    Args:
        store: the split.
        observe_s: seconds from the first recorded step, in whole steps: 0.5 s are the first five of 10 Hz.

    Attributes:
        observed_s: those seconds, as rounded.

    Raises: DataError if no step is observed, none is left to predict, or scenarios differ in length.

    Example:
        >>> halved = ObservedStore(ScenarioStore("runs/argoverse1-store", "val"), 0.5)
        >>> halved.lengths
        (20, 45)
    """

    def __init__(self, store: ScenarioStore, observe_s: float) -> None:
        self.__dict__.update(store.__dict__)
        self._store = store
        observed, future = store.lengths
        recorded = observed + future
        step_s = store[0].step_s
        seconds = f"{step_s:g} s or more, and less than the {recorded * step_s:g} s of the scenarios"
        require(step_s / 2 < observe_s < recorded * step_s, "observe_s", f"must be {seconds}")
        steps = round(observe_s / step_s)
        require(steps < recorded, "observe_s", f"must be {seconds}")
        self.observed_s = round(steps * step_s, 3)
        self._later = steps - observed
        self._window = (max(observed, steps), recorded - steps)

    @property
    def lengths(self) -> tuple[int, int]:
        return self._window

    def subset(self, rows: NDArray[np.int64 | np.bool_]) -> ScenarioStore:
        return ObservedStore(self._store.subset(rows), self.observed_s)

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> ScenarioBatch:
        return ScenarioBatch.of([self[int(row)] for row in rows])

    def __getitem__(self, index: int) -> Scenario:
        observed, future = self.lengths
        recorded = self._store[index]
        scenario = recut(recorded, observed, future, self._later)
        if scenario.last_seen[scenario.focal] >= 0:
            return scenario
        valid = scenario.tracks.valid.copy()
        valid[:, observed:] = False
        return replace(scenario, tracks=replace(scenario.tracks, valid=valid))
