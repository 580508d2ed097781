"""The data of the web page: maps, scenes and forecasts as compact JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from trajpred.data.forecast import Attention, Forecast, with_truth
from trajpred.data.geometry import arc_length, norm
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.errors import require
from trajpred.evaluation.agents import groups_of, truth_of
from trajpred.evaluation.results import finite
from trajpred.evaluation.updates import score_stream, update_columns
from trajpred.metrics import agent_metrics, final_error, headline
from trajpred.metrics.registry import MODES
from trajpred.predictors.derived import StreamedForecast
from trajpred.viz.agent_layer import DRAWN_SIZES, roles
from trajpred.viz.forecast_layer import lateral_band
from trajpred.viz.map_layer import (
    boundaries,
    crossings,
    ground_areas,
    lane_tints,
    middle_pose,
    offset_line,
    polylines,
)
from trajpred.viz.overlays import mean_shift
from trajpred.viz.style import PAINT, Role, mark_strokes, paint_of
from trajpred.viz.view import View, focal_position

#: Unit of lengths (metres).
CENTIMETRE = 0.01
#: Unit of angles (radians).
MILLIRADIAN = 0.001


def to_integers(values: np.ndarray, unit: float) -> np.ndarray:
    """Round ``values`` to multiples of ``unit``. Raises: DataError if one is too large or not finite."""
    whole = np.rint(np.asarray(values, np.float64) / unit)
    fits = not whole.size or bool(np.abs(whole).max() < 2**30)
    require(fits, "position", "is too far from the focal agent to be displayed")
    return whole.astype(np.int64)


def to_differences(values: np.ndarray, unit: float) -> Any:
    """Round to multiples of ``unit`` and return differences along the last axis as lists, from 0."""
    return np.diff(to_integers(values, unit), axis=-1, prepend=0).tolist()


def pack_points(points: np.ndarray, origin: np.ndarray) -> dict[str, Any]:
    """Return x and y of ``points`` ``[..., P, 2]`` as differences."""
    local = points - origin
    x = to_differences(local[..., 0], CENTIMETRE)
    y = to_differences(local[..., 1], CENTIMETRE)
    return {"x": x, "y": y}


#: Half the distance between the two lines of a double mark (metres), a little wider than painted.
DOUBLE_GAP_M = 0.14
#: Paint of strokes by index, unpainted first.
PAINTS = ("UNPAINTED", *PAINT)


def pack_map(lanes: LaneMap, origin: np.ndarray) -> dict[str, Any]:
    """Return lines and polygons of the map, and arrows ``[L][4]``: x, y, heading, length of the lane."""
    everywhere = View(origin, 1e9, 1.0)
    outlines, bars = crossings(everywhere, lanes)
    centerlines = polylines(lanes.centerline)
    tints: list[dict[str, Any]] = []
    for outline, tint in lane_tints(everywhere, lanes):
        area = _pack_polygon(outline, origin)
        area["tint"] = tint
        tints.append(area)
    return {
        "ground": [_pack_polygon(outline, origin) for outline in ground_areas(everywhere, lanes)],
        "tint": tints,
        "crossing": [_pack_polygon(outline, origin) for outline in outlines],
        "bar": [_pack_polygon(bar, origin) for bar in bars],
        "centerline": [pack_points(line, origin) for line in centerlines],
        "stroke": _pack_strokes(everywhere, lanes, origin),
        "arrow": _pack_arrows(centerlines, origin),
    }


def _pack_strokes(view: View, lanes: LaneMap, origin: np.ndarray) -> list[dict[str, Any]]:
    """Return the lines of the marks of all lane boundaries."""
    strokes: list[dict[str, Any]] = []
    lines, marks = boundaries(view, lanes)
    for line, mark in zip(lines, marks.tolist(), strict=True):
        paint = 0
        if paint_of(mark) in PAINTS:
            paint = PAINTS.index(paint_of(mark))
        for side, dashed in mark_strokes(mark):
            moved = line
            if side != 0:
                moved = offset_line(line, DOUBLE_GAP_M * side)
            stroke = pack_points(moved, origin)
            stroke["paint"] = paint
            stroke["dashed"] = int(dashed)
            strokes.append(stroke)
    return strokes


def _pack_arrows(centerlines: Sequence[np.ndarray], origin: np.ndarray) -> list[list[int]]:
    """Return the pose halfway along each centreline and its length, ``[L][4]``."""
    poses = [middle_pose(line) for line in centerlines]
    lengths = [arc_length(line)[-1] for line in centerlines]
    pose = np.array(poses).reshape(-1, 3)
    position = to_integers(pose[:, :2] - origin, CENTIMETRE)
    heading = to_integers(pose[:, 2:], MILLIRADIAN)
    length = to_integers(np.array(lengths), CENTIMETRE)
    return np.concatenate((position, heading, length[:, None]), axis=1).tolist()


def _pack_polygon(polygon: np.ndarray, origin: np.ndarray) -> dict[str, Any]:
    """Pack ``[P, 2]`` counter-clockwise: filled together, polygons of opposite orientation would cancel."""
    x, y = (polygon - polygon[0]).T  # relative, because city coordinates are too large to multiply
    is_counter_clockwise = x @ np.roll(y, -1) >= y @ np.roll(x, -1)
    if not is_counter_clockwise:
        polygon = polygon[::-1]
    return pack_points(polygon, origin)


#: Attributes of the focal track for filtering the list.
FACTS = ("class", "manoeuvre", "city")


def focal_facts(scenario: Scenario) -> dict[str, str]:
    """Return :data:`FACTS` of the focal track; its manoeuvre is ``unknown`` without a future."""
    if scenario.has_future:
        truth = truth_of([scenario], scenario.num_future)
        rows = np.flatnonzero(truth["focal"])
        if len(rows):
            [row] = rows
            return {name: str(truth[name][row]) for name in FACTS}
    kind = OBJECT_TYPES[scenario.tracks.object_type[scenario.focal]]
    return {"class": kind, "manoeuvre": "unknown", "city": scenario.city or "unknown"}


def list_entry(scenario: Scenario, results: Sequence[ModelResult]) -> dict[str, Any]:
    """Return a scenario's entry in the page's list."""
    entry: dict[str, Any] = {"id": scenario.scenario_id, "agents": len(scenario.tracks)}
    entry.update(focal_facts(scenario))
    entry["metrics"] = [result.metrics.get(scenario.focal_id) for result in results]
    return entry


def pack_scene(
    scenario: Scenario, results: Sequence[ModelResult], removed: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the JSON object of one scene: states of ``A`` tracks over ``T`` steps, map, and forecasts.

    ``without`` has every model's forecast without the tracks ``removed``, or is empty.

    Raises: DataError if coordinates are too large or not finite.
    """
    origin = focal_position(scenario)
    scene = pack_tracks(scenario, origin)
    scene["map"] = pack_map(scenario.map, origin)
    scene["models"] = []
    scene["without"] = []
    for result in results:
        scene["models"].append(pack_model(scenario, result, origin))
        if result.without is not None:
            scene["without"].append(pack_without(scenario, result.forecast, result.without, origin))
    scene["removed"] = scenario.tracks.indices(removed).tolist()
    return scene


