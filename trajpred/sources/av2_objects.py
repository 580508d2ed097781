"""Convert between av2's objects and :class:`~trajpred.scenario.Scenario`.

av2 writes its tracks as the file of a scenario, which is checked and read as any other.
"""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.clock import require_nanoseconds
from trajpred.environment import require_av2
from trajpred.errors import DataError, encode
from trajpred.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE, LaneMap, Ragged
from trajpred.scenario import OBJECT_TYPES, Scenario
from trajpred.sources.argoverse2 import scenario_from


def from_av2(scenario: Any, static_map: Any = None) -> Scenario:
    """Convert an ``ArgoverseScenario`` and an ``ArgoverseStaticMap``.

    av2's lane segments have no centrelines: av2 computes them from the boundaries, while our reader takes
    those of the file. Steps are observed up to the last state that av2 marks as observed, or 50 of 110 where
    no track has a state around it. Frames that the timestamps show to be lost become steps without states.

    Args:
        static_map: None for no map.

    Raises: DataError naming the field at fault.

    Example:
        >>> scenario = load_argoverse_scenario_parquet(path)
        >>> static_map = ArgoverseStaticMap.from_json(map_path)
        >>> [forecast] = predictor([trajpred.from_av2(scenario, static_map)])
    """
    require_av2()
    from av2.datasets.motion_forecasting.scenario_serialization import serialize_argoverse_scenario_parquet

    file: Any = BytesIO()  # in place of a path
    try:
        stamps = np.asarray(scenario.timestamps_ns)
        first = float(stamps[0])
        last = float(stamps[-1])
        serialize_argoverse_scenario_parquet(file, scenario)
        lane_map = LaneMap() if static_map is None else _lane_map(static_map)
    except AttributeError as error:
        problem = f"is not an ArgoverseScenario with an ArgoverseStaticMap of av2 ({error})"
        raise DataError(problem, field="scenario") from None
    except (pa.ArrowException, TypeError, ValueError, LookupError) as error:
        raise DataError(f"is not a valid ArgoverseScenario of av2 ({error})", field="scenario") from None
    require_nanoseconds(first, last, len(stamps), "timestamps_ns")
    converted = scenario_from(pq.read_table(pa.BufferReader(file.getvalue())), lane_map)
    return replace(converted, timestamps_ns=np.round(stamps).astype(np.int64)).validate()


def _lane_map(static_map: Any) -> LaneMap:
    """Convert an ``ArgoverseStaticMap``."""
    lanes = list(static_map.vector_lane_segments.values())
    crossings = list(static_map.vector_pedestrian_crossings.values())
    areas = list(static_map.vector_drivable_areas.values())

    def ids(values: list[int | None]) -> NDArray[np.int64]:
        return np.array([NO_LANE if value is None else value for value in values], np.int64)

    return LaneMap(
        lane_id=ids([lane.id for lane in lanes]),
        lane_type=encode([lane.lane_type.value for lane in lanes], LANE_TYPES, "lane_type"),
        is_intersection=np.array([lane.is_intersection for lane in lanes], np.bool_),
        centerline=Ragged.from_rows([static_map.get_lane_segment_centerline(lane.id) for lane in lanes], 3),
        left_boundary=Ragged.from_rows([lane.left_lane_boundary.xyz for lane in lanes], 3),
        right_boundary=Ragged.from_rows([lane.right_lane_boundary.xyz for lane in lanes], 3),
        left_mark=encode([lane.left_mark_type.value for lane in lanes], MARK_TYPES, "left_mark"),
        right_mark=encode([lane.right_mark_type.value for lane in lanes], MARK_TYPES, "right_mark"),
        left_neighbor=ids([lane.left_neighbor_id for lane in lanes]),
        right_neighbor=ids([lane.right_neighbor_id for lane in lanes]),
        predecessors=Ragged.from_rows([lane.predecessors for lane in lanes], dtype=np.int64),
        successors=Ragged.from_rows([lane.successors for lane in lanes], dtype=np.int64),
        crossing_id=ids([one.id for one in crossings]),
        crossing_edge1=Ragged.from_rows([one.edge1.xyz for one in crossings], 3),
        crossing_edge2=Ragged.from_rows([one.edge2.xyz for one in crossings], 3),
        drivable_area_id=ids([area.id for area in areas]),
        # av2 repeats the first vertex at the end.
        drivable_area=Ragged.from_rows([area.xyz[:-1] for area in areas], 3),
    )


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
