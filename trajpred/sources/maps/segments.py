"""Cut the lanes of a map file to lane segments with ids, and check their links."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trajpred.arrays import row_of
from trajpred.errors import require
from trajpred.geometry import arc_length, norm, points_along
from trajpred.lane_map import LANE_TYPES, MARK_TYPES, NO_LANE, LaneMap
from trajpred.ragged import Ragged
from trajpred.sources.map_problems import require_lanes
from trajpred.sources.maps.lanes import CONNECTED_M, MAX_ID, Lane, Line, MapParts

#: Longest lane segment (metres): models select lanes by their midpoints, and Argoverse's are about this long.
MAX_LENGTH_M = 50.0
#: Maximum number of lane segments of a map.
MAX_LANES = 200_000


def lane_map_of(parts: MapParts) -> LaneMap:
    """Build a map: lanes longer than :data:`MAX_LENGTH_M` become segments of equal length.

    The first segment of a lane has the number of the file, the others the numbers after the largest.
    Links to lanes that are not in the file are omitted; predecessors follow from successors.

    Raises: DataError naming the field at fault, also if there is no lane.
    """
    lanes = list(parts.lanes.values())
    require_lanes(len(lanes), parts.problems)
    center = [lane.centerline for lane in lanes]
    sizes = [_num_segments(line) for line in center]
    require(sum(sizes) <= MAX_LANES, "lanes", f"must be at most {MAX_LANES} segments, are {sum(sizes)}")
    ids = dict(zip(parts.lanes, _ids(lanes, sizes, parts.numbers), strict=True))
    lane_id: list[int] = []
    successors: list[list[int]] = []
    for key, lane in parts.lanes.items():
        lane_id += ids[key]
        successors += _onward(ids, ids[key], lane.successors)

    def values(attribute: str) -> list[Any]:
        return [getattr(lane, attribute) for lane in lanes]

    flags = values("is_intersection")
    has_flags = flags.count(None) < len(flags)
    inside = np.array(flags, np.bool_) if has_flags else _crossed(center)
    edge1: list[Line] = []
    edge2: list[Line] = []
    for first, second in parts.crossings:
        edge1.append(first)
        edge2.append(second)
    segments = _cut(center, sizes)
    lane_map = replace(
        LaneMap.from_centerlines(list(segments), lane_id=lane_id, successors=successors),
        lane_type=_codes(values("lane_type"), LANE_TYPES, sizes),
        is_intersection=np.repeat(inside, sizes),
        left_boundary=_cut(values("left"), sizes),
        right_boundary=_cut(values("right"), sizes),
        left_mark=_codes(values("left_mark"), MARK_TYPES, sizes),
        right_mark=_codes(values("right_mark"), MARK_TYPES, sizes),
        left_neighbor=_beside(ids, values("left_neighbor")),
        right_neighbor=_beside(ids, values("right_neighbor")),
        crossing_id=np.arange(len(parts.crossings)),
        crossing_edge1=Ragged.from_rows(edge1, 2, name="crossing"),
        crossing_edge2=Ragged.from_rows(edge2, 2, name="crossing"),
    )
    lane_map.validate()
    return lane_map


def _num_segments(centerline: Line) -> int:
    """Return the number of segments of a lane."""
    length = arc_length(centerline)[-1]
    return max(1, math.ceil(length / MAX_LENGTH_M - 1e-9))


def _codes(names: list[str], types: tuple[str, ...], sizes: list[int]) -> NDArray[np.int8]:
    """Return the index in ``types`` of the name of each lane, for each of its segments."""
    codes = np.array([types.index(name) for name in names], np.int8)
    return np.repeat(codes, sizes)


def _cut(lines: list[Line], sizes: list[int]) -> Ragged:
    """Cut each line into as many pieces as its lane has segments."""
    pieces: list[Line] = []
    for line, size in zip(lines, sizes, strict=True):
        pieces += _pieces(line, size)
    return Ragged.from_rows(pieces, 2)


def _ids(lanes: list[Lane], sizes: list[int], taken: set[int]) -> list[list[int]]:
    """Return the ids of the segments of each lane; editors give negative numbers to unsaved elements."""
    fresh = _free_numbers(taken)
    ids = []
    for lane in lanes:
        number = lane.lane_id
        if number is None or number < 0:
            number = next(fresh)
        ids.append([number])
    for row, size in zip(ids, sizes, strict=True):
        row += islice(fresh, size - 1)
    return ids


def _free_numbers(taken: set[int]) -> Iterator[int]:
    """Yield the numbers after the largest one that is taken, or between those if there are too few."""
    after = max(taken, default=-1) + 1
    start = 0
    if 0 <= after <= MAX_ID - MAX_LANES:
        start = after
    for number in count(start):
        if number not in taken:
            yield number


def _onward(ids: dict[Hashable, list[int]], segments: list[int], keys: list[Hashable]) -> list[list[int]]:
    """Return the successors of each of the ``segments`` of a lane.

    They are the next segment and, at the end of the lane, the lanes ``keys``.
    """
    successors = [[segment] for segment in segments[1:]]
    onward: list[int] = []
    for key in dict.fromkeys(keys):
        if key in ids:
            first_segment = ids[key][0]
            onward.append(first_segment)
    successors.append(onward)
    return successors


def _beside(ids: dict[Hashable, list[int]], keys: list[Hashable]) -> NDArray[np.int64]:
    """Return the id of the segment beside the middle of each segment; ``keys`` are the lanes' neighbours."""
    neighbors: list[int] = []
    for segments, key in zip(ids.values(), keys, strict=True):
        beside = ids.get(key, [NO_LANE])
        for number in range(len(segments)):
            # The middle of a segment is at the share (number + 1/2) / len(segments) of its lane.
            index = (2 * number + 1) * len(beside) // (2 * len(segments))
            neighbors.append(beside[index])
    return np.array(neighbors, np.int64)


