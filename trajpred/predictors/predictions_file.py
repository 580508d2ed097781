"""Predictions files: forecasts in the format of the Argoverse 2 challenges (parquet) or Argoverse 1's (HDF5).

A row per track and mode: ``scenario_id``, ``track_id``, ``probability``, ``predicted_trajectory_x`` and
``predicted_trajectory_y`` (lists, metres, city frame). Mode k of all tracks of a scenario is one joint mode.
HDF5 is described in :mod:`~trajpred.predictors.prediction_rows`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trajpred.data.checks import row_of
from trajpred.data.forecast import Forecast
from trajpred.data.geometry import norm
from trajpred.data.scenario import Scenario, of_other_scenes
from trajpred.data.tracks import TrackCategory
from trajpred.errors import DataError
from trajpred.features.agents import last_poses
from trajpred.predictors.baselines import last_observed
from trajpred.predictors.prediction_rows import (
    H5,
    Rows,
    Tracks,
    check,
    group_tracks,
    read_digests,
    read_rows,
    read_submission,
    sort_modes,
)
from trajpred.predictors.predictor import Predictor, future_steps

#: The suffixes of predictions files.
SUFFIXES = (".parquet", H5)
#: Maximum distance (m) between a track's last observed position and the start of its future, in one frame.
BEGINS_M = 50.0
#: Fastest (m/s) a track may have travelled between its last state and its first predicted one.
FASTEST = 100.0


@dataclass(frozen=True)
class PredictionsFile:
    """The usable forecasts of a predictions file; see :func:`read_predictions`.

    Attributes:
        scenario_ids: all scenarios in the file, in file order.
        joint: by scenario, whether its tracks share their probabilities: mode k is then one joint mode.
        single: whether no scenario has more than one track, as in the single-agent challenge.
        problems: by scenario, problems in sentences; the tracks they name are omitted.
        note: a remark on the whole file, usually empty.
        names_tracks: whether tracks have their own ids; otherwise each is the focal track of its scenario.
        digests: :attr:`~trajpred.data.scenario.Scenario.digest` of the scenarios for which the file has it.
    """

    path: Path
    scenario_ids: list[str]
    joint: dict[str, bool]
    single: bool
    problems: dict[str, list[str]]
    note: str
    names_tracks: bool
    digests: dict[str, int]
    _rows: Rows
    _tracks: Tracks
    _range: dict[str, slice]

    def __repr__(self) -> str:
        text = f"{self.path}: {len(self.scenario_ids):,} scenarios, {len(self._tracks.track_id):,} tracks"
        if self.problems:
            text += f", faults in {len(self.problems):,} scenarios"
        return f"PredictionsFile({text})"

    def track_ids(self, scenario_id: str) -> list[str]:
        """List the usable tracks of a scenario; empty if the file does not contain it."""
        return self._tracks.track_id[self._range.get(scenario_id, slice(0))].tolist()

    def _tracks_of(self, scenario: Scenario) -> list[str]:
        """List the usable tracks of a scenario by its own ids."""
        names = self.track_ids(scenario.scenario_id)
        if self.names_tracks:
            return names
        return [scenario.focal_id] * len(names)

    def steps(self, scenario_id: str) -> int:
        """F, the number of steps predicted for a scenario; 0 without usable tracks."""
        return int(self._tracks.steps[self._range.get(scenario_id, slice(0))].max(initial=0))

    def forecast(self, scenario: Scenario) -> Forecast:
        """Return the forecast ``[A, K, F, 2]`` of the tracks observed in ``scenario``; A may be 0.

        Modes are sorted by descending probability.
        """
        rows, last = last_observed(scenario)
        row_by_id = row_of(scenario.tracks.track_id[rows].tolist())
        in_file: list[int] = []
        in_scenario: list[int] = []
        for i, name in enumerate(self._tracks_of(scenario)):
            if name in row_by_id:
                in_file.append(i)
                in_scenario.append(row_by_id[name])
        if not in_file:
            return no_forecast(scenario)
        rows = rows[in_scenario]
        last = last[in_scenario]
        track = np.array(in_file) + self._range[scenario.scenario_id].start
        mode = self._tracks.start[track][:, None] + np.arange(self._tracks.modes[track[0]])
        row = self._tracks.row[mode][..., None]
        step = np.arange(self.steps(scenario.scenario_id))
        x = self._rows.x.values[self._rows.x.start[row] + step]
        y = self._rows.y.values[self._rows.y.start[row] + step]
        # Tracks last seen earlier are extrapolated at constant velocity, as in baselines and models.
        unseen_s = (scenario.num_observed - 1 - last)[:, None] * scenario.step_s
        origin = scenario.tracks.position[rows, last] + scenario.tracks.velocity[rows, last] * unseen_s
        return Forecast.from_trajectories(
            scenario.scenario_id,
            scenario.tracks.track_id[rows],
            np.stack((x, y), -1),
            self._tracks.probability[mode],
            origin=origin,
            origin_heading=last_poses(scenario, rows).heading,
            step_s=scenario.step_s,
        )

    def missing(self, scenario: Scenario) -> list[str]:
        """List what the file lacks or has in excess for ``scenario``, in sentences.

        The scored tracks visible at the last observed step are expected; in a single-agent file, the focal
        track.
        """
        if scenario.scenario_id not in self._range:
            return ["the scenario is not in the file"]
        tracks = scenario.tracks
        predicted = set(self._tracks_of(scenario))
        problems: list[str] = []
        if scenario.focal_id not in predicted:
            problems.append(f"focal track {scenario.focal_id} is missing")
        if not self.single:
            scored = tracks.valid[:, scenario.num_observed - 1] & (tracks.category >= TrackCategory.SCORED)
            expected = set(tracks.track_id[scored].tolist()) - {scenario.focal_id}
            missing = [name for name in tracks.track_id.tolist() if name in expected - predicted]
            problems += [f"scored track {name} is missing" for name in missing]
        foreign = sorted(predicted - set(tracks.track_id.tolist()))
        problems += [f"track {name} is not in the scenario" for name in foreign]
        steps = self.steps(scenario.scenario_id)
        recorded = future_steps(scenario)
        if predicted and steps != recorded:
            problems.append(f"{steps} steps are predicted instead of {recorded}: predict all of them")
        return problems


def read_predictions(path: str | Path) -> PredictionsFile:
    """Read and check a predictions file; its rows may be in any order.

    Before av2 0.3 each track had its own probabilities in the same columns; such scenarios are read as
    marginal predictions, and ``note`` says so. Unusable tracks are omitted and reported in ``problems``;
    missing tracks are reported by :meth:`PredictionsFile.missing`.

    Raises:
        DataError: no such file, not a parquet or HDF5 file, or a column is missing or has an unusable type.
    """
    path = Path(path)
    is_submission = path.suffix == H5
    rows = read_submission(path) if is_submission else read_rows(path)
    all_tracks = group_tracks(rows)
    usable, problems = check(rows, all_tracks)
    tracks, marginal_scenarios = sort_modes(usable)
    ids = rows.scenario_ids
    # Scenario i has the tracks bounds[i] to bounds[i + 1].
    bounds = np.searchsorted(tracks.scenario, np.arange(len(ids) + 1)).tolist()
    marginal = {ids[i] for i in marginal_scenarios.tolist()}
    note = ""
    if marginal:
        counted = f"{len(marginal)} of {len(ids)} scenarios"
        note = f"in {counted} each track has its own probabilities, as before av2 0.3"
        note += ": read as marginal predictions, not as joint ones"
    return PredictionsFile(
        path=path,
        scenario_ids=ids,
        joint={scenario_id: scenario_id not in marginal for scenario_id in ids},
        single=len(all_tracks.modes) == len(ids),
        problems=problems,
        note=note,
        names_tracks=not is_submission,
        digests={} if is_submission else read_digests(path),
        _rows=rows,
        _tracks=tracks,
        _range=dict(zip(ids, map(slice, bounds[:-1], bounds[1:]), strict=True)),
    )


class FilePredictor(Predictor):
    """Forecasts read from a predictions file.

    Scenarios that are missing in the file, or differ in future steps, get a forecast without tracks.

    Raises: DataError, see :func:`read_predictions`.

    Example:
        >>> predictor = FilePredictor("predictions.parquet")
        >>> [forecast] = predictor([scenario])
        >>> predictor.problems
        {}
    """

    def __init__(self, path: str | Path) -> None:
        self.file = read_predictions(path)
        self.name = self.file.path.name
        self.joint = not self.file.single and any(self.file.joint.values())
        self._missing: dict[str, list[str]] = {}

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        forecasts: list[Forecast] = []
        for scenario in scenarios:
            self._missing[scenario.scenario_id] = self.file.missing(scenario)
            if self.file.steps(scenario.scenario_id) == future_steps(scenario):
                forecast = self.file.forecast(scenario)
                forecasts.append(forecast)
                self._missing[scenario.scenario_id] += misplaced(scenario, forecast)
            else:
                forecasts.append(no_forecast(scenario))
        return forecasts

    @property
    def problems(self) -> dict[str, list[str]]:
        """By scenario, the file's problems and what was missing so far, in sentences."""
        problems = {name: list(sentences) for name, sentences in self.file.problems.items()}
        for name, sentences in self._missing.items():
            if sentences:
                problems[name] = problems.get(name, []) + sentences
        return problems


