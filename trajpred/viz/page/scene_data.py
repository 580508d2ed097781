"""A scenario and its forecasts as the JSON that the page reads.

Numbers are rounded to integers and lists of coordinates hold differences from entry to entry, which compress
well. Lengths are centimetres relative to the focal agent's last observed position, speeds cm/s, angles
milliradians. ``static/data.js`` is the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trajpred.errors import require
from trajpred.evaluation.agent_truth import facts_of
from trajpred.forecast import Forecast
from trajpred.geometry import norm
from trajpred.scenario import Scenario
from trajpred.tracks import OBJECT_TYPES
from trajpred.viz.agent_layer import roles
from trajpred.viz.page.forecast_data import ModelResult, pack_model, pack_without
from trajpred.viz.page.map_data import pack_map
from trajpred.viz.page.units import CENTIMETRE, MILLIRADIAN, pack_points, to_differences
from trajpred.viz.style import Role
from trajpred.viz.view import focal_position

#: Attributes of the focal track that the list filters by.
FACTS = ("class", "manoeuvre", "city")


def focal_facts(scenario: Scenario) -> dict[str, str]:
    """Return :data:`FACTS` of the focal track; its manoeuvre is ``unknown`` without a future."""
    if scenario.has_future:
        facts = facts_of(scenario).get(scenario.focal_id)
        if facts:
            return {name: facts[name] for name in FACTS}
    kind = OBJECT_TYPES[scenario.tracks.object_type[scenario.focal]]
    return {"class": kind, "manoeuvre": "unknown", "city": scenario.city or "unknown"}


def list_entry(scenario: Scenario, results: Sequence[ModelResult]) -> dict[str, Any]:
    """Return what the list of the page shows of a scenario."""
    entry: dict[str, Any] = {"id": scenario.scenario_id, "agents": len(scenario.tracks)}
    entry.update(focal_facts(scenario))
    entry["metrics"] = [result.metrics.get(scenario.focal_id) for result in results]
    return entry


def pack_scene(
    scenario: Scenario, results: Sequence[ModelResult], removed: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the JSON object of one scene: states of ``A`` tracks over ``T`` steps, map, and forecasts.

    ``without`` has a forecast without the tracks ``removed`` of every model, or is empty.

    Raises: DataError if a forecast is of another scenario, or coordinates are too large or not finite.
    """
    for result in results:
        _require_same_scenario(scenario, result.forecast)
        if result.without is not None:
            _require_same_scenario(scenario, result.without)
    tracks = scenario.tracks
    origin = focal_position(scenario)
    scene: dict[str, Any] = {
        "id": scenario.scenario_id,
        "focal": scenario.focal,
        "observed": scenario.num_observed,
        "steps": scenario.num_steps,
        "step_s": round(scenario.step_s, 4),
        "track_id": tracks.track_id.tolist(),
        "type": [OBJECT_TYPES[code] for code in tracks.object_type.tolist()],
        "role": [Role(code).name for code in roles(scenario).tolist()],
    }
    scene.update(_pack_states(scenario, origin))
    scene["map"] = pack_map(scenario.map, origin)
    scene["models"] = []
    scene["without"] = []
    for result in results:
        scene["models"].append(pack_model(scenario, result, origin))
        if result.without is not None:
            scene["without"].append(pack_without(scenario, result.forecast, result.without, origin))
    scene["removed"] = tracks.indices(removed).tolist()
    return scene


def _require_same_scenario(scenario: Scenario, forecast: Forecast) -> None:
    same = forecast.scenario_id == scenario.scenario_id
    require(same, "forecast", f"is not of scenario {scenario.scenario_id}")


def _pack_states(scenario: Scenario, origin: np.ndarray) -> dict[str, Any]:
    """Return the states ``[A][T]``; invalid steps repeat the last valid one, which compresses best."""
    tracks = scenario.tracks
    steps = np.arange(scenario.num_steps)
    latest = np.maximum.accumulate(np.where(tracks.valid, steps, -1), axis=1)
    first = tracks.valid.argmax(axis=1)[:, None]
    kept = np.where(latest >= 0, latest, first)
    position = np.take_along_axis(tracks.position, kept[..., None], axis=1)
    heading = np.unwrap(np.take_along_axis(tracks.heading, kept, axis=1), axis=1)
    speed = np.take_along_axis(norm(tracks.velocity), kept, axis=1)
    # One text of 0 and 1 for each track.
    digits = np.where(tracks.valid, "1", "0").tolist()
    states: dict[str, Any] = {"valid": ["".join(row) for row in digits]}
    states.update(pack_points(position, origin))
    states["heading"] = to_differences(heading, MILLIRADIAN)
    states["speed"] = to_differences(speed, CENTIMETRE)
    return states
