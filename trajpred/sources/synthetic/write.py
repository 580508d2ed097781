"""Scenarios -> files in Argoverse 2's layout: the inverse of :mod:`trajpred.sources.argoverse2`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trajpred.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE, LaneMap, Ragged
from trajpred.scenario import OBJECT_TYPES, Scenario

_TEXT = ("track_id", "object_type", "scenario_id", "focal_track_id", "city")


def write_scenario(
    scenario: Scenario, folder: Path, archive: bytes | None = None, future: bool = True
) -> None:
    """Write ``scenario_<id>.parquet`` and ``log_map_archive_<id>.json`` into ``folder``, made where needed.

    Args:
        scenario: what to write; its polylines need heights.
        archive: the map as :func:`encode_map` gives it, where several scenarios share one.
        future: False leaves out what comes after the observed steps, as in a test split.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = scenario.scenario_id
    table = to_table(scenario, future)
    # Measurements hardly repeat: a dictionary of them only costs.
    pq.write_table(table, folder / f"scenario_{name}.parquet", use_dictionary=list(_TEXT))
    (folder / f"log_map_archive_{name}.json").write_bytes(
        encode_map(scenario.map) if archive is None else archive
    )


def to_table(scenario: Scenario, future: bool = True) -> pa.Table:
    """One row per track and valid step, with Argoverse 2's columns and types."""
    tracks = scenario.tracks
    valid = tracks.valid.copy()
    if not future:
        valid[:, scenario.num_observed :] = False
    track, step = np.nonzero(valid)
    rows = len(track)

    def text(values: list[str], code: Any) -> pa.Array:
        return pa.array(values, pa.string()).take(pa.array(code))

    def same(value: Any, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), rows)

    states = (*np.moveaxis(tracks.position, -1, 0), tracks.heading, *np.moveaxis(tracks.velocity, -1, 0))
    names = ("position_x", "position_y", "heading", "velocity_x", "velocity_y")
    return pa.table(
        {
            "observed": step < scenario.num_observed,
            "track_id": text(tracks.track_id.tolist(), track),
            "object_type": text(list(OBJECT_TYPES), tracks.object_type[track]),
            "object_category": tracks.category[track].astype(np.int64),
            "timestep": step,
            **{name: values[valid] for name, values in zip(names, states, strict=True)},
            "scenario_id": same(scenario.scenario_id, pa.string()),
            "start_timestamp": same(float(scenario.timestamps_ns[0]), pa.float64()),
            "end_timestamp": same(float(scenario.timestamps_ns[-1]), pa.float64()),
            "num_timestamps": same(scenario.num_steps, pa.int64()),
            "focal_track_id": same(scenario.focal_id, pa.string()),
            "city": same(scenario.city, pa.string()),
        }
    )


def encode_map(lane_map: LaneMap) -> bytes:
    """The map as Argoverse 2's JSON: records by id, points as ``{"x", "y", "z"}``."""
    centers, lefts, rights = map(
        _points, (lane_map.centerline, lane_map.left_boundary, lane_map.right_boundary)
    )
    lanes = [
        {
            "centerline": centers[i],
            "id": int(lane_map.lane_id[i]),
            "is_intersection": bool(lane_map.is_intersection[i]),
            "lane_type": LANE_TYPES[lane_map.lane_type[i]],
            "left_lane_boundary": lefts[i],
            "left_lane_mark_type": MARK_TYPES[lane_map.left_mark[i]],
            "left_neighbor_id": _lane_or_null(lane_map.left_neighbor[i]),
            "predecessors": lane_map.predecessors[i].tolist(),
            "right_lane_boundary": rights[i],
            "right_lane_mark_type": MARK_TYPES[lane_map.right_mark[i]],
            "right_neighbor_id": _lane_or_null(lane_map.right_neighbor[i]),
            "successors": lane_map.successors[i].tolist(),
        }
        for i in range(len(lane_map))
    ]
    edges = zip(_points(lane_map.crossing_edge1), _points(lane_map.crossing_edge2), strict=True)
    crossings = [
        {"edge1": one, "edge2": two, "id": crossing}
        for crossing, (one, two) in zip(lane_map.crossing_id.tolist(), edges, strict=True)
    ]
    outlines = zip(lane_map.drivable_area_id.tolist(), _points(lane_map.drivable_area), strict=True)
    areas = [{"area_boundary": outline, "id": area} for area, outline in outlines]
    groups = {"drivable_areas": areas, "lane_segments": lanes, "pedestrian_crossings": crossings}
    archive = {group: {str(one["id"]): one for one in records} for group, records in groups.items()}
    return json.dumps(archive).encode()


def _points(lines: Ragged) -> list[list[dict[str, float]]]:
    return [[{"x": x, "y": y, "z": z} for x, y, z in line.tolist()] for line in lines]


def _lane_or_null(lane: np.int64) -> int | None:
    return None if lane == NO_LANE else int(lane)
