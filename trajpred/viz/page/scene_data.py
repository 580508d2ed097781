"""A scenario and its forecasts as the JSON that the page reads.

Numbers are rounded to integers and lists of coordinates hold differences from entry to entry, which compress
well. Lengths are centimetres relative to the focal agent's last observed position, speeds cm/s, angles
milliradians. ``static/data.js`` is the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from trajpred.errors import require
from trajpred.evaluation.agent_truth import facts_of, groups_of
from trajpred.evaluation.results import finite
from trajpred.evaluation.updates import ERRORS, changes, score_update
from trajpred.forecast import Attention, Forecast, with_truth
from trajpred.geometry import arc_length, norm
from trajpred.lane_map import LaneMap
from trajpred.metrics import agent_metrics, columns, final_error
from trajpred.predictors.derived import StreamedForecast
from trajpred.scenario import Scenario
from trajpred.tracks import OBJECT_TYPES
from trajpred.viz.agent_layer import roles
from trajpred.viz.forecast_layer import lateral_band
from trajpred.viz.map_layer import boundaries, crossings, lane_tints, middle_pose, offset_line, polylines
from trajpred.viz.overlays import mean_shift
from trajpred.viz.style import PAINT, Role, mark_strokes, paint_of
from trajpred.viz.view import View, focal_position

#: Units of lengths (metres), angles (radians) and attention shares, averaged and of single heads.
CENTIMETRE, MILLIRADIAN, SHARE, HEAD_SHARE = 0.01, 0.001, 0.001, 0.004
#: Half the distance between the two lines of a double mark (metres), a little wider than painted.
DOUBLE_GAP_M = 0.14
#: Paint of strokes by index, unpainted first.
PAINTS = ("UNPAINTED", *PAINT)
#: Scores of successive forecasts that the page plots over time.
STREAM = ("minFDE6", "mode displacement")
#: Attributes of the focal track that the list filters by.
FACTS = ("class", "manoeuvre", "city")


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
    rows, *arrays = with_truth(forecast, scenario, np.flatnonzero(groups_of(scenario)["all"]))
    if not len(rows):
        return {}, {}
    path, p, target, valid = map(torch.from_numpy, arrays)
    found = agent_metrics(path, p, target, valid, (6,))
    # Through float32 and rounded in this order, as in evaluate, so that both report the same digits.
    values = [found[name].float().numpy().astype(np.float64) for name in columns("breakdown")]
    ends = final_error(path, target, valid).numpy()
    names = scenario.tracks.track_id[rows].tolist()
    metrics = dict(zip(names, finite(np.stack(values, axis=1).round(4).tolist()), strict=True))
    return metrics, dict(zip(names, finite(ends.round(2).tolist()), strict=True))


def focal_facts(scenario: Scenario) -> dict[str, str]:
    """Return :data:`FACTS` of the focal track; its manoeuvre is ``unknown`` without a future."""
    kind = OBJECT_TYPES[scenario.tracks.object_type[scenario.focal]]
    default = {"class": kind, "manoeuvre": "unknown", "city": scenario.city or "unknown"}
    found = facts_of(scenario).get(scenario.focal_id) if scenario.has_future else None
    return {name: found[name] for name in FACTS} if found else default


def list_entry(scenario: Scenario, results: Sequence[ModelResult]) -> dict[str, Any]:
    """Return what the list of the page shows of a scenario."""
    metrics = [one.metrics.get(scenario.focal_id) for one in results]
    name, agents = scenario.scenario_id, len(scenario.tracks)
    return {"id": name, "agents": agents, **focal_facts(scenario), "metrics": metrics}


def pack_scene(
    scenario: Scenario, results: Sequence[ModelResult], removed: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the JSON object of one scene: states of ``A`` tracks over ``T`` steps, map, and forecasts.

    Raises: DataError if a forecast is of another scenario, or coordinates are too large or not finite.
    """
    without = [one.without for one in results if one.without is not None]
    forecasts = [*(one.forecast for one in results), *without]
    for forecast in forecasts:
        same = forecast.scenario_id == scenario.scenario_id
        require(same, "forecast", f"is not of scenario {scenario.scenario_id}")
    tracks, origin = scenario.tracks, focal_position(scenario)
    return {
        "id": scenario.scenario_id,
        "focal": scenario.focal,
        "observed": scenario.num_observed,
        "steps": scenario.num_steps,
        "step_s": round(scenario.step_s, 4),
        "track_id": tracks.track_id.tolist(),
        "type": [OBJECT_TYPES[i] for i in tracks.object_type.tolist()],
        "role": [Role(i).name for i in roles(scenario).tolist()],
        **_pack_states(scenario, origin),
        "map": pack_map(scenario.map, origin),
        "models": [_pack_model(scenario, one, origin) for one in results],
        "without": [_pack_without(scenario, one, origin) for one in results if one.without is not None],
        "removed": [tracks.index(name) for name in removed],
    }


