"""Forecasts at other times: recordings observed for another duration, and successive updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.data.forecast import Forecast, with_truth
from trajpred.data.scenario import Scenario
from trajpred.errors import require
from trajpred.evaluation.agents import ScoredAgents
from trajpred.metrics import METRICS, Column, agent_metrics, columns_of
from trajpred.metrics.displacement import match_modes
from trajpred.metrics.registry import MODES
from trajpred.predictors.derived import StreamedForecast
from trajpred.store import ScenarioStore
from trajpred.store.reader import Window

#: The step of a recording at which a forecast was made, and the forecast.
Update: TypeAlias = tuple[int, Forecast]


class ObservedStore(ScenarioStore):
    """A split of a store whose scenarios are observed for another duration; later steps are the future.

    History from before the recording is unknown. A scenario whose focal track is not seen within that time
    has no future and is therefore not evaluated.

    Args:
        store: the split.
        observe_s: observed seconds from the first recorded step, in whole steps: 0.5 s are the first five at
            10 Hz.

    Attributes:
        observed_s: the rounded seconds.

    Raises: DataError if no step is observed or left to predict, or scenarios differ in length.

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
        past = max(observed, steps)
        self._lengths = [Window(past, past + recorded - steps)]
        self._is_cut = True

    def subset(self, rows: NDArray[np.int64 | np.bool_]) -> ScenarioStore:
        return ObservedStore(self._store.subset(rows), self.observed_s)

    def resampled(self, step_s: float) -> ScenarioStore:
        return ObservedStore(self._store.resampled(step_s), self.observed_s)

    def __getitem__(self, index: int) -> Scenario:
        scenario = self._store[index].window(*self.lengths, self._later)
        is_seen = scenario.last_seen[scenario.focal] >= 0
        return scenario if is_seen else scenario.without_future()


def update_columns() -> list[Column]:
    """List the errors of an update, minADE6 and minFDE6, followed by its changes from the previous one."""
    errors = [Column(METRICS["minADE"], MODES), Column(METRICS["minFDE"], MODES)]
    return errors + columns_of("streaming")


def score_update(scenario: Scenario, update: Update, before: Update | None = None) -> NDArray[np.float64]:
    """Compute :func:`update_columns` ``[A, M]`` of all tracks of a recording.

    Errors are over the forecast's recorded steps. NaN for tracks not forecast or not visible at that step;
    changes are also NaN if the track was not visible at the previous update, ``before``.
    """
    step, forecast = update
    tracks = scenario.tracks
    columns = update_columns()
    errors = [column for column in columns if column.k]
    table = np.full((len(tracks), len(columns)), np.nan)
    visible = np.flatnonzero(tracks.valid[:, step])
    scored = with_truth(forecast, scenario, visible, step)
    if len(scored.rows):
        arrays = (scored.trajectory, scored.probability, scored.truth, scored.valid)
        values = agent_metrics(*map(torch.from_numpy, arrays), columns=errors)
        table[scored.rows, : len(errors)] = torch.stack(list(values.values()), 1).numpy()
    if before is None:
        return table
    # The changes of tracks that were visible and forecast at both updates.
    earlier_step, earlier = before
    names = tracks.track_id
    is_visible = tracks.valid[:, [earlier_step, step]].all(axis=1)
    both = np.flatnonzero(is_visible & (earlier.rows(names) >= 0) & (forecast.rows(names) >= 0))
    if not len(both):
        return table
    first = earlier.of(names[both])
    second = forecast.of(names[both])
    matched = match_modes(
        first.trajectory, first.probability, second.trajectory, second.probability, step - earlier_step
    )
    changes = [column.metric.values(matched, len(both)) for column in columns[len(errors) :]]
    table[both, len(errors) :] = np.stack(changes, axis=1)
    return table


def score_stream(
    scenario: Scenario, forecast: StreamedForecast
) -> Iterator[tuple[Update, NDArray[np.float64]]]:
    """Yield each update, oldest first, with its :func:`score_update`."""
    now = scenario.num_observed - 1
    before: Update | None = None
    for steps_back, forecast_then in [*forecast.earlier.items(), (0, forecast)]:
        update = (now - steps_back, forecast_then)
        yield update, score_update(scenario, update, before)
        before = update


def score_streams(
    scenarios: Sequence[Scenario], forecasts: Sequence[Forecast], agents: ScoredAgents, step_s: float
) -> dict[Column, NDArray[np.floating]]:
    """Compute the scores ``[A]`` of each update by seconds of history, and the means of its changes.

    Agents without an error at any update have NaN everywhere, so that all updates cover the same agents.

    Args:
        forecasts: forecasts of a :class:`~trajpred.predictors.derived.StreamedPredictor`.
    """
    columns = update_columns()
    by_seconds: dict[float, NDArray[np.float64]] = {}
    for scene, (scenario, forecast) in enumerate(zip(scenarios, forecasts, strict=True)):
        assert isinstance(forecast, StreamedForecast)
        if not forecast.earlier:
            continue
        rows = np.flatnonzero(agents.scene == scene)
        tracks = [scenario.tracks.index(name) for name in agents.track_id[rows].tolist()]
        for (step, _), table in score_stream(scenario, forecast):
            seconds = round((step + 1) * step_s, 2)
            if seconds not in by_seconds:
                by_seconds[seconds] = np.full((len(agents), len(columns)), np.nan)
            by_seconds[seconds][rows] = table[tracks]
    if not by_seconds:
        return {}
    tables = np.stack(list(by_seconds.values()))  # [U, A, M]
    has_all_errors = np.isfinite(tables[:, :, 0]).all(axis=0)
    tables[:, ~has_all_errors] = np.nan
    values: dict[Column, NDArray[np.floating]] = {}
    for seconds, table in zip(by_seconds, tables, strict=True):
        for number, column in enumerate(columns):
            values[column._replace(after=seconds)] = table[:, number]
    for number, column in enumerate(columns):
        if column.metric.kind == "streaming":
            values[column] = tables[1:, :, number].mean(axis=0)
    return values
