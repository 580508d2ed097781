"""Predictions files: forecasts in the parquet format of the Argoverse 2 challenges.

A row per track and mode: ``scenario_id``, ``track_id``, ``probability``, ``predicted_trajectory_x`` and
``predicted_trajectory_y`` (lists, metres, city frame). Mode k of all tracks of a scenario is one world.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trajpred.forecast import Forecast
from trajpred.predictors.baselines import last_observed
from trajpred.predictors.prediction_rows import Rows, Tracks, check, group_tracks, read_rows, sort_modes
from trajpred.predictors.predictor import Predictor
from trajpred.scenario import Scenario
from trajpred.tracks import TrackCategory


@dataclass(frozen=True)
class PredictionsFile:
    """The usable forecasts of a predictions file; see :func:`read_predictions`.

    Attributes:
        path: the file.
        scenario_ids: all scenarios in the file, in file order.
        joint: by scenario, whether its tracks share their probabilities: mode k is then one world.
        single: no scenario has more than one track, as in the single-agent challenge.
        problems: by scenario, problems in sentences; the tracks they name are omitted.
        note: a remark on the whole file, usually empty.
    """

    path: Path
    scenario_ids: list[str]
    joint: dict[str, bool]
    single: bool
    problems: dict[str, list[str]]
    note: str
    _rows: Rows
    _tracks: Tracks
    _range: dict[str, slice]

    def __repr__(self) -> str:
        scenarios, tracks = len(self.scenario_ids), len(self._tracks.track_id)
        faults = f", faults in {len(self.problems):,} scenarios" if self.problems else ""
        return f"PredictionsFile({self.path}: {scenarios:,} scenarios, {tracks:,} tracks{faults})"

    def track_ids(self, scenario_id: str) -> list[str]:
        """List the usable tracks of a scenario; empty if the file does not contain it."""
        return self._tracks.track_id[self._range.get(scenario_id, slice(0))].tolist()

    def steps(self, scenario_id: str) -> int:
        """F, the number of steps predicted for a scenario; 0 without usable tracks."""
        return int(self._tracks.steps[self._range.get(scenario_id, slice(0))].max(initial=0))

    def forecast(self, scenario: Scenario) -> Forecast:
        """Return the forecast ``[A, K, F, 2]`` of the tracks observed in ``scenario``; A may be 0.

        Modes are sorted by descending probability.
        """
        rows, last = last_observed(scenario)
        place = {name: i for i, name in enumerate(scenario.tracks.track_id[rows].tolist())}
        ids = self.track_ids(scenario.scenario_id)
        known = [i for i, name in enumerate(ids) if name in place]
        if not known:
            return no_forecast(scenario)
        chosen = [place[ids[i]] for i in known]
        rows, last = rows[chosen], last[chosen]
        track = np.array(known) + self._range[scenario.scenario_id].start
        mode = self._tracks.start[track][:, None] + np.arange(self._tracks.modes[track[0]])
        row, step = self._tracks.row[mode][..., None], np.arange(self.steps(scenario.scenario_id))
        unseen_s = (scenario.num_observed - 1 - last)[:, None] * scenario.step_s
        return Forecast.from_trajectories(
            scenario.scenario_id,
            scenario.tracks.track_id[rows],
            np.stack([axis.values[axis.start[row] + step] for axis in (self._rows.x, self._rows.y)], -1),
            self._tracks.probability[mode],
            # Tracks last seen earlier are extrapolated at constant velocity, as by baselines and models.
            origin=scenario.tracks.position[rows, last] + scenario.tracks.velocity[rows, last] * unseen_s,
            origin_heading=scenario.tracks.heading[rows, last],
            step_s=scenario.step_s,
        )

    def missing(self, scenario: Scenario) -> list[str]:
        """List what the file lacks or has in excess of ``scenario``, in sentences.

        Expected are the scored tracks visible at the last observed step; of a single-agent file, the focal.
        """
        if scenario.scenario_id not in self._range:
            return ["the scenario is not in the file"]
        tracks, found = scenario.tracks, set(self.track_ids(scenario.scenario_id))
        scored = tracks.valid[:, scenario.num_observed - 1] & (tracks.category >= TrackCategory.SCORED)
        expected = [] if self.single else tracks.track_id[scored].tolist()
        absent = [one for one in expected if one not in {*found, scenario.focal_id}]
        unknown = sorted(found - set(tracks.track_id.tolist()))
        steps, wanted = self.steps(scenario.scenario_id), future_steps(scenario)
        return [
            *([] if scenario.focal_id in found else [f"focal track {scenario.focal_id} is missing"]),
            *(f"scored track {one} is missing" for one in absent),
            *(f"track {one} is not in the scenario" for one in unknown),
            *([f"{steps} steps are predicted instead of {wanted}"] if found and steps != wanted else []),
        ]


def read_predictions(path: str | Path) -> PredictionsFile:
    """Read and check a predictions file; its rows may be in any order.

    Before av2 0.3 each track had its own probabilities in the same columns; such scenarios are read as
    marginal predictions, and ``note`` says so. Unusable tracks are omitted and reported in ``problems``;
    missing ones are reported by :meth:`PredictionsFile.missing`.

    Raises:
        DataError: no such file, not a parquet file, or a column is missing or has an unusable type.
    """
    rows = read_rows(Path(path))
    every = group_tracks(rows)
    tracks, problems = check(rows, every)
    tracks, marginal = sort_modes(tracks)
    ids = rows.scenario_ids
    ends = np.searchsorted(tracks.scenario, np.arange(len(ids) + 1)).tolist()
    own = {ids[i] for i in marginal.tolist()}
    note = f"in {len(own)} of {len(ids)} scenarios each track has its own probabilities, as before av2 0.3"
    return PredictionsFile(
        path=Path(path),
        scenario_ids=ids,
        joint={one: one not in own for one in ids},
        single=len(every.modes) == len(ids),
        problems=problems,
        note=f"{note}: read as marginal predictions, not as joint ones" if own else "",
        _rows=rows,
        _tracks=tracks,
        _range=dict(zip(ids, map(slice, ends[:-1], ends[1:]), strict=True)),
    )


class FilePredictor(Predictor):
    """Forecasts read from a predictions file.

    Scenarios that are not in the file, or have another number of future steps, get a forecast without tracks.

    Raises: DataError, see :func:`read_predictions`.

    Example:
        >>> predictor = FilePredictor("predictions.parquet")
        >>> [forecast] = predictor([scenario])
        >>> predictor.problems
        {}
    """

    def __init__(self, path: str | Path) -> None:
        self.file = read_predictions(path)
        self.name, self.joint = self.file.path.name, not self.file.single
        self._missing: dict[str, list[str]] = {}

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        self._missing |= {one.scenario_id: self.file.missing(one) for one in scenarios}
        return [
            self.file.forecast(one)
            if self.file.steps(one.scenario_id) == future_steps(one)
            else no_forecast(one)
            for one in scenarios
        ]

    @property
    def problems(self) -> dict[str, list[str]]:
        """By scenario, the problems of the file and what was missing so far, in sentences."""
        every = dict.fromkeys([*self.file.problems, *self._missing])
        found = {one: [*self.file.problems.get(one, []), *self._missing.get(one, [])] for one in every}
        return {one: problems for one, problems in found.items() if problems}


def predictions_files(predictor: Predictor) -> list[FilePredictor]:
    """List the predictions files among the members of a predictor."""
    return [one for one in predictor.members if isinstance(one, FilePredictor)]


def problems_of(predictor: Predictor, known: Sequence[str]) -> dict[str, list[str]]:
    """Collect, by scenario, the problems of all predictions files of a predictor.

    Args:
        known: the ids of the split's scenarios; others in a file are problems.
    """
    found, split = defaultdict[str, list[str]](list), set(known)
    for one in predictions_files(predictor):
        notes = {one.name: [one.file.note]} if one.file.note else {}
        foreign = {name: ["is not in this split"] for name in one.file.scenario_ids if name not in split}
        for part in (notes, one.problems, foreign):
            for scenario, problems in part.items():
                found[scenario] += problems
    return dict(found)


def reasons(predictor: Predictor, known: Sequence[str]) -> str:
    """Return the three most frequent kinds of :func:`problems_of`, each with its count and an example.

    Kinds are problems that differ in names and numbers only. Empty without problems.
    """
    kinds = defaultdict[str, list[tuple[str, str]]](list)
    for scenario, problems in problems_of(predictor, known).items():
        for text in problems:
            kinds[re.sub(r"track \S+|\d\S*", "", text)].append((scenario, text))
    most = sorted(kinds.values(), key=len, reverse=True)[:3]
    return "; ".join(f"{len(each):,} times like scenario {each[0][0]}: {each[0][1]}" for each in most)


def no_forecast(scenario: Scenario) -> Forecast:
    """Return a forecast without tracks."""
    path = np.zeros((0, 1, future_steps(scenario), 2))
    per_step = path[..., 0]
    ids = scenario.tracks.track_id[:0]
    return Forecast(scenario.scenario_id, ids, path, per_step[..., 0], per_step, per_step)


def future_steps(scenario: Scenario) -> int:
    """The number of steps to predict: those of the scenario, or 6 s if it ends with the observed ones."""
    return scenario.num_steps - scenario.num_observed or round(6 / scenario.step_s)
