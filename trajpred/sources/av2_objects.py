"""Convert between av2's objects and :class:`~trajpred.data.scenario.Scenario`.

av2 writes its tracks to a scenario file, which is checked and read like any other.
"""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpred.data.checks import encode
from trajpred.data.environment import require_av2
from trajpred.data.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE, LaneMap
from trajpred.data.ragged import Ragged
from trajpred.data.scenario import Scenario
from trajpred.data.time import require_nanoseconds
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.errors import DataError
from trajpred.sources.argoverse2 import archive_of, scenario_from


def from_av2(scenario: Any, static_map: Any = None) -> Scenario:
    """Convert an ``ArgoverseScenario`` and an ``ArgoverseStaticMap``.

    av2's lane segments have no centrelines: av2 computes them from the boundaries, while our reader takes
    them from the file. Steps are observed up to the last state that av2 marks as observed, or 50 of 110 if no
    track has a state around it. Frames lost according to the timestamps become steps without states.

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
    lanes = list(static_map.vector_lane_segments.values())
    crossings = list(static_map.vector_pedestrian_crossings.values())
    areas = list(static_map.vector_drivable_areas.values())

    centerlines = [static_map.get_lane_segment_centerline(lane.id) for lane in lanes]
    outlines = [area.xyz[:-1] for area in areas]  # av2 repeats the first vertex at the end
    return LaneMap(
        lane_id=_ids(lanes, "id"),
        lane_type=encode(_values(lanes, "lane_type.value"), LANE_TYPES, "lane_type"),
        is_intersection=np.array(_values(lanes, "is_intersection"), np.bool_),
        centerline=Ragged.from_rows(centerlines, 3),
        left_boundary=_points(lanes, "left_lane_boundary.xyz"),
        right_boundary=_points(lanes, "right_lane_boundary.xyz"),
        left_mark=encode(_values(lanes, "left_mark_type.value"), MARK_TYPES, "left_mark"),
        right_mark=encode(_values(lanes, "right_mark_type.value"), MARK_TYPES, "right_mark"),
        left_neighbor=_ids(lanes, "left_neighbor_id"),
        right_neighbor=_ids(lanes, "right_neighbor_id"),
        predecessors=Ragged.from_rows(_values(lanes, "predecessors"), dtype=np.int64),
        successors=Ragged.from_rows(_values(lanes, "successors"), dtype=np.int64),
        crossing_id=_ids(crossings, "id"),
        crossing_edge1=_points(crossings, "edge1.xyz"),
        crossing_edge2=_points(crossings, "edge2.xyz"),
        drivable_area_id=_ids(areas, "id"),
        drivable_area=Ragged.from_rows(outlines, 3),
    )


def _values(elements: list[Any], attribute: str) -> list[Any]:
    """Return an attribute of each element; dots separate attributes of attributes."""
    read = attrgetter(attribute)
    return [read(element) for element in elements]


def _ids(elements: list[Any], attribute: str) -> NDArray[np.int64]:
    """Return the id in an attribute of each element; :data:`NO_LANE` for None."""
    ids = _values(elements, attribute)
    return np.array([NO_LANE if number is None else number for number in ids], np.int64)


def _points(elements: list[Any], attribute: str) -> Ragged:
    """Return the points ``[P, 3]`` in an attribute of each element."""
    return Ragged.from_rows(_values(elements, attribute), 3)


def to_av2(scenario: Scenario) -> tuple[Any, Any]:
    """Convert to an ``ArgoverseScenario`` and an ``ArgoverseStaticMap`` without rasters.

    Map points without heights get height 0; centrelines, which av2's lane segments lack, are omitted.

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

    tracks = scenario.tracks
    av2_tracks: list[Any] = []
    for row, track_id in enumerate(tracks.track_id.tolist()):
        states: list[Any] = []
        for step in np.flatnonzero(tracks.valid[row]).tolist():
            state = ObjectState(
                observed=step < scenario.num_observed,
                timestep=step,
                position=tuple(tracks.position[row, step].tolist()),
                heading=float(tracks.heading[row, step]),
                velocity=tuple(tracks.velocity[row, step].tolist()),
            )
            states.append(state)
        object_type = ObjectType(OBJECT_TYPES[tracks.object_type[row]])
        category = TrackCategory(int(tracks.category[row]))
        av2_tracks.append(Track(track_id, states, object_type, category))
    return av2_tracks


def _av2_map(scenario: Scenario) -> Any:
    from av2.map.drivable_area import DrivableArea
    from av2.map.lane_segment import LaneSegment
    from av2.map.map_api import ArgoverseStaticMap
    from av2.map.pedestrian_crossing import PedestrianCrossing

    archive = archive_of(scenario.map, digits=None)

    def vector(group: str, kind: Any) -> dict[int, Any]:
        records = archive[group].values()
        return {record["id"]: kind.from_dict(record) for record in records}

    return ArgoverseStaticMap(
        log_id=scenario.scenario_id,
        vector_drivable_areas=vector("drivable_areas", DrivableArea),
        vector_lane_segments=vector("lane_segments", LaneSegment),
        vector_pedestrian_crossings=vector("pedestrian_crossings", PedestrianCrossing),
        raster_drivable_area_layer=None,
        raster_roi_layer=None,
        raster_ground_height_layer=None,
    )