def _integers(values: np.ndarray, unit: float) -> np.ndarray:
    """Round ``values`` to multiples of ``unit``. Raises: DataError if one is too large or not finite."""
    whole = np.rint(np.asarray(values, np.float64) / unit)
    fits = not whole.size or bool(np.abs(whole).max() < 2**30)
    require(fits, "position", "is too far from the focal agent to be displayed")
    return whole.astype(np.int64)


def _differences(values: np.ndarray, unit: float) -> Any:
    """Round to multiples of ``unit`` and return differences along the last axis as lists, from 0."""
    return np.diff(_integers(values, unit), axis=-1, prepend=0).tolist()


def _pack_points(points: np.ndarray, origin: np.ndarray) -> dict[str, Any]:
    """Return x and y of ``points`` ``[..., P, 2]`` as differences."""
    local = points - origin
    return {"x": _differences(local[..., 0], CENTIMETRE), "y": _differences(local[..., 1], CENTIMETRE)}


def _pack_states(scenario: Scenario, origin: np.ndarray) -> dict[str, Any]:
    """Return the states ``[A][T]``; invalid steps repeat the last valid one, which compresses best."""
    tracks, steps = scenario.tracks, np.arange(scenario.num_steps)
    latest = np.maximum.accumulate(np.where(tracks.valid, steps, -1), axis=1)
    kept = np.where(latest >= 0, latest, tracks.valid.argmax(axis=1)[:, None])
    position = np.take_along_axis(tracks.position, kept[..., None], axis=1)
    heading = np.unwrap(np.take_along_axis(tracks.heading, kept, axis=1), axis=1)
    return {
        "valid": ["".join(map(str, row)) for row in tracks.valid.astype(int).tolist()],
        **_pack_points(position, origin),
        "heading": _differences(heading, MILLIRADIAN),
        "speed": _differences(np.take_along_axis(norm(tracks.velocity), kept, axis=1), CENTIMETRE),
    }


def pack_map(lanes: LaneMap, origin: np.ndarray) -> dict[str, Any]:
    """Return lines and polygons of the map, and arrows ``[L][4]``: x, y, heading, length of the lane."""
    everywhere = View(origin, 1e9, 1.0)
    outlines, bars = crossings(everywhere, lanes)
    centerlines = polylines(lanes.centerline)
    pose = np.array([middle_pose(line) for line in centerlines]).reshape(-1, 3)
    length = np.array([arc_length(line)[-1] for line in centerlines])
    columns = (_integers(pose[:, :2] - origin, CENTIMETRE), _integers(pose[:, 2:], MILLIRADIAN))
    strokes = []
    for line, mark in zip(*boundaries(everywhere, lanes), strict=True):
        paint = PAINTS.index(paint_of(mark)) if paint_of(mark) in PAINTS else 0
        for side, dashed in mark_strokes(int(mark)):
            moved = offset_line(line, DOUBLE_GAP_M * side) if side else line
            strokes.append({**_pack_points(moved, origin), "paint": paint, "dashed": int(dashed)})
    tints = lane_tints(everywhere, lanes)
    return {
        "ground": [_pack_polygon(area, origin) for area in polylines(lanes.drivable_area)],
        "tint": [{**_pack_polygon(outline, origin), "tint": tint} for outline, tint in tints],
        "crossing": [_pack_polygon(outline, origin) for outline in outlines],
        "bar": [_pack_polygon(bar, origin) for bar in bars],
        "centerline": [_pack_points(line, origin) for line in centerlines],
        "stroke": strokes,
        "arrow": np.concatenate((*columns, _integers(length, CENTIMETRE)[:, None]), axis=1).tolist(),
    }


def _pack_polygon(polygon: np.ndarray, origin: np.ndarray) -> dict[str, Any]:
    """Pack ``[P, 2]`` counter-clockwise: filled together, polygons of opposite orientation would cancel."""
    x, y = (polygon - polygon[0]).T  # relative, because city coordinates are too large to multiply
    return _pack_points(polygon if x @ np.roll(y, -1) >= y @ np.roll(x, -1) else polygon[::-1], origin)


