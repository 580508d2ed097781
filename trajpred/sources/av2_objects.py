"""Convert between av2's objects and :class:`~trajpred.scenario.Scenario`.

The objects are arranged as the columns and records of Argoverse 2's files, and checked and read as these are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from trajpred.environment import require_av2
from trajpred.errors import DataError, as_array, require
from trajpred.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE, LaneMap, Ragged
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.sources.argoverse2 import scenario_from
from trajpred.sources.argoverse2_map import map_from


def from_av2(scenario: Any, static_map: Any = None) -> Scenario:
    """Convert an ``ArgoverseScenario`` and an ``ArgoverseStaticMap``.

    av2's lane segments have no centrelines: av2 computes them from the boundaries, while our reader takes
    those of the file. Steps are observed up to the last state that av2 marks as observed.

    Args:
        static_map: None for no map.

    Raises: DataError naming the field at fault.

    Example:
        >>> scenario = load_argoverse_scenario_parquet(path)
        >>> static_map = ArgoverseStaticMap.from_json(map_path)
        >>> [forecast] = predictor([trajpred.from_av2(scenario, static_map)])
    """
    try:
        table = _tracks_table(scenario)
        archive = None if static_map is None else _archive(static_map)
    except AttributeError as error:
        problem = f"is not an ArgoverseScenario with an ArgoverseStaticMap of av2 ({error})"
        raise DataError(problem, field="scenario") from None
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"is not a valid ArgoverseScenario of av2 ({error})", field="scenario") from None
    converted = scenario_from(table, LaneMap() if archive is None else map_from(archive))
    stamps = np.round(np.asarray(scenario.timestamps_ns)).astype(np.int64)
    return replace(converted, timestamps_ns=stamps).validate()


def _tracks_table(scenario: Any) -> pa.Table:
    """Arrange the states of an ``ArgoverseScenario`` as the columns of its file."""
    stamps = as_array(scenario.timestamps_ns, np.float64, "timestamps_ns")
    require(stamps.ndim == 1 and len(stamps) > 0, "timestamps_ns", "must be a list of nanoseconds")
    pairs = [(track, state) for track in scenario.tracks for state in track.object_states]
    constants = {
        "scenario_id": scenario.scenario_id,
        "focal_track_id": scenario.focal_track_id,
        "city": scenario.city_name,
        "num_timestamps": len(stamps),
        "start_timestamp": stamps[0],
        "end_timestamp": stamps[-1],
    }
    return pa.table(
        {
            "observed": pa.array([state.observed for _, state in pairs], pa.bool_()),
            "track_id": [track.track_id for track, _ in pairs],
            "object_type": [track.object_type.value for track, _ in pairs],
            "object_category": [track.category.value for track, _ in pairs],
            "timestep": [state.timestep for _, state in pairs],
            **{
                f"{name}_{axis}": pa.array([getattr(state, name)[i] for _, state in pairs], pa.float64())
                for name in ("position", "velocity")
                for i, axis in enumerate("xy")
            },
            "heading": pa.array([state.heading for _, state in pairs], pa.float64()),
            **{name: pa.repeat(value, len(pairs)) for name, value in constants.items()},
        }
    )


def _archive(static_map: Any) -> dict[str, Any]:
    """Arrange an ``ArgoverseStaticMap`` as the records of its file."""
    lanes = {
        key: {
            "id": lane.id,
            "lane_type": lane.lane_type.value,
            "is_intersection": lane.is_intersection,
            "centerline": _points(static_map.get_lane_segment_centerline(key).tolist()),
            "left_lane_boundary": _points(lane.left_lane_boundary.xyz.tolist()),
            "right_lane_boundary": _points(lane.right_lane_boundary.xyz.tolist()),
            "left_lane_mark_type": lane.left_mark_type.value,
            "right_lane_mark_type": lane.right_mark_type.value,
            "left_neighbor_id": lane.left_neighbor_id,
            "right_neighbor_id": lane.right_neighbor_id,
            "predecessors": lane.predecessors,
            "successors": lane.successors,
        }
        for key, lane in static_map.vector_lane_segments.items()
    }
    crossings = {
        key: {"id": one.id, **{edge: _points(getattr(one, edge).xyz.tolist()) for edge in ("edge1", "edge2")}}
        for key, one in static_map.vector_pedestrian_crossings.items()
    }
    areas = {
        # av2 repeats the first vertex at the end.
        key: {"id": area.id, "area_boundary": _points(area.xyz.tolist()[:-1])}
        for key, area in static_map.vector_drivable_areas.items()
    }
    return {"lane_segments": lanes, "pedestrian_crossings": crossings, "drivable_areas": areas}


def _points(line: list[list[float]]) -> list[dict[str, float]]:
    return [dict(zip("xyz", point, strict=True)) for point in line]


def to_av2(scenario: Scenario) -> tuple[Any, Any]:
    """Convert to an ``ArgoverseScenario`` and an ``ArgoverseStaticMap`` without rasters.

    Map points without heights get height 0; centrelines, which av2's lane segments do not have, are omitted.

    Raises: DataError if av2 is not installed.
    """
    require_av2()
    from av2.datasets.motion_forecasting.data_schema import ArgoverseScenario

    converted = ArgoverseScenario(
        scenario_id=scenario.scenario_id,
        timestamps_ns=scenario.timestamps_ns.astype(np.float64),
        tracks=_av2_tracks(scenario),
        focal_track_id=scenario.focal_id,
        city_name=scenario.city,
        map_id=None,
        slice_id=None,
    )
    return converted, _av2_map(scenario)


def _av2_tracks(scenario: Scenario) -> list[Any]:
    from av2.datasets.motion_forecasting.data_schema import ObjectState, ObjectType, Track, TrackCategory

    tracks, found = scenario.tracks, []
    for row, track_id in enumerate(tracks.track_id.tolist()):
        steps = np.flatnonzero(tracks.valid[row])
        values = (x[row, steps].tolist() for x in (tracks.position, tracks.heading, tracks.velocity))
        states = [
            ObjectState(step < scenario.num_observed, step, tuple(position), heading, tuple(velocity))
            for step, position, heading, velocity in zip(steps.tolist(), *values, strict=True)
        ]
        kind = ObjectType(OBJECT_TYPES[tracks.object_type[row]])
        found.append(Track(track_id, states, kind, TrackCategory(int(tracks.category[row]))))
    return found


def _av2_map(scenario: Scenario) -> Any:
    from av2.map.drivable_area import DrivableArea
    from av2.map.lane_segment import LaneSegment
    from av2.map.map_api import ArgoverseStaticMap
    from av2.map.pedestrian_crossing import PedestrianCrossing

    archive = map_archive(scenario.map)

    def vector(group: str, kind: Any) -> dict[int, Any]:
        return {one["id"]: kind.from_dict(one) for one in archive[group].values()}

    return ArgoverseStaticMap(
        log_id=scenario.scenario_id,
        vector_drivable_areas=vector("drivable_areas", DrivableArea),
        vector_lane_segments=vector("lane_segments", LaneSegment),
        vector_pedestrian_crossings=vector("pedestrian_crossings", PedestrianCrossing),
        raster_drivable_area_layer=None,
        raster_roi_layer=None,
        raster_ground_height_layer=None,
    )


def map_archive(lane_map: LaneMap) -> dict[str, dict[str, Any]]:
    """Return the map as Argoverse 2's JSON: groups of records by id, points as ``{"x", "y", "z"}``."""
    m = lane_map
    center, left, right = map(_lines, (m.centerline, m.left_boundary, m.right_boundary))
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
    sides = zip(_lines(m.crossing_edge1), _lines(m.crossing_edge2), m.crossing_id.tolist(), strict=True)
    crossings = [{"edge1": edge1, "edge2": edge2, "id": crossing} for edge1, edge2, crossing in sides]
    outlines = zip(m.drivable_area_id.tolist(), _lines(m.drivable_area), strict=True)
    areas = [{"area_boundary": outline, "id": area} for area, outline in outlines]
    groups = {"drivable_areas": areas, "lane_segments": lanes, "pedestrian_crossings": crossings}
    return {group: {str(one["id"]): one for one in records} for group, records in groups.items()}


def _lines(lines: Ragged) -> list[list[dict[str, float]]]:
    return [[{"x": x, "y": y, "z": z[0] if z else 0.0} for x, y, *z in line.tolist()] for line in lines]


def _lane_or_null(lane: np.int64) -> int | None:
    return None if lane == NO_LANE else int(lane)