def misplaced(scenario: Scenario, forecast: Forecast) -> list[str]:
    """Describe tracks in another frame: no mode begins near their last observed position."""
    rows = scenario.tracks.indices(forecast.track_id)
    last = scenario.last_seen[rows]
    away = norm(forecast.trajectory[:, :, 0] - scenario.tracks.position[rows, last][:, None]).min(axis=1)
    unseen_s = (scenario.num_observed - last) * scenario.step_s
    problems: list[str] = []
    for i in np.flatnonzero(away > BEGINS_M + FASTEST * unseen_s):
        begins = f"track {forecast.track_id[i]} begins {away[i]:,.0f} m from its last observed position"
        problems.append(f"{begins}: predict x and y in metres, in the frame of the scenario's city")
    return problems


def predictions_files(predictor: Predictor) -> list[FilePredictor]:
    """List the predictions files among a predictor's members."""
    return [member for member in predictor.members if isinstance(member, FilePredictor)]


def require_scenes(predictor: Predictor, digests: Mapping[str, int]) -> None:
    """Raise DataError if a predictions file was made for scenes with other ``digests``."""
    for member in predictions_files(predictor):
        names = of_other_scenes(member.file.digests, digests)
        if names:
            problem = f"was predicted for other scenes: {names}, but a different last observed second"
            problem += " or different positions; predict this store again"
            raise DataError(problem, file=member.file.path)