def _pack_forecast(scenario: Scenario, forecast: Forecast, origin: np.ndarray) -> dict[str, Any]:
    """Return the modes ``[B][K][F]`` of the ``B`` predicted tracks."""
    band = None if forecast.scale is None else _differences(lateral_band(scenario, forecast), CENTIMETRE)
    return {
        "tracks": [scenario.tracks.index(name) for name in forecast.track_id.tolist()],
        "steps": forecast.trajectory.shape[2],
        "probability": np.round(forecast.probability, 4).tolist(),
        **_pack_points(forecast.trajectory, origin),
        "band": band,
    }


def _pack_model(scenario: Scenario, result: ModelResult, origin: np.ndarray) -> dict[str, Any]:
    names, attention = result.forecast.track_id.tolist(), result.attention
    K = result.forecast.trajectory.shape[1]
    return {
        **_pack_forecast(scenario, result.forecast, origin),
        "end_error": [result.end_error.get(name, [None] * K) for name in names],
        "metrics": [result.metrics.get(name) for name in names],
        "attention": None if attention is None else pack_attention(scenario, attention),
        "stream": _pack_stream(scenario, result.forecast, origin),
    }


def _pack_stream(scenario: Scenario, forecast: Forecast, origin: np.ndarray) -> dict[str, Any] | None:
    """Return the forecasts of the focal and the scored tracks at all updates, oldest first, and their scores.

    ``step`` ``[U]`` is the last step that an update has seen; ``scores`` has for each of :data:`STREAM`
    ``[A][U]`` metres of all tracks, None where unknown. The last update is the forecast itself.
    """
    if not isinstance(forecast, StreamedForecast) or not forecast.earlier:
        return None
    now = scenario.num_observed - 1
    updates = [*((now - back, one) for back, one in forecast.earlier.items()), (now, forecast)]
    pairs = zip(updates, [None, *updates[:-1]], strict=True)
    columns = [(*ERRORS, *changes()).index(name) for name in STREAM]
    found = np.stack([score_update(scenario, *pair)[:, columns] for pair in pairs]).round(2)
    shown = scenario.tracks.track_id[np.isin(roles(scenario), (Role.FOCAL, Role.SCORED))]
    return {
        "step": [step for step, _ in updates],
        "scores": {name: finite(found[..., i].T.tolist()) for i, name in enumerate(STREAM)},
        "earlier": [_pack_forecast(scenario, one.of(shown), origin) for _, one in updates[:-1]],
    }


def _pack_without(scenario: Scenario, result: ModelResult, origin: np.ndarray) -> dict[str, Any]:
    """Return the forecast without the removed road users, and how far mean futures differ at their end."""
    assert result.without is not None
    both = np.intersect1d(result.forecast.track_id, result.without.track_id).tolist()
    shift = {n: round(float(mean_shift(result.forecast, result.without, n)[-1]), 2) for n in both}
    shifts = [shift.get(name) for name in result.without.track_id.tolist()]
    return {**_pack_forecast(scenario, result.without, origin), "shift_m": shifts}


def pack_attention(scenario: Scenario, attention: Attention) -> dict[str, Any]:
    """Return the attention edges with a share that does not round to 0.

    ``receiver`` and ``sender`` ``[E]``: rows of tracks; senders from ``A`` are lane segments, then crossings.
    ``share`` ``[E]``: multiples of :data:`SHARE`, averaged over layers and heads. ``heads``
    ``[D][layers · H]``: the same by layer and head in multiples of :data:`HEAD_SHARE`, of the first ``D``
    edges, whose receivers are the focal and the scored tracks.
    """
    tracks, mean = scenario.tracks, attention.weight.mean(axis=(0, 1))
    agent = np.array([tracks.index(name) for name in attention.track_id.tolist()], np.int64)
    detailed = np.isin(roles(scenario)[agent], (Role.FOCAL, Role.SCORED))
    receiver, sender = np.nonzero(mean >= SHARE / 2)
    order = np.argsort(~detailed[receiver], kind="stable")
    receiver, sender = receiver[order], sender[order]
    D = int(detailed[receiver].sum())
    layers, H = attention.weight.shape[:2]
    heads = attention.weight[:, :, receiver[:D], sender[:D]].reshape(layers * H, D).T
    return {
        "layers": layers,
        "head_count": H,
        "receiver": agent[receiver].tolist(),
        "sender": np.concatenate((agent, len(tracks) + attention.lane))[sender].tolist(),
        "share": np.rint(mean[receiver, sender] / SHARE).astype(int).tolist(),
        "heads": np.rint(heads / HEAD_SHARE).astype(int).tolist(),
    }
