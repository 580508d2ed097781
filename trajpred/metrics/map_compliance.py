"""Map compliance of futures: on the drivable area, and with the traffic.

City frame float64, metres and radians; independent of the frame's origin. Sizes: ``A`` agents of one
scenario, ``K`` modes, ``F`` future steps. Points with a NaN coordinate (unknown steps) never violate
anything. Ground truth is passed as ``[A, 1, F, 2]``: 2.2 % of Argoverse 2's true futures of road vehicles
leave the road (into driveways and car parks), 3.0 % of Argoverse 1's leave the widened lanes, and at most
0.2 % are wrong-way. Compare a forecast with these rates, not with zero.
"""

from __future__ import annotations

import numpy as np
import shapely
from numpy.typing import NDArray

from trajpred.geometry import direction, norm, wrap_angle
from trajpred.lane_map import LaneMap
from trajpred.ragged import Ragged
from trajpred.tracks import OBJECT_TYPES

#: Types that are bound to the road; pedestrians and cyclists are not.
ROAD_VEHICLES = ("vehicle", "bus", "motorcyclist")
#: Half the assumed width of lanes without boundaries: half of 3.5 m (most lanes are 2.7 to 3.7 m wide).
HALF_LANE_WIDTH_M = 1.75
#: An agent drives on a lane if the lane's centreline is at most this far away.
LANE_REACH_M = 2.0
#: A heading that differs from a lane's direction by more than this is against it. Well over a right angle:
#: crossing traffic and the start of a U-turn are not wrong-way driving.
WRONG_WAY_RAD = float(np.deg2rad(135.0))
#: The heading of slower agents (m/s) along their path is uncertain.
MOVING_SPEED = 1.0
#: Total duration (seconds) of driving against all lanes that counts as wrong-way.
WRONG_WAY_S = 1.0


def is_road_vehicle(object_type: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return whether agents of ``object_type`` ``[...]`` (index of OBJECT_TYPES) are bound to the road."""
    codes = [OBJECT_TYPES.index(name) for name in ROAD_VEHICLES]
    return np.isin(object_type, codes)


def road_area(lane_map: LaneMap) -> shapely.Geometry | None:
    """Return the drivable area, prepared for fast queries; None if the map is empty.

    The union of the drivable areas. A map without any (Argoverse 1's are rasters, which are not read; custom
    maps) has its lanes instead: the polygons between left and right boundary, or centrelines widened by
    :data:`HALF_LANE_WIDTH_M`. Lanes do not contain parking bays, shoulders and driveways, so rates on the two
    kinds of map are not comparable.
    """
    has_areas = len(lane_map.drivable_area) > 0
    shapes = _polygons(lane_map.drivable_area) if has_areas else _lane_shapes(lane_map)
    if not len(shapes):
        return None
    area = shapely.union_all(shapes)
    shapely.prepare(area)
    return area


def on_road(points: NDArray[np.float64], area: shapely.Geometry) -> NDArray[np.bool_]:
    """Return whether ``points`` ``[..., 2]`` lie in ``area`` or on its edge; False for NaN points."""
    return np.asarray(shapely.intersects_xy(area, points[..., 0], points[..., 1]))


def off_road(trajectory: NDArray[np.float64], area: shapely.Geometry) -> NDArray[np.bool_]:
    """Return whether each agent's centre has left ``area`` (:func:`road_area`) by each step: ``[A, K, F]``.

    Meant for road vehicles (:func:`is_road_vehicle`) that start on the road.
    """
    outside = ~on_road(trajectory, area) & np.isfinite(trajectory).all(axis=-1)
    return np.logical_or.accumulate(outside, axis=-1)


def wrong_way(
    trajectory: NDArray[np.float64], heading: NDArray[np.float64], lane_map: LaneMap, step_s: float = 0.1
) -> NDArray[np.bool_]:
    """Return whether each mode has driven against all nearby lanes by each step: ``[A, K, F]``.

    That takes :data:`WRONG_WAY_S` in total. A step counts if the agent is faster than :data:`MOVING_SPEED`,
    at least one centreline is within :data:`LANE_REACH_M`, none of these belongs to an intersection, and the
    heading differs by more than :data:`WRONG_WAY_RAD` from the direction of all of them.

    Args:
        trajectory: ``[A, K, F, 2]`` metres, city frame; heading: ``[A, K, F]`` radians.
    """
    moving = np.zeros(trajectory.shape[:3], np.bool_)
    if trajectory.shape[2] > 1:  # a single step has no velocity
        moving = norm(np.gradient(trajectory, step_s, axis=2)) > MOVING_SPEED  # False where NaN
    against = np.zeros(moving.shape, np.bool_)
    against[moving] = _against_all_lanes(trajectory[moving], heading[moving], lane_map)
    seconds = against.cumsum(axis=-1) * step_s
    reached: NDArray[np.bool_] = seconds > WRONG_WAY_S - step_s / 2  # timestamps jitter
    return reached


def _against_all_lanes(
    points: NDArray[np.float64], heading: NDArray[np.float64], lane_map: LaneMap
) -> NDArray[np.bool_]:
    """Return ``[N]``: whether ``points`` ``[N, 2]`` are near lanes, off intersections, and against all."""
    start, end, lane = _segments(lane_map.centerline)
    tree = shapely.STRtree(shapely.linestrings(np.stack((start, end), 1)))
    point, segment = tree.query(shapely.points(points), predicate="dwithin", distance=LANE_REACH_M)
    lane_heading = direction(end - start)
    turned = np.abs(wrap_angle(heading[point] - lane_heading[segment]))
    allowed = (turned <= WRONG_WAY_RAD) | lane_map.is_intersection[lane[segment]]
    near = np.zeros(len(points), np.bool_)
    near[point] = True
    permitted = np.zeros(len(points), np.bool_)
    permitted[point[allowed]] = True
    return near & ~permitted


def _segments(lines: Ragged) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return start and end ``[M, 2]`` of the segments of all lines, and the line ``[M]`` of each."""
    row = np.repeat(np.arange(len(lines)), lines.lengths)
    start = lines.values[:-1, :2]
    end = lines.values[1:, :2]
    same_line = row[1:] == row[:-1]
    moves = (end != start).any(-1)  # a repeated point has no direction
    inner = same_line & moves
    return start[inner], end[inner], row[1:][inner]


def _polygons(rings: Ragged) -> NDArray[np.object_]:
    """Build a valid polygon from each row of vertices ``[V, 2 or 3]``; open rings are closed."""
    row = np.repeat(np.arange(len(rings)), rings.lengths)
    closed = shapely.linearrings(rings.values[:, :2], indices=row)
    return shapely.make_valid(shapely.polygons(closed))


def _lane_shapes(lane_map: LaneMap) -> NDArray[np.object_]:
    """Build a polygon for each lane."""
    left = lane_map.left_boundary
    right = lane_map.right_boundary
    bounded = (left.lengths >= 2) & (right.lengths >= 2)
    rings: list[NDArray[np.float64]] = []
    for lane in np.flatnonzero(bounded).tolist():
        backwards = right[lane][::-1, :2]
        rings.append(np.concatenate((left[lane][:, :2], backwards)))
    row = np.repeat(np.arange(len(lane_map)), lane_map.centerline.lengths)
    bare = ~bounded[row]
    rank = np.cumsum(~bounded) - 1  # shapely requires consecutive indices
    lines = shapely.linestrings(lane_map.centerline.values[bare, :2], indices=rank[row[bare]])
    widened = shapely.buffer(lines, HALF_LANE_WIDTH_M)
    return np.concatenate((_polygons(Ragged.from_rows(rings, 2)), widened))
