"""Scores of successive forecasts of a recording: the error of each update, and how much it changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.data.forecast import Forecast, with_truth
from trajpred.data.scenario import Scenario
from trajpred.evaluation.agents import ScoredAgents
from trajpred.metrics import agent_metrics, metric_names, metrics_of
from trajpred.metrics.consistency import match_modes
from trajpred.predictors.derived import StreamedForecast

#: The errors of an update; changes from the one before follow them in tables.
ERRORS = ("minADE6", "minFDE6")
#: The step of a recording at which a forecast was made, and the forecast.
Update: TypeAlias = tuple[int, Forecast]
Table: TypeAlias = NDArray[np.float64]


def score_update(scenario: Scenario, update: Update, before: Update | None = None) -> Table:
    """Compute :data:`ERRORS` and the streaming metrics ``[A, M]`` of all tracks of a recording.

    Errors are over the steps of the forecast that were recorded. NaN for tracks that are not forecast or not
    visible at that step; changes are also NaN where the track was not visible at the preceding update.

    Args:
        before: the preceding update.
    """
    step, forecast = update
    tracks = scenario.tracks
    table = np.full((len(tracks), len(ERRORS) + len(metric_names("streaming"))), np.nan)
    visible = np.flatnonzero(tracks.valid[:, step])
    scored = with_truth(forecast, scenario, visible, step)
    if len(scored.rows):
        errors = agent_metrics(
            torch.from_numpy(scored.trajectory),
            torch.from_numpy(scored.probability),
            torch.from_numpy(scored.truth),
            torch.from_numpy(scored.valid),
            [6],
            ("minADE", "minFDE"),
        )
        columns = [errors[name] for name in ERRORS]
        table[scored.rows, : len(ERRORS)] = torch.stack(columns, 1).numpy()
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
        first.trajectory,
        first.probability,
        second.trajectory,
        second.probability,
        step - earlier_step,
    )
    columns = [metric.values(matched, int(both.sum())) for metric in metrics_of("streaming")]
    table[both, len(ERRORS) :] = np.stack(columns, axis=1)
    return table


def score_stream(scenario: Scenario, forecast: StreamedForecast) -> dict[int, Table]:
    """Return :func:`score_update` by the number of steps observed until then, oldest first.

    NaN for tracks that lack an error at any update, so that all updates are of the same agents.
    """
    now = scenario.num_observed - 1
    tables: dict[int, Table] = {}
    before: Update | None = None
    for steps_back, forecast_then in [*forecast.earlier.items(), (0, forecast)]:
        update = (now - steps_back, forecast_then)
        tables[now - steps_back + 1] = score_update(scenario, update, before)
        before = update
    scored = np.ones(len(scenario.tracks), np.bool_)
    for table in tables.values():
        scored &= ~np.isnan(table[:, len(ERRORS) - 1])
    return {observed: np.where(scored[:, None], table, np.nan) for observed, table in tables.items()}


def score_streams(
    scenarios: Sequence[Scenario], forecasts: Sequence[Forecast], agents: ScoredAgents
) -> tuple[dict[int, Table], dict[str, NDArray[Any]]]:
    """Compute the scores of each update ``[A, M]``, and each of the streaming metrics ``[A]``.

    Updates are named by the number of steps observed until then; changes are means over them. Rows are those
    of ``agents``. Both are empty unless the forecasts are of a
    :class:`~trajpred.predictors.derived.StreamedPredictor`.
    """
    updates: dict[int, Table] = {}
    for scene, (scenario, forecast) in enumerate(zip(scenarios, forecasts, strict=True)):
        if not isinstance(forecast, StreamedForecast):
            return {}, {}
        if not forecast.earlier:
            continue
        rows = np.flatnonzero(agents.scene == scene)
        tracks = [scenario.tracks.index(name) for name in agents.track_id[rows].tolist()]
        for observed, table in score_stream(scenario, forecast).items():
            if observed not in updates:
                updates[observed] = np.full((len(agents), table.shape[1]), np.nan)
            updates[observed][rows] = table[tracks]
    later = list(updates.values())[1:]
    mean = np.full((len(agents), len(metric_names("streaming"))), np.nan)
    if later:
        mean = np.mean([table[:, len(ERRORS) :] for table in later], axis=0)
    return updates, dict(zip(metric_names("streaming"), mean.T, strict=True))