def pack_tracks(scenario: Scenario, origin: np.ndarray) -> dict[str, Any]:
    """Return a scene without map and forecasts; positions are relative to ``origin`` ``[2]``."""
    tracks = scenario.tracks
    packed: dict[str, Any] = {
        "id": scenario.scenario_id,
        "focal": scenario.focal,
        "observed": scenario.num_observed,
        "steps": scenario.num_steps,
        "step_s": round(scenario.step_s, 4),
        "track_id": tracks.track_id.tolist(),
        "type": [OBJECT_TYPES[code] for code in tracks.object_type.tolist()],
        "size_m": tracks.box(DRAWN_SIZES).round(2).tolist(),
        "role": [Role(code).name for code in roles(scenario).tolist()],
    }
    packed.update(_pack_states(scenario, origin))
    return packed


def _pack_states(scenario: Scenario, origin: np.ndarray) -> dict[str, Any]:
    """Return the states ``[A][T]``; invalid steps repeat the last valid one, which compresses best."""
    tracks = scenario.tracks
    steps = np.arange(scenario.num_steps)
    latest = np.maximum.accumulate(np.where(tracks.valid, steps, -1), axis=1)
    first = tracks.valid.argmax(axis=1)[:, None]
    shown = np.where(latest >= 0, latest, first)
    position = np.take_along_axis(tracks.position, shown[..., None], axis=1)
    heading = np.unwrap(np.take_along_axis(tracks.heading, shown, axis=1), axis=1)
    speed = np.take_along_axis(norm(tracks.velocity), shown, axis=1)
    # One string of 0 and 1 for each track.
    digits = np.where(tracks.valid, "1", "0").tolist()
    states: dict[str, Any] = {"valid": ["".join(row) for row in digits]}
    states.update(pack_points(position, origin))
    states["heading"] = to_differences(heading, MILLIRADIAN)
    states["speed"] = to_differences(speed, CENTIMETRE)
    return states


