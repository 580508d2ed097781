"""The forecasts of a scene, their errors and their attention, as the JSON that the page reads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from trajpred.evaluation.agent_truth import groups_of
from trajpred.evaluation.results import finite
from trajpred.evaluation.updates import ERRORS, Update, score_update
from trajpred.forecast import Attention, Forecast, with_truth
from trajpred.metrics import agent_metrics, columns, final_error, metric_names
from trajpred.predictors.derived import StreamedForecast
from trajpred.scenario import Scenario
from trajpred.viz.agent_layer import roles
from trajpred.viz.forecast_layer import lateral_band
from trajpred.viz.overlays import mean_shift
from trajpred.viz.page.units import CENTIMETRE, pack_points, to_differences
from trajpred.viz.style import Role

#: Unit of shares of attention, averaged over layers and heads.
SHARE = 0.001
#: Unit of shares of attention of single heads.
HEAD_SHARE = 0.004
#: Scores of successive forecasts that the page plots over time.
STREAM = ("minFDE6", "mode displacement")


@dataclass(frozen=True)
class ModelResult:
    """The results of one model for one scenario."""

    forecast: Forecast
    #: By track id, only of tracks with a future: the values of the registry's table ``breakdown``, and
    #: ``[K]`` metres from the end of each mode to the last true position.
    metrics: dict[str, list[float | None]] = field(default_factory=dict)
    end_error: dict[str, list[float | None]] = field(default_factory=dict)
    attention: Attention | None = None
    without: Forecast | None = None  # the forecast without the removed road users


def evaluate_tracks(
    scenario: Scenario, forecast: Forecast
) -> tuple[dict[str, list[float | None]], dict[str, list[float | None]]]:
    """Compute ``metrics`` and ``end_error`` of :class:`ModelResult` for every track that can be evaluated.

    Metrics equal those of ``Evaluation.per_scenario``, in metres to 0.1 mm, None where undefined.
    """
    evaluated = np.flatnonzero(groups_of(scenario)["all"])
    rows, trajectory, probability, truth, valid = with_truth(forecast, scenario, evaluated)
    if not len(rows):
        return {}, {}
    modes = torch.from_numpy(trajectory)
    target = torch.from_numpy(truth)
    mask = torch.from_numpy(valid)
    errors = agent_metrics(modes, torch.from_numpy(probability), target, mask, (6,))
    # Through float32 and rounded in this order, as in evaluate, so that both report the same digits.
    values = [errors[name].float().numpy().astype(np.float64) for name in columns("breakdown")]
    table = np.stack(values, axis=1).round(4)
    ends = final_error(modes, target, mask).numpy().round(2)
    names = scenario.tracks.track_id[rows].tolist()
    metrics = dict(zip(names, finite(table.tolist()), strict=True))
    end_error = dict(zip(names, finite(ends.tolist()), strict=True))
    return metrics, end_error


def _pack_forecast(scenario: Scenario, forecast: Forecast, origin: np.ndarray) -> dict[str, Any]:
    """Return the modes ``[B][K][F]`` of the ``B`` predicted tracks."""
    packed: dict[str, Any] = {
        "tracks": scenario.tracks.indices(forecast.track_id).tolist(),
        "steps": forecast.trajectory.shape[2],
        "probability": np.round(forecast.probability, 4).tolist(),
    }
    packed.update(pack_points(forecast.trajectory, origin))
    packed["band"] = None
    if forecast.scale is not None:
        packed["band"] = to_differences(lateral_band(scenario, forecast), CENTIMETRE)
    return packed


def pack_model(scenario: Scenario, result: ModelResult, origin: np.ndarray) -> dict[str, Any]:
    names = result.forecast.track_id.tolist()
    no_errors = [None] * result.forecast.trajectory.shape[1]
    packed = _pack_forecast(scenario, result.forecast, origin)
    packed["end_error"] = [result.end_error.get(name, no_errors) for name in names]
    packed["metrics"] = [result.metrics.get(name) for name in names]
    packed["attention"] = None
    if result.attention is not None:
        packed["attention"] = pack_attention(scenario, result.attention)
    packed["stream"] = _pack_stream(scenario, result.forecast, origin)
    return packed


def _pack_stream(scenario: Scenario, forecast: Forecast, origin: np.ndarray) -> dict[str, Any] | None:
    """Return what was predicted at each of ``U`` updates, oldest first; the last one is the forecast itself.

    ``step`` ``[U]`` is the last step that an update has seen; ``scores`` maps each of :data:`STREAM` to
    ``[A][U]`` metres of all tracks, None where unknown; ``earlier`` has the forecasts of the focal and the
    scored tracks at all updates but the last.
    """
    if not isinstance(forecast, StreamedForecast) or not forecast.earlier:
        return None
    now = scenario.num_observed - 1
    metrics = [*ERRORS, *metric_names("streaming")]
    plotted = [metrics.index(name) for name in STREAM]
    is_shown = np.isin(roles(scenario), (Role.FOCAL, Role.SCORED))
    shown = scenario.tracks.track_id[is_shown]
    steps: list[int] = []
    packed: list[dict[str, Any]] = []
    tables: list[np.ndarray] = []
    before: Update | None = None
    for steps_back, made in (*forecast.earlier.items(), (0, forecast)):
        update = (now - steps_back, made)
        steps.append(now - steps_back)
        tables.append(score_update(scenario, update, before)[:, plotted])
        before = update
        if steps_back:
            then = replace(scenario, num_observed=now - steps_back + 1)
            packed.append(_pack_forecast(then, made.of(shown), origin))
    scores = np.stack(tables).round(2)
    return {
        "step": steps,
        "scores": {name: finite(scores[..., column].T.tolist()) for column, name in enumerate(STREAM)},
        "earlier": packed,
    }


def pack_without(
    scenario: Scenario, original: Forecast, reduced: Forecast, origin: np.ndarray
) -> dict[str, Any]:
    """Return the ``reduced`` forecast, and how far its mean futures end from those of the ``original``."""
    predicted = set(original.track_id.tolist())
    shifts: list[float | None] = []
    for name in reduced.track_id.tolist():
        shift = None
        if name in predicted:
            shift = round(float(mean_shift(original, reduced, name)[-1]), 2)
        shifts.append(shift)
    packed = _pack_forecast(scenario, reduced, origin)
    packed["shift_m"] = shifts
    return packed


def pack_attention(scenario: Scenario, attention: Attention) -> dict[str, Any]:
    """Return the attention edges with a share that does not round to 0.

    ``receiver`` and ``sender`` ``[E]``: rows of tracks; after the tracks, senders are lane segments, then
    crossings. ``share`` ``[E]``: the mean over layers and heads, in multiples of :data:`SHARE`. ``heads``
    ``[D][layers · H]``: the share by layer and head, in multiples of :data:`HEAD_SHARE`, of the first ``D``
    edges, whose receivers are the focal and the scored tracks.
    """
    tracks = scenario.tracks
    mean = attention.weight.mean(axis=(0, 1))
    agent_row = tracks.indices(attention.track_id)
    sender_row = np.concatenate((agent_row, len(tracks) + attention.lane))
    detailed = np.isin(roles(scenario)[agent_row], (Role.FOCAL, Role.SCORED))
    receiver, sender = np.nonzero(mean >= SHARE / 2)
    order = np.argsort(~detailed[receiver], kind="stable")
    receiver = receiver[order]
    sender = sender[order]
    D = int(detailed[receiver].sum())
    layers, H = attention.weight.shape[:2]
    heads = attention.weight[:, :, receiver[:D], sender[:D]].reshape(layers * H, D).T
    return {
        "layers": layers,
        "head_count": H,
        "receiver": agent_row[receiver].tolist(),
        "sender": sender_row[sender].tolist(),
        "share": np.rint(mean[receiver, sender] / SHARE).astype(int).tolist(),
        "heads": np.rint(heads / HEAD_SHARE).astype(int).tolist(),
    }