def problems_of(predictor: Predictor, known: Sequence[str]) -> dict[str, list[str]]:
    """Collect, by scenario, the problems of all predictions files of a predictor.

    Args:
        known: ids of the split's scenarios; other ids in a file are problems.
    """
    problems: defaultdict[str, list[str]] = defaultdict(list)
    split = set(known)
    for member in predictions_files(predictor):
        if member.file.note:
            problems[member.name].append(member.file.note)
        for scenario_id, sentences in member.problems.items():
            problems[scenario_id] += sentences
        for scenario_id in member.file.scenario_ids:
            if scenario_id not in split:
                problems[scenario_id].append("is not in this split")
    return dict(problems)


def reasons(predictor: Predictor, known: Sequence[str]) -> str:
    """Return the three most frequent kinds of :func:`problems_of`, with counts and examples.

    Problems of one kind differ only in names and numbers. Empty without problems.
    """
    examples: dict[str, str] = {}
    count: Counter[str] = Counter()
    for scenario_id, problems in problems_of(predictor, known).items():
        for problem in problems:
            kind = re.sub(r"track \S+|\d\S*", "", problem)
            count[kind] += 1
            examples.setdefault(kind, f"scenario {scenario_id}: {problem}")
    most = [f"{times:,} times like {examples[kind]}" for kind, times in count.most_common(3)]
    return "; ".join(most)


def no_forecast(scenario: Scenario) -> Forecast:
    """Return a forecast without tracks."""
    path = np.zeros((0, 1, future_steps(scenario), 2))
    per_step = path[..., 0]
    ids = scenario.tracks.track_id[:0]
    return Forecast(scenario.scenario_id, ids, path, per_step[..., 0], per_step, per_step)