#: Unit of shares of attention, averaged over layers and heads.
SHARE = 0.001
#: Unit in which a single head's shares of attention are packed.
HEAD_SHARE = 0.004
#: Scores of successive forecasts that the page plots over time.
STREAM = ("minFDE6", "mode displacement")


@dataclass(frozen=True)
class ModelResult:
    """The results of one model for one scenario."""

    forecast: Forecast
    #: By track id, only for tracks with a future: the headline metrics at K = 6, and ``[K]`` metres from the
    #: end of each mode to the last true position.
    metrics: dict[str, list[float | None]] = field(default_factory=dict)
    end_error: dict[str, list[float | None]] = field(default_factory=dict)
    attention: Attention | None = None
    without: Forecast | None = None  # the forecast without the removed road users


def evaluate_tracks(
    scenario: Scenario, forecast: Forecast
) -> tuple[dict[str, list[float | None]], dict[str, list[float | None]]]:
    """Compute ``metrics`` and ``end_error`` of :class:`ModelResult` for all tracks that can be evaluated.

    Metrics equal those of ``Evaluation.per_scenario``, in metres to 0.1 mm, None where undefined.
    """
    evaluated = np.flatnonzero(groups_of(scenario)["all"])
    rows, trajectory, probability, truth, valid = with_truth(forecast, scenario, evaluated)
    if not len(rows):
        return {}, {}
    modes = torch.from_numpy(trajectory)
    target = torch.from_numpy(truth)
    mask = torch.from_numpy(valid)
    columns = headline(MODES)
    errors = agent_metrics(modes, torch.from_numpy(probability), target, mask, columns=columns)
    # Convert to float32 and round in this order, as in evaluate, so that both report equal digits.
    values = [errors[column.title].float().numpy().astype(np.float64) for column in columns]
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
    """Pack a model's forecast of a scenario, with errors, metrics, attention and earlier forecasts."""
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
    """Return the predictions at each of ``U`` updates, oldest first; the last one is the forecast itself.

    ``step`` ``[U]`` is the last step seen by an update; ``scores`` maps each of :data:`STREAM` to ``[A][U]``
    metres for all tracks, None where unknown; ``earlier`` has the forecasts of the focal and scored tracks at
    all updates but the last.
    """
    if not isinstance(forecast, StreamedForecast) or not forecast.earlier:
        return None
    now = scenario.num_observed - 1
    metrics = [column.title for column in update_columns()]
    plotted = [metrics.index(name) for name in STREAM]
    is_shown = np.isin(roles(scenario), (Role.FOCAL, Role.SCORED))
    shown = scenario.tracks.track_id[is_shown]
    steps: list[int] = []
    packed: list[dict[str, Any]] = []
    tables: list[np.ndarray] = []
    for (step, made), table in score_stream(scenario, forecast):
        steps.append(step)
        tables.append(table[:, plotted])
        if step < now:
            then = replace(scenario, num_observed=step + 1)
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
    """Return the ``reduced`` forecast, and the distances of its mean futures' ends from the ``original``."""
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
    ``[D][layers · H]``: the share by layer and head, in multiples of :data:`HEAD_SHARE`, for the first ``D``
    edges, whose receivers are the focal and scored tracks.
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
