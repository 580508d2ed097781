"""Scores of successive forecasts of a recording: the error of each update, and how much it changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.evaluation.agents import ScoredAgents
from trajpred.forecast import Forecast, with_truth
from trajpred.metrics import agent_metrics, metrics_of
from trajpred.metrics.consistency import match_modes
from trajpred.predictors.derived import StreamedForecast
from trajpred.scenario import Scenario

#: The errors of an update; changes from the one before follow them in tables.
ERRORS = ("minADE6", "minFDE6")
#: The step of a recording at which a forecast was made, and the forecast.
Update: TypeAlias = tuple[int, Forecast]
Table: TypeAlias = NDArray[np.float64]


def changes() -> tuple[str, ...]:
    """List the metrics of the change from one update to the next."""
    return tuple(one.name for one in metrics_of("streaming"))


def score_update(scenario: Scenario, update: Update, before: Update | None = None) -> Table:
    """Compute :data:`ERRORS` and :func:`changes` ``[A, M]`` of all tracks of a recording.

    Errors are over the steps of the forecast that were recorded. NaN for tracks that are not forecast or not
    visible at that step; changes also where they were not before.

    Args:
        before: the preceding update.
    """
    (step, forecast), tracks = update, scenario.tracks
    found = np.full((len(tracks), len(ERRORS) + len(changes())), np.nan)
    rows, *arrays = with_truth(forecast, scenario, np.flatnonzero(tracks.valid[:, step]), step)
    if len(rows):
        path, p, truth, valid = map(torch.from_numpy, arrays)
        errors = agent_metrics(path, p, truth, valid, [6], ("minADE", "minFDE"))
        found[rows, : len(ERRORS)] = torch.stack([errors[name] for name in ERRORS], 1).numpy()
    if before is not None:
        (earlier, old), names = before, tracks.track_id
        seen = tracks.valid[:, [earlier, step]].all(axis=1)
        both = seen & (old.rows(names) >= 0) & (forecast.rows(names) >= 0)
        if both.any():
            a, b = old.of(names[both]), forecast.of(names[both])
            matched = match_modes(a.trajectory, a.probability, b.trajectory, b.probability, step - earlier)
            columns = [one.compute(matched) for one in metrics_of("streaming")]
            found[both, len(ERRORS) :] = np.stack(columns, axis=1)
    return found


def score_stream(scenario: Scenario, forecast: StreamedForecast) -> dict[str, Table]:
    """Return :func:`score_update` by update, named by the seconds observed until then, oldest first.

    NaN for tracks that lack an error at any update, so that all updates are of the same agents.
    """
    now, found = scenario.num_observed - 1, dict[str, Table]()
    before: Update | None = None
    for back, one in [*forecast.earlier.items(), (0, forecast)]:
        update = (now - back, one)
        found[f"{round((now - back + 1) * scenario.step_s, 2):g} s"] = score_update(scenario, update, before)
        before = update
    known = np.all([~np.isnan(table[:, len(ERRORS) - 1]) for table in found.values()], axis=0)
    return {name: np.where(known[:, None], table, np.nan) for name, table in found.items()}


def score_streams(
    scenarios: Sequence[Scenario], forecasts: Sequence[Forecast], agents: ScoredAgents
) -> tuple[dict[str, Table], dict[str, NDArray[Any]]]:
    """Compute the scores of each update ``[A, M]`` by its name, and each of :func:`changes` ``[A]``.

    Changes are means over the updates. Rows are those of ``agents``. Both are empty unless the forecasts are
    of a :class:`~trajpred.predictors.derived.StreamedPredictor`.
    """
    updates: dict[str, Table] = {}
    for scene, (scenario, forecast) in enumerate(zip(scenarios, forecasts, strict=True)):
        if not isinstance(forecast, StreamedForecast):
            return {}, {}
        rows = np.flatnonzero(agents.scene == scene)
        track = {name: i for i, name in enumerate(scenario.tracks.track_id.tolist())}
        tracks = [track[name] for name in agents.track_id[rows].tolist()]
        for name, table in (score_stream(scenario, forecast) if forecast.earlier else {}).items():
            every = updates.setdefault(name, np.full((len(agents), table.shape[1]), np.nan))
            every[rows] = table[tracks]
    changed = [table[:, len(ERRORS) :] for table in [*updates.values()][1:]]
    mean = np.mean(changed, axis=0) if changed else np.full((len(agents), len(changes())), np.nan)
    return updates, dict(zip(changes(), mean.T, strict=True))
