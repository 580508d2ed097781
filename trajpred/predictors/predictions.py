"""The predictions file: forecasts in the parquet format of the Argoverse 2 challenges, written and read.

A row per track and mode: ``scenario_id``, ``track_id``, ``probability``, ``predicted_trajectory_x`` and
``predicted_trajectory_y`` (lists, metres, city frame). Mode k of all tracks of a scenario is one world.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trajpred.errors import DataError
from trajpred.forecast import SAME_PROBABILITY, Forecast
from trajpred.predictors.motion import last_observed
from trajpred.predictors.prediction_rows import (
    SCHEMA,
    Rows,
    Tracks,
    by_track,
    check,
    in_order,
    read_rows,
)
from trajpred.scenario import Scenario, TrackCategory

#: Scenarios in a row group: what is held in memory while writing.
CHUNK = 256


class Written(NamedTuple):
    """How much went into a predictions file."""

    scenarios: int
    tracks: int


def write_predictions(path: str | Path, forecasts: Iterable[Forecast]) -> Written:
    """Write ``forecasts`` as av2's ``ChallengeSubmission`` reads them; the file appears whole or not at all.

    They are taken one by one and written in their order; one without tracks leaves no row. Any number of
    steps is written (Argoverse 1 has 30), but av2's own class accepts 60 only. It sorts modes by probability
    and keeps no order among equal ones.

    Raises:
        DataError: a forecast is not valid, a scenario comes twice, or the tracks of one do not share their
            probabilities, for which the format has no place.
    """
    path, stream = Path(path), iter(forecasts)
    tracks: dict[str, int] = {}
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".unfinished-{uuid4().hex}")
    try:
        with pq.ParquetWriter(unfinished, SCHEMA, use_dictionary=["scenario_id", "track_id"]) as writer:
            while chunk := list(islice(stream, CHUNK)):
                for one in chunk:
                    _require_writable(one, path)
                    if one.scenario_id in tracks:
                        raise DataError(f"scenario {one.scenario_id} was forecast twice", file=path)
                    tracks[one.scenario_id] = len(one.track_id)
                writer.write_table(_to_table([one for one in chunk if len(one.track_id)]))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return Written(sum(count > 0 for count in tracks.values()), sum(tracks.values()))


def _require_writable(forecast: Forecast, path: Path) -> None:
    try:
        probability = forecast.validate().probability
    except DataError as error:
        raise error.located(path) from None
    if len(probability) and bool((np.abs(probability - probability[0]) > SAME_PROBABILITY).any()):
        problem = f"the tracks of scenario {forecast.scenario_id} have different probabilities"
        can = "joint futures can be written, or the focal track alone"
        raise DataError(f"{problem}, and this format has one set for them all: {can}", file=path)


def _to_table(forecasts: Sequence[Forecast]) -> pa.Table:
    """The rows of ``forecasts``, each of which has a track."""
    if not forecasts:
        return SCHEMA.empty_table()
    rows = [one.probability.size for one in forecasts]
    length = np.repeat([one.trajectory.shape[2] for one in forecasts], rows)
    offsets = pa.array(np.concatenate(([0], length.cumsum())), pa.int32())
    x, y = (np.concatenate([one.trajectory[..., i].ravel() for one in forecasts]) for i in (0, 1))
    # One set for all tracks to the last bit; and av2 wants a sum of 1 more exactly than Forecast does.
    shared = [np.tile(one.probability[0] / one.probability[0].sum(), len(one.track_id)) for one in forecasts]
    columns = (
        np.repeat([one.scenario_id for one in forecasts], rows),
        np.concatenate([np.repeat(one.track_id, one.probability.shape[1]) for one in forecasts]),
        np.concatenate(shared),
        pa.ListArray.from_arrays(offsets, x),
        pa.ListArray.from_arrays(offsets, y),
    )
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


@dataclass(frozen=True)
class PredictionsFile:
    """What a predictions file says, where it can be used; see :func:`read_predictions`.

    Attributes:
        path: the file.
        scenario_ids: those in the file, in its order.
        joint: by scenario, whether its tracks share their probabilities: mode k is then one world.
        single: no scenario has more than one track, as in the single-agent challenge.
        problems: by scenario, what is wrong, in sentences; the tracks they name are left out.
        note: what else is to be known of the file, mostly nothing.
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

    def __len__(self) -> int:
        """The number of scenarios."""
        return len(self.scenario_ids)

    def __contains__(self, scenario_id: str) -> bool:
        return scenario_id in self._range

    def track_ids(self, scenario_id: str) -> list[str]:
        """The tracks of a scenario that can be used; none if the file does not hold it."""
        names: list[str] = self._tracks.track_id[self._range.get(scenario_id, slice(0))].tolist()
        return names

    def steps(self, scenario_id: str) -> int:
        """F, how many steps ahead a scenario is predicted; 0 if it is not."""
        return int(self._tracks.steps[self._range.get(scenario_id, slice(0))].max(initial=0))

    def forecast(self, scenario: Scenario) -> Forecast:
        """What the file says of those tracks that ``scenario`` has observed: ``[A, K, F, 2]``, A may be 0.

        F is the file's, and modes are ordered by descending probability.
        """
        rows, last = last_observed(scenario)
        place = {name: i for i, name in enumerate(scenario.tracks.track_id[rows].tolist())}
        names = self.track_ids(scenario.scenario_id)
        known = [i for i, name in enumerate(names) if name in place]
        if not known:
            return no_forecast(scenario)
        chosen = [place[names[i]] for i in known]
        rows, last = rows[chosen], last[chosen]
        track = np.array(known) + self._range[scenario.scenario_id].start
        mode = self._tracks.start[track][:, None] + np.arange(self._tracks.modes[track[0]])
        unseen_s = (scenario.num_observed - 1 - last)[:, None] * scenario.step_s
        return Forecast.from_trajectories(
            scenario.scenario_id,
            scenario.tracks.track_id[rows],
            self._rows.trajectories(self._tracks.row[mode], self.steps(scenario.scenario_id)),
            self._tracks.probability[mode],
            # Who was last seen earlier drove on, as baselines and models have it.
            origin=scenario.tracks.position[rows, last] + scenario.tracks.velocity[rows, last] * unseen_s,
            origin_heading=scenario.tracks.heading[rows, last],
            step_s=scenario.step_s,
        )


