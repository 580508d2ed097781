"""Write scenarios as Argoverse 2 files: the inverse of :mod:`trajpred.sources.argoverse2`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trajpred.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE, LaneMap, Ragged
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.sources.argoverse2 import STATE, TEXT


def write_scenario(scenario: Scenario, folder: Path, future: bool = True) -> None:
    """Write ``scenario_<id>.parquet`` and ``log_map_archive_<id>.json`` into a new or existing ``folder``.

    Map points without heights are written at height 0. Without ``future``, as in a test split, the steps
    after the observed ones are omitted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = scenario.scenario_id
    # Dictionary encoding of measurements, which rarely repeat, would only cost time.
    pq.write_table(
        scenario_table(scenario, future), folder / f"scenario_{name}.parquet", use_dictionary=list(TEXT)
    )
    (folder / f"log_map_archive_{name}.json").write_text(json.dumps(map_archive(scenario.map)))


def scenario_table(scenario: Scenario, future: bool = True) -> pa.Table:
    """Return one row per track and valid step, with Argoverse 2's columns and types."""
    tracks = scenario.tracks
    valid = tracks.valid.copy()
    if not future:
        valid[:, scenario.num_observed :] = False
    track, step = np.nonzero(valid)

    def text(values: list[str], code: Any) -> pa.Array:
        return pa.array(values, pa.string()).take(pa.array(code))

    def constant(value: Any, dtype: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, dtype), len(track))

    states = (*np.moveaxis(tracks.position, -1, 0), tracks.heading, *np.moveaxis(tracks.velocity, -1, 0))
    return pa.table(
        {
            "observed": step < scenario.num_observed,
            "track_id": text(tracks.track_id.tolist(), track),
            "object_type": text(list(OBJECT_TYPES), tracks.object_type[track]),
            "object_category": tracks.category[track].astype(np.int64),
            "timestep": step,
            **{name: values[valid] for name, values in zip(STATE, states, strict=True)},
            "scenario_id": constant(scenario.scenario_id, pa.string()),
            "start_timestamp": constant(float(scenario.timestamps_ns[0]), pa.float64()),
            "end_timestamp": constant(float(scenario.timestamps_ns[-1]), pa.float64()),
            "num_timestamps": constant(scenario.num_steps, pa.int64()),
            "focal_track_id": constant(scenario.focal_id, pa.string()),
            "city": constant(scenario.city, pa.string()),
        }
    )


def map_archive(lane_map: LaneMap) -> dict[str, dict[str, Any]]:
    """Return the map as Argoverse 2's JSON: groups of records by id, points as ``{"x", "y", "z"}``."""
    m = lane_map
    center, left, right = map(_points, (m.centerline, m.left_boundary, m.right_boundary))
    lanes = [
        {
            "centerline": center[i],
            "id": int(m.lane_id[i]),
            "is_intersection": bool(m.is_intersection[i]),
            "lane_type": LANE_TYPES[m.lane_type[i]],
            "left_lane_boundary": left[i],
            "left_lane_mark_type": MARK_TYPES[m.left_mark[i]],
            "left_neighbor_id": _lane_or_null(m.left_neighbor[i]),
            "predecessors": m.predecessors[i].tolist(),
            "right_lane_boundary": right[i],
            "right_lane_mark_type": MARK_TYPES[m.right_mark[i]],
            "right_neighbor_id": _lane_or_null(m.right_neighbor[i]),
            "successors": m.successors[i].tolist(),
        }
        for i in range(len(m))
    ]
    sides = zip(_points(m.crossing_edge1), _points(m.crossing_edge2), m.crossing_id.tolist(), strict=True)
    crossings = [{"edge1": edge1, "edge2": edge2, "id": crossing} for edge1, edge2, crossing in sides]
    outlines = zip(m.drivable_area_id.tolist(), _points(m.drivable_area), strict=True)
    areas = [{"area_boundary": outline, "id": area} for area, outline in outlines]
    groups = {"drivable_areas": areas, "lane_segments": lanes, "pedestrian_crossings": crossings}
    return {group: {str(one["id"]): one for one in records} for group, records in groups.items()}


def _points(lines: Ragged) -> list[list[dict[str, float]]]:
    return [[{"x": x, "y": y, "z": z[0] if z else 0.0} for x, y, *z in line.tolist()] for line in lines]


def _lane_or_null(lane: np.int64) -> int | None:
    return None if lane == NO_LANE else int(lane)
