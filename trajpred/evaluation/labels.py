"""Splits with labels from elsewhere, or with another last observed step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trajpred.data.batch import ScenarioBatch
from trajpred.data.geometry import norm
from trajpred.data.resample import recut
from trajpred.data.scenario import Scenario
from trajpred.errors import DataError, require
from trajpred.sources.argoverse2 import read_tracks
from trajpred.store import ScenarioStore

#: Observed positions of labels and store differ by less than this (metres): a store keeps half a millimetre.
SAME_POSITION_M = 0.01


class LabelledStore(ScenarioStore):
    """A split of a store with futures from scenario files; scenarios without a file have none.

    Args:
        store: the split.
        folder: contains files ``scenario_<id>.parquet`` with observed and future steps, also in subfolders.

    Attributes:
        steps: F, the number of future steps.
        labelled: the number of scenarios with a file.

    Raises:
        DataError: the folder contains no such file, or none of a scenario of the split.
    """

    def __init__(self, store: ScenarioStore, folder: Path) -> None:
        self.__dict__.update(store.__dict__)  # the same rows of the same split
        files = sorted(folder.rglob("scenario_*.parquet"))
        self._files = {file.stem.removeprefix("scenario_"): file for file in files}
        if not files:
            raise DataError("contains no files scenario_<id>.parquet", file=folder)
        name, count = Counter(file.name for file in files).most_common(1)[0]
        if count > 1:
            raise DataError(f"contains two files of the same name, {name}; keep one", file=folder)
        first = read_tracks(files[0])  # the others must have as many steps
        self.steps = first.num_steps - first.num_observed
        self.labelled = sum(name in self._files for name in store.scenario_ids)
        problem = f"none of the {len(store)} scenarios of split {store.split!r} is labelled"
        require(self.labelled > 0, "labels", problem)

    @property
    def lengths(self) -> tuple[int, int]:
        observed, _ = super().lengths
        return observed, self.steps

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> ScenarioBatch:
        return ScenarioBatch.of([self[int(row)] for row in rows])

    def __getitem__(self, index: int) -> Scenario:
        scenario = super().__getitem__(index)
        if scenario.scenario_id not in self._files:
            return scenario
        file = self._files[scenario.scenario_id]
        try:
            return self._labelled(scenario, read_tracks(file))
        except DataError as error:
            raise error.located(file) from None

    def _labelled(self, scenario: Scenario, labels: Scenario) -> Scenario:
        """Return the scenario ``labels`` of a file with the map of the same ``scenario`` without a future."""
        require(not scenario.has_future, "labels", f"scenario {scenario.scenario_id} has a future already")
        require(labels.scenario_id == scenario.scenario_id, "scenario_id", f"is {labels.scenario_id}")
        observed = scenario.num_observed
        expected = observed + self.steps
        has_steps = labels.num_observed == observed and labels.num_steps == expected
        text = f"has {labels.num_observed} of {labels.num_steps} steps observed"
        problem = f"{text}, expected {observed} of {expected} and a future"
        require(has_steps and labels.has_future, "timestep", problem)
        last = labels.tracks.position[labels.focal, observed - 1]
        stored = scenario.tracks.position[scenario.focal, observed - 1]
        agree = bool(norm(last - stored) < SAME_POSITION_M)
        require(agree, "position_x", "the last observed position of the focal track is not that of the store")
        return replace(labels, map=scenario.map)


class ObservedStore(ScenarioStore):
    """A split of a store whose scenarios are observed for another time; what came later is the future.

    History from before the recording is unknown. A scenario is left without a future, and therefore not
    evaluated, if its focal track is not seen within that time, or if the split is labelled and it is not.

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
        _, labels = self._store.lengths
        is_labelled = recorded.has_future or labels == 0  # not where a file of labels is missing
        if is_labelled and scenario.last_seen[scenario.focal] >= 0:
            return scenario
        valid = scenario.tracks.valid.copy()
        valid[:, observed:] = False
        return replace(scenario, tracks=replace(scenario.tracks, valid=valid))
