"""Futures that come separately from the scenarios, as for a test split whose labels are published later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.geometry import norm, unit_vector
from trajpred.predictors.predictions_file import read_predictions
from trajpred.scenario import Scenario, Tracks
from trajpred.scenario_batch import ScenarioBatch
from trajpred.sources.argoverse2 import read_tracks
from trajpred.store import ScenarioStore

#: Observed positions of labels and store differ by less than this (metres): a store keeps half a millimetre.
SAME_POSITION_M = 0.01
_STATES = ("valid", "position", "heading", "velocity")


def read_labels(path: Path) -> ScenarioLabels | ChallengeLabels:
    """Open labels: a folder of scenarios with all steps, or a challenge file with one mode.

    Args:
        path: a folder that contains ``scenario_<id>.parquet`` files, also in folders of their own; or a
            ``.parquet`` file in the format of the challenges, whose only mode is the true future.

    Raises: DataError if it is neither.
    """
    if path.is_dir():
        return ScenarioLabels(path)
    if path.suffix == ".parquet" and path.is_file():
        return ChallengeLabels(path)
    forms = "a folder of scenario_<id>.parquet files or a challenge file (.parquet) with one mode"
    raise DataError(f"is not {forms}" if path.exists() else f"does not exist; labels are {forms}", file=path)


class ScenarioLabels:
    """Labels from scenario files that contain the observed and the future steps."""

    def __init__(self, folder: Path) -> None:
        files = sorted(folder.rglob("scenario_*.parquet"))
        self._files = {file.stem.removeprefix("scenario_"): file for file in files}
        if not files:
            raise DataError("contains no scenario_<id>.parquet file", file=folder)
        twice = [file.name for file in files if self._files[file.stem.removeprefix("scenario_")] != file]
        if twice:
            raise DataError(f"contains {twice[0]} twice", file=folder)
        first = read_tracks(files[0])
        self.steps = first.num_steps - first.num_observed

    def __contains__(self, scenario_id: str) -> bool:
        return scenario_id in self._files

    def future(self, scenario: Scenario) -> Tracks:
        """Return the future states of the tracks of ``scenario`` that are labelled."""
        file = self._files[scenario.scenario_id]
        try:
            return self._checked(read_tracks(file), scenario)
        except DataError as error:
            raise error.located(file) from None

    def _checked(self, labels: Scenario, scenario: Scenario) -> Tracks:
        n, tracks = scenario.num_observed, scenario.tracks
        require(labels.scenario_id == scenario.scenario_id, "scenario_id", f"is {labels.scenario_id}")
        complete = (labels.num_observed, labels.num_steps) == (n, n + self.steps) and labels.has_future
        steps = f"has {labels.num_observed} of {labels.num_steps} steps observed"
        require(complete, "timestep", f"{steps}, expected {n} of {n + self.steps} and a future")
        place = {name: i for i, name in enumerate(tracks.track_id.tolist())}
        known = np.array([name in place for name in labels.tracks.track_id.tolist()], np.bool_)
        row = np.array([place[name] for name in labels.tracks.track_id[known].tolist()], np.int64)
        apart = norm(labels.tracks.position[known, n - 1] - tracks.position[row, n - 1])
        both = labels.tracks.valid[known, n - 1] & tracks.valid[row, n - 1]
        agree = bool(both.any() and (apart[both] < SAME_POSITION_M).all())
        require(agree, "position_x", "the last observed positions are not those of the store")
        return _states(labels.tracks, np.flatnonzero(known), slice(n, None))


class ChallengeLabels:
    """Labels from a file of the challenges with one mode; every step of its tracks is known."""

    def __init__(self, path: Path) -> None:
        self._file = read_predictions(path)
        if self._file.problems:
            name, problems = next(iter(self._file.problems.items()))
            raise DataError(f"scenario {name}: {problems[0]}", file=path)
        modes, steps = self._file.modes, {self._file.steps(one) for one in self._file.scenario_ids}
        if modes != {1} or len(steps) != 1:
            found = f"{sorted(modes)} modes of {sorted(steps)} steps"
            raise DataError(f"has {found}: labels have one mode and one length", file=path)
        [self.steps] = steps
        self._ids = set(self._file.scenario_ids)

    def __contains__(self, scenario_id: str) -> bool:
        return scenario_id in self._ids

    def future(self, scenario: Scenario) -> Tracks:
        forecast = self._file.forecast(scenario)
        row = np.array([scenario.tracks.index(name) for name in forecast.track_id.tolist()], np.int64)
        heading, speed = forecast.heading[:, 0], forecast.speed[:, 0]
        return replace(
            _states(scenario.tracks, row, slice(0)),
            valid=np.ones_like(heading, np.bool_),
            position=forecast.trajectory[:, 0],
            heading=heading,
            velocity=speed[..., None] * unit_vector(heading),
        )


#: The futures of a split: their number of ``steps``, and the ``future`` of a scenario that they contain.
Labels: TypeAlias = ScenarioLabels | ChallengeLabels


def _states(tracks: Tracks, rows: NDArray[np.int64], steps: slice) -> Tracks:
    """Select tracks and steps."""
    about = {name: getattr(tracks, name)[rows] for name in ("track_id", "object_type", "category")}
    return replace(tracks, **about, **{name: getattr(tracks, name)[rows][:, steps] for name in _STATES})


class LabelledStore(ScenarioStore):
    """A split of a store with futures from elsewhere; scenarios without a label have none.

    Raises: DataError if the split has scenarios of several lengths, or none of them is labelled.
    """

    def __init__(self, store: ScenarioStore, labels: Labels) -> None:
        self.__dict__.update(store.__dict__)
        self.labels = labels
        self.labelled = sum(name in labels for name in store.scenario_ids)
        problem = f"none of the {len(store)} scenarios of split {store.split!r} is labelled"
        require(self.labelled > 0, "labels", problem)

    @property
    def lengths(self) -> tuple[int, int]:
        return super().lengths[0], self.labels.steps

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> ScenarioBatch:
        return ScenarioBatch.of([self[int(row)] for row in rows])

    def __getitem__(self, index: int) -> Scenario:
        scenario = super().__getitem__(index)
        return label(scenario, self.labels) if scenario.scenario_id in self.labels else scenario


def label(scenario: Scenario, labels: Labels) -> Scenario:
    """Fill in the future of a scenario. Raises: DataError if it has one already, or the lengths differ."""
    n, name = scenario.num_observed, scenario.scenario_id
    require(not scenario.has_future, "labels", f"scenario {name} has a future already")
    fits = scenario.num_steps in (n, n + labels.steps)
    known = f"scenario {name} has {scenario.num_steps - n} future steps"
    require(fits, "labels", f"{known}, the labels have {labels.steps}")
    future, tracks = labels.future(scenario), scenario.tracks
    rows = np.array([tracks.index(one) for one in future.track_id.tolist()], np.int64)
    states = {}
    for part in _STATES:
        seen = getattr(tracks, part)[:, :n]
        states[part] = np.zeros((len(tracks), n + labels.steps, *seen.shape[2:]), seen.dtype)
        states[part][:, :n] = seen
        states[part][rows, n:] = getattr(future, part)
    stamps = scenario.timestamps_ns
    if len(stamps) == n:
        ahead = np.round(np.arange(1, labels.steps + 1) * scenario.step_s * 1e9).astype(np.int64)
        stamps = np.concatenate((stamps, stamps[-1] + ahead))
    return replace(scenario, timestamps_ns=stamps, tracks=replace(tracks, **states))
