"""Futures that come separately from the scenarios, as for a test split whose labels are published later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.geometry import norm
from trajpred.scenario import Scenario
from trajpred.scenario_batch import ScenarioBatch
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
