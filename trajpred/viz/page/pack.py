"""A scenario and what was forecast of it -> what the page holds of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.errors import require
from trajpred.forecast import Forecast
from trajpred.geometry import norm
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.viz.agent_layer import roles
from trajpred.viz.page.codec import encode, to_int
from trajpred.viz.page.figures import Figures
from trajpred.viz.page.road import CENTIMETRE, MILLIRADIAN, road_arrays
from trajpred.viz.shapes import Floats
from trajpred.viz.style import Role
from trajpred.viz.view import fit_radius, focal_centre, last_seen

#: A Laplace distribution keeps this share within ``BAND`` scales of its centre: ln 5 of them.
BAND_SHARE = 0.8
BAND = -float(np.log(1 - BAND_SHARE))


def pack_scene(
    scenario: Scenario, forecasts: Sequence[Forecast], figures: Sequence[Figures]
) -> dict[str, Any]:
    """JSON-able: texts and a few numbers in the open, coordinates and states encoded.

    Args:
        forecasts: of each model.
        figures: how good each forecast is.

    Lengths are centimetres from the focal agent where it was last seen, angles milliradians, speeds cm/s.
    ``A`` tracks, ``T`` steps; of a model ``B`` tracks it speaks of, ``K`` modes, ``F`` steps:
    ``position`` ``[A T, 2]``, ``state`` ``[A T, 3]`` (valid, heading, speed), the arrays of
    :func:`trajpred.viz.page.road.road_arrays`, and of model m ``mode{m}`` ``[B K F, 2]`` and, where it tells
    scales, ``band{m}`` ``[B K F, 1]``, half the width that holds 80 % beside the mode.
    """
    for forecast in forecasts:
        same = forecast.scenario_id == scenario.scenario_id
        require(same, "forecast", f"is not of scenario {scenario.scenario_id}")
    tracks, origin = scenario.tracks, focal_centre(scenario)
    arrays = _track_arrays(scenario, origin) | road_arrays(scenario.map, origin)
    for m, forecast in enumerate(forecasts):
        arrays |= _mode_arrays(scenario, forecast, origin, m)
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
        "models": [_model(scenario, *each) for each in zip(forecasts, figures, strict=True)],
        **encode(arrays),
    }


def _model(scenario: Scenario, forecast: Forecast, figures: Figures) -> dict[str, Any]:
    """Which tracks ``B`` a model speaks of, and the numbers of each: ``[B, K]`` and ``[B]``."""
    row = {name: i for i, name in enumerate(scenario.tracks.track_id.tolist())}
    names = forecast.track_id.tolist()
    return {
        "tracks": [row[name] for name in names],
        "modes": forecast.trajectory.shape[1],
        "steps": forecast.trajectory.shape[2],
        "probability": np.round(forecast.probability, 4).tolist(),
        "end_error": [figures.end_error.get(name) for name in names],
        "metrics": [figures.metrics.get(name) for name in names],
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


def across(scenario: Scenario, forecast: Forecast) -> Floats:
    """``[B, K, F]`` metres to either side of each mode within which 80 % lie, by its Laplace scales.

    The two scales lie along the axes of the track's own frame; across the mode their mixture is a Laplace
    distribution only roughly, so that the share is, too.
    """
    assert forecast.scale is not None
    rows = np.array([scenario.tracks.index(name) for name in forecast.track_id.tolist()], np.int64)
    frame = scenario.tracks.heading[rows, last_seen(scenario)[rows]]
    turned = forecast.heading - frame[:, None, None]
    ahead, left = forecast.scale[..., 0], forecast.scale[..., 1]
    width: Floats = BAND * np.hypot(ahead * np.sin(turned), left * np.cos(turned))
    return width