def _pieces(line: Line, parts: int) -> list[Line]:
    """Cut a line into ``parts`` of equal length."""
    if parts == 1:
        return [line]
    arc = arc_length(line)
    cuts = np.linspace(0, arc[-1], parts + 1)
    ends = points_along(line, cuts)
    pieces: list[Line] = []
    for number in range(parts):
        inside = (arc > cuts[number] + 1e-6) & (arc < cuts[number + 1] - 1e-6)
        first = ends[[number]]
        last = ends[[number + 1]]
        pieces.append(np.concatenate((first, line[inside], last)))
    return pieces


def _crossed(lines: list[Line]) -> NDArray[np.bool_]:
    """Return for each line whether another one crosses it, other than at an end of both."""
    import shapely

    shapes = [shapely.LineString(line) for line in lines]
    crossing = shapely.STRtree(shapes).query(shapes, predicate="crosses")
    return np.isin(np.arange(len(lines)), crossing)


def faults(lane_map: LaneMap) -> list[str]:
    """Describe what is wrong with the links of a map, in a few words each; empty if nothing is."""
    row_of_lane = row_of(lane_map.lane_id.tolist())
    outside = 0
    distances: list[float] = []
    for line, successors in zip(lane_map.centerline, lane_map.successors, strict=True):
        for lane in successors.tolist():
            row = row_of_lane.get(lane)
            if row is None:
                outside += 1
                continue
            gap = lane_map.centerline[row][0] - line[-1]
            distances.append(float(norm(gap[:2])))
    apart = int(np.count_nonzero(np.array(distances) > CONNECTED_M))
    problems: list[str] = []
    if outside:
        problems.append(f"{outside} successors are not in the map")
    if apart:
        farthest = f"up to {max(distances):.1f} m"
        problems.append(f"{apart} successors begin more than {CONNECTED_M} m away, {farthest}")
    return problems
