"""Generated scenes in ScenarioNet's format, for tests: a road of three lanes, and a crossing."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

#: Where the road begins: coordinates of a city.
ORIGIN = np.array([8192.0, -4096.0])
#: Metres between the centrelines of the lanes.
LANE_M = 3.5


def track(kind: str, x: Any, y: Any, size: tuple[float, float], step_s: float, original: str = "") -> Any:
    """Return a track along the road from its positions ``[T]``, NaN where it is not seen."""
    position = np.stack((x + ORIGIN[0], y + ORIGIN[1], np.zeros_like(x)), -1)
    valid = np.isfinite(x)
    position[~valid] = 0.0
    velocity = np.gradient(position[:, :2], step_s, axis=0) * valid[:, None]
    return {
        "type": kind,
        "state": {
            "position": position.astype(np.float32),
            "heading": np.where(valid, 2 * np.pi, 0.0).astype(np.float32),
            "velocity": velocity.astype(np.float32),
            "valid": valid,
            "length": np.where(valid, size[0], 0.0)[:, None],
            "width": np.where(valid, size[1], 0.0)[:, None],
            "height": valid.astype(float),
        },
        "metadata": {"type": original or kind, "object_id": "", "track_length": len(x)},
    }


def scene(time: np.ndarray, **metadata: Any) -> dict[str, Any]:
    """Return a scene at the times ``[T]`` in seconds: a car, a bus, a cyclist, a cone and the ego vehicle."""
    step_s = float(np.median(np.diff(time)))
    late = np.where(time < 0.3, np.nan, 4.0 * time)
    return {
        "id": "one",
        "version": "test",
        "length": len(time),
        "metadata": {"ts": time, "sdc_id": "7", "dataset": "made", "coordinate": "right-handed", **metadata},
        "tracks": {
            "car": track("VEHICLE", 10 + 8 * time, 0 * time, (4.5, 1.8), step_s),
            "bus": track("VEHICLE", 5 * time, LANE_M + 0 * time, (12.0, 2.5), step_s, "vehicle.bus.rigid"),
            "bike": track("CYCLIST", late, -LANE_M + 0 * time, (1.8, 0.6), step_s),
            "cone": track("TRAFFIC_CONE", 20 + 0 * time, 6 + 0 * time, (0.4, 0.4), step_s),
            "7": track("VEHICLE", 2 + time + time**2 / 4, 0 * time, (4.1, 1.7), step_s),
        },
        "map_features": features(),
        "dynamic_map_states": {},
    }


def line(y: float, start: float = -30.0, end: float = 90.0) -> np.ndarray:
    """Return a line along the road, a point every half metre."""
    x = np.arange(start, end + 0.25, 0.5)
    return np.stack((x + ORIGIN[0], y + ORIGIN[1] + 0 * x, 0 * x), -1).astype(np.float32)


def features() -> dict[str, Any]:
    """Return a map with links by numbers (one of two lanes has them), boundaries, a lane far away."""
    pieces = [{"lane_start_index": "0", "lane_end_index": "240", "boundary_feature_id": "91"}]
    beside = {"self_start_index": "0", "self_end_index": "240"}
    return {
        "1": {
            "type": "LANE_SURFACE_STREET",
            "polyline": line(0),
            "entry_lanes": [],
            "exit_lanes": [],
            "left_boundaries": pieces,
            "right_boundaries": [{**pieces[0], "lane_end_index": "120", "boundary_feature_id": "92"}],
            "left_neighbor": [{"feature_id": "2", **beside}],
            "right_neighbor": [],
        },
        "2": {
            "type": "LANE_FREEWAY",
            "polyline": line(LANE_M),
            "right_boundaries": pieces,
            "right_neighbor": [{"feature_id": "1", **beside, "self_end_index": "40"}],
        },
        "3": {"type": "LANE_SURFACE_STREET", "polyline": line(0, 90, 120), "entry_lanes": [1]},
        "4": {"type": "LANE_BIKE_LANE", "polyline": line(-LANE_M), "exit_lanes": [3]},
        "5": {"type": "LANE_SURFACE_STREET", "polyline": line(500)},
        "6": {"type": "LANE_UNKNOWN", "polyline": line(0)[:1]},
        "91": {"type": "ROAD_LINE_BROKEN_SINGLE_WHITE", "polyline": line(1.75)},
        "92": {"type": "ROAD_EDGE_BOUNDARY", "polyline": line(-1.5)},
        "93": {"type": "CROSSWALK", "polygon": line(0)[[[0], [0], [8], [8]], [0, 1, 2]] + CORNERS},
        "94": {"type": "SPEED_BUMP", "polygon": line(0)[:4]},
    }


#: The corners of the crossing, which leads across the road, from those on the centreline.
CORNERS = np.array([[0, -7, 0], [0, 7, 0], [0, 7, 0], [0, -7, 0]])


def write(file: Path, content: Any) -> Path:
    """Pickle a scene."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(pickle.dumps(content))
    return file