def read_predictions(path: str | Path) -> PredictionsFile:
    """Read a predictions file, whoever wrote it, and check all it says.

    Rows may stand in any order. Before av2 0.3 each track had probabilities of its own, in the same columns;
    such scenarios are read as marginal predictions, which ``note`` then tells. Tracks that cannot be used
    are left out and told of in ``problems``; who is missing is for :func:`completeness` to say.

    Raises:
        DataError: no such file, no parquet file, or a column is missing or of an unusable type.
    """
    rows = read_rows(Path(path))
    every = by_track(rows)
    tracks, problems = check(rows, every)
    tracks, marginal = in_order(tracks)
    ids = rows.scenario_ids
    ends = np.searchsorted(tracks.scenario, np.arange(len(ids) + 1)).tolist()
    own = {ids[i] for i in marginal.tolist()}
    told = f"in {len(own)} of {len(ids)} scenarios each track has probabilities of its own, as before av2 0.3"
    return PredictionsFile(
        path=Path(path),
        scenario_ids=ids,
        joint={one: one not in own for one in ids},
        single=len(every.modes) == len(ids),
        problems=problems,
        note=f"{told}: read as marginal predictions, not as joint ones" if own else "",
        _rows=rows,
        _tracks=tracks,
        _range=dict(zip(ids, map(slice, ends[:-1], ends[1:]), strict=True)),
    )


def completeness(file: PredictionsFile, scenario: Scenario) -> list[str]:
    """What ``file`` lacks of ``scenario`` or has too much, in sentences.

    Scored tracks are those seen at the last observed step; a single-agent file need not have them.
    """
    if scenario.scenario_id not in file:
        return ["the scenario is not in the file"]
    tracks, found = scenario.tracks, set(file.track_ids(scenario.scenario_id))
    judged = tracks.valid[:, scenario.num_observed - 1] & (tracks.category >= TrackCategory.SCORED)
    scored = [] if file.single else tracks.track_id[judged].tolist()
    steps, expected = file.steps(scenario.scenario_id), future_steps(scenario)
    missing = [f"scored track {one} is missing" for one in scored if one not in {*found, scenario.focal_id}]
    strange = sorted(found - set(tracks.track_id.tolist()))
    return [
        *([] if scenario.focal_id in found else [f"focal track {scenario.focal_id} is missing"]),
        *missing,
        *(f"track {one} is not in the scenario" for one in strange),
        *([f"{steps} steps are predicted instead of {expected}"] if found and steps != expected else []),
    ]


class PredictionsPredictor:
    """A predictions file as a :class:`~trajpred.predictors.loading.Predictor`.

    Scenarios that the file does not hold, or predicts another number of steps ahead, get a forecast without
    tracks.

    Raises: DataError, see :func:`read_predictions`.
    """

    def __init__(self, path: str | Path) -> None:
        self.file = read_predictions(path)
        self.name, self.joint = self.file.path.name, not self.file.single
        self.training: dict[str, Any] = {}
        self._asked: dict[str, list[str]] = {}

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Forecast]:
        self._asked |= {one.scenario_id: completeness(self.file, one) for one in scenarios}
        return [self._forecast(one) for one in scenarios]

    def _forecast(self, scenario: Scenario) -> Forecast:
        right = self.file.steps(scenario.scenario_id) == future_steps(scenario)
        return self.file.forecast(scenario) if right else no_forecast(scenario)

    @property
    def problems(self) -> dict[str, list[str]]:
        """By scenario, what is wrong in the file and what was found missing so far, in sentences."""
        every = dict.fromkeys([*self.file.problems, *self._asked])
        found = {one: [*self.file.problems.get(one, []), *self._asked.get(one, [])] for one in every}
        return {one: told for one, told in found.items() if told}

    def foreign(self, known: Iterable[str]) -> dict[str, list[str]]:
        """Scenarios of the file that are not among the ``known`` ones, as problems."""
        here = set(known)
        return {one: ["is not in this split"] for one in self.file.scenario_ids if one not in here}


def no_forecast(scenario: Scenario) -> Forecast:
    """A forecast of none of the tracks."""
    path, heading = np.zeros((0, 1, future_steps(scenario), 2)), np.zeros(0)
    return Forecast.from_trajectories(
        scenario.scenario_id,
        scenario.tracks.track_id[:0],
        path,
        path[:, :, 0, 0],
        origin=path[:, 0, 0],
        origin_heading=heading,
        step_s=scenario.step_s,
    )


def future_steps(scenario: Scenario) -> int:
    """Steps to predict: those that the scenario has, or 6 s where it ends with the observed ones."""
    return scenario.num_steps - scenario.num_observed or round(6 / scenario.step_s)
