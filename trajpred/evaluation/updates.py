"""Scores of successive forecasts of a recording: the error of each update, and how much it changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.data.forecast import Forecast, with_truth
from trajpred.data.scenario import Scenario
from trajpred.evaluation.agents import ScoredAgents
from trajpred.metrics import METRICS, Column, agent_metrics, columns_of
from trajpred.metrics.displacement import match_modes
from trajpred.metrics.registry import MODES
from trajpred.predictors.derived import StreamedForecast

#: The step of a recording at which a forecast was made, and the forecast.
Update: TypeAlias = tuple[int, Forecast]


def update_columns() -> list[Column]:
    """List the errors of an update, minADE6 and minFDE6, followed by its changes from the one before."""
    errors = [Column(METRICS["minADE"], MODES), Column(METRICS["minFDE"], MODES)]
    return errors + columns_of("streaming")


def score_update(scenario: Scenario, update: Update, before: Update | None = None) -> NDArray[np.float64]:
    """Compute :func:`update_columns` ``[A, M]`` of all tracks of a recording.

    Errors are over the steps of the forecast that were recorded. NaN for tracks that are not forecast or not
    visible at that step; changes are also NaN where the track was not visible at the preceding update.

    Args:
        before: the preceding update.
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
    earlier_step, earlier = before
    names = tracks.track_id
    was_visible = tracks.valid[:, [earlier_step, step]].all(axis=1)
    both = was_visible & (earlier.rows(names) >= 0) & (forecast.rows(names) >= 0)
    if not both.any():
        return table
    first = earlier.of(names[both])
    second = forecast.of(names[both])
    matched = match_modes(
        first.trajectory, first.probability, second.trajectory, second.probability, step - earlier_step
    )
    changes = [column.metric.values(matched, int(both.sum())) for column in columns[len(errors) :]]
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

    Agents that lack an error at any update have NaN everywhere, so that all updates are of the same agents.
    Empty unless the forecasts are of a :class:`~trajpred.predictors.derived.StreamedPredictor`.
    """
    columns = update_columns()
    by_seconds: dict[float, NDArray[np.float64]] = {}
    for scene, (scenario, forecast) in enumerate(zip(scenarios, forecasts, strict=True)):
        if not isinstance(forecast, StreamedForecast):
            return {}
        if not forecast.earlier:
            continue
        rows = np.flatnonzero(agents.scene == scene)
        tracks = [scenario.tracks.index(name) for name in agents.track_id[rows].tolist()]
        for (step, _), table in score_stream(scenario, forecast):
            seconds = round((step + 1) * step_s, 2)
            empty = np.full((len(agents), len(columns)), np.nan)
            by_seconds.setdefault(seconds, empty)[rows] = table[tracks]
    if not by_seconds:
        return {}
    tables = np.stack(list(by_seconds.values()))  # [U, A, M]
    scored = np.isfinite(tables[:, :, 0]).all(axis=0)
    tables[:, ~scored] = np.nan
    values: dict[Column, NDArray[np.floating]] = {}
    for seconds, table in zip(by_seconds, tables, strict=True):
        values |= {column._replace(after=seconds): table[:, row] for row, column in enumerate(columns)}
    for row, column in enumerate(columns):
        if column.metric.kind == "streaming":
            values[column] = tables[1:, :, row].mean(axis=0)
    return values
