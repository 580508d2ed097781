"""A scenario and what was forecast of it -> what the page holds of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.forecast import Attention, Forecast
from trajpred.geometry import norm
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.viz.agent_layer import roles
from trajpred.viz.page.codec import encode, to_int
from trajpred.viz.page.figures import Figures
from trajpred.viz.page.heard import attention_arrays
from trajpred.viz.page.road import CENTIMETRE, MILLIRADIAN, road_arrays
from trajpred.viz.shapes import Floats
from trajpred.viz.style import Role
from trajpred.viz.uncertainty import across
from trajpred.viz.view import fit_radius, focal_centre
from trajpred.viz.what_if import mean_moved


@dataclass(frozen=True)
class Told:
    """What one model says of a scenario.

    Attributes:
        forecast: as everybody was seen; figures: how good it is.
        attention: from whom its tokens take their information; None where it cannot tell.
        without: what it says without the road users that are left out; None if nobody is.
    """

    forecast: Forecast
    figures: Figures
    attention: Attention | None = None
    without: Forecast | None = None


def pack_scene(scenario: Scenario, told: Sequence[Told], removed: Sequence[str] = ()) -> dict[str, Any]:
    """JSON-able: texts and a few numbers in the open, coordinates and states encoded.

    Args:
        told: by each model.
        removed: ids of the road users that ``without`` leaves out.

    Lengths are centimetres from the focal agent where it was last seen, angles milliradians, speeds cm/s.
    ``A`` tracks, ``T`` steps; of a model ``B`` tracks it speaks of, ``K`` modes, ``F`` steps:
    ``position`` ``[A T, 2]``, ``state`` ``[A T, 3]`` (valid, heading, speed), the arrays of
    :func:`trajpred.viz.page.road.road_arrays`, and of model m ``mode{m}`` ``[B K F, 2]`` and, where it tells
    scales, ``band{m}`` ``[B K F, 1]``, half the width that holds 80 % beside the mode; where it tells
    attention, the arrays of :func:`trajpred.viz.page.heard.attention_arrays`. What M models say without
    somebody comes after what they say as seen, as if by models M, M + 1 …
    """
    without = [one.without for one in told if one.without is not None]
    forecasts = [*(one.forecast for one in told), *without]
    for forecast in forecasts:
        same = forecast.scenario_id == scenario.scenario_id
        require(same, "forecast", f"is not of scenario {scenario.scenario_id}")
    tracks, origin = scenario.tracks, focal_centre(scenario)
    arrays = _track_arrays(scenario, origin) | road_arrays(scenario.map, origin)
    for m, forecast in enumerate(forecasts):
        arrays |= _mode_arrays(scenario, forecast, origin, m)
    for m, one in enumerate(told):
        if one.attention is not None:
            arrays |= attention_arrays(scenario, one.attention, m)
    return {
        "id": scenario.scenario_id,
        "focal": scenario.focal,
        "observed": scenario.num_observed,
        "steps": scenario.num_steps,
        "step_s": round(scenario.step_s, 4),
        "radius_m": round(max(fit_radius(scenario, f) for f in (*forecasts, None)), 1),
        "track_id": tracks.track_id.tolist(),
        "type": [OBJECT_TYPES[i] for i in tracks.object_type.tolist()],
        "role": [Role(i).name for i in roles(scenario).tolist()],
        "models": [_model(scenario, one) for one in told],
        "without": [_without(one, _modes(scenario, one.without)) for one in told if one.without is not None],
        "removed": [tracks.index(name) for name in removed],
        **encode(arrays),
    }


def _model(scenario: Scenario, told: Told) -> dict[str, Any]:
    """Which tracks ``B`` a model speaks of, and the numbers of each: ``[B, K]`` and ``[B]``."""
    names = told.forecast.track_id.tolist()
    return {
        **_modes(scenario, told.forecast),
        "end_error": [told.figures.end_error.get(name) for name in names],
        "metrics": [told.figures.metrics.get(name) for name in names],
        "heads": None if told.attention is None else told.attention.weight.shape[:2],
    }


def _without(told: Told, modes: dict[str, Any]) -> dict[str, Any]:
    """What it says without somebody: no truth to compare with, but how far mean futures move by their end."""
    assert told.without is not None
    moved = {
        name: round(float(mean_moved(told.forecast, told.without, name)[-1]), 2)
        for name in set(told.forecast.track_id.tolist()) & set(told.without.track_id.tolist())
    }
    return {**modes, "moved_m": [moved.get(name) for name in told.without.track_id.tolist()]}


def _modes(scenario: Scenario, forecast: Forecast) -> dict[str, Any]:
    row = {name: i for i, name in enumerate(scenario.tracks.track_id.tolist())}
    return {
        "tracks": [row[name] for name in forecast.track_id.tolist()],
        "modes": forecast.trajectory.shape[1],
        "steps": forecast.trajectory.shape[2],
        "probability": np.round(forecast.probability, 4).tolist(),
    }


def _track_arrays(scenario: Scenario, origin: Floats) -> dict[str, NDArray[np.int32]]:
    """States ``[A T, …]``; where a track is not seen it keeps its state, for that is shortest."""
    tracks = scenario.tracks
    step = np.arange(scenario.num_steps)
    latest = np.maximum.accumulate(np.where(tracks.valid, step, -1), axis=1)
    kept = np.where(latest >= 0, latest, tracks.valid.argmax(axis=1)[:, None])
    place = np.take_along_axis(tracks.position, kept[..., None], axis=1)
    heading = np.unwrap(np.take_along_axis(tracks.heading, kept, axis=1), axis=1)
    speed = np.take_along_axis(norm(tracks.velocity), kept, axis=1)
    state = (
        tracks.valid.reshape(-1, 1).astype(np.int32),
        to_int(heading, MILLIRADIAN, 1),
        to_int(speed, CENTIMETRE, 1),
    )
    return {"position": to_int(place - origin, CENTIMETRE, 2), "state": np.concatenate(state, axis=1)}


def _mode_arrays(
    scenario: Scenario, forecast: Forecast, origin: Floats, m: int
) -> dict[str, NDArray[np.int32]]:
    arrays = {f"mode{m}": to_int(forecast.trajectory - origin, CENTIMETRE, 2)}
    if forecast.scale is not None:
        arrays[f"band{m}"] = to_int(across(scenario, forecast), CENTIMETRE, 1)
    return arrays
